//! From what changed to which keys want work.
//!
//! A mapper is any function from an object to keys. After an update both the old and the new state are mapped, so that
//! a key an object no longer points at still hears of it; each key is enqueued once per event.

use kube::{Resource, ResourceExt};
use windlass_informer::Event;
use windlass_object::owner::controller_of;
use windlass_object::{ObjectKey, ResourceKind, Scope, Scoped};

/// The object's own key.
pub fn by_self<K: Resource>(object: &K) -> Vec<ObjectKey> {
    vec![ObjectKey::of(object.meta())]
}

/// The key of the controlling owner, if that owner is an `O`. Versions of the owner's group are not compared: an object
/// keeps the owner reference it was born with when its owner moves on to a newer version.
pub fn by_owner<O>(object: &impl Resource) -> Vec<ObjectKey>
where
    O: Resource<DynamicType = ()>,
    O::Scope: Scoped,
{
    let Some(owner) = controller_of(object.meta()) else { return Vec::new() };
    let owner_kind = ResourceKind::of::<O>();
    if owner.kind != owner_kind.kind || group(&owner.api_version) != owner_kind.group {
        return Vec::new();
    }
    let namespace = match owner_kind.scope {
        Scope::Namespaced => object.namespace(),
        Scope::Cluster => None,
    };
    vec![ObjectKey::new(namespace.as_deref(), &owner.name)]
}

/// The keys an event concerns: those of the old state first, then those only the new state adds.
pub(crate) fn keys_of<T>(event: &Event<T>, map: impl Fn(&T) -> Vec<ObjectKey>) -> Vec<ObjectKey> {
    match event {
        Event::Added { object, .. } => distinct(map(object)),
        Event::Updated { old, new, .. } => distinct([map(old), map(new)].concat()),
        Event::Deleted { last, .. } => distinct(map(last)),
    }
}

fn distinct(keys: Vec<ObjectKey>) -> Vec<ObjectKey> {
    let mut seen = std::collections::BTreeSet::new();
    keys.into_iter().filter(|key| seen.insert(key.clone())).collect()
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Node, Pod, ReplicationController};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
    use windlass_informer::Cause;

    use super::*;

    fn owned(api_version: &str, kind: &str, controller: Option<bool>) -> Pod {
        let owner = OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "web".into(),
            uid: "1".into(),
            controller,
            block_owner_deletion: None,
        };
        let metadata = ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("web-1".into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    #[test]
    fn only_the_controlling_owner_of_the_asked_kind_is_enqueued() {
        let web = ObjectKey::namespaced("shop", "web");
        let pod = owned("apps/v1", "ReplicaSet", Some(true));
        assert_eq!(by_owner::<ReplicaSet>(&pod), std::slice::from_ref(&web));
        assert_eq!(by_owner::<ReplicationController>(&pod), []);
        assert_eq!(by_owner::<ReplicaSet>(&owned("apps/v1", "ReplicaSet", None)), []);
        assert_eq!(by_owner::<ReplicaSet>(&owned("apps/v1beta2", "ReplicaSet", Some(true))), [web]);
        assert_eq!(by_owner::<ReplicaSet>(&owned("other.io/v1", "ReplicaSet", Some(true))), []);
    }

    #[test]
    fn a_cluster_scoped_owner_has_a_key_without_namespace() {
        assert_eq!(by_owner::<Node>(&owned("v1", "Node", Some(true))), [ObjectKey::cluster("web")]);
    }

    #[test]
    fn an_update_concerns_old_and_new_keys_once_each() {
        let key = ObjectKey::cluster;
        let map = |names: &Vec<&str>| names.iter().map(|name| key(name)).collect();
        let event = Event::Updated { old: vec!["a", "b"], new: vec!["b", "c"], cause: Cause::Watch };
        assert_eq!(keys_of(&event, map), [key("a"), key("b"), key("c")]);
    }
}
