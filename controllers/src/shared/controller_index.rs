//! Index of objects by their controller.

use std::sync::Arc;

use kube::Resource;
use windlass_informer::Index;
use windlass_object::owner::controller_reference;
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

/// Returns the children of `owner` and the orphans that it might adopt, by name.
pub(crate) fn children_and_orphans<C, O>(index: &Index<C, String>, owner: &O) -> Vec<Arc<C>>
where
    C: Send + Sync + 'static,
    O: Resource<DynamicType = ()>,
{
    let namespace = pods::namespace(owner.meta()).to_owned();
    let owned = controlled(&namespace, (&controller_reference(owner)).into());
    index.union([&namespace, &owned])
}
