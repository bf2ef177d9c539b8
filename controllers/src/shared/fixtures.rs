//! Builders of pods and other objects for tests.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

/// Returns a time in seconds from an origin that all tests share.
pub(crate) fn at(seconds: i64) -> Timestamp {
    let origin: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a valid time");
    origin + SignedDuration::from_secs(seconds)
}

/// Returns a map of labels.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns a pod in the namespace `default` whose UID is derived from its name, without other fields.
pub(crate) fn bare_pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            namespace: Some("default".into()),
            name: Some(name.into()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec::default()),
        status: Some(PodStatus::default()),
    }
}

/// Returns a running pod on a node, ready since `since`.
pub(crate) fn ready_pod(name: &str, since: Timestamp) -> Pod {
    running_pod(name, "True", Some(since))
}

/// Returns a running pod on a node that is not ready.
pub(crate) fn unready_pod(name: &str) -> Pod {
    running_pod(name, "False", None)
}

/// Returns a running pod on a node with a Ready condition.
pub(crate) fn running_pod(name: &str, ready: &str, since: Option<Timestamp>) -> Pod {
    let mut pod = with_phase(bare_pod(name), "Running");
    pod.spec.get_or_insert_default().node_name = Some("node".into());
    pod.status.get_or_insert_default().conditions = Some(vec![ready_condition(ready, since)]);
    pod
}

/// Returns a Ready condition.
pub(crate) fn ready_condition(status: &str, since: Option<Timestamp>) -> PodCondition {
    PodCondition {
        type_: "Ready".into(),
        status: status.into(),
        last_transition_time: since.map(Time),
        ..PodCondition::default()
    }
}

/// Returns the pod in a phase.
pub(crate) fn with_phase(mut pod: Pod, phase: &str) -> Pod {
    pod.status.get_or_insert_default().phase = Some(phase.into());
    pod
}

/// Returns the pod with labels.
pub(crate) fn with_labels(mut pod: Pod, pairs: &[(&str, &str)]) -> Pod {
    pod.metadata.labels = Some(labels(pairs));
    pod
}

/// Returns the pod with a deletion timestamp.
pub(crate) fn being_deleted(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(Time(at(0)));
    pod
}

/// Returns the pod with a ReplicaSet of this name and UID as its controller.
pub(crate) fn controlled_by(mut pod: Pod, name: &str, uid: &str) -> Pod {
    pod.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: name.into(),
        uid: uid.into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    pod
}
