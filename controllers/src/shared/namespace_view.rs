//! The fields of a namespace that the controllers read. They share one cache.

use std::sync::Arc;

use windlass_controller::Setup;
use windlass_informer::{Lister, Selection};
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

/// Declares the namespaces as the keys of a controller that maintains an object in each of them.
pub(crate) fn namespaces_as_keys(setup: &mut Setup) -> Lister<NamespaceView> {
    // A namespace has the shard of the objects in it.
    setup.primary::<NamespaceView>().with_selection(Selection::default().with_every_shard()).lister()
}

/// Selects the objects of this name.
pub(crate) fn named(name: &str) -> Selection {
    Selection::by_fields(format!("metadata.name={name}"))
}
