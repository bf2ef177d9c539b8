//! Decides which nodes run a pod of a DaemonSet.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Toleration;

use super::spec::pod_spec;
use super::template::with_daemon_tolerations;
use crate::shared::node_view::NodeView;
use crate::shared::scheduling::node_affinity::RequiredNodeAffinity;
use crate::shared::scheduling::taints::{NO_EXECUTE, NO_SCHEDULE, tolerates_all};

/// Whether a node has a pod of the DaemonSet.
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
#[derive(Debug)]
pub(super) struct Placement {
    /// Empty if the template names no node.
    node: String,
    affinity: RequiredNodeAffinity,
    tolerations: Vec<Toleration>,
}

impl Placement {
    /// Returns the placement of the pods, with the tolerations that all pods of DaemonSets have.
    pub(super) fn from_set(set: &DaemonSet) -> Self {
        let spec = pod_spec(set).cloned().unwrap_or_default();
        Self {
            affinity: RequiredNodeAffinity::from_spec(&spec),
            node: spec.node_name.clone().unwrap_or_default(),
            tolerations: with_daemon_tolerations(spec).tolerations.unwrap_or_default(),
        }
    }

    /// Returns whether the node has a pod.
    pub(super) fn fit(&self, node: &NodeView) -> Fit {
        let is_named = self.node.is_empty() || self.node == node.metadata.header.key.name();
        if !is_named || !self.affinity.matches(node) {
            return Fit::Leave;
        }
        let tolerates = |effects: &[&str]| tolerates_all(&self.tolerations, &node.taints, effects);
        if tolerates(&[NO_SCHEDULE, NO_EXECUTE]) {
            Fit::Run
        } else if tolerates(&[NO_EXECUTE]) {
            Fit::Keep
        } else {
            Fit::Leave
        }
    }
}
