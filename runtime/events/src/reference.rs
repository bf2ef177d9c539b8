//! Naming an object so that an Event can be about it.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

/// A reference to this object, with the version it was seen at. Fields the object does not have are left out.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    #[test]
    fn a_reference_says_what_the_object_is_and_which() {
        let metadata = ObjectMeta {
            name: Some("web".to_owned()),
            namespace: Some("shop".to_owned()),
            uid: Some("u1".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        };
        let found = reference(&ReplicaSet { metadata, ..ReplicaSet::default() });
        assert_eq!(found.api_version.as_deref(), Some("apps/v1"));
        assert_eq!(found.kind.as_deref(), Some("ReplicaSet"));
        assert_eq!((found.namespace.as_deref(), found.name.as_deref()), (Some("shop"), Some("web")));
        assert_eq!((found.uid.as_deref(), found.resource_version.as_deref()), (Some("u1"), Some("7")));
    }
}
