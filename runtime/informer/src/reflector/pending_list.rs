//! The objects of a watch-list stream that is not complete.

use std::collections::BTreeMap;

use windlass_object::ObjectKey;

use crate::delta_fifo::Item;
use crate::object::Object;

/// The last state of each object so far. Servers send a list in the order of its keys, so most objects are in a vector,
/// which takes less than half of the memory of a map.
#[derive(Default)]
pub(super) struct PendingList {
    /// The objects that arrived in order of their keys.
    ordered: Vec<Item<Object>>,
    /// The other objects, and later states of ordered objects; `None` if deleted. No key is greater than the last key
    /// of `ordered`.
    others: BTreeMap<ObjectKey, Option<Item<Object>>>,
}

impl PendingList {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Item<Object>> {
        match self.others.get(key) {
            Some(other) => other.as_ref(),
            None => self.ordered.binary_search_by(|it| it.head.key.cmp(key)).ok().map(|at| &self.ordered[at]),
        }
    }

    pub(super) fn insert(&mut self, item: Item<Object>) {
        if self.ordered.last().is_none_or(|last| last.head.key < item.head.key) {
            self.ordered.push(item);
        } else {
            self.others.insert(item.head.key.clone(), Some(item));
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if self.get(key).is_some() {
            self.others.insert(key.clone(), None);
        }
    }

    /// Returns the objects, ordered by key.
    pub(super) fn into_items(self) -> Vec<Item<Object>> {
        let Self { ordered: mut items, others } = self;
        if !others.is_empty() {
            items.retain(|item| !others.contains_key(&item.head.key));
            items.extend(others.into_values().flatten());
            items.sort_unstable_by(|a, b| a.head.key.cmp(&b.head.key));
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use windlass_object::ObjectHeader;

    use super::*;
    use crate::delta_fifo::Body;
    use crate::testing::{at, key};

    fn item(name: &str, version: u64) -> Item<Object> {
        let head = ObjectHeader { key: key(name), uid: None, version: Some(at(version)) };
        Item { head, body: Body::Decoded(Arc::new(())), bytes: 1 }
    }

    proptest! {
        #[test]
        fn pending_list_behaves_like_a_map(
            changes in proptest::collection::vec((any::<bool>(), 0..8_u64, 1..100_u64), 0..24),
        ) {
            let (mut list, mut map) = (PendingList::default(), BTreeMap::new());
            for (is_added, number, version) in changes {
                let name = number.to_string();
                if is_added {
                    list.insert(item(&name, version));
                    map.insert(key(&name), item(&name, version).head);
                } else {
                    list.remove(&key(&name));
                    map.remove(&key(&name));
                }
                let heads = (0..8).map(|number| list.get(&key(&number.to_string())).map(|it| it.head.clone()));
                prop_assert_eq!(heads.flatten().collect::<Vec<_>>(), map.values().cloned().collect::<Vec<_>>());
            }
            let items = list.into_items().into_iter().map(|item| item.head);
            prop_assert_eq!(items.collect::<Vec<_>>(), map.into_values().collect::<Vec<_>>());
        }
    }
}
