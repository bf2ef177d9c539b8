//! Properties of one pod: active, ready, available, terminating, controller.
//!
//! All functions are pure (the time is an argument). Missing fields have their zero value: a pod without a phase is
//! pending, a pod without conditions is not ready.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Phase of a pod, ordered by the order of deletion.
///
/// An unknown phase counts as pending, because the pod might not be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PodPhase {
    /// Some containers have not started, or the phase is missing.
    Pending,
    /// The node has stopped reporting.
    Unknown,
    /// At least one container is running.
    Running,
    /// All containers have terminated successfully.
    Succeeded,
    /// All containers have terminated, at least one with a failure.
    Failed,
}

/// Returns the phase in the status of a pod.
pub(crate) fn phase(pod: &Pod) -> PodPhase {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Running") => PodPhase::Running,
        Some("Unknown") => PodPhase::Unknown,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) | None => PodPhase::Pending,
    }
}

/// Returns whether all containers have terminated permanently.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), PodPhase::Succeeded | PodPhase::Failed)
}

/// Returns whether the pod has a deletion timestamp.
pub(crate) fn is_being_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Returns whether the pod counts as a replica: it has not terminated and is not being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_being_deleted(pod)
}

/// Returns whether the pod is being deleted but still uses its resources.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && is_being_deleted(pod)
}

/// Returns the first Ready condition, regardless of its status.
pub(crate) fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Returns whether the pod is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some_and(|condition| condition.status == "True")
}

/// Returns the time since which the pod is ready; `None` if it is not ready or the time is missing.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready_condition(pod).filter(|condition| condition.status == "True").and_then(transition)
}

/// Returns the last transition time of a condition.
pub(crate) fn transition(condition: &PodCondition) -> Option<Timestamp> {
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// Returns the creation time of the object.
pub(crate) fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

/// Returns the node of the pod; empty if it is not bound.
pub(crate) fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Returns the UID in the metadata; empty for an object that was never stored.
pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Returns the name in the metadata.
pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Returns the namespace in the metadata; empty for a cluster-scoped object.
pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// Returns whether an init container is a sidecar, which keeps running next to the main containers.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns whether the pod has been ready for at least `min_ready_seconds`.
pub(crate) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    min_ready_seconds == 0
        || ready_since(pod).is_some_and(|since| until(since, min_ready_seconds, now).is_none())
}

/// Returns the time until a ready pod becomes available; `None` if it is available, not ready, or its ready time is
/// unknown.
pub(crate) fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    until(ready_since(pod)?, min_ready_seconds, now)
}

/// Returns the rest of `seconds` from `since` at `now`; `None` if none is left.
fn until(since: Timestamp, seconds: i32, now: Timestamp) -> Option<Duration> {
    let left = SignedDuration::from_secs(i64::from(seconds)).checked_sub(now.duration_since(since))?;
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}
