//! Bad times between windlass and its API server: a server that is busy, fails, is slow, does not let its answers
//! through, cuts off watches, or has forgotten its history. Each scenario runs on the server in the process and on
//! kube-apiserver, with a manager in this process whose requests pass through a network of the fault layer.
//!
//! Guarantees: however it went, in the end every pod that is wanted is there and no other one, status and Endpoints
//! say so, not one pod more was ever made than was needed, and the manager still runs and ends in order.
//!
//! Nothing depends on how fast a machine is: a storm begins when the manager has done a first piece of work, and is
//! over when enough was struck; what is struck is counted off, not drawn.
//!
//! What it leaves to simulation: watches that fall silent, which real time notices after minutes.

mod evidence;
mod ground;
mod remote;
mod scenarios;
mod scene;
mod subject;

/// Each scenario as a test on either server.
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
