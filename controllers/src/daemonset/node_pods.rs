//! The pods of a DaemonSet by node.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::shared::pod_view::PodView;
use crate::shared::pods;
use crate::shared::scheduling::node_affinity::NAME_FIELD;

/// Pods by the name of their node.
pub(super) type NodePods = BTreeMap<Arc<str>, Vec<Arc<PodView>>>;

/// Returns the node of a pod: the node to which it is bound, or the node for which it was created.
pub(super) fn target_node(pod: &PodView) -> Option<&Arc<str>> {
    if !pod.node.is_empty() {
        return Some(&pod.node);
    }
    let fields = pod.node_terms.iter().flat_map(|term| &term.match_fields);
    let mut by_name = fields.filter(|field| &*field.key == NAME_FIELD && &*field.operator == "In");
    match &*by_name.next()?.values {
        [node] => Some(node),
        _ => None,
    }
}

/// Returns the pods by node, without pods that have no node. Terminated pods that are being deleted are also omitted,
/// because the node or the garbage collector removes them.
pub(super) fn by_node(pods: &[Arc<PodView>]) -> NodePods {
    let mut by_node = NodePods::new();
    for pod in pods.iter().filter(|pod| !(pods::is_terminal(pod) && pods::is_being_deleted(pod))) {
        if let Some(node) = target_node(pod) {
            by_node.entry(Arc::clone(node)).or_default().push(Arc::clone(pod));
        }
    }
    by_node
}

/// Returns the order of pods on a node: bound pods first, then older pods, then by name.
pub(super) fn by_age(one: &Arc<PodView>, other: &Arc<PodView>) -> Ordering {
    let rank = |pod: &PodView| (pod.node.is_empty(), pods::created(&pod.metadata));
    let by_name = || pods::name(&one.metadata).cmp(pods::name(&other.metadata));
    rank(one).cmp(&rank(other)).then_with(by_name)
}

/// Returns the oldest pod.
pub(super) fn oldest(pods: &[Arc<PodView>]) -> Option<&Arc<PodView>> {
    pods.iter().min_by(|one, other| by_age(one, other))
}
