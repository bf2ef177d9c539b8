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
    a_storm_of_429_is_waited_out,
    a_storm_of_500_and_503_loses_nothing,
    slow_answers_and_slow_watches_mislead_nobody,
    answers_lost_after_their_effect_double_no_pod,
    watches_that_break_and_end_miss_nothing,
    history_forgotten_during_a_partition_is_made_up_for_by_a_list,
}
