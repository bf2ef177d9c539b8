//! Indexes: values under which the objects of a lister are found, and functions that many controllers index by.
//!
//! Guarantees: an index and the objects that it returns are from one snapshot. An index exists as long as its
//! [`Index`] or a clone of it.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use windlass_informer::{Index, Lister, indexes};
//!
//! struct Nodes {
//!     pods_by_node: Index<Pod, String>,
//! }
//!
//! impl Nodes {
//!     fn new(pods: &Lister<Pod>) -> Self {
//!         Self { pods_by_node: pods.index(indexes::node_name) }
//!     }
//!
//!     fn pods_on(&self, node: &str) -> usize {
//!         self.pods_by_node.count(&node.to_owned())
//!     }
//! }
//! ```

use std::any::{TypeId, type_name, type_name_of_val};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use imbl::OrdMap;
use k8s_openapi::api::core::v1::Pod;
use windlass_object::{HasMetadata, ObjectKey, Uid};

use crate::indexer::{Entries, IndexId, NewIndex};
use crate::object::Object;
use crate::reader::Reader;

/// An index over the objects of a lister, by values of one type. Cheap to clone. See
/// [`Lister::index`](crate::Lister::index).
pub struct Index<T, V> {
    handle: Arc<IndexHandle>,
    types: PhantomData<fn(&V) -> T>,
}

/// A type that objects can be indexed by.
pub trait IndexValue: Sized + 'static {
    /// Writes the value. Different values are written differently.
    fn encode(&self, text: &mut String);

    /// Reads what [`encode`](Self::encode) wrote.
    fn decode(text: &str) -> Option<Self>;
}

/// Maximum number of steps to the next object before it is searched.
const MAX_STEPS: usize = 4;
/// Number of searches after which the objects are assumed to be no neighbors, so that all others are searched
/// individually.
const MAX_SEARCHES: usize = 16;

/// One use of an index, of objects and values of any type.
struct IndexHandle {
    reader: Reader,
    id: IndexId,
}

impl<T: Send + Sync + 'static, V: IndexValue> Index<T, V> {
    pub(crate) fn new<F, I>(reader: Reader, values: F) -> Self
    where
        F: Fn(&T) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
    {
        let function_type = (size_of::<F>() == 0).then(TypeId::of::<F>);
        let name = type_name_of_val(&values);
        let codec = Arc::clone(&reader.informer.codec);
        let values = Arc::new(move |object: &Object| {
            values(&codec.read::<T>(object)).into_iter().map(|value| encoded(&value)).collect()
        });
        let id = reader.informer.add_index(NewIndex { name, values, function_type });
        Self { handle: Arc::new(IndexHandle { reader, id }), types: PhantomData }
    }

    /// Returns the objects under this value, in the order of their keys. Only these objects are decoded.
    pub fn get(&self, value: &V) -> Vec<Arc<T>> {
        self.handle.reader.collected(|visit| self.handle.objects(&encoded(value), visit))
    }

    /// Returns the objects under at least one of these values, in the order of their keys. All are from one snapshot,
    /// so an object that moves from one value to another is not missed.
    pub fn union<const N: usize>(&self, values: [&V; N]) -> Vec<Arc<T>> {
        let values = values.map(encoded);
        self.handle.reader.collected(|visit| self.handle.union(&values, visit))
    }

    /// Returns the keys of the objects under this value, in order.
    pub fn keys(&self, value: &V) -> Vec<ObjectKey> {
        self.handle.keys(&encoded(value))
    }

    /// Returns how many objects are under this value.
    pub fn count(&self, value: &V) -> usize {
        self.handle.count(&encoded(value))
    }

    /// Returns all values under which there are objects.
    pub fn values(&self) -> Vec<V> {
        self.handle.values().iter().filter_map(|text| V::decode(text)).collect()
    }
}

impl IndexHandle {
    fn objects(&self, value: &str, visit: &mut dyn FnMut(&Object)) {
        let snapshot = self.reader.informer.store.snapshot();
        let entries = snapshot.index(self.id).into_iter();
        visit_each(snapshot.objects(), entries.flat_map(|entries| entries.keys(value)), visit);
    }

