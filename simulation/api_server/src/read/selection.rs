//! Which objects of a collection are meant.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use serde_json::Value;
use windlass_object::shard::{self, ShardField};

use super::{FieldSelector, LabelSelector, ShardSelector};
use crate::storage::{Key, Stored};

/// Which objects of a collection are meant. The default is all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The only namespace; all of them if there is none.
    pub namespace: Option<Arc<str>>,
    /// What is asked of labels.
    pub labels: LabelSelector,
    /// What is asked of fields.
    pub fields: FieldSelector,
    /// The part of the ring of hashes; all of it if there is none.
    pub shard: Option<ShardSelector>,
}

impl Selection {
    /// Every object, or every one of a namespace.
    pub fn all(namespace: Option<Arc<str>>) -> Selection {
        Selection { namespace, ..Selection::default() }
    }

    /// Whether the object is meant.
    pub fn matches(&self, stored: &Stored) -> bool {
        self.namespace.as_ref().is_none_or(|it| *it == stored.key.namespace) && self.selects(stored)
    }

    /// Whether neither labels nor fields are asked for. Shards do not count, as upstream.
    pub fn is_unfiltered(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The objects of the namespace, from a key on.
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

    /// Whether the object has the labels and fields, and is of the shard; its namespace is known to fit.
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
        // Of a long list most objects are not taken apart, and are not to be for this.
        let labelled = || {
            let labels = stored.value.pointer("/metadata/labels");
            self.labels.matches(labels.as_deref().and_then(Value::as_object))
        };
        (self.labels.is_empty() || labelled()) && self.fields.matches(stored)
    }
}
