//! The ReplicaSet controller: maintains the desired number of pods.
//!
//! Watches ReplicaSets and pods. Writes pods (creates from the template, deletes, adopts, releases) and the status of
//! ReplicaSets. A sync creates or deletes at most 500 pods, and none until the cache reflects the writes of the
//! previous sync. [`crate::shared::deletion_ranking`] chooses the pods to delete. [`crate::shared::replica_sync`]
//! contains the code that ReplicaSets and ReplicationControllers share.
//!
//! It never changes pods of another controller, nor any pod while its ReplicaSet is being deleted.

mod status;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use windlass_controller::{Context, Controller, Descriptor, Outcome, ReconcileError, Setup, SetupError};
use windlass_object::owner::controller_of;
use windlass_object::time::seconds;
use windlass_object::{LabelSelector, ObjectKey, SelectorError};

use crate::ControllerOptions;
use crate::shared::deletion_ranking::DeletionCostMode;
use crate::shared::owner_events::selector_of;
use crate::shared::replica_sync::{ReplicaSync, ReplicaSyncOptions};
use crate::shared::replicated::{ReplicaOwner, ReplicaStatus};

/// The ReplicaSet controller.
#[derive(Debug)]
pub struct ReplicaSetController(ReplicaSync<ReplicaSet>);

impl Controller for ReplicaSetController {
    const NAME: &'static str = "replicaset-controller";
    const DESCRIPTOR: Descriptor =
        Descriptor::new(Self::NAME).with_aliases(&["replicaset"]).with_queue_name("replicaset");
    type Config = ControllerOptions;

    fn setup(setup: &mut Setup, options: &ControllerOptions) -> Result<Self, SetupError> {
        let settings = ReplicaSyncOptions {
            workers: options.concurrent_replicaset_syncs,
            reports_terminating: options.terminating_replicas,
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

impl ReplicaOwner for ReplicaSet {
    type Condition = ReplicaSetCondition;

    fn desired(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn selector(&self) -> Result<LabelSelector, SelectorError> {
        selector_of(self.spec.as_ref().map(|spec| &spec.selector))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    /// The ReplicaSets of one Deployment are a group.
    fn sibling_group(&self) -> Option<String> {
        controller_of(&self.metadata).map(|controller| controller.uid.clone())
    }

    fn status(&self) -> ReplicaStatus<ReplicaSetCondition> {
        status::read(self.status.as_ref())
    }

    fn set_status(&mut self, status: ReplicaStatus<ReplicaSetCondition>) {
        self.status = Some(status::written(status));
    }

    fn failure(reason: &str, message: String, at: Timestamp) -> ReplicaSetCondition {
        ReplicaSetCondition {
            type_: "ReplicaFailure".into(),
            status: "True".into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: Some(seconds(at)),
        }
    }
}
