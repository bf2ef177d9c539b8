//! The status of an owner, computed from the pods it has.
//!
//! The counts are of the pods claimed at the start of a sync, before it created or deleted any, so a status is
//! always one step behind; the next sync, which those very pods bring about, corrects it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use windlass_object::LabelSelector;
use windlass_object::condition;

use super::pods;
use super::replicated::{ReplicaOwner, ReplicaStatus};

/// The type of the condition that says pods could not be created or deleted.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The pods an owner has, at the start of a sync.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedPods<'a> {
    /// Claimed pods that count as replicas.
    pub(crate) active: &'a [Arc<Pod>],
    /// Those on their way out that still hold their resources; `None` where they are not reported.
    pub(crate) terminating: Option<&'a [Arc<Pod>]>,
}

/// The status for an owner with these pods, when creating or deleting pods has `failed` or not.
///
/// The generation is the owner's, and everything the pods do not decide is left as it was.
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
        |matches: &dyn Fn(&Pod) -> bool| count(pods.active.iter().filter(|pod| matches(pod)).count());
    ReplicaStatus {
        replicas: count(pods.active.len()),
        fully_labeled: counted(&|pod| template.matches_optional(pod.metadata.labels.as_ref())),
        ready: counted(&pods::is_ready),
        available: counted(&|pod| pods::is_available(pod, minimum, now)),
        terminating: pods.terminating.map(|pods| count(pods.len())),
        observed_generation: owner.meta().generation.unwrap_or_default(),
        conditions: conditions(owner, pods.active.len(), failed, now),
    }
}

/// `ReplicaFailure` comes with the first failure, keeps its first reason, and goes with the first sync that does
/// not fail.
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

/// Numbers on the wire have 32 bits; no cluster holds more pods.
fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
