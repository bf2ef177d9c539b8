//! Conditions of a Deployment.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSetCondition};
use windlass_object::time::seconds;

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    SetUpdated,
    SetCreateError,
    NewSetCreated,
    FoundNewSet,
    NewSetAvailable,
    DeadlineExceeded,
    Paused,
    Resumed,
    MinimumAvailable,
    MinimumUnavailable,
}

impl Reason {
    /// Returns the reason as upstream writes it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Reason::SetUpdated => "ReplicaSetUpdated",
            Reason::SetCreateError => "ReplicaSetCreateError",
            Reason::NewSetCreated => "NewReplicaSetCreated",
            Reason::FoundNewSet => "FoundNewReplicaSet",
            Reason::NewSetAvailable => "NewReplicaSetAvailable",
            Reason::DeadlineExceeded => "ProgressDeadlineExceeded",
            Reason::Paused => "DeploymentPaused",
            Reason::Resumed => "DeploymentResumed",
            Reason::MinimumAvailable => "MinimumReplicasAvailable",
            Reason::MinimumUnavailable => "MinimumReplicasUnavailable",
        }
    }
}

/// Returns a condition that changed now.
pub(super) fn condition(
    of_type: &str,
    status: &str,
    reason: Reason,
    message: impl Into<String>,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: of_type.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.as_str().to_owned()),
        message: Some(message.into()),
        last_update_time: Some(seconds(now)),
        last_transition_time: Some(seconds(now)),
    }
}

/// Returns the condition of a type.
pub(super) fn get<'a>(status: &'a DeploymentStatus, of_type: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.as_ref()?.iter().find(|condition| condition.type_ == of_type)
}

/// Returns whether a condition has this reason.
pub(super) fn has_reason(condition: Option<&DeploymentCondition>, reason: Reason) -> bool {
    condition.is_some_and(|condition| condition.reason.as_deref() == Some(reason.as_str()))
}

/// Sets a condition, unless the condition of its type has the same status and reason. A changed condition becomes the
/// last one; its transition time changes with its status only.
pub(super) fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(current) = get(status, &condition.type_)
        && current.status == condition.status
    {
        if current.reason.as_deref().unwrap_or_default() == condition.reason.as_deref().unwrap_or_default() {
            return;
        }
        condition.last_transition_time.clone_from(&current.last_transition_time);
    }
    remove(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

/// Removes the conditions of a type.
pub(super) fn remove(status: &mut DeploymentStatus, of_type: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != of_type);
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// Converts a condition of a ReplicaSet.
pub(super) fn from_set(condition: &ReplicaSetCondition) -> DeploymentCondition {
    DeploymentCondition {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_update_time: condition.last_transition_time.clone(),
        last_transition_time: condition.last_transition_time.clone(),
    }
}
