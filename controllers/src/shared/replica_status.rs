//! Computes the status of an owner from its pods.
//!
//! The counts describe the pods at the start of a sync, before it creates or deletes pods. The status is therefore one
//! sync behind; the events of the pods cause the next sync, which corrects it.

use std::sync::Arc;

use jiff::Timestamp;
use windlass_object::LabelSelector;
use windlass_object::condition;

use super::pod_view::PodView;
use super::pods;
use super::replicated::{ReplicaOwner, ReplicaStatus};

/// Type of the condition for failed creates or deletes of pods.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Pods of an owner at the start of a sync.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedPods<'a> {
    /// Claimed pods that count as replicas.
    pub(crate) active: &'a [Arc<PodView>],
    /// Terminating pods that still use their resources; `None` if they are not reported.
    pub(crate) terminating: Option<&'a [Arc<PodView>]>,
}

/// Returns the status of an owner with these pods. `failed` is the failure of a create or delete, if there was one.
///
/// The generation is that of the owner. Fields that do not depend on the pods are not changed.
pub(crate) fn calculate<R: ReplicaOwner>(
    owner: &R,
    pods: OwnedPods<'_>,
    failed: Option<&str>,
    now: Timestamp,
) -> ReplicaStatus<R::Condition> {
    let labels =
        owner.template().and_then(|template| template.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let template = LabelSelector::from_map(&labels);
    let minimum = owner.min_ready_seconds();
    let counted =
        |matches: &dyn Fn(&PodView) -> bool| count(pods.active.iter().filter(|pod| matches(pod)).count());
    ReplicaStatus {
        replicas: count(pods.active.len()),
        fully_labeled: counted(&|pod| template.matches(&pod.metadata.labels)),
        ready: counted(&pods::is_ready),
        available: counted(&|pod| pods::is_available(pod, minimum, now)),
        terminating: pods.terminating.map(|pods| count(pods.len())),
        observed_generation: owner.meta().generation.unwrap_or_default(),
        conditions: conditions(owner, pods.active.len(), failed, now),
    }
}

/// Updates the condition `ReplicaFailure`: it is added with the first failure, keeps its first reason, and is removed
/// after a sync without failures.
fn conditions<R: ReplicaOwner>(
    owner: &R,
    active: usize,
    failed: Option<&str>,
    now: Timestamp,
) -> Vec<R::Condition> {
    let mut conditions = owner.status().conditions;
    match failed {
        Some(message) if condition::find(&conditions, REPLICA_FAILURE).is_none() => {
            let reason = if count(active) < owner.desired() { "FailedCreate" } else { "FailedDelete" };
            conditions.push(R::failure(reason, message.to_owned(), now));
        }
        Some(_) => {}
        None => {
            condition::remove(&mut conditions, REPLICA_FAILURE);
        }
    }
    conditions
}

/// Converts a count to the 32 bits of the API; no cluster has more pods.
fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
