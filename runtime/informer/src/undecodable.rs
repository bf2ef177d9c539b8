//! Snapshots of the objects that exist but cannot be decoded.

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use windlass_object::ObjectKey;

use crate::store::UndecodableObject;

/// A snapshot of the objects that exist but cannot be decoded. Cheap to clone and to compare with a later snapshot.
#[derive(Clone, Debug, Default)]
pub struct UndecodableObjects(OrdMap<ObjectKey, UndecodableObject>);

impl UndecodableObjects {
    pub(crate) fn new(objects: OrdMap<ObjectKey, UndecodableObject>) -> Self {
        Self(objects)
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
