//! Time at which pods that are ready become available.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::pod_view::PodView;
use super::pods;

/// Returns the time for which a pod must be ready to be available; `None` if a ready pod is available immediately.
pub(crate) fn minimum(min_ready_seconds: i32) -> Option<Duration> {
    u64::try_from(min_ready_seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Returns the time from `now` until the next of `pods` becomes available. `evaluated_at` is the time for which the
/// status was computed.
///
/// Both times are needed: a pod that becomes available between the two would not be checked again. For such a pod the
/// result is zero. `None` means that no pod is waiting.
fn next_check(
    pods: &[Arc<PodView>],
    min_ready_seconds: i32,
    evaluated_at: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    let waiting = |pod: &Arc<PodView>| {
        Some((pods::available_in(pod, min_ready_seconds, evaluated_at)?, Arc::clone(pod)))
    };
    let (_, soonest) = pods.iter().filter_map(waiting).min_by_key(|(left, _)| *left)?;
    Some(pods::available_in(&soonest, min_ready_seconds, now).unwrap_or_default())
}

/// Returns the time from `now` until the status must be computed again; `None` if all ready pods are available.
///
/// `ready` and `available` are the counts in the status that was computed for `evaluated_at`. If the cache contains no
/// waiting pod, although the status counts one, the result is the whole minimum.
pub(crate) fn next_status(
    pods: &[Arc<PodView>],
    min_ready_seconds: i32,
    (ready, available): (i32, i32),
    evaluated_at: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    let minimum = minimum(min_ready_seconds).filter(|_| ready != available)?;
    Some(next_check(pods, min_ready_seconds, evaluated_at, now).unwrap_or(minimum))
}

#[cfg(test)]
mod tests {
    use super::next_check;
    use crate::shared::fixtures::{at, ready_pod, unready_pod};
    use std::sync::Arc;
    use std::time::Duration;

    /// Describes pods by the time since they became ready; `None` is not ready.
    fn check(ready_for: &[Option<i64>], min_ready_seconds: i32, delay: i64, expected: Option<u64>) {
        let pods: Vec<_> = ready_for
            .iter()
            .map(|age| Arc::new(age.map_or_else(|| unready_pod("pod"), |age| ready_pod("pod", at(-age)))))
            .collect();
        let next = next_check(&pods, min_ready_seconds, at(0), at(delay));
        assert_eq!(next, expected.map(Duration::from_secs), "{ready_for:?} {min_ready_seconds} {delay}");
    }

    #[test]
    fn pod_that_becomes_available_first_sets_the_next_check() {
        let mixed = [None, Some(2), Some(0), Some(4), None];
        check(&[], 0, 0, None);
        check(&[None, None], 0, 0, None);
        check(&[Some(0), Some(0)], 0, 0, None);
        check(&mixed, 10, 0, Some(6));
        check(&[None, Some(15), Some(11), Some(10), None], 10, 0, None);
        check(&[Some(20)], 30, 0, Some(10));
        check(&[Some(51)], 50, 0, None);
    }

    #[test]
    fn time_since_status_computation_is_subtracted() {
        let mixed = [None, Some(2), Some(0), Some(4), None];
        check(&mixed, 10, 2, Some(4));
        check(&mixed, 10, 7, Some(0));
    }
}
