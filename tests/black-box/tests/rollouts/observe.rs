//! The objects of a scene: workloads, revisions, pods, claims and nodes.

mod comparable;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Node, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};
use windlass_black_box::fixtures::{controller_of, is_ready, revision};

use crate::kind::{APP, GROUP, Kind, app, node_label};

/// The objects of one scene at one time, each kind ordered by name.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) kind: Kind,
    pub(crate) workloads: Vec<DynamicObject>,
    pub(crate) revisions: Vec<DynamicObject>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) claims: Vec<PersistentVolumeClaim>,
    pub(crate) nodes: Vec<Node>,
}

impl Objects {
    fn all_metadata(&self) -> impl Iterator<Item = &ObjectMeta> {
        let objects = self.workloads.iter().chain(&self.revisions).map(|it| &it.metadata);
        objects
            .chain(self.pods.iter().map(|it| &it.metadata))
            .chain(self.claims.iter().map(|it| &it.metadata))
            .chain(self.nodes.iter().map(|it| &it.metadata))
    }

    /// Returns UIDs and versions, which change with each write.
    pub(crate) fn versions(&self) -> Vec<(Option<String>, Option<String>)> {
        self.all_metadata().map(|meta| (meta.uid.clone(), meta.resource_version.clone())).collect()
    }

    /// Returns the names of the clients that wrote the fields of the objects.
    pub(crate) fn field_managers(&self) -> BTreeSet<String> {
        let entries = self.all_metadata().flat_map(|meta| meta.managed_fields.iter().flatten());
        entries.filter_map(|entry| entry.manager.clone()).collect()
    }

    /// Returns whether the controllers have observed everything: the specs, the pods, the nodes, and revisions to
    /// release; and whether the garbage collector has deleted the claims without an owner.
    pub(crate) fn is_settled(&self) -> bool {
        let owners: BTreeSet<_> =
            self.workloads.iter().map(DynamicObject::uid).chain(self.pods.iter().map(Pod::uid)).collect();
        let has_owners = |claim: &PersistentVolumeClaim| {
            claim.owner_references().iter().all(|owner| owners.contains(&Some(owner.uid.clone())))
        };
        let is_settled = |workload: &DynamicObject| {
            workload.metadata.deletion_timestamp.is_none()
                && is_observed(workload)
                && self.is_counted(workload)
                && self.has_released(workload)
                && (self.is_complete(workload) || self.is_blocked(workload))
        };
        self.workloads.iter().all(is_settled)
            && (self.kind != Kind::Deployment || self.revisions.iter().all(|set| self.set_is_settled(set)))
            && self.claims.iter().all(has_owners)
    }

    /// Returns whether the status of a workload has the numbers of its dependents.
    fn is_counted(&self, workload: &DynamicObject) -> bool {
        let status = |pointer: &str| number(workload, pointer);
        match self.kind {
            Kind::Deployment => ["/status/replicas", "/status/readyReplicas"].iter().all(|pointer| {
                let sets = self.revisions.iter().filter(|set| is_owner(workload, &set.metadata));
                status(pointer) == sets.map(|set| number(set, pointer)).sum::<usize>()
            }),
            Kind::StatefulSet => {
                status("/status/replicas") == self.pods_of(workload).count()
                    && status("/status/readyReplicas") == self.ready_pods_of(workload)
            }
            Kind::DaemonSet => {
                let label = node_label(&workload.name_any());
                let (selected, others): (Vec<_>, Vec<_>) =
                    self.nodes.iter().partition(|node| node.labels().contains_key(&label));
                let has_pod = |node: &&&Node| !self.pods_on(workload, node).is_empty();
                let misscheduled = others.iter().filter(has_pod).count();
                let pods: Vec<Vec<&Pod>> =
                    selected.into_iter().map(|node| self.pods_on(workload, node)).collect();
                let are_ready = pods.iter().filter(|pods| pods.iter().all(|pod| is_ready(pod))).count();
                let have_ready = pods.iter().filter(|pods| pods.iter().any(|pod| is_ready(pod))).count();
                status("/status/desiredNumberScheduled") == pods.len()
                    && status("/status/currentNumberScheduled") == pods.len()
                    && status("/status/numberMisscheduled") == misscheduled
                    && pods.iter().all(|pods| !pods.is_empty())
                    // The status counts the older of two pods.
                    && (are_ready..=have_ready).contains(&status("/status/numberReady"))
            }
        }
    }

    /// Returns whether the size is reached and the rollout is complete, or stopped by the spec.
    fn is_complete(&self, workload: &DynamicObject) -> bool {
        let get = |pointer: &str| number(workload, pointer);
        let has = |pointer: &str, value: Value| workload.data.pointer(pointer) == Some(&value);
        match self.kind {
            Kind::Deployment => {
                has("/spec/paused", json!(true))
                    || ["/status/replicas", "/status/updatedReplicas"]
                        .iter()
                        .all(|it| get(it) == get("/spec/replicas"))
            }
            Kind::StatefulSet => {
                let partition = get("/spec/updateStrategy/rollingUpdate/partition");
                get("/status/replicas") == get("/spec/replicas")
                    && (has("/spec/updateStrategy/type", json!("OnDelete"))
                        || get("/status/updatedReplicas") + partition >= get("/spec/replicas"))
            }
            Kind::DaemonSet => {
                has("/spec/updateStrategy/type", json!("OnDelete"))
                    || (get("/status/updatedNumberScheduled") == get("/status/desiredNumberScheduled")
                        && self.nodes.iter().all(|node| self.pods_on(workload, node).len() < 2))
            }
        }
    }

