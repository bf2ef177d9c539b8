//! What several controllers need. A module here knows no controller; controllers know it.

pub(crate) mod adoption;
pub(crate) mod api_errors;
pub(crate) mod availability;
pub(crate) mod deletion_ranking;
pub(crate) mod owner_events;
pub(crate) mod pod_control;
pub(crate) mod pod_template;
pub(crate) mod pods;
pub(crate) mod replica_plan;
pub(crate) mod replica_status;
pub(crate) mod replica_sync;
pub(crate) mod replica_work;
pub(crate) mod replicated;
pub(crate) mod slow_start;
pub(crate) mod withheld;

#[cfg(test)]
pub(crate) mod fixtures;

/// How often a controller looks for an object that cannot be decoded: no event says that such an object is gone. A look
/// reads memory only, and the object waits for a person, so seconds do not count.
pub(crate) const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(30);
