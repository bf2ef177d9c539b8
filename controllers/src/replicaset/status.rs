//! Conversion of the status of a ReplicaSet.

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};

use crate::shared::replicated::ReplicaStatus;

/// Converts from the API type. A missing status has zero counts.
pub(super) fn read(status: Option<&ReplicaSetStatus>) -> ReplicaStatus<ReplicaSetCondition> {
    let status = status.cloned().unwrap_or_default();
    ReplicaStatus {
        replicas: status.replicas,
        fully_labeled: status.fully_labeled_replicas.unwrap_or_default(),
        ready: status.ready_replicas.unwrap_or_default(),
        available: status.available_replicas.unwrap_or_default(),
        terminating: status.terminating_replicas,
        observed_generation: status.observed_generation.unwrap_or_default(),
        conditions: status.conditions.unwrap_or_default(),
    }
}

/// Converts to the API type.
pub(super) fn written(status: ReplicaStatus<ReplicaSetCondition>) -> ReplicaSetStatus {
    ReplicaSetStatus {
        replicas: status.replicas,
        fully_labeled_replicas: Some(status.fully_labeled),
        ready_replicas: Some(status.ready),
        available_replicas: Some(status.available),
        terminating_replicas: status.terminating,
        observed_generation: Some(status.observed_generation),
        conditions: (!status.conditions.is_empty()).then_some(status.conditions),
    }
}
