//! A map that evicts the least recently used entry.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A map with at most `capacity` entries. Adding another entry evicts the least recently used one.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    capacity: usize,
    touches: u64,
    entries: BTreeMap<Arc<K>, Entry<V>>,
    order: BTreeMap<u64, Arc<K>>,
}

#[derive(Debug)]
struct Entry<V> {
    touched: u64,
    value: V,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, touches: 0, entries: BTreeMap::new(), order: BTreeMap::new() }
    }

    /// Returns the value of this key and marks it as used. Creates the value if it is missing.
    pub(crate) fn touch(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.touches += 1;
        let touched = self.touches;
        let before = self.entries.get(key).and_then(|entry| self.order.remove(&entry.touched));
        let key = before.unwrap_or_else(|| {
            if self.entries.len() >= self.capacity {
                self.forget_oldest();
            }
            Arc::new(key.clone())
        });
        self.order.insert(touched, key.clone());
        let entry = self.entries.entry(key).or_insert_with(|| Entry { touched, value: make() });
        entry.touched = touched;
        &mut entry.value
    }

    /// Evicts the least recently used entries as long as they are obsolete.
    pub(crate) fn forget_oldest_while(&mut self, meaningless: impl Fn(&V) -> bool) {
        while self.oldest().is_some_and(&meaningless) {
            self.forget_oldest();
        }
    }

    fn oldest(&self) -> Option<&V> {
        let key = self.order.values().next()?;
        self.entries.get(key).map(|entry| &entry.value)
    }

    fn forget_oldest(&mut self) {
        if let Some((_, oldest)) = self.order.pop_first() {
            self.entries.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // parity: memories-4096-entries
    #[test]
    fn least_recently_used_entry_is_evicted() {
        let mut lru = Lru::new(2);
        *lru.touch(&"a", || 0) = 1;
        *lru.touch(&"b", || 0) = 2;
        assert_eq!(*lru.touch(&"a", || 0), 1);
        lru.touch(&"c", || 3);
        assert_eq!(*lru.touch(&"a", || 0), 1);
        assert_eq!(*lru.touch(&"b", || 9), 9, "b was evicted");
        assert_eq!(lru.entries.len(), 2);
        assert_eq!(lru.order.len(), 2);
    }

    #[test]
    fn obsolete_entries_are_evicted_oldest_first() {
        let mut lru = Lru::new(9);
        for key in ["a", "b", "c", "d"] {
            lru.touch(&key, || key);
        }
        lru.touch(&"a", || "a");
        lru.forget_oldest_while(|value| ["a", "b", "d"].contains(value));
        assert_eq!(lru.entries.keys().map(|key| **key).collect::<Vec<_>>(), ["a", "c", "d"]);
        lru.forget_oldest_while(|_| true);
        assert_eq!((lru.entries.len(), lru.order.len()), (0, 0));
    }
}
