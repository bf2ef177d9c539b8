//! The events of a StatefulSet.

use windlass_events::NewEvent;

/// A change of a pod or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create,
    Update,
    Delete,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::Create => "Create",
            Change::Update => "Update",
            Change::Delete => "Delete",
        }
    }

    /// Returns the reason of the event.
    fn reason(self, failed: bool) -> &'static str {
        match (self, failed) {
            (Change::Create, false) => "SuccessfulCreate",
            (Change::Update, false) => "SuccessfulUpdate",
            (Change::Delete, false) => "SuccessfulDelete",
            (Change::Create, true) => "FailedCreate",
            (Change::Update, true) => "FailedUpdate",
            (Change::Delete, true) => "FailedDelete",
        }
    }
}

/// Returns the event of a changed pod, or of a failure to change it.
pub(super) fn pod_event(change: Change, pod: &str, set: &str, failure: Option<&str>) -> NewEvent {
    let (verb, reason) = (change.name(), change.reason(failure.is_some()));
    match failure {
        None => NewEvent::normal(reason, format!("{verb} Pod {pod} in StatefulSet {set} successful")),
        Some(failure) => NewEvent::warning(
            reason,
            format!("{verb} Pod {pod} in StatefulSet {set} failed error: {failure}"),
        ),
    }
}

/// Returns the event of a created claim, or of a failure to create it.
pub(super) fn claim_event(claim: &str, pod: &str, set: &str, failure: Option<&str>) -> NewEvent {
    match failure {
        None => NewEvent::normal(
            Change::Create.reason(false),
            format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success"),
        ),
        Some(failure) => NewEvent::warning(
            Change::Create.reason(true),
            format!("Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {failure}"),
        ),
    }
}

/// Returns the event of a claim that another object controls.
pub(super) fn conflict_event(claim: &str) -> NewEvent {
    // The misspelled word is part of the upstream message.
    let note = format!(
        "PersistentVolumeClaim {claim} has a conflicting OwnerReference that acts as a manging controller, the \
         retention policy is ignored for this claim"
    );
    NewEvent::warning("ConflictingController", note)
}
