//! In which order a process starts, and why. It stops in the reverse of it.

/// One step of starting, and of stopping.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Health and metrics are served.
    AdminServer,
    /// The API server answers.
    ApiServer,
    /// Caches fill and follow.
    Informers,
    /// This replica leads, or stands by until it does.
    Election,
    /// Controllers work.
    Controllers,
}

/// The start order, with the reason for each place in it.
pub const START: [(Step, &str); 5] = [
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
        Step::Informers,
        "before the election, so that a standby's caches are warm and a failover costs one lease, not a re-list; they \
         stop after the controllers, which read them to the end",
    ),
    (
        Step::Election,
        "before the controllers, which may write only while this replica leads; it stops, and releases the lease, \
         only when nothing writes any more",
    ),
    (
        Step::Controllers,
        "last, with the lease held and on caches that show what the last leader wrote; first to stop, while the lease \
         is still renewed",
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
}
