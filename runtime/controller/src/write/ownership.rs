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
    owner: &ObjectMeta,
    adopts: bool,
) -> Result<(), WriteError> {
    let by = match controller_of(child) {
        Some(controller) if Some(&controller.uid) == owner.uid.as_ref() => return Ok(()),
        Some(other) => Some(format!("{} {}", other.kind, other.name)),
        None if adopts => return Ok(()),
        None => None,
    };
    let child = named(kind, &ObjectKey::of(child));
    Err(match by {
        Some(by) => WriteError::NotOwned { child, by },
        None => WriteError::NotAdopted { child },
    })
}

fn named(kind: &ResourceKind, child: &ObjectKey) -> String {
    format!("{kind} {child}")
}
