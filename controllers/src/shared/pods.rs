//! Properties of one pod: active, ready, available, terminating, controller.
//!
//! All functions are pure (the time is an argument). Missing fields have their zero value: a pod without a phase is
//! pending, a pod without conditions is not ready.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use windlass_object::{HasMetadata as _, MetadataRef, OwnerRef};

use super::pod_view::PodView;

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

/// Returns the phase of a pod.
pub(crate) fn phase(pod: &PodView) -> PodPhase {
    match &*pod.phase {
        "Running" => PodPhase::Running,
        "Unknown" => PodPhase::Unknown,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        _ => PodPhase::Pending,
    }
}

/// Returns whether all containers have terminated permanently.
pub(crate) fn is_terminal(pod: &PodView) -> bool {
    matches!(phase(pod), PodPhase::Succeeded | PodPhase::Failed)
}

/// Returns whether the pod has a deletion timestamp.
pub(crate) fn is_being_deleted(pod: &PodView) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Returns whether the pod counts as a replica: it has not terminated and is not being deleted.
pub(crate) fn is_active(pod: &PodView) -> bool {
    !is_terminal(pod) && !is_being_deleted(pod)
}

/// Returns whether the pod is being deleted but still uses its resources.
pub(crate) fn is_terminating(pod: &PodView) -> bool {
    !is_terminal(pod) && is_being_deleted(pod)
}

/// Returns whether the pod is ready.
pub(crate) fn is_ready(pod: &PodView) -> bool {
    pod.ready.as_ref().is_some_and(|condition| &*condition.status == "True")
}

/// Returns the time since which the pod is ready; `None` if it is not ready or the time is missing.
pub(crate) fn ready_since(pod: &PodView) -> Option<Timestamp> {
    pod.ready.as_ref().filter(|condition| &*condition.status == "True")?.transition()
}

/// Returns the creation time of the object.
pub(crate) fn created<'a>(meta: impl Into<MetadataRef<'a>>) -> Option<Timestamp> {
    meta.into().creation_timestamp().map(|time| time.0)
}

/// Returns the UID in the metadata; empty for an object that was never stored.
pub(crate) fn uid<'a>(meta: impl Into<MetadataRef<'a>>) -> &'a str {
    meta.into().uid().unwrap_or_default()
}

/// Returns the name in the metadata.
pub(crate) fn name<'a>(meta: impl Into<MetadataRef<'a>>) -> &'a str {
    meta.into().name()
}

/// Returns the namespace in the metadata; empty for a cluster-scoped object.
pub(crate) fn namespace<'a>(meta: impl Into<MetadataRef<'a>>) -> &'a str {
    meta.into().namespace().unwrap_or_default()
}

/// Returns the owner that controls the pod.
pub(crate) fn controller_of(pod: &PodView) -> Option<OwnerRef<'_>> {
    pod.metadata().controller()
}

/// Returns whether the pod has been ready for at least `min_ready_seconds`.
pub(crate) fn is_available(pod: &PodView, min_ready_seconds: i32, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    min_ready_seconds == 0
        || ready_since(pod).is_some_and(|since| until(since, min_ready_seconds, now).is_none())
}

/// Returns the time until a ready pod becomes available; `None` if it is available, not ready, or its ready time is
/// unknown.
pub(crate) fn available_in(pod: &PodView, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
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
