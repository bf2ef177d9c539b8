//! Rechecks kinds when their CRDs change.

use std::sync::{Arc, Weak};

use windlass_object::{GroupResource, MetadataObjects, ObjectKey, ResourceKind, Scope};

use super::Inner;
use crate::informer::{ChangeObserver, Informer};

/// The kind of CustomResourceDefinitions.
const CRDS: ResourceKind = ResourceKind {
    group: std::borrow::Cow::Borrowed("apiextensions.k8s.io"),
    version: std::borrow::Cow::Borrowed("v1"),
    kind: std::borrow::Cow::Borrowed("CustomResourceDefinition"),
    plural: std::borrow::Cow::Borrowed("customresourcedefinitions"),
    scope: Scope::Cluster,
};

/// Only the names of the CRDs are required.
pub(super) fn representation() -> MetadataObjects {
    MetadataObjects::new(CRDS)
}

pub(super) fn is_crd(kind: &ResourceKind) -> bool {
    kind.group_resource() == CRDS.group_resource()
}

/// Rechecks the informers of a kind in `inner` when its CRD changes.
pub(super) fn link(inner: &Arc<Inner>, informer: &Informer) {
    let factory = Arc::downgrade(inner);
    informer.observe_changes(Arc::new(move |crd: &ObjectKey| recheck(&factory, crd)) as ChangeObserver);
}

/// The name of a CRD is `plural.group` of the kind that it defines.
fn recheck(factory: &Weak<Inner>, crd: &ObjectKey) {
    let (Some(inner), Some((plural, group))) = (factory.upgrade(), crd.name().split_once('.')) else {
        return;
    };
    let defined = GroupResource::new(group.to_owned(), plural.to_owned());
    for informer in inner.informers_of(&defined) {
        informer.recheck();
    }
}
