//! Builders for the objects of the scenarios.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::apps::v1::{DaemonSet, DaemonSetSpec, Deployment, DeploymentSpec, StatefulSet, StatefulSetSpec},
    api::core::v1::{
        Container, ContainerPort, Node, Pod, PodCondition, PodIP, PodSpec, PodStatus, PodTemplateSpec,
        Service, ServicePort, ServiceSpec, Toleration,
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time},
        util::intstr::IntOrString,
    },
};

/// The label of the pods of every scenario.
pub const LABEL: &str = "foo=bar";
/// A scheduler that does not exist: pods that name it stay as the test leaves them.
pub const NO_SCHEDULER: &str = "nobody";

/// `{"foo": "bar"}`
pub fn labels() -> BTreeMap<String, String> {
    pairs(&[("foo", "bar")])
}

/// Owned key-value pairs.
pub fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns a pod specification that only the test changes.
pub fn still_pod_spec() -> PodSpec {
    PodSpec {
        containers: vec![Container {
            name: "main".to_owned(),
            image: Some("image.example/main:1".to_owned()),
            ..Container::default()
        }],
        scheduler_name: Some(NO_SCHEDULER.to_owned()),
        ..PodSpec::default()
    }
}

/// A template of [`still_pod_spec`] with the common label.
pub fn template() -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels()), ..ObjectMeta::default() }),
        spec: Some(still_pod_spec()),
    }
}

/// Returns a Deployment with [`template`].
pub fn deployment(name: &str, replicas: i32) -> Deployment {
    let selector = LabelSelector { match_labels: Some(labels()), ..LabelSelector::default() };
    Deployment {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            selector,
            template: template(),
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// Returns a StatefulSet with [`template`].
pub fn stateful_set(name: &str, replicas: i32) -> StatefulSet {
    let selector = LabelSelector { match_labels: Some(labels()), ..LabelSelector::default() };
    StatefulSet {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(StatefulSetSpec {
            replicas: Some(replicas),
            selector,
            service_name: Some("service".to_owned()),
            template: template(),
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}

/// Returns a DaemonSet with [`template`] that tolerates all taints, also those of new nodes.
pub fn daemon_set(name: &str) -> DaemonSet {
    let selector = LabelSelector { match_labels: Some(labels()), ..LabelSelector::default() };
    let mut template = template();
    let all = Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() };
    template.spec.get_or_insert_default().tolerations = Some(vec![all]);
    DaemonSet {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(DaemonSetSpec { selector, template, ..DaemonSetSpec::default() }),
        status: None,
    }
}

/// Returns a node without a kubelet.
pub fn node(name: &str) -> Node {
    Node { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..Node::default() }
}

/// Returns a pod with the common label that only the test changes.
pub fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels()), ..ObjectMeta::default() },
        spec: Some(still_pod_spec()),
        status: None,
    }
}

/// Returns a pod bound to a node that does not exist, so that no kubelet changes it.
pub fn pod_on_no_node(name: &str) -> Pod {
    let mut pod = pod(name);
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some("no-such-node".to_owned());
        spec.containers[0].ports = Some(vec![ContainerPort {
            name: Some("https".to_owned()),
            container_port: 443,
            ..ContainerPort::default()
        }]);
    }
    pod
}

/// The status of a running pod with these addresses.
pub fn running(ips: &[&str], ready: Option<bool>) -> PodStatus {
    PodStatus {
        phase: Some("Running".to_owned()),
        pod_ip: ips.first().map(|ip| (*ip).to_owned()),
        pod_ips: Some(ips.iter().map(|ip| PodIP { ip: (*ip).to_owned() }).collect()),
        conditions: ready.map(|ready| vec![ready_condition(ready, None)]),
        ..PodStatus::default()
    }
}

/// The Ready condition.
pub fn ready_condition(ready: bool, since: Option<Time>) -> PodCondition {
    PodCondition {
        type_: "Ready".to_owned(),
        status: if ready { "True" } else { "False" }.to_owned(),
        last_transition_time: since,
        ..PodCondition::default()
    }
}

/// Returns whether a pod has the condition Ready.
pub fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Returns the annotation of a Deployment or ReplicaSet with its revision.
pub fn revision(meta: &ObjectMeta) -> Option<&str> {
    meta.annotations.as_ref()?.get("deployment.kubernetes.io/revision").map(String::as_str)
}

/// Changes the image of the container of [`still_pod_spec`].
pub fn set_image(template: &mut PodTemplateSpec, image: &str) {
    template.spec.get_or_insert_default().containers[0].image = Some(image.to_owned());
}

/// A Service selecting the common label, with one numeric port for each of `ports`.
pub fn service(name: &str, ports: &[i32]) -> Service {
    Service {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            selector: Some(labels()),
            ports: Some(ports.iter().copied().map(service_port).collect()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn service_port(port: i32) -> ServicePort {
    ServicePort {
        name: Some(format!("port-{port}")),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(port)),
        ..ServicePort::default()
    }
}

/// An owner reference.
pub fn owner(
    api_version: &str,
    kind: &str,
    name: &str,
    uid: &str,
    controller: Option<bool>,
    block: Option<bool>,
) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller,
        block_owner_deletion: block,
    }
}

/// Returns the owner reference of an object's controller, if it has one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}
