//! The template of new pods: labels of the revision, tolerations, and affinity to one node.
//!
//! The scheduler binds the pods. The affinity restricts it to the node for which the pod was created. This affinity
//! replaces the required affinity of the DaemonSet, which the node already matches.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PodTemplateSpec, Toleration,
};

use super::spec::template_generation;
use crate::shared::history::REVISION_LABEL;
use crate::shared::node_view::TaintView;
use crate::shared::pod_view::PodView;
use crate::shared::scheduling::node_affinity::NAME_FIELD;
use crate::shared::scheduling::taints::{NO_EXECUTE, NO_SCHEDULE};

/// Label with the generation of the template of a pod.
pub(super) const GENERATION_LABEL: &str = "pod-template-generation";

/// Taints that all pods of DaemonSets tolerate.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
];

/// A taint that pods of the host network tolerate in addition.
const TOLERATED_ON_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE);

/// Returns the spec with the tolerations of DaemonSets.
fn with_daemon_tolerations(mut spec: PodSpec) -> PodSpec {
    let on_host_network = spec.host_network.unwrap_or_default().then_some(TOLERATED_ON_HOST_NETWORK);
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(on_host_network) {
        tolerate(tolerations, key, effect);
    }
    spec
}

/// Returns whether all pods of DaemonSets tolerate a taint.
pub(super) fn is_tolerated(taint: &TaintView, is_on_host_network: bool) -> bool {
    let on_host_network = is_on_host_network.then_some(TOLERATED_ON_HOST_NETWORK);
    let mut tolerated = TOLERATED.into_iter().chain(on_host_network);
    tolerated.any(|(key, effect)| (key, effect) == (&*taint.key, &*taint.effect))
}

/// Adds a toleration without time limit. It replaces tolerations that differ only in their time limit.
fn tolerate(tolerations: &mut Vec<Toleration>, key: &str, effect: &str) {
    let added = Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    };
    let is_same = |it: &Toleration| {
        let value = it.value.as_deref().unwrap_or_default();
        value.is_empty()
            && (&it.key, &it.operator, &it.effect) == (&added.key, &added.operator, &added.effect)
    };
    let mut is_missing = true;
    for same in tolerations.iter_mut().filter(|it| is_same(it)) {
        same.clone_from(&added);
        is_missing = false;
    }
    if is_missing {
        tolerations.push(added);
    }
}

/// Returns the template of new pods of a revision, without a node.
pub(super) fn pod_template(set: &DaemonSet, hash: &str) -> PodTemplateSpec {
    let mut template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    template.spec = Some(with_daemon_tolerations(template.spec.unwrap_or_default()));
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    if let Some(generation) = template_generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    if !hash.is_empty() {
        labels.insert(REVISION_LABEL.to_owned(), hash.to_owned());
    }
    template
}

/// Returns the affinity with exactly one required term: the node with this name.
pub(super) fn pinned(affinity: Option<Affinity>, node: &str) -> Affinity {
    let by_name = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![by_name]), ..NodeSelectorTerm::default() };
    let mut affinity = affinity.unwrap_or_default();
    let on_nodes = affinity.node_affinity.get_or_insert_default();
    on_nodes.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    affinity
}

/// Returns whether a pod has the template of the present revision: by the hash, or by the generation for pods from
/// the time before revisions.
pub(super) fn is_updated(pod: &PodView, hash: &str, generation: Option<i64>) -> bool {
    let label = |key: &str| pod.metadata.labels.get(key);
    let has_generation =
        || generation.is_some_and(|generation| label(GENERATION_LABEL) == Some(&generation.to_string()));
    (!hash.is_empty() && label(REVISION_LABEL) == Some(hash)) || has_generation()
}
