//! The built-in controllers. Each has its own module, and controllers do not import each other.
//!
//! | controller | keeps | reads | writes |
//! |---|---|---|---|
//! | [`DeploymentController`] | a ReplicaSet per template, scaled step by step | Deployments, ReplicaSets, pods | ReplicaSets, Deployments |
//! | [`DaemonSetController`] | a pod on each node that fits | DaemonSets, ControllerRevisions, pods, nodes | pods, ControllerRevisions, status of DaemonSets |
//! | [`ReplicaSetController`] | as many pods as a ReplicaSet wants | ReplicaSets, pods | pods, status of ReplicaSets |
//! | [`ReplicationControllerController`] | the same for ReplicationControllers | ReplicationControllers, pods | pods, status of ReplicationControllers |
//! | [`StatefulSetController`] | pods with stable names and their own claims | StatefulSets, pods, PersistentVolumeClaims, ControllerRevisions | pods, claims, revisions, status of StatefulSets |
//! | [`EndpointsController`] | the addresses of a Service's pods | Services, pods, Endpoints | Endpoints |
//! | [`ServiceAccountController`] | the ServiceAccount `default` of each namespace | namespaces, ServiceAccounts | ServiceAccounts |
//! | [`RootCaPublisherController`] | the ConfigMap `kube-root-ca.crt` of each namespace | namespaces, ConfigMaps | ConfigMaps |
//! | [`TtlController`] | how long a kubelet caches Secrets and ConfigMaps | nodes | annotations of nodes |
//! | [`PodGarbageCollectorController`] | no pods that nothing else deletes | pods, nodes | pods, status of pods |
//!
//! The module documentation of each controller lists its watches, its writes and its guarantees. Decisions are pure
//! functions, separate from the requests. Code that several controllers need is in `shared`: ReplicaSets and
//! ReplicationControllers plan in `shared/replica_plan.rs` and send requests in `shared/replica_work.rs`.
//!
//! Names, messages and numbers are those of kube-controller-manager, so that either program can take over from the
//! other without a write.

mod daemonset;
mod deployment;
mod endpoints;
mod podgc;
mod replicaset;
mod replication;
mod root_ca;
mod serviceaccount;
mod shared;
mod statefulset;
#[cfg(test)]
mod tests;
mod ttl;

use std::sync::Arc;
use std::time::Duration;

use windlass_controller::Registration;

pub use crate::daemonset::DaemonSetController;
pub use crate::deployment::DeploymentController;
pub use crate::endpoints::EndpointsController;
pub use crate::podgc::PodGarbageCollectorController;
pub use crate::replicaset::ReplicaSetController;
pub use crate::replication::ReplicationControllerController;
pub use crate::root_ca::RootCaPublisherController;
pub use crate::serviceaccount::ServiceAccountController;
pub use crate::statefulset::StatefulSetController;
pub use crate::ttl::TtlController;

/// Settings of the controllers.
///
/// Five concurrent syncs of a kind saturate a client with 20 requests per second; more would mostly wait for the rate
/// limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// Number of Deployments that are synced concurrently. Default 5.
    pub concurrent_deployment_syncs: usize,
    /// Number of DaemonSets that are synced concurrently. Default 2: a sync of a large cluster creates up to 250 pods.
    pub concurrent_daemonset_syncs: usize,
    /// Number of ReplicaSets that are synced concurrently. Default 5.
    pub concurrent_replicaset_syncs: usize,
    /// Number of ReplicationControllers that are synced concurrently. Default 5.
    pub concurrent_rc_syncs: usize,
    /// Number of StatefulSets that are synced concurrently. Default 5.
    pub concurrent_statefulset_syncs: usize,
    /// Number of Services whose Endpoints are synced concurrently. Default 5.
    pub concurrent_endpoint_syncs: usize,
    /// Delay after a change of a pod, which merges several changes into one write of Endpoints. Default zero: each
    /// change is written immediately, at the cost of more writes.
    pub endpoint_updates_batch_period: Duration,
    /// Whether the status of ReplicaSets and Deployments contains the number of terminating pods
    /// (`DeploymentReplicaSetTerminatingReplicas` upstream). Default true, as upstream: Deployments can wait for them.
    /// If false, an earlier number is removed.
    pub terminating_replicas: bool,
    /// Whether pods with a lower `controller.kubernetes.io/pod-deletion-cost` are deleted first (`PodDeletionCost`
    /// upstream). Default true, as upstream.
    pub pod_deletion_cost: bool,
    /// Certificates of the API server's CA in PEM, which each namespace receives in `kube-root-ca.crt`. Default empty:
    /// the ConfigMap exists, so that pods can start, and contains no certificate.
    pub root_ca: Arc<str>,
    /// Number of terminated pods that are kept; with zero or less, terminated pods are never deleted. Default 12500, as
    /// upstream.
    pub terminated_pod_gc_threshold: i32,
    /// Whether the process observes single namespaces only. Default false. If true, the controllers that read
    /// namespaces or nodes run only if they are named, because they need permissions in the whole cluster.
    pub limited_to_namespaces: bool,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            concurrent_deployment_syncs: 5,
            concurrent_daemonset_syncs: 2,
            concurrent_replicaset_syncs: 5,
            concurrent_rc_syncs: 5,
            concurrent_statefulset_syncs: 5,
            concurrent_endpoint_syncs: 5,
            endpoint_updates_batch_period: Duration::ZERO,
            terminating_replicas: true,
            pod_deletion_cost: true,
            root_ca: Arc::default(),
            terminated_pod_gc_threshold: 12_500,
            limited_to_namespaces: false,
        }
    }
}

/// Returns the registrations of all controllers. The manager decides which of them run.
pub fn registrations(options: &ControllerOptions) -> Vec<Registration> {
    let in_cluster = |registration: Registration| {
        let descriptor = registration.descriptor();
        match options.limited_to_namespaces {
            true => registration.with_descriptor(descriptor.disabled_by_default()),
            false => registration,
        }
    };
    vec![
        Registration::controller_with::<DeploymentController>(options.clone()),
        in_cluster(Registration::controller_with::<DaemonSetController>(options.clone())),
        Registration::controller_with::<ReplicaSetController>(options.clone()),
        Registration::controller_with::<ReplicationControllerController>(options.clone()),
        Registration::controller_with::<StatefulSetController>(options.clone()),
        Registration::controller_with::<EndpointsController>(options.clone()),
        in_cluster(Registration::controller_with::<ServiceAccountController>(options.clone())),
        in_cluster(Registration::controller_with::<RootCaPublisherController>(options.clone())),
        in_cluster(Registration::controller_with::<TtlController>(options.clone())),
        in_cluster(Registration::controller_with::<PodGarbageCollectorController>(options.clone())),
    ]
}
