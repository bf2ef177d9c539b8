//! Computes the status of a StatefulSet from its pods.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use super::identity::{Versions, revision};
use super::spec::{UpdateStrategy, min_ready_seconds, replicas, strategy};
use crate::shared::non_zero;
use crate::shared::pod_view::PodView;
use crate::shared::pods::{self, PodPhase};

/// Returns whether a pod runs and is ready.
pub(super) fn is_running_and_ready(pod: &PodView) -> bool {
    pods::phase(pod) == PodPhase::Running && pods::is_ready(pod)
}

/// Returns the status before the requests of the sync.
pub(super) fn calculate<'a>(
    set: &StatefulSet,
    versions: &Versions,
    collisions: i32,
    pods: impl IntoIterator<Item = &'a Arc<PodView>>,
    now: Timestamp,
) -> StatefulSetStatus {
    let mut counts = Counts::default();
    pods.into_iter().for_each(|pod| counts.add(set, versions, pod, now));
    StatefulSetStatus {
        observed_generation: set.metadata.generation.filter(|generation| *generation != 0),
        replicas: counts.replicas,
        ready_replicas: non_zero(counts.ready),
        available_replicas: Some(counts.available),
        current_replicas: non_zero(counts.current),
        updated_replicas: non_zero(counts.updated),
        current_revision: Some(versions.current.name.clone()),
        update_revision: Some(versions.update.name.clone()),
        collision_count: Some(collisions),
        conditions: None,
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    replicas: i32,
    ready: i32,
    available: i32,
    current: i32,
    updated: i32,
}

impl Counts {
    fn add(&mut self, set: &StatefulSet, versions: &Versions, pod: &PodView, now: Timestamp) {
        self.replicas += 1;
        if is_running_and_ready(pod) {
            self.ready += 1;
            self.available += i32::from(pods::is_available(pod, min_ready_seconds(set), now));
        }
        if !pods::is_being_deleted(pod) {
            self.current += i32::from(revision(pod) == versions.current.name);
            self.updated += i32::from(revision(pod) == versions.update.name);
        }
    }
}

/// Subtracts pods of the current revision that the sync deleted.
pub(super) fn subtract_deleted(status: &mut StatefulSetStatus, deleted: i32) {
    status.current_replicas = non_zero(status.current_replicas.unwrap_or_default().saturating_sub(deleted));
}

/// Makes the update revision the current revision, if all pods are ready and have it.
pub(super) fn complete_update(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let desired = replicas(set);
    let is_rolling = matches!(strategy(set), UpdateStrategy::RollingUpdate { .. });
    let counts = [status.updated_replicas, status.ready_replicas, Some(status.replicas)];
    if is_rolling && counts.into_iter().all(|count| count.unwrap_or_default() == desired) {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
}

/// Returns whether the status must be written. A change of the collision count alone causes no write, as upstream.
pub(super) fn must_write(set: &StatefulSet, status: &StatefulSetStatus) -> bool {
    let old = set.status.clone().unwrap_or_default();
    let counts = |status: &StatefulSetStatus| {
        let optional = [
            status.current_replicas,
            status.ready_replicas,
            status.updated_replicas,
            status.available_replicas,
        ];
        (status.replicas, optional.map(Option::unwrap_or_default))
    };
    let revisions = |status: &StatefulSetStatus| {
        [status.current_revision.clone(), status.update_revision.clone()].map(Option::unwrap_or_default)
    };
    status.observed_generation.unwrap_or_default() > old.observed_generation.unwrap_or_default()
        || counts(status) != counts(&old)
        || revisions(status) != revisions(&old)
}
