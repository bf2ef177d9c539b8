//! Index of objects by their controller.

use windlass_object::{HasMetadata, OwnerRef};

use super::pods;

/// Returns the index key of an object. An object with a controller is indexed by the complete identity of the
/// controller and the namespace, because references contain no namespace. Orphans are indexed by namespace only.
pub(crate) fn by_controller<C: HasMetadata>(child: &C) -> [String; 1] {
    let metadata = child.metadata();
    let namespace = pods::namespace(metadata);
    let value = metadata.controller().map(|controller| controlled(namespace, controller));
    [value.unwrap_or_else(|| namespace.to_owned())]
}

/// Returns the index key of objects with this controller. The namespace contains no slash.
pub(crate) fn controlled(namespace: &str, controller: OwnerRef<'_>) -> String {
    let OwnerRef { kind, name, uid, .. } = controller;
    format!("{namespace}/{kind}/{name}/{uid}")
}
