//! Indexes: what they are made of, and those that many controllers want.
//!
//! An [`Index`] is a name and a function that says under which values an object is found. Who adds the same index as
//! somebody else shares it: see [`SharedInformer::share_index`](crate::SharedInformer::share_index).
//!
//! ```
//! use windlass_informer::indexes;
//!
//! let index = indexes::by_node();
//! assert_eq!(index.name(), indexes::NODE);
//! // informer.share_index(&index)?;
//! // lister.by_index(indexes::NODE, "node-1")
//! ```

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;

use crate::erased::{self, Object};
use crate::indexer::IndexFunction;

/// The name of [`by_node`].
pub const NODE: &str = "node";
/// The name of [`by_ip`].
pub const IP: &str = "ip";
/// The name of [`by_owner_uid`].
pub const OWNER_UID: &str = "owner uid";
/// The name of [`by_controller_uid`].
pub const CONTROLLER_UID: &str = "controller uid";

/// A named index over objects of type `T`. Cheap to clone.
pub struct Index<T> {
    erased: ErasedIndex,
    object: PhantomData<fn(&T)>,
}

/// A named index over objects of any type.
#[derive(Clone)]
pub(crate) struct ErasedIndex {
    name: Arc<str>,
    values: IndexFunction<Object>,
    sameness: Sameness,
}

/// How one index is known to be another.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sameness {
    /// By the type of a function that captures nothing.
    Function(TypeId),
    /// By this description, which says all there is to know.
    Described(String),
    /// Only as a clone of itself.
    Itself,
}

impl<T: Send + Sync + 'static> Index<T> {
    /// An index by a function. If that captures nothing, every index of it and this name is the same; else only the
    /// clones of this one are.
    pub fn new<F>(name: &str, values: F) -> Self
    where
        F: Fn(&T) -> Vec<String> + Send + Sync + 'static,
    {
        let sameness = match size_of::<F>() {
            0 => Sameness::Function(TypeId::of::<F>()),
            _ => Sameness::Itself,
        };
        Self::with(name, values, sameness)
    }

    fn with(
        name: &str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
        sameness: Sameness,
    ) -> Self {
        let values = Arc::new(move |object: &Object| values(erased::borrowed(object)));
        Self { erased: ErasedIndex { name: name.into(), values, sameness }, object: PhantomData }
    }

    pub(crate) fn erased(&self) -> &ErasedIndex {
        &self.erased
    }

    /// The name under which it is asked.
    pub fn name(&self) -> &str {
        &self.erased.name
    }

    /// Returns the values of an object.
    pub fn values(&self, object: &Arc<T>) -> Vec<String> {
        (self.erased.values)(&(Arc::clone(object) as Object))
    }
}

impl ErasedIndex {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn function(&self) -> IndexFunction<Object> {
        Arc::clone(&self.values)
    }

    /// Whether the other finds the same objects under the same name, as far as can be known.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let alike = self.sameness == other.sameness && self.sameness != Sameness::Itself;
        self.name == other.name && (alike || Arc::ptr_eq(&self.values, &other.values))
    }
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self { erased: self.erased.clone(), object: PhantomData }
    }
}

impl<T> fmt::Debug for Index<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("name", &self.erased.name).finish_non_exhaustive()
    }
}

/// Pods by the node they are bound to. Those that are bound to none are not found.
pub fn by_node() -> Index<Pod> {
    Index::new(NODE, |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())
}

/// Pods by each of their addresses. A Pod that has ended keeps its address, which may be another's by now; and Pods on
/// the network of their node share its address.
pub fn by_ip() -> Index<Pod> {
    Index::new(IP, |pod: &Pod| {
        let Some(status) = &pod.status else { return Vec::new() };
        let several = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
        let mut addresses: Vec<String> = status.pod_ip.iter().cloned().chain(several).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    })
}

/// Objects of any kind by the UID of each of their owners.
pub fn by_owner_uid<K: Resource + Send + Sync + 'static>() -> Index<K> {
    Index::new(OWNER_UID, |object: &K| {
        let owners = object.meta().owner_references.iter().flatten();
        owners.map(|owner| owner.uid.clone()).collect()
    })
}

/// Objects of any kind by the UID of the owner that controls them.
pub fn by_controller_uid<K: Resource + Send + Sync + 'static>() -> Index<K> {
    Index::new(CONTROLLER_UID, |object: &K| {
        let owners = object.meta().owner_references.iter().flatten();
        owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).collect()
    })
}

/// Objects of any kind by their value of one label. Its name is `label ` and the label.
pub fn by_label<K: Resource + Send + Sync + 'static>(label: &str) -> Index<K> {
    let (name, key) = (format!("label {label}"), label.to_owned());
    let values = move |object: &K| {
        let labels = object.meta().labels.as_ref();
        labels.and_then(|labels| labels.get(&key)).cloned().into_iter().collect()
    };
    Index::with(&name.clone(), values, Sameness::Described(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(value).expect("a Pod"))
    }

    #[test]
    fn pods_are_found_by_node_and_by_each_of_their_addresses() {
        let bound = pod(json!({"spec": {"nodeName": "n1", "containers": []}, "status": {
            "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}));
        assert_eq!(by_node().values(&bound), ["n1"]);
        assert_eq!(by_ip().values(&bound), ["10.0.0.1", "fd00::1"]);
        let new = pod(json!({"spec": {"containers": []}}));
        assert!(by_node().values(&new).is_empty() && by_ip().values(&new).is_empty());
    }

    #[test]
    fn objects_are_found_by_each_owner_by_their_controller_and_by_a_label() {
        let owned = pod(json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u1"},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u2", "controller": true}]}}));
        assert_eq!(by_owner_uid::<Pod>().values(&owned), ["u1", "u2"]);
        assert_eq!(by_controller_uid::<Pod>().values(&owned), ["u2"]);
        assert_eq!(by_label::<Pod>("app").values(&owned), ["web"]);
        assert!(by_label::<Pod>("tier").values(&owned).is_empty());
    }

    #[test]
    fn indexes_are_the_same_if_they_must_be() {
        let captured = vec!["x".to_owned()];
        let by_capture = Index::new("x", move |_: &Pod| captured.clone());
        let cases = [
            (by_node(), by_node(), true),
            (by_label("app"), by_label("app"), true),
            (by_label("app"), by_label("tier"), false),
            (by_node(), Index::new(NODE, |_| Vec::new()), false),
            (by_capture.clone(), by_capture, true),
            (Index::new("x", |_| Vec::new()), Index::new("y", |_| Vec::new()), false),
        ];
        for (a, b, same) in cases {
            assert_eq!(a.erased().is_same(b.erased()), same, "{a:?} and {b:?}");
        }
    }
}
