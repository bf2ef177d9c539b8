//! The fields of a node that the controllers read. They share one cache.

use std::sync::Arc;

use windlass_macros::View;
use windlass_object::Metadata;

/// A node.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Node", crate = windlass_object)]
pub(crate) struct NodeView {
    pub(crate) metadata: Metadata,
    /// The annotation of the TTL controller.
    #[view(path = "metadata.annotations[node.alpha.kubernetes.io/ttl]")]
    pub(crate) ttl: Option<Arc<str>>,
    #[view(path = "spec.taints")]
    pub(crate) taints: Box<[TaintView]>,
    /// The status of the first Ready condition; empty if it is missing.
    #[view(path = "status.conditions[Ready].status")]
    pub(crate) ready: Arc<str>,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Node", at = "spec.taints", crate = windlass_object)]
pub(crate) struct TaintView {
    #[view(path = "key")]
    pub(crate) key: Arc<str>,
    /// The value; empty if it is missing.
    #[view(path = "value")]
    pub(crate) value: Arc<str>,
    /// The effect on pods that do not tolerate the taint.
    #[view(path = "effect")]
    pub(crate) effect: Arc<str>,
}

impl NodeView {
    /// Returns whether the node is ready.
    pub(crate) fn is_ready(&self) -> bool {
        &*self.ready == "True"
    }

    /// Returns whether the node has a taint with this key, with any effect and value.
    pub(crate) fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| &*taint.key == key)
    }
}
