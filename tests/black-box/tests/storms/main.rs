//! Faults between windlass and its API server: the server throttles, fails, is slow, loses responses, disconnects
//! watches or has compacted its history. Each scenario runs on the in-process server and on kube-apiserver, with a
//! manager in this process whose requests pass through a network of the fault layer.
//!
//! Guarantees: at the end exactly the desired pods exist, status and Endpoints match them, no unneeded pod was ever
//! created, and the manager still runs and stops gracefully.
//!
//! The tests do not depend on the speed of the machine: faults start after the manager's first work and end after
//! enough hits. They are chosen by counting, not at random.
//!
//! Watches that send no data are tested in simulation only, because in real time their detection takes minutes.

mod evidence;
mod ground;
mod remote;
mod scenarios;
mod scene;
mod subject;

/// Defines each scenario as a test on both servers.
macro_rules! on_both_servers {
    ($($property:ident),* $(,)?) => {
        mod in_the_process {
            $(#[tokio::test]
            async fn $property() -> anyhow::Result<()> {
                super::scenarios::$property(super::ground::Kind::InTheProcess).await
            })*
        }

        mod kube_apiserver {
            $(#[tokio::test]
            async fn $property() -> anyhow::Result<()> {
                let outcome = super::scenarios::$property(super::ground::Kind::KubeApiserver).await;
                outcome.inspect_err(|_| super::ground::keep_logs())
            })*
        }
    };
}

on_both_servers! {
    manager_waits_out_429_responses,
    nothing_is_lost_under_500_and_503_responses,
    slow_responses_and_watches_cause_no_wrong_write,
    lost_create_responses_create_no_extra_pod,
    broken_and_ended_watches_miss_no_change,
    compaction_during_partition_causes_relist,
}