    /// Returns whether a pod is not ready, so that the rollout can wait for it.
    fn is_blocked(&self, workload: &DynamicObject) -> bool {
        self.pods.iter().any(|pod| app(pod) == workload.name_any() && !is_ready(pod))
    }

    /// Returns whether the workload has released the revisions that it does not select. A StatefulSet releases none.
    fn has_released(&self, workload: &DynamicObject) -> bool {
        let name = workload.name_any();
        let is_selected = |revision: &DynamicObject| revision.labels().get(APP) == Some(&name);
        self.kind == Kind::StatefulSet
            || self.revisions.iter().filter(|it| is_owner(workload, &it.metadata)).all(is_selected)
    }

    fn set_is_settled(&self, set: &DynamicObject) -> bool {
        is_observed(set)
            && number(set, "/status/replicas") == number(set, "/spec/replicas")
            && number(set, "/status/replicas") == self.pods_of(set).count()
            && number(set, "/status/readyReplicas") == self.ready_pods_of(set)
    }

    fn pods_of(&self, owner: &DynamicObject) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| is_owner(owner, &pod.metadata))
    }

    fn pods_on(&self, owner: &DynamicObject, node: &Node) -> Vec<&Pod> {
        self.pods_of(owner).filter(|pod| target(pod) == node.metadata.name.as_deref()).collect()
    }

    fn ready_pods_of(&self, owner: &DynamicObject) -> usize {
        self.pods_of(owner).filter(|pod| is_ready(pod)).count()
    }

    /// Returns the name of the owned revision with the highest number.
    pub(crate) fn newest_revision(&self, workload: &str) -> Option<String> {
        let owned = self
            .revisions
            .iter()
            .filter(|it| controller_of(&it.metadata).is_some_and(|owner| owner.name == workload));
        owned.max_by_key(|it| (revision_number(it), it.name_any())).map(|it| it.name_any())
    }

    /// Returns the pods in an order that does not depend on random names.
    pub(crate) fn pods_in_order(&self) -> Vec<&Pod> {
        let mut pods: Vec<_> = self.pods.iter().collect();
        match self.kind {
            // Pods of one ReplicaSet are equal for the controllers.
            Kind::Deployment => {
                pods.sort_by_key(|pod| controller_of(&pod.metadata).map(|owner| owner.name.clone()));
            }
            Kind::StatefulSet => {}
            Kind::DaemonSet => {
                let described =
                    |node: &Node| (node.name_any(), (group(node).to_owned(), self.node(node).to_string()));
                let nodes: BTreeMap<_, _> = self.nodes.iter().map(described).collect();
                let node = |pod: &Pod| nodes.get(target(pod)?);
                pods.sort_by_cached_key(|pod| (node(pod), self.pod(pod).to_string()));
            }
        }
        pods
    }

    /// Returns the nodes of a group in an order that does not depend on their names: upstream updates nodes in random
    /// order.
    pub(crate) fn nodes_in_order(&self, name: &str) -> Vec<&Node> {
        let mut nodes: Vec<_> = self.nodes.iter().filter(|node| group(node) == name).collect();
        nodes.sort_by_cached_key(|node| self.node(node).to_string());
        nodes
    }

    /// Returns the names of revisions with their numbers, and the names or nodes of pods with the hash of their
    /// revision.
    pub(crate) fn history(&self) -> Vec<(String, String)> {
        let revisions = self.revisions.iter().map(|it| (it.name_any(), revision_number(it).to_string()));
        let hash = |pod: &Pod| pod.labels().get("controller-revision-hash").cloned().unwrap_or_default();
        let pods = self.pods.iter().filter_map(|pod| match self.kind {
            Kind::Deployment => None,
            Kind::StatefulSet => Some((pod.name_any(), hash(pod))),
            Kind::DaemonSet => Some((format!("{} on {}", app(pod), target(pod)?), hash(pod))),
        });
        let mut all: Vec<_> = revisions.chain(pods).collect();
        all.sort();
        all
    }
}

fn is_owner(owner: &DynamicObject, meta: &ObjectMeta) -> bool {
    controller_of(meta).is_some_and(|it| Some(&it.uid) == owner.metadata.uid.as_ref())
}

fn is_observed(object: &DynamicObject) -> bool {
    let generation = object.metadata.generation.and_then(|it| usize::try_from(it).ok());
    Some(number(object, "/status/observedGeneration")) == generation
}

/// Returns a number in an object; an absent field is zero.
pub(crate) fn number(object: &DynamicObject, pointer: &str) -> usize {
    let number = object.data.pointer(pointer).and_then(Value::as_u64);
    number.and_then(|it| usize::try_from(it).ok()).unwrap_or_default()
}

/// Returns the number of a ReplicaSet, which is in an annotation, or of a ControllerRevision.
fn revision_number(object: &DynamicObject) -> usize {
    let annotation = revision(&object.metadata).and_then(|it| it.parse().ok());
    annotation.unwrap_or_else(|| number(object, "/revision"))
}

/// Returns the node that a pod of a DaemonSet names in its affinity.
pub(crate) fn target(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let field = required.node_selector_terms.first()?.match_fields.as_ref()?.first()?;
    field.values.as_ref()?.first().map(String::as_str)
}

fn group(node: &Node) -> &str {
    node.labels().get(GROUP).map_or("", String::as_str)
}
