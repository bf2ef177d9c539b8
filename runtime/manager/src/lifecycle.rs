//! In which order a process starts, and why. It stops in the reverse of it.

/// One step of starting, and of stopping.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
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
    Election,
    /// [Runnables](windlass_controller::RunsOn::Leader) with leadership run.
    LedRunnables,
    /// Controllers [of the leader](windlass_controller::RunsOn::Leader) work.
    Controllers,
}

impl Step {
    /// Whether it needs leadership.
    pub const fn is_led(self) -> bool {
        matches!(self, Self::Election | Self::LedRunnables | Self::Controllers)
    }
}

/// The start order, with the reason for each place in it.
pub const START: [(Step, &str); 8] = [
    (
        Step::AdminServer,
        "first, so that probes are answered while the rest starts, and a port that is taken is told before the \
         cluster hears of this process; last to stop, so that metrics of the shutdown can be read",
    ),
    (
        Step::ApiServer,
        "before anything that needs it, so that a wrong address is one clear error and not a retry in every cache",
    ),
    (
        Step::EarlyRunnables,
        "before the caches, which a conversion webhook of this very process may hold up; they stop after the caches, \
         which need them to the end",
    ),
    (
        Step::Informers,
        "before the election, so that a standby's caches are warm and a failover costs one lease, not a re-list; they \
         stop after the controllers, which read them to the end",
    ),
    (
        Step::Runnables,
        "after the caches, which they read, and before the election, which they must not have to wait for: a standby \
         runs them too; its controllers start after its runnables and stop before them",
    ),
    (
        Step::Election,
        "before whatever may act only while this replica leads; it stops, and releases the lease, only when nothing \
         writes any more",
    ),
    (
        Step::LedRunnables,
        "with the lease held and on caches that show what the last leader wrote; before the controllers, which may \
         rely on them to the end",
    ),
    (
        Step::Controllers,
        "last; first to stop, while the lease is still renewed and everything else still runs",
    ),
];

/// The stop order of what was started.
pub(crate) fn stop_order(started: &[Step]) -> impl Iterator<Item = Step> + use<> {
    let mut steps = started.to_vec();
    steps.reverse();
    steps.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_is_the_reverse_of_start() {
        let started: Vec<Step> = START.iter().map(|(step, _)| *step).collect();
        assert!(started.is_sorted(), "the table names every step once, in the order of declaration");
        let stopped: Vec<Step> = stop_order(&started).collect();
        assert!(stopped.iter().rev().eq(&started));
        assert_eq!(stop_order(&started[..2]).collect::<Vec<_>>(), [Step::ApiServer, Step::AdminServer]);
    }

    #[test]
    fn what_is_led_is_the_end_of_the_start() {
        assert!(START.iter().map(|(step, _)| step.is_led()).is_sorted());
    }
}
