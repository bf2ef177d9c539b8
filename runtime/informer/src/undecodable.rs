//! Objects that exist but cannot be decoded.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use kube::core::ObjectMeta;
use windlass_object::{ObjectKey, ResourceKind, ResourceVersion, Uid};

/// An existing object that cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct UndecodableObject {
    /// The object's key.
    pub key: ObjectKey,
    /// The UID, if readable.
    pub uid: Option<Uid>,
    /// The undecodable version, if readable.
    pub version: Option<ResourceVersion>,
    /// The decoding error.
    pub error: Arc<str>,
    /// The metadata, if decodable.
    pub metadata: Option<Arc<ObjectMeta>>,
}

/// An object exists and cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {key} exists and cannot be decoded: {reason}")]
pub struct UndecodableError {
    /// The kind of the object.
    pub kind: Box<ResourceKind>,
    /// The key of the object.
    pub key: ObjectKey,
    /// The reason why it cannot be decoded.
    pub reason: Arc<str>,
}

/// A snapshot of the objects that exist but cannot be decoded, in the order of their keys. Cheap to clone and to
/// compare with a later snapshot.
#[derive(Clone, Debug, Default)]
pub struct UndecodableObjects(OrdMap<ObjectKey, UndecodableObject>);

impl UndecodableObjects {
    pub(crate) fn new(objects: OrdMap<ObjectKey, UndecodableObject>) -> Self {
        Self(objects)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether every object can be decoded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the objects, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &UndecodableObject> {
        self.0.values()
    }

    /// Returns the object of that key, if it cannot be decoded.
    pub fn get(&self, key: &ObjectKey) -> Option<&UndecodableObject> {
        self.0.get(key)
    }

    /// Returns the keys that are in `earlier` and not in `self`, in order: each of these objects is now readable or
    /// deleted. If both snapshots are from the same informer, only the differences are visited.
    pub fn missing_since(&self, earlier: &Self) -> Vec<ObjectKey> {
        let removed = earlier.0.diff(&self.0).filter_map(|item| match item {
            DiffItem::Remove(key, _) => Some(key.clone()),
            DiffItem::Add(..) | DiffItem::Update { .. } => None,
        });
        removed.collect()
    }
}
