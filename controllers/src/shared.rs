//! Code that several controllers need. These modules do not depend on a controller.

pub(crate) mod adoption;
pub(crate) mod api_errors;
pub(crate) mod availability;
pub(crate) mod claims;
pub(crate) mod concurrency;
pub(crate) mod controller_index;
pub(crate) mod deletion_ranking;
pub(crate) mod event_reference;
pub(crate) mod history;
pub(crate) mod int_or_percent;
pub(crate) mod namespace_view;
pub(crate) mod node_view;
pub(crate) mod owner_events;
pub(crate) mod pod_control;
pub(crate) mod pod_template;
pub(crate) mod pod_view;
pub(crate) mod pods;
pub(crate) mod replica_plan;
pub(crate) mod replica_status;
pub(crate) mod replica_sync;
pub(crate) mod replica_work;
pub(crate) mod replicated;
pub(crate) mod rest;
pub(crate) mod scheduling;
pub(crate) mod slow_start;
pub(crate) mod status_write;
pub(crate) mod terminating_namespaces;
pub(crate) mod volume_claim_view;

#[cfg(test)]
pub(crate) mod fixtures;

/// Interval for checking an undecodable object, because its deletion causes no event. A check reads only memory, and
/// the object needs a manual fix, so a delay of seconds is acceptable.
pub(crate) const UNDECODABLE_RECHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);

/// Returns a count in the form of a status, which omits zero.
pub(crate) fn non_zero<N: Default + PartialEq>(count: N) -> Option<N> {
    (count != N::default()).then_some(count)
}
