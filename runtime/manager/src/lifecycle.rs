//! In which order a process starts, and why. It stops in the reverse of it.

/// One step of starting, and of stopping.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartStep {
    /// Health and metrics are served.
    AdminServer,
    /// The API server answers.
    ApiServer,
    /// [Runnables](windlass_controller::RunsOn::BeforeCaches) that caches need run, and are ready.
    EarlyRunnables,
    /// Caches fill and follow.
    Informers,
    /// Runnables and controllers [of every replica](windlass_controller::RunsOn::EveryReplica) run.
    Runnables,
    /// This replica leads, or stands by until it does.
    GroupElection,
    /// [Runnables](windlass_controller::RunsOn::Leader) with leadership run.
    LeaderRunnables,
    /// Controllers [of the leader](windlass_controller::RunsOn::Leader) work.
    Controllers,
}

impl StartStep {
    /// Whether it needs leadership.
    pub const fn is_led(self) -> bool {
        matches!(self, Self::GroupElection | Self::LeaderRunnables | Self::Controllers)
    }
}

/// The start order, with the reason for each place in it.
pub const START: [(StartStep, &str); 8] = [
    (
        StartStep::AdminServer,
        "first, so that probes are answered while the rest starts, and a port that is taken is told before the \
         cluster hears of this process; last to stop, so that metrics of the shutdown can be read",
    ),
    (
        StartStep::ApiServer,
        "before anything that needs it, so that a wrong address is one clear error and not a retry in every cache",
    ),
    (
        StartStep::EarlyRunnables,
        "before the caches, which a conversion webhook of this very process may hold up; they stop after the caches, \
         which need them to the end",
    ),
    (
        StartStep::Informers,
        "before the election, so that a standby's caches are warm and a failover costs one lease, not a re-list; they \
         stop after the controllers, which read them to the end",
    ),
    (
        StartStep::Runnables,
        "after the caches, which they read, and before the election, which they must not have to wait for: a standby \
         runs them too; its controllers start after its runnables and stop before them",
    ),
    (
        StartStep::GroupElection,
        "before whatever may act only while this replica leads; it stops, and releases the lease, only when nothing \
         writes any more",
    ),
    (
        StartStep::LeaderRunnables,
        "with the lease held and on caches that show what the last leader wrote; before the controllers, which may \
         rely on them to the end",
    ),
    (
        StartStep::Controllers,
        "last; first to stop, while the lease is still renewed and everything else still runs",
    ),
];

/// The stop order of what was started.
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
    fn what_is_led_is_the_end_of_the_start() {
        assert!(START.iter().map(|(step, _)| step.is_led()).is_sorted());
    }
}
