//! The objects of a watch-list stream that is not complete.

use std::collections::BTreeMap;

use windlass_object::ObjectKey;

use crate::delta_fifo::Item;
use crate::object::Object;

/// The last state of each object so far. Servers with a consistent cache send a list in order, so most objects are in a
/// vector, which takes less than half of the memory of a map. A deletion moves the rest of the vector.
#[derive(Default)]
pub(super) struct PendingList {
    /// Objects in the order of the server.
    ordered: Vec<Item<Object>>,
    /// The other objects.
    others: BTreeMap<ObjectKey, Item<Object>>,
}

impl PendingList {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Item<Object>> {
        match self.position(key) {
            Ok(at) => self.ordered.get(at),
            Err(_) => self.others.get(key),
        }
    }

    pub(super) fn insert(&mut self, item: Item<Object>) {
        match self.position(&item.head.key) {
            Ok(at) => self.ordered[at] = item,
            Err(at) if at == self.ordered.len() && !self.others.contains_key(&item.head.key) => {
                self.ordered.push(item);
            }
            Err(_) => drop(self.others.insert(item.head.key.clone(), item)),
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        match self.position(key) {
            Ok(at) => drop(self.ordered.remove(at)),
            Err(_) => drop(self.others.remove(key)),
        }
    }

    /// Returns the objects in the order of the server.
    pub(super) fn into_items(self) -> Vec<Item<Object>> {
        let Self { ordered: mut items, others } = self;
        if !others.is_empty() {
            items.reserve_exact(others.len());
            items.extend(others.into_values());
            items.sort_unstable_by(|a, b| a.head.key.as_str().cmp(b.head.key.as_str()));
        }
        items
    }

    /// Returns the position of a key in `ordered`, or the position at which it would be.
    fn position(&self, key: &ObjectKey) -> Result<usize, usize> {
        let end = self.ordered.len();
        // The usual case: the next key of a list.
        if self.ordered.last().is_none_or(|last| last.head.key.as_str() < key.as_str()) {
            return Err(end);
        }
        self.ordered.binary_search_by(|it| it.head.key.as_str().cmp(key.as_str()))
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

    #[test]
    fn replaced_and_deleted_states_are_dropped_at_once() {
        let mut list = PendingList::default();
        let state = |name: &str| {
            let object: Object = Arc::new(());
            (Arc::downgrade(&object), Item { body: Body::Decoded(object), ..item(name, 1) })
        };
        for name in ["b", "a"] {
            let ((first, item), (second, successor)) = (state(name), state(name));
            list.insert(item);
            list.insert(successor);
            assert_eq!((first.strong_count(), second.strong_count()), (0, 1), "{name}");
            list.remove(&key(name));
            assert_eq!(second.strong_count(), 0, "{name}");
            list.insert(state(name).1);
        }
    }

    #[test]
    fn namespace_that_begins_with_another_is_in_the_order_of_the_server() {
        let mut list = PendingList::default();
        for namespace in ["shop-eu", "shop"] {
            let head = ObjectHeader { key: ObjectKey::namespaced(namespace, "a"), ..item("a", 1).head };
            list.insert(Item { head, ..item("a", 1) });
        }
        assert_eq!((list.ordered.len(), list.others.len()), (2, 0));
    }
}
