//! Who owns an object, and whose word counts about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ObjectMeta, Resource};

/// The owner that manages this object. API servers allow one at most.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_deref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Whether the owner with this UID manages this object. Names are not enough: an owner deleted and created
/// again under the same name owns nothing yet.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// A reference that makes `owner` the managing owner, and keeps it until its dependents are gone when it is
/// deleted in the foreground.
///
/// An owner that never came from a server has no UID; the reference then carries an empty one, which API
/// servers refuse.
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
    fn reference_makes_its_owner_the_controller() {
        let reference = controller_reference(&replica_set("u1"));
        assert_eq!((reference.api_version.as_str(), reference.kind.as_str()), ("apps/v1", "ReplicaSet"));
        assert_eq!(reference.block_owner_deletion, Some(true));
        let meta = owned_by(vec![reference]);
        assert!(is_controlled_by(&meta, "u1"));
        assert!(!is_controlled_by(&meta, "u2"), "the same name with another UID is another owner");
    }

    #[test]
    fn owner_that_does_not_manage_is_not_the_controller() {
        let idle = OwnerReference { controller: None, ..controller_reference(&replica_set("u1")) };
        let meta = owned_by(vec![idle, controller_reference(&replica_set("u2"))]);
        assert_eq!(controller_of(&meta).map(|owner| owner.uid.as_str()), Some("u2"));
        assert_eq!(controller_of(&ObjectMeta::default()), None);
    }
}
