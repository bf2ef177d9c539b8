//! The fields of a namespace that the controllers read. They share one cache.

use std::sync::Arc;

use windlass_macros::View;
use windlass_object::Metadata;

/// A namespace.
#[derive(Clone, Debug, PartialEq, View)]
#[view(of = "v1/Namespace", crate = windlass_object)]
pub(crate) struct NamespaceView {
    pub(crate) metadata: Metadata,
    #[view(path = "status.phase")]
    phase: Arc<str>,
}

impl NamespaceView {
    /// Returns whether objects can be created in the namespace.
    pub(crate) fn is_active(&self) -> bool {
        &*self.phase == "Active"
    }
}
