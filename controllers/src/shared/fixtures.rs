//! Builders of pods and other objects for tests.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use windlass_object::{Decoder as _, ObjectKey, Owner, Representation as _, Watchable as _};

use super::namespace_view::NamespaceView;
use super::node_view::NodeView;
use super::pod_view::{ConditionView, PodView};

/// Returns a time in seconds from an origin that all tests share.
pub(crate) fn at(seconds: i64) -> Timestamp {
    let origin: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a valid time");
    origin + SignedDuration::from_secs(seconds)
}

/// Returns a map of labels.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns the view of a pod in JSON.
pub(crate) fn pod_view(pod: &Value) -> PodView {
    let mut decoder = PodView::representation().decoder();
    decoder.decode(&pod.to_string().into()).expect("a pod")
}

/// Returns the view of a node in JSON.
pub(crate) fn node_view(node: &Value) -> NodeView {
    let mut decoder = NodeView::representation().decoder();
    decoder.decode(&node.to_string().into()).expect("a node")
}

/// Returns a namespace in this phase.
pub(crate) fn namespace_view(name: &str, phase: &str) -> NamespaceView {
    let namespace = json!({ "metadata": { "name": name }, "status": { "phase": phase } });
    let mut decoder = NamespaceView::representation().decoder();
    decoder.decode(&namespace.to_string().into()).expect("a namespace")
}

/// Returns a pod in the namespace `default` whose UID is derived from its name, without other fields.
pub(crate) fn bare_pod(name: &str) -> PodView {
    pod_view(&json!({ "metadata": { "namespace": "default", "name": name, "uid": format!("uid-{name}") } }))
}

/// Returns a running pod on a node, ready since `since`.
pub(crate) fn ready_pod(name: &str, since: Timestamp) -> PodView {
    running_pod(name, "True", Some(since))
}

/// Returns a running pod on a node that is not ready.
pub(crate) fn unready_pod(name: &str) -> PodView {
    running_pod(name, "False", None)
}

/// Returns a running pod on a node with a Ready condition.
pub(crate) fn running_pod(name: &str, ready: &str, since: Option<Timestamp>) -> PodView {
    let pod = with_phase(bare_pod(name), "Running");
    PodView { node: "node".into(), ready: Some(ready_condition(ready, since)), ..pod }
}

/// Returns a Ready condition.
pub(crate) fn ready_condition(status: &str, since: Option<Timestamp>) -> ConditionView {
    ConditionView { status: status.into(), last_transition_time: since.map(Time) }
}

/// Returns the pod in a phase.
pub(crate) fn with_phase(pod: PodView, phase: &str) -> PodView {
    PodView { phase: phase.into(), ..pod }
}

/// Returns the pod with labels.
pub(crate) fn with_labels(mut pod: PodView, pairs: &[(&str, &str)]) -> PodView {
    pod.metadata.labels = pairs.iter().copied().collect();
    pod
}

/// Returns the pod in a namespace.
pub(crate) fn in_namespace(mut pod: PodView, namespace: &str) -> PodView {
    let key = &mut pod.metadata.header.key;
    *key = ObjectKey::namespaced(namespace, key.name());
    pod
}

/// Returns the pod with a deletion timestamp.
pub(crate) fn being_deleted(mut pod: PodView) -> PodView {
    pod.metadata.deletion_timestamp = Some(Time(at(0)));
    pod
}

/// Returns the pod with a ReplicaSet of this name and UID as its controller.
pub(crate) fn controlled_by(mut pod: PodView, name: &str, uid: &str) -> PodView {
    let owner = Owner {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: name.into(),
        uid: uid.into(),
        controller: true,
        block_owner_deletion: true,
    };
    pod.metadata.owners = [owner].into();
    pod
}
