//! Computes the pods to create or delete for an owner.

use std::sync::Arc;

use jiff::Timestamp;

use super::deletion_ranking::{self, DeletionCostMode};
use super::pod_view::PodView;

/// Maximum number of pods that one sync creates or deletes. The events of these pods cause the next syncs, so one large
/// owner does not occupy a worker.
pub(crate) const BURST: usize = 500;

/// Pods to create or delete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scaling {
    /// The number of pods is as desired.
    Enough,
    /// Too few pods: create this number.
    Create(usize),
    /// Too many pods: delete these.
    Delete {
        /// Pods to delete, in the order of deletion.
        victims: Vec<Arc<PodView>>,
        /// Age ratios for a histogram; empty if all pods are deleted.
        age_ratios: Vec<f64>,
    },
}

/// Compares the observed with the desired number of pods. `related` returns the pods that count for the crowding of
/// nodes. It is called only if pods have to be chosen.
pub(crate) fn scale(
    active: &[Arc<PodView>],
    desired: i32,
    related: impl FnOnce() -> Vec<Arc<PodView>>,
    cost_mode: DeletionCostMode,
    now: Timestamp,
) -> Scaling {
    let desired = usize::try_from(desired).unwrap_or(0);
    match active.len().checked_sub(desired) {
        None => Scaling::Create((desired - active.len()).min(BURST)),
        Some(0) => Scaling::Enough,
        Some(excess) => delete(active, excess.min(BURST), related, cost_mode, now),
    }
}

fn delete(
    active: &[Arc<PodView>],
    count: usize,
    related: impl FnOnce() -> Vec<Arc<PodView>>,
    cost_mode: DeletionCostMode,
    now: Timestamp,
) -> Scaling {
    if count == active.len() {
        return Scaling::Delete { victims: active.to_vec(), age_ratios: Vec::new() };
    }
    let victims = deletion_ranking::choose(active, &related(), count, cost_mode, now);
    let age_ratios = deletion_ranking::age_ratios(active, &victims, now);
    Scaling::Delete { victims, age_ratios }
}

#[cfg(test)]
mod tests {
    use super::{BURST, DeletionCostMode, Scaling, scale};
    use crate::shared::fixtures::{at, bare_pod, ready_pod, unready_pod};
    use crate::shared::pod_view::PodView;
    use std::sync::Arc;

    fn pods(count: usize) -> Vec<Arc<PodView>> {
        (0..count).map(|number| Arc::new(bare_pod(&format!("pod-{number:04}")))).collect()
    }

    fn scaled(active: &[Arc<PodView>], desired: i32) -> Scaling {
        scale(active, desired, || active.to_vec(), DeletionCostMode::Honored, at(0))
    }

    #[test]
    fn missing_pods_are_created_up_to_the_burst() {
        assert_eq!(scaled(&pods(2), 2), Scaling::Enough);
        assert_eq!(scaled(&pods(0), 2), Scaling::Create(2));
        assert_eq!(scaled(&pods(3), 503), Scaling::Create(BURST));
        assert_eq!(scaled(&pods(3), 504), Scaling::Create(BURST));
    }

    #[test]
    fn excess_pods_are_deleted_up_to_the_burst() {
        let deleted = |active: usize, desired| match scaled(&pods(active), desired) {
            Scaling::Delete { victims, .. } => victims.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(deleted(3, 1), 2);
        assert_eq!(deleted(501, 0), BURST);
        assert_eq!(deleted(499, 0), 499);
    }

    #[test]
    fn related_pods_are_not_read_if_all_pods_are_deleted() {
        let active = pods(3);
        let scaling =
            scale(&active, 0, || unreachable!("no pod has to be chosen"), DeletionCostMode::Honored, at(0));
        assert_eq!(scaling, Scaling::Delete { victims: active, age_ratios: Vec::new() });
    }

    #[test]
    fn unready_pod_is_deleted_first() {
        let (serving, idle) = (Arc::new(ready_pod("serving", at(-60))), Arc::new(unready_pod("idle")));
        let scaling = scaled(&[serving, Arc::clone(&idle)], 1);
        assert_eq!(scaling, Scaling::Delete { victims: vec![idle], age_ratios: Vec::new() });
    }
}
