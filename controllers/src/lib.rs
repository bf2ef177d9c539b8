//! The built-in controllers: one folder each; siblings never import each other.
//!
//! | controller | keeps | reads | writes |
//! |---|---|---|---|
//! | [`ReplicaSetController`] | as many pods as a ReplicaSet wants | ReplicaSets, pods | pods, status of ReplicaSets |
//! | [`ReplicationControllerController`] | the same for ReplicationControllers | ReplicationControllers, pods | pods, status of ReplicationControllers |
//! | [`EndpointsController`] | the addresses of a Service's pods | Services, pods, Endpoints | Endpoints |
//!
//! Each controller's file opens with what it watches, writes and promises. What it decides is pure and apart from the
//! requests that follow from it; what several of them need is in `shared`.
//!
//! Names, texts and numbers are those of kube-controller-manager, so that either can take over from the other without
//! a write.

mod endpoints;
mod replicaset;
mod replication;
mod shared;
#[cfg(test)]
mod tests;

use std::time::Duration;

use windlass_controller::Registration;

pub use crate::endpoints::EndpointsController;
pub use crate::replicaset::ReplicaSetController;
pub use crate::replication::ReplicationControllerController;

/// What users may set about the controllers.
///
/// Five syncs of a kind at once keep a client of 20 requests a second busy; more of them mostly wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// How many ReplicaSets are synced at the same time. Default 5.
    pub concurrent_replicaset_syncs: usize,
    /// How many ReplicationControllers are synced at the same time. Default 5.
    pub concurrent_rc_syncs: usize,
    /// How many Services have their Endpoints synced at the same time. Default 5.
    pub concurrent_endpoint_syncs: usize,
    /// How long to wait after a change of a pod, so that several become one write of Endpoints. Default zero: the
    /// network learns of every change at once, at the price of more writes.
    pub endpoint_updates_batch_period: Duration,
    /// Whether the status of a ReplicaSet says how many of its pods are on their way out
    /// (`DeploymentReplicaSetTerminatingReplicas` upstream). Default true, as there: Deployments may wait for them. When
    /// false, a number written before is taken away.
    pub terminating_replicas: bool,
    /// Whether pods with a lower `controller.kubernetes.io/pod-deletion-cost` are given up first (`PodDeletionCost`
    /// upstream). Default true, as there.
    pub pod_deletion_cost: bool,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            concurrent_replicaset_syncs: 5,
            concurrent_rc_syncs: 5,
            concurrent_endpoint_syncs: 5,
            endpoint_updates_batch_period: Duration::ZERO,
            terminating_replicas: true,
            pod_deletion_cost: true,
        }
    }
}

/// Every controller, to be registered with a manager. Whether one runs is the manager's to say.
pub fn registrations(options: &ControllerOptions) -> Vec<Registration> {
    vec![
        Registration::with::<ReplicaSetController>(options.clone()),
        Registration::with::<ReplicationControllerController>(options.clone()),
        Registration::with::<EndpointsController>(options.clone()),
    ]
}
