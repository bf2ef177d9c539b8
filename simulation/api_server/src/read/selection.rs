//! Selection of objects in a collection.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use serde_json::Value;
use windlass_object::shard::{self, ShardField};

use super::{FieldSelector, LabelSelector, ShardSelector};
use crate::storage::{Key, Stored};

/// A selection of objects. The default selects all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Namespace; `None` for all namespaces.
    pub namespace: Option<Arc<str>>,
    /// Label selector.
    pub labels: LabelSelector,
    /// Field selector.
    pub fields: FieldSelector,
    /// Shard; `None` for all objects.
    pub shard: Option<ShardSelector>,
}

impl Selection {
    /// Selects all objects, or all objects of a namespace.
    pub fn all(namespace: Option<Arc<str>>) -> Selection {
        Selection { namespace, ..Selection::default() }
    }

    /// Returns whether the object is selected.
    pub fn matches(&self, stored: &Stored) -> bool {
        self.namespace.as_ref().is_none_or(|it| *it == stored.key.namespace) && self.selects(stored)
    }

    /// Returns whether there is no label and no field selector. Shards do not count, as upstream.
    pub fn is_unfiltered(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the objects of the namespace, starting at a key.
    pub(super) fn range<'a>(
        &'a self,
        objects: &'a OrdMap<Key, Arc<Stored>>,
        from: Option<Key>,
    ) -> impl Iterator<Item = &'a Arc<Stored>> {
        let start = from.or_else(|| Some(Key::new(Arc::clone(self.namespace.as_ref()?), "")));
        let range = (start.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded);
        let inside = |key: &Key| self.namespace.as_ref().is_none_or(|it| *it == key.namespace);
        objects.range(range).take_while(move |(key, _)| inside(key)).map(|(_, stored)| stored)
    }

    /// Returns whether labels, fields and shard match; the caller has checked the namespace.
    pub(super) fn selects(&self, stored: &Stored) -> bool {
        self.is_of_shard(stored) && self.has_what_is_asked(stored)
    }

    fn is_of_shard(&self, stored: &Stored) -> bool {
        let Some(selector) = &self.shard else { return true };
        selector.selects(match selector.field {
            ShardField::Namespace => shard::hash(&stored.key.namespace),
            ShardField::Uid => {
                let uid = stored.value.pointer("/metadata/uid");
                shard::hash(uid.as_deref().and_then(Value::as_str).unwrap_or_default())
            }
        })
    }

    fn has_what_is_asked(&self, stored: &Stored) -> bool {
        // A pointer lookup avoids decoding all objects of a long list.
        let labeled = || {
            let labels = stored.value.pointer("/metadata/labels");
            self.labels.matches(labels.as_deref().and_then(Value::as_object))
        };
        (self.labels.is_empty() || labeled()) && self.fields.matches(stored)
    }
}
