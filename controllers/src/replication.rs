//! The ReplicationController controller. Its selectors have no expressions; otherwise it equals the ReplicaSet
//! controller.
//!
//! Watches ReplicationControllers and pods, and writes like the ReplicaSet controller: both use
//! [`crate::shared::replica_sync`]. The status has no field for terminating pods, and ReplicationControllers have no
//! sibling groups.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use windlass_controller::{Context, Controller, Descriptor, Outcome, ReconcileError, Setup, SetupError};
use windlass_object::time::seconds;
use windlass_object::{LabelSelector, ObjectKey, SelectorError};

use crate::ControllerOptions;
use crate::shared::deletion_ranking::DeletionCostMode;
use crate::shared::replica_sync::{ReplicaSync, ReplicaSyncOptions};
use crate::shared::replicated::{ReplicaOwner, ReplicaStatus};

/// The ReplicationController controller.
#[derive(Debug)]
pub struct ReplicationControllerController(ReplicaSync<ReplicationController>);

impl Controller for ReplicationControllerController {
    const NAME: &'static str = "replicationcontroller-controller";
    const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME)
        .with_aliases(&["replicationcontroller"])
        .with_client_name("replication-controller")
        .with_queue_name("replicationmanager");
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        let settings = ReplicaSyncOptions {
            workers: options.concurrent_rc_syncs,
            reports_terminating: false,
            cost_mode: if options.pod_deletion_cost {
                DeletionCostMode::Honored
            } else {
                DeletionCostMode::Ignored
            },
        };
        Ok(Self(ReplicaSync::declare(setup, settings)))
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        self.0.sync(key, cx).await
    }
}

impl ReplicaOwner for ReplicationController {
    type Condition = ReplicationControllerCondition;

    fn desired(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    /// A missing selector selects nothing. API servers set it from the template.
    fn selector(&self) -> Result<LabelSelector, SelectorError> {
        let selector = self.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        Ok(selector.map_or_else(LabelSelector::nothing, LabelSelector::from_map))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    fn sibling_group(&self) -> Option<String> {
        None
    }

    fn status(&self) -> ReplicaStatus<ReplicationControllerCondition> {
        let status = self.status.clone().unwrap_or_default();
        ReplicaStatus {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or_default(),
            ready: status.ready_replicas.unwrap_or_default(),
            available: status.available_replicas.unwrap_or_default(),
            terminating: None,
            observed_generation: status.observed_generation.unwrap_or_default(),
            conditions: status.conditions.unwrap_or_default(),
        }
    }

    fn set_status(&mut self, status: ReplicaStatus<ReplicationControllerCondition>) {
        self.status = Some(ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: Some(status.fully_labeled),
            ready_replicas: Some(status.ready),
            available_replicas: Some(status.available),
            observed_generation: Some(status.observed_generation),
            conditions: (!status.conditions.is_empty()).then_some(status.conditions),
        });
    }

    fn failure(reason: &str, message: String, at: Timestamp) -> ReplicationControllerCondition {
        ReplicationControllerCondition {
            type_: "ReplicaFailure".into(),
            status: "True".into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: Some(seconds(at)),
        }
    }
}
