//! What controllers ask of one pod: is it active, ready, available, terminating, and who controls it.
//!
//! Every answer is a pure function of the pod (and of a time that is passed in). Fields the server leaves out
//! count as their zero value: a pod without a phase is pending, one without conditions is not ready.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The phase of a pod, where the order is the order in which controllers give pods up.
///
/// A phase this version does not know counts as pending: nothing is known to run in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PodPhase {
    /// Not all containers have started, or the phase is missing.
    Pending,
    /// The node has not reported for a while.
    Unknown,
    /// At least one container runs.
    Running,
    /// All containers have ended well.
    Succeeded,
    /// All containers have ended, at least one badly.
    Failed,
}

/// The phase in the status of a pod.
pub(crate) fn phase(pod: &Pod) -> PodPhase {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Running") => PodPhase::Running,
        Some("Unknown") => PodPhase::Unknown,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) | None => PodPhase::Pending,
    }
}

/// Whether all containers have ended for good.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), PodPhase::Succeeded | PodPhase::Failed)
}

/// Whether somebody has asked for the pod to be deleted.
pub(crate) fn is_being_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the pod counts as a replica: it has not ended and is not being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_being_deleted(pod)
}

/// Whether the pod is on its way out but still holds its resources.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && is_being_deleted(pod)
}

/// The first Ready condition, whatever its status.
pub(crate) fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether the pod is ready to serve.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some_and(|condition| condition.status == "True")
}

/// Since when a ready pod has been ready; `None` when it is not ready or nobody wrote down the time.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready_condition(pod).filter(|condition| condition.status == "True").and_then(transition)
}

/// When a condition last changed its status.
pub(crate) fn transition(condition: &PodCondition) -> Option<Timestamp> {
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// When the object was created, as far as the server said so.
pub(crate) fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

/// The node the pod is bound to; the empty string while there is none.
pub(crate) fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The UID in some metadata; the empty string for an object that was never stored.
pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// The name in some metadata.
pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// The namespace in some metadata; the empty string for a cluster-wide object.
pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// Whether an init container keeps running next to the main ones.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether the pod has been ready for at least `min_ready_seconds`, the limit included.
pub(crate) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    min_ready_seconds == 0
        || ready_since(pod).is_some_and(|since| until(since, min_ready_seconds, now).is_none())
}

/// How long until a ready pod becomes available; `None` when it is available already, not ready, or its
/// ready time is unknown.
pub(crate) fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    until(ready_since(pod)?, min_ready_seconds, now)
}

/// What is left at `now` of `seconds` counted from `since`, when anything is.
fn until(since: Timestamp, seconds: i32, now: Timestamp) -> Option<Duration> {
    let left = SignedDuration::from_secs(i64::from(seconds)).checked_sub(now.duration_since(since))?;
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}
