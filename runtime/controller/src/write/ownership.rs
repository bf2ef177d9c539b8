//! The rules of ownership between objects, compiled once for all kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use windlass_informer::Selection;
use windlass_object::owner::controller_of;
use windlass_object::{ObjectKey, ResourceKind, Scope, Verb};

use crate::error::{SetupError, WriteError};
use crate::setup::Setup;
use crate::write::writer::Grants;

/// Declares the requests and checks the scopes of children. Returns the selection of their watch.
pub(super) fn declare(
    setup: &mut Setup,
    child: &ResourceKind,
    parent: &ResourceKind,
    grants: Grants,
    selection: Selection,
) -> Selection {
    if grants.apply {
        // A child that is not in the cache is read before it is applied for the first time.
        setup.declared().uses(child, "", &[Verb::Get]);
    }
    // An owner reference that blocks the owner's deletion requires permission to set the owner's finalizers.
    setup.declared().uses(parent, "/finalizers", &[Verb::Update]);
    match (child.scope, parent.scope) {
        (Scope::Cluster, Scope::Namespaced) => {
            setup.fail(SetupError::Owned { child: child.to_string(), owner: parent.to_string() });
            selection
        }
        // Children are sharded by their namespaces; cluster-scoped owners are not sharded.
        (Scope::Namespaced, Scope::Cluster) => selection.with_every_shard(),
        (Scope::Namespaced, Scope::Namespaced) | (Scope::Cluster, Scope::Cluster) => selection,
    }
}

/// Sets the owner reference of a child, and the owner's name and namespace where the child has none.
pub(super) fn prepare(
    kind: &ResourceKind,
    child: &mut ObjectMeta,
    owner: &ObjectMeta,
    reference: OwnerReference,
) -> Result<(), WriteError> {
    if child.generate_name.is_none() {
        child.name = child.name.take().or_else(|| owner.name.clone());
    }
    if kind.scope == Scope::Namespaced {
        child.namespace = child.namespace.take().or_else(|| owner.namespace.clone());
    }
    set_owner(child, reference);
    check_namespace(kind, &ObjectKey::of(child), owner)
}

/// Adds the reference, or replaces an earlier reference to the same owner in its position: another order would be a
/// change.
pub(super) fn set_owner(child: &mut ObjectMeta, reference: OwnerReference) {
    let references = child.owner_references.get_or_insert_default();
    match references.iter_mut().find(|present| present.uid == reference.uid) {
        Some(present) => *present = reference,
        None => references.push(reference),
    }
}

/// Returns an error if the child is in another namespace than its owner.
pub(super) fn check_namespace(
    kind: &ResourceKind,
    child: &ObjectKey,
    owner: &ObjectMeta,
) -> Result<(), WriteError> {
    match owner.namespace.as_deref() {
        Some(namespace) if child.namespace() != Some(namespace) => {
            Err(WriteError::CrossNamespace { child: named(kind, child) })
        }
        _ => Ok(()),
    }
}

/// Returns an error if the owner neither controls the child nor adopts it.
pub(super) fn check_owner(
    kind: &ResourceKind,
    child: &ObjectMeta,
    owner: &OwnerReference,
    adopts: bool,
) -> Result<(), WriteError> {
    let controller = controller_of(child);
    let child = named(kind, &ObjectKey::of(child));
    match controller {
        Some(by) if by.uid == owner.uid => Ok(()),
        Some(by) if is_namesake(by, owner) => Err(WriteError::OfEarlierOwner { child, owner: described(by) }),
        Some(by) => Err(WriteError::NotOwned { child, by: described(by) }),
        None if adopts => Ok(()),
        None => Err(WriteError::NotAdopted { child }),
    }
}

/// Returns whether two owners have the same kind and name. Only one of them exists.
fn is_namesake(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group = |reference: &OwnerReference| reference.api_version.rsplit_once('/').map(|it| it.0.to_owned());
    one.kind == other.kind && one.name == other.name && group(one) == group(other)
}

fn described(owner: &OwnerReference) -> String {
    format!("{} {}", owner.kind, owner.name)
}

fn named(kind: &ResourceKind, child: &ObjectKey) -> String {
    format!("{kind} {child}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn owner(kind: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "example.com/v1".to_owned(),
            kind: kind.to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn child_of_deleted_namesake_differs_from_child_of_other_owner() {
        let error = |by: OwnerReference| {
            let child = ObjectMeta {
                name: Some("data".to_owned()),
                namespace: Some("shop".to_owned()),
                owner_references: Some(vec![by]),
                ..ObjectMeta::default()
            };
            let kind = ResourceKind::of::<ConfigMap>();
            check_owner(&kind, &child, &owner("Site", "new"), false).map_err(|error| error.to_string())
        };
        assert_eq!(error(owner("Site", "new")), Ok(()));
        let namesake = "cannot write configmaps.v1 shop/data: it belongs to an earlier Site web, which was deleted; \
                        wait until the garbage collector deletes it, or delete it";
        assert_eq!(error(owner("Site", "old")), Err(namesake.to_owned()));
        let other =
            "cannot write configmaps.v1 shop/data: Page web controls it; use another name, or delete it";
        assert_eq!(error(owner("Page", "old")), Err(other.to_owned()));
        let of_other_group = OwnerReference { api_version: "v1".to_owned(), ..owner("Site", "old") };
        assert!(error(of_other_group).is_err_and(|error| error.contains("Site web controls it")));
    }
}