    fn union(&self, values: &[String], visit: &mut dyn FnMut(&Object)) {
        let snapshot = self.reader.informer.store.snapshot();
        let Some(entries) = snapshot.index(self.id) else { return };
        let filled: Vec<&String> = values.iter().filter(|value| entries.count(value) > 0).collect();
        let mut keys: Vec<_> = filled.iter().flat_map(|value| entries.keys(value)).collect();
        if filled.len() > 1 {
            // Each value contributes a sorted run, so sorting compares neighbors only.
            keys.sort();
            keys.dedup();
        }
        visit_each(snapshot.objects(), keys.into_iter(), visit);
    }

    fn keys(&self, value: &str) -> Vec<ObjectKey> {
        self.read(|entries| entries.keys(value).cloned().collect())
    }

    fn count(&self, value: &str) -> usize {
        self.read(|entries| entries.count(value))
    }

    fn values(&self) -> Vec<String> {
        self.read(|entries| entries.values().map(str::to_owned).collect())
    }

    fn read<O: Default>(&self, read: impl FnOnce(&Entries) -> O) -> O {
        self.reader.informer.store.snapshot().index(self.id).map(read).unwrap_or_default()
    }
}

/// Visits the objects of these keys, which are sorted. Objects under one value are often neighbors in the store, and a
/// step to a neighbor is several times faster than a search.
fn visit_each<'a>(
    objects: &'a OrdMap<ObjectKey, Object>,
    keys: impl Iterator<Item = &'a ObjectKey>,
    visit: &mut dyn FnMut(&Object),
) {
    let mut neighbors = None;
    let mut searches = 0;
    for key in keys {
        if searches > MAX_SEARCHES {
            objects.get(key).into_iter().for_each(&mut *visit);
            continue;
        }
        let mut steps = neighbors.iter_mut().flatten().take(MAX_STEPS);
        let object = match steps.find(|(neighbor, _)| *neighbor >= key) {
            Some((neighbor, object)) if neighbor == key => Some(object),
            _ => {
                searches += 1;
                let found = neighbors.insert(objects.range::<_, ObjectKey>(key..)).next();
                found.filter(|(neighbor, _)| *neighbor == key).map(|(_, object)| object)
            }
        };
        object.into_iter().for_each(&mut *visit);
    }
}

impl Drop for IndexHandle {
    fn drop(&mut self) {
        self.reader.informer.remove_index(self.id);
    }
}

fn encoded(value: &impl IndexValue) -> String {
    let mut text = String::new();
    value.encode(&mut text);
    text
}

impl IndexValue for String {
    fn encode(&self, text: &mut String) {
        text.push_str(self);
    }

    fn decode(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl IndexValue for Uid {
    fn encode(&self, text: &mut String) {
        text.push_str(self.as_str());
    }

    fn decode(text: &str) -> Option<Self> {
        Some(text.into())
    }
}

/// Values whose text can be parsed again.
macro_rules! parsed {
    ($($value:ty),+) => {$(
        impl IndexValue for $value {
            fn encode(&self, text: &mut String) {
                text.push_str(&self.to_string());
            }

            fn decode(text: &str) -> Option<Self> {
                Self::from_str(text).ok()
            }
        }
    )+};
}

parsed!(ObjectKey, bool, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// The length of the first value, a colon, the first value and the second.
impl<A: IndexValue, B: IndexValue> IndexValue for (A, B) {
    fn encode(&self, text: &mut String) {
        let first = encoded(&self.0);
        text.push_str(&format!("{}:{first}", first.len()));
        self.1.encode(text);
    }

    fn decode(text: &str) -> Option<Self> {
        let (length, rest) = text.split_once(':')?;
        let (first, second) = rest.split_at_checked(length.parse().ok()?)?;
        Some((A::decode(first)?, B::decode(second)?))
    }
}

/// Returns the name of the node that the Pod is bound to; `None` if it is not bound.
pub fn node_name(pod: &Pod) -> Option<String> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone())
}

/// Returns the addresses of the Pod. A Pod that has ended keeps its address, which another Pod can have by now; Pods on
/// the network of their node share its address.
pub fn pod_ips(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else { return Vec::new() };
    let several = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
    let mut addresses: Vec<String> = status.pod_ip.iter().cloned().chain(several).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Returns the UIDs of the owners of the object.
pub fn owner_uids<K: HasMetadata>(object: &K) -> Vec<Uid> {
    object.metadata().owners().map(|owner| owner.uid.into()).collect()
}

/// Returns the UID of the owner that controls the object; `None` if no owner does.
pub fn controller_uid<K: HasMetadata>(object: &K) -> Option<Uid> {
    object.metadata().controller().map(|owner| owner.uid.into())
}

/// Returns a function from an object to its value of this label.
pub fn label_value<K: HasMetadata>(label: &str) -> impl Fn(&K) -> Option<String> + Send + Sync + use<K> {
    let label = label.to_owned();
    move |object| object.metadata().labels().get(&label).map(str::to_owned)
}

impl<T, V> Clone for Index<T, V> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), types: PhantomData }
    }
}

