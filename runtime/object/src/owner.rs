//! Owner references and controller references.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ObjectMeta, Resource};

/// Returns the controller reference of this object. API servers allow at most one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_deref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Returns whether the owner with this UID is the controller of this object. A name is not sufficient: a recreated
/// owner has the same name and owns no objects yet.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// Returns a controller reference to `owner`. With foreground deletion, the owner is kept until its dependents are
/// deleted.
///
/// On clusters with the admission plugin `OwnerReferencesPermissionEnforcement`, a write with this reference needs the
/// verb `update` on the subresource `finalizers` of the owner. `Setup::owned` declares this rule.
///
/// An owner that was not read from a server has no UID. The UID of the reference is then empty, and API servers reject
/// the reference.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;

    use super::*;

    fn replica_set(uid: &str) -> ReplicaSet {
        ReplicaSet {
            metadata: ObjectMeta { name: Some("web".into()), uid: Some(uid.into()), ..Default::default() },
            ..Default::default()
        }
    }

    fn owned_by(references: Vec<OwnerReference>) -> ObjectMeta {
        ObjectMeta { owner_references: Some(references), ..Default::default() }
    }

    // parity: controllerutil-references
    #[test]
    fn controller_reference_makes_owner_the_controller() {
        let reference = controller_reference(&replica_set("u1"));
        assert_eq!((reference.api_version.as_str(), reference.kind.as_str()), ("apps/v1", "ReplicaSet"));
        assert_eq!(reference.block_owner_deletion, Some(true));
        let meta = owned_by(vec![reference]);
        assert!(is_controlled_by(&meta, "u1"));
        assert!(!is_controlled_by(&meta, "u2"), "owner with the same name and another UID");
    }

    #[test]
    fn owner_reference_without_controller_flag_is_not_controller() {
        let idle = OwnerReference { controller: None, ..controller_reference(&replica_set("u1")) };
        let meta = owned_by(vec![idle, controller_reference(&replica_set("u2"))]);
        assert_eq!(controller_of(&meta).map(|owner| owner.uid.as_str()), Some("u2"));
        assert_eq!(controller_of(&ObjectMeta::default()), None);
    }
}
