//! The comparable forms of objects: without times, versions, UIDs and random names.

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Map, Value, json};
use windlass_black_box::fixtures::is_ready;

use super::{Objects, group, target};
use crate::kind::{Kind, app};

const NODE_OF_POD: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
    /nodeSelectorTerms/0/matchFields/0/values/0";

/// Reasons of the condition `Progressing` while its deadline has not passed.
const PROGRESS: [&str; 4] =
    ["NewReplicaSetCreated", "FoundNewReplicaSet", "ReplicaSetUpdated", "NewReplicaSetAvailable"];

impl Objects {
    /// Returns the comparable form of each object by kind and name.
    pub(crate) fn comparable(&self) -> Value {
        let workloads = self.workloads.iter().map(|it| (format!("workload {}", it.name_any()), object(it)));
        let revisions =
            self.revisions.iter().map(|it| (format!("revision {}", it.name_any()), self.revision(it)));
        let claims = self.claims.iter().map(|it| {
            let claim = json!({ "metadata": metadata(&it.metadata), "spec": it.spec });
            (format!("claim {}", it.name_any()), claim)
        });
        let mut all: Map<_, _> = workloads.chain(revisions).chain(claims).collect();
        match self.kind {
            Kind::Deployment => {
                let mut pods: Vec<_> = self.pods.iter().map(|pod| self.pod(pod)).collect();
                pods.sort_by_cached_key(Value::to_string);
                all.insert("pods".to_owned(), json!(pods));
            }
            Kind::StatefulSet => {
                all.extend(self.pods.iter().map(|it| (format!("pod {}", it.name_any()), self.pod(it))));
            }
            Kind::DaemonSet => all.extend(self.all_nodes()),
        }
        Value::Object(all)
    }

    /// Returns the nodes with their pods by group and position.
    fn all_nodes(&self) -> impl Iterator<Item = (String, Value)> {
        let mut groups: Vec<_> = self.nodes.iter().map(group).collect();
        groups.dedup();
        groups.into_iter().flat_map(move |group| {
            let nodes = self.nodes_in_order(group).into_iter().enumerate();
            nodes.map(move |(index, node)| (format!("node {group} {index}"), self.node(node)))
        })
    }

    /// Returns the labels of a node and the pods for it.
    pub(super) fn node(&self, node: &Node) -> Value {
        let pods = self.pods.iter().filter(|pod| target(pod) == node.metadata.name.as_deref());
        let mut pods: Vec<_> = pods.map(|pod| self.pod(pod)).collect();
        pods.sort_by_cached_key(Value::to_string);
        json!({ "labels": node.labels(), "pods": pods })
    }

    pub(super) fn pod(&self, pod: &Pod) -> Value {
        let mut spec = json!(pod.spec);
        for pointer in [NODE_OF_POD, "/nodeName"] {
            if let Some(node) = spec.pointer_mut(pointer) {
                *node = json!("node");
            }
        }
        let metadata = metadata(&pod.metadata);
        json!({ "app": app(pod), "ready": is_ready(pod), "metadata": metadata, "spec": spec })
    }

    fn revision(&self, revision: &DynamicObject) -> Value {
        let mut value = object(revision);
        if let Some(status) = value.pointer_mut("/status").and_then(Value::as_object_mut) {
            status.remove("conditions");
            // Counts the writes of the spec. Windlass sends two changes of a size in one sync as one write.
            status.remove("observedGeneration");
            value["ready"] = json!(self.ready_pods_of(revision));
        }
        value
    }
}

/// Returns an object without the times of its conditions, which have no order.
fn object(object: &DynamicObject) -> Value {
    let mut value = object.data.clone();
    value["metadata"] = metadata(&object.metadata);
    if let Some(conditions) = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("lastTransitionTime");
            condition.remove("lastUpdateTime");
            if condition["reason"].as_str().is_some_and(|reason| PROGRESS.contains(&reason)) {
                hide_progress(condition);
            }
        }
        conditions.sort_by_cached_key(|condition| condition["type"].to_string());
    }
    value
}

/// Removes reason and message of a condition that reports progress. They depend on whether a sync observes the
/// ReplicaSets between two changes; otherwise they are those of an earlier change. The numbers in the status show
/// whether the rollout is complete.
fn hide_progress(condition: &mut Map<String, Value>) {
    condition.remove("reason");
    condition.remove("message");
}

fn metadata(meta: &ObjectMeta) -> Value {
    let owners = meta.owner_references.iter().flatten();
    let owners: Vec<_> = owners.map(|it| json!([it.kind, it.name, it.controller])).collect();
    json!({ "labels": meta.labels, "annotations": meta.annotations, "owners": owners })
}