impl<T, V> fmt::Debug for Index<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index<{}, {}>", type_name::<T>(), type_name::<V>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).expect("a Pod")
    }

    // parity: add-indexers-index, label-lists-linear
    #[test]
    fn pods_are_found_by_node_and_by_each_of_their_addresses() {
        let bound = pod(json!({"spec": {"nodeName": "n1", "containers": []}, "status": {
            "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}));
        assert_eq!(node_name(&bound).as_deref(), Some("n1"));
        assert_eq!(pod_ips(&bound), ["10.0.0.1", "fd00::1"]);
        let new = pod(json!({"spec": {"containers": []}}));
        assert!(node_name(&new).is_none() && pod_ips(&new).is_empty());
    }

    // parity: listers-labels-linear-scan, label-lists-linear
    #[test]
    fn objects_are_found_by_each_owner_by_their_controller_and_by_a_label() {
        let owned = pod(json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u1"},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u2", "controller": true}]}}));
        assert_eq!(owner_uids(&owned), [Uid::from("u1"), Uid::from("u2")]);
        assert_eq!(controller_uid(&owned), Some(Uid::from("u2")));
        assert_eq!(label_value("app")(&owned).as_deref(), Some("web"));
        assert!(label_value("tier")(&owned).is_none());
    }

    proptest! {
        #[test]
        fn objects_of_sorted_keys_are_visited(stored in any_keys(0..300), wanted in any_keys(0..100)) {
            let key = |number: &u16| ObjectKey::namespaced("n", &number.to_string());
            let objects: OrdMap<ObjectKey, Object> =
                stored.iter().map(|number| (key(number), Arc::new(*number) as Object)).collect();
            let keys: BTreeSet<ObjectKey> = wanted.iter().map(key).collect();
            let mut visited = Vec::new();
            visit_each(&objects, keys.iter(), &mut |object| visited.push(Arc::clone(object)));
            let expected: Vec<&Object> = keys.iter().filter_map(|key| objects.get(key)).collect();
            prop_assert_eq!(visited.len(), expected.len());
            prop_assert!(visited.iter().zip(expected).all(|(one, other)| Arc::ptr_eq(one, other)));
        }
    }

    fn any_keys(size: std::ops::Range<usize>) -> impl Strategy<Value = BTreeSet<u16>> {
        proptest::collection::btree_set(0_u16..400, size)
    }

    #[test]
    fn index_values_round_trip_and_encode_distinctly() {
        fn check<V: IndexValue + PartialEq + fmt::Debug>(values: &[V]) {
            for (at, value) in values.iter().enumerate() {
                assert_eq!(V::decode(&encoded(value)).as_ref(), Some(value));
                assert!(values[..at].iter().all(|other| encoded(other) != encoded(value)), "{value:?}");
            }
        }
        check(&["".to_owned(), "a".to_owned(), "1:a".to_owned()]);
        check(&[ObjectKey::cluster("a"), ObjectKey::namespaced("a", "b")]);
        check(&[-1_i64, 0, i64::MAX]);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        check(&[pair("", "ab"), pair("a", "b"), pair("ab", ""), pair("1:", "a")]);
    }
}
