//! Kinds that come and go with their definitions: whoever is told of a definition looks again at what it defines.

use std::sync::{Arc, Weak};

use windlass_object::{GroupResource, Metadata, ObjectKey, ResourceKind, Scope};

use super::Inner;
use crate::informer::{ChangeObserver, Informer};

/// The kind of definitions.
const DEFINITIONS: ResourceKind = ResourceKind {
    group: std::borrow::Cow::Borrowed("apiextensions.k8s.io"),
    version: std::borrow::Cow::Borrowed("v1"),
    kind: std::borrow::Cow::Borrowed("CustomResourceDefinition"),
    plural: std::borrow::Cow::Borrowed("customresourcedefinitions"),
    scope: Scope::Cluster,
};

/// Their names are all that is needed.
pub(super) fn representation() -> Metadata {
    Metadata::new(DEFINITIONS)
}

pub(super) fn is_of_definitions(kind: &ResourceKind) -> bool {
    kind.group_resource() == DEFINITIONS.group_resource()
}

/// Has every informer of `inner` look again when its definition changes.
pub(super) fn link(inner: &Arc<Inner>, informer: &Informer) {
    let factory = Arc::downgrade(inner);
    informer
        .witness(Arc::new(move |definition: &ObjectKey| look_again(&factory, definition)) as ChangeObserver);
}

/// A definition is named after what it defines: `plural.group`.
fn look_again(factory: &Weak<Inner>, definition: &ObjectKey) {
    let (Some(inner), Some((plural, group))) = (factory.upgrade(), definition.name().split_once('.')) else {
        return;
    };
    let defined = GroupResource::new(group.to_owned(), plural.to_owned());
    for informer in inner.informers_of(&defined) {
        informer.look_again();
    }
}
