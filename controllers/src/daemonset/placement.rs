//! Decides which nodes run a pod of a DaemonSet.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Toleration;

use super::spec::pod_spec;
use super::template::is_tolerated;
use crate::shared::node_view::{NodeView, TaintView};
use crate::shared::scheduling::node_affinity::RequiredNodeAffinity;
use crate::shared::scheduling::taints::{NO_EXECUTE, NO_SCHEDULE, tolerates, tolerates_all};

/// Whether a node must, can or must not have a pod of the DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The node must have a pod.
    Run,
    /// The node keeps its pod, but receives none.
    Keep,
    /// The node must have no pod.
    Leave,
}

/// The nodes that the template of a DaemonSet accepts.
///
/// It borrows the template, because each change of a node evaluates all DaemonSets.
#[derive(Debug)]
pub(super) struct Placement<'a> {
    /// The node that the template names; empty if it names no node.
    node: &'a str,
    affinity: RequiredNodeAffinity,
    /// The tolerations of the template.
    tolerations: &'a [Toleration],
    is_on_host_network: bool,
}

impl<'a> Placement<'a> {
    /// Returns the placement of the pods.
    pub(super) fn from_set(set: &'a DaemonSet) -> Self {
        let spec = pod_spec(set);
        Self {
            affinity: spec.map_or_else(RequiredNodeAffinity::everywhere, RequiredNodeAffinity::from_spec),
            node: spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default(),
            tolerations: spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default(),
            is_on_host_network: spec.and_then(|spec| spec.host_network).unwrap_or_default(),
        }
    }

    /// Returns whether the node must, can or must not have a pod.
    pub(super) fn fit(&self, node: &NodeView) -> Fit {
        let is_named = self.node.is_empty() || self.node == node.metadata.header.key.name();
        if !is_named || !self.affinity.matches(node) {
            return Fit::Leave;
        }
        let tolerates =
            |effects: &[&str]| tolerates_all(|taint| self.tolerates(taint), &node.taints, effects);
        if tolerates(&[NO_SCHEDULE, NO_EXECUTE]) {
            Fit::Run
        } else if tolerates(&[NO_EXECUTE]) {
            Fit::Keep
        } else {
            Fit::Leave
        }
    }

    fn tolerates(&self, taint: &TaintView) -> bool {
        is_tolerated(taint, self.is_on_host_network)
            || self.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    }
}
