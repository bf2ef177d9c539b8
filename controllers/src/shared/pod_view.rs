//! The fields of a pod that the controllers read. They share one cache.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use windlass_macros::View;
use windlass_object::Metadata;

/// A pod.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", crate = windlass_object)]
pub(crate) struct PodView {
    pub(crate) metadata: Metadata,
    /// The cost that a user assigns to the deletion.
    #[view(path = "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]")]
    pub(crate) deletion_cost: Option<Box<str>>,
    /// The node; empty if the pod is not bound.
    #[view(path = "spec.nodeName")]
    pub(crate) node: Arc<str>,
    /// The terms of the required node affinity.
    #[view(
        path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    )]
    pub(crate) node_terms: Box<[NodeTermView]>,
    #[view(path = "spec.hostname")]
    pub(crate) hostname: Option<Box<str>>,
    #[view(path = "spec.subdomain")]
    pub(crate) subdomain: Option<Arc<str>>,
    #[view(path = "spec.containers")]
    pub(crate) containers: Box<[ContainerView]>,
    #[view(path = "spec.initContainers")]
    pub(crate) init_containers: Box<[InitContainerView]>,
    #[view(path = "spec.volumes")]
    pub(crate) volumes: Box<[VolumeView]>,
    /// The phase; empty if it is missing.
    #[view(path = "status.phase")]
    pub(crate) phase: Arc<str>,
    /// The reason of the phase; empty if it is missing.
    #[view(path = "status.reason")]
    pub(crate) reason: Arc<str>,
    /// The status of the first DisruptionTarget condition; empty if it is missing.
    #[view(path = "status.conditions[DisruptionTarget].status")]
    pub(crate) disruption_target: Arc<str>,
    /// The first Ready condition.
    #[view(path = "status.conditions[Ready]")]
    pub(crate) ready: Option<ConditionView>,
    /// The IP; empty if it is missing.
    #[view(path = "status.podIP")]
    pub(crate) pod_ip: Box<str>,
    #[view(path = "status.podIPs")]
    pub(crate) pod_ips: Box<[PodIpView]>,
    #[view(path = "status.containerStatuses")]
    pub(crate) container_statuses: Box<[ContainerStatusView]>,
    #[view(path = "status.initContainerStatuses")]
    pub(crate) init_container_statuses: Box<[InitContainerStatusView]>,
}

/// A term of the required node affinity of a pod.
#[derive(Clone, Debug, PartialEq, View)]
#[view(
    of = "v1/Pod",
    at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
    crate = windlass_object
)]
pub(crate) struct NodeTermView {
    #[view(path = "matchFields")]
    pub(crate) match_fields: Box<[NodeFieldView]>,
}

/// A requirement on a field of a node.
#[derive(Clone, Debug, PartialEq, View)]
#[view(
    of = "v1/Pod",
    at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchFields",
    crate = windlass_object
)]
pub(crate) struct NodeFieldView {
    #[view(path = "key")]
    pub(crate) key: Arc<str>,
    #[view(path = "operator")]
    pub(crate) operator: Arc<str>,
    #[view(path = "values")]
    pub(crate) values: Box<[Arc<str>]>,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "spec.containers", crate = windlass_object)]
pub(crate) struct ContainerView {
    #[view(path = "ports")]
    pub(crate) ports: Box<[ContainerPortView]>,
}

/// An init container of a pod.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "spec.initContainers", crate = windlass_object)]
pub(crate) struct InitContainerView {
    #[view(path = "name")]
    pub(crate) name: Arc<str>,
    #[view(path = "restartPolicy")]
    pub(crate) restart_policy: Option<Arc<str>>,
    #[view(path = "ports")]
    pub(crate) ports: Box<[ContainerPortView]>,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "spec.containers.ports", crate = windlass_object)]
pub(crate) struct ContainerPortView {
    #[view(path = "name")]
    pub(crate) name: Option<Arc<str>>,
    #[view(path = "containerPort")]
    pub(crate) container_port: i32,
    #[view(path = "protocol")]
    pub(crate) protocol: Option<Arc<str>>,
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "spec.volumes", crate = windlass_object)]
pub(crate) struct VolumeView {
    #[view(path = "name")]
    pub(crate) name: Arc<str>,
    /// The name of the PersistentVolumeClaim, if the volume is a claim.
    #[view(path = "persistentVolumeClaim.claimName")]
    pub(crate) claim: Option<Box<str>>,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "status.conditions", crate = windlass_object)]
pub(crate) struct ConditionView {
    #[view(path = "status")]
    pub(crate) status: Arc<str>,
    #[view(path = "lastTransitionTime")]
    pub(crate) last_transition_time: Option<Time>,
}

/// An IP of a pod.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "status.podIPs", crate = windlass_object)]
pub(crate) struct PodIpView {
    #[view(path = "ip")]
    pub(crate) ip: Box<str>,
}

/// The status of a container.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "status.containerStatuses", crate = windlass_object)]
pub(crate) struct ContainerStatusView {
    #[view(path = "restartCount")]
    pub(crate) restart_count: i32,
}

/// The status of an init container.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Pod", at = "status.initContainerStatuses", crate = windlass_object)]
pub(crate) struct InitContainerStatusView {
    #[view(path = "name")]
    pub(crate) name: Arc<str>,
    #[view(path = "restartCount")]
    pub(crate) restart_count: i32,
}

impl InitContainerView {
    /// Returns whether the container is a sidecar, which keeps running next to the main containers.
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl ConditionView {
    /// Returns the last transition time.
    pub(crate) fn transition(&self) -> Option<Timestamp> {
        self.last_transition_time.as_ref().map(|time| time.0)
    }
}
