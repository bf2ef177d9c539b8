//! The objects of one moment that exist but cannot be decoded.

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use windlass_object::ObjectKey;

use crate::store::UndecodableObject;

/// The objects of one moment that exist but cannot be decoded. Cheap to clone, and cheap to compare with what it became.
#[derive(Clone, Debug, Default)]
pub struct UndecodableObjects(OrdMap<ObjectKey, UndecodableObject>);

impl UndecodableObjects {
    pub(crate) fn new(objects: OrdMap<ObjectKey, UndecodableObject>) -> Self {
        Self(objects)
    }

    /// The object of that key, if it is one of these.
    pub fn get(&self, key: &ObjectKey) -> Option<&UndecodableObject> {
        self.0.get(key)
    }

    /// Returns the keys that are in `earlier` and not here, in order: each is readable now, or gone. Of two moments of the
    /// same informer only what differs is visited.
    pub fn missing_since(&self, earlier: &Self) -> Vec<ObjectKey> {
        let removed = earlier.0.diff(&self.0).filter_map(|item| match item {
            DiffItem::Remove(key, _) => Some(key.clone()),
            DiffItem::Add(..) | DiffItem::Update { .. } => None,
        });
        removed.collect()
    }
}
