//! Index of objects by their controller, and the objects that an owner might manage.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_informer::Index;
use windlass_object::owner::{controller_of, controller_reference};
use windlass_object::{HasMetadata, LabelSelector, OwnerRef};

use super::claims::NamespacedKind;
use super::pods;

/// Returns the index key of an object. An object with a controller is indexed by the complete identity of the
/// controller and the namespace, because references contain no namespace. Orphans are indexed by namespace only.
pub(crate) fn by_controller<C: HasMetadata>(child: &C) -> [String; 1] {
    let metadata = child.metadata();
    let namespace = pods::namespace(metadata);
    let value = metadata.controller().map(|controller| controlled(namespace, controller));
    [value.unwrap_or_else(|| namespace.to_owned())]
}

/// Returns the index key of objects with this controller. Keys are unique, because no part contains a slash.
pub(crate) fn controlled(namespace: &str, controller: OwnerRef<'_>) -> String {
    let OwnerRef { kind, name, uid, .. } = controller;
    format!("{namespace}/{kind}/{name}/{uid}")
}

/// Returns the children of an owner and the orphans of its namespace, sorted by name.
pub(crate) fn candidates<C, O>(by_controller: &Index<C, String>, owner: &O) -> Vec<Arc<C>>
where
    C: Send + Sync + 'static,
    O: NamespacedKind,
{
    let namespace = pods::namespace(owner.meta()).to_owned();
    let owned = controlled(&namespace, (&controller_reference(owner)).into());
    by_controller.union([&namespace, &owned])
}

/// Returns whether an undecodable object belongs to the owner, or is an orphan that the owner would adopt.
pub(crate) fn might_belong(child: &ObjectMeta, owner: &ObjectMeta, selector: &LabelSelector) -> bool {
    match controller_of(child) {
        Some(controller) => controller.uid == pods::uid(owner),
        None => selector.matches(child.labels.as_ref()),
    }
}
