//! The start order of a process, with reasons. A process stops in reverse order.

/// A step of the start, and of the stop.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartStep {
    /// The admin server serves health and metrics.
    AdminServer,
    /// The API server responds.
    ApiServer,
    /// [Runnables](windlass_controller::RunsOn::BeforeCaches) that caches depend on run, and are ready.
    EarlyRunnables,
    /// Caches are filled and updated.
    Informers,
    /// Runnables and controllers [of every replica](windlass_controller::RunsOn::EveryReplica) run.
    Runnables,
    /// This replica leads, or is on standby until it does.
    GroupElection,
    /// [Runnables](windlass_controller::RunsOn::Leader) with leadership run.
    LeaderRunnables,
    /// Controllers [of the leader](windlass_controller::RunsOn::Leader) work.
    Controllers,
}

impl StartStep {
    /// Returns whether the step requires leadership.
    pub const fn is_led(self) -> bool {
        matches!(self, Self::GroupElection | Self::LeaderRunnables | Self::Controllers)
    }
}

/// The start order, with the reason for each position.
pub const START: [(StartStep, &str); 8] = [
    (
        StartStep::AdminServer,
        "first, so that probes are answered while the rest starts, and a port in use is reported before the first \
         request to the cluster; last to stop, so that metrics of the shutdown can be scraped",
    ),
    (
        StartStep::ApiServer,
        "before anything that needs it, so that a wrong address is one clear error and not a retry in every cache",
    ),
    (
        StartStep::EarlyRunnables,
        "before the caches, which can depend on a conversion webhook of this process; they stop after the caches, \
         which need them to the end",
    ),
    (
        StartStep::Informers,
        "before the election, so that a standby's caches are warm and a failover takes one lease duration, not a \
         relist; they stop after the controllers, which read them to the end",
    ),
    (
        StartStep::Runnables,
        "after the caches, which they read, and before the election, which must not delay them: a standby \
         runs them too; its controllers start after its runnables and stop before them",
    ),
    (
        StartStep::GroupElection,
        "before all parts that require leadership; it stops, and releases the lease, only after the last \
         write",
    ),
    (
        StartStep::LeaderRunnables,
        "with the lease held and on caches that reflect the writes of the previous leader; before the controllers, \
         which can rely on them to the end",
    ),
    (
        StartStep::Controllers,
        "last; first to stop, while the lease is still renewed and everything else still runs",
    ),
];

/// Returns the started steps in stop order.
pub(crate) fn stop_order(started: &[StartStep]) -> impl Iterator<Item = StartStep> + use<> {
    let mut steps = started.to_vec();
    steps.reverse();
    steps.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    // parity: manager-start-order-stop
    #[test]
    fn stop_is_the_reverse_of_start() {
        let started: Vec<StartStep> = START.iter().map(|(step, _)| *step).collect();
        assert!(started.is_sorted(), "the table names every step once, in the order of declaration");
        let stopped: Vec<StartStep> = stop_order(&started).collect();
        assert!(stopped.iter().rev().eq(&started));
        assert_eq!(
            stop_order(&started[..2]).collect::<Vec<_>>(),
            [StartStep::ApiServer, StartStep::AdminServer]
        );
    }

    #[test]
    fn led_steps_are_last_in_start_order() {
        assert!(START.iter().map(|(step, _)| step.is_led()).is_sorted());
    }
}
