//! The subject of an event.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;

/// Returns the reference to an object in its events. It contains the version that was read, as in
/// kube-controller-manager.
pub(crate) fn event_reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference { resource_version: object.meta().resource_version.clone(), ..object.object_ref(&()) }
}
