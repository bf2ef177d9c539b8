//! A map that forgets what was used longest ago. Knows nothing of events.

use std::collections::BTreeMap;

/// At most `capacity` entries; making one more forgets the one not touched for longest.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    capacity: usize,
    touches: u64,
    entries: BTreeMap<K, Entry<V>>,
    order: BTreeMap<u64, K>,
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

    /// The value under this key, made if there is none.
    pub(crate) fn touch(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.touches += 1;
        let touched = self.touches;
        match self.entries.get(key) {
            Some(entry) => {
                self.order.remove(&entry.touched);
            }
            None => self.forget_down_to(self.capacity.saturating_sub(1)),
        }
        self.order.insert(touched, key.clone());
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry { touched, value: make() });
        entry.touched = touched;
        &mut entry.value
    }

    fn forget_down_to(&mut self, count: usize) {
        while self.entries.len() > count {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_not_touched_for_longest_is_forgotten() {
        let mut lru = Lru::new(2);
        *lru.touch(&"a", || 0) = 1;
        *lru.touch(&"b", || 0) = 2;
        assert_eq!(*lru.touch(&"a", || 0), 1);
        lru.touch(&"c", || 3);
        assert_eq!(*lru.touch(&"a", || 0), 1);
        assert_eq!(*lru.touch(&"b", || 9), 9, "b was forgotten");
        assert_eq!(lru.entries.len(), 2);
        assert_eq!(lru.order.len(), 2);
    }
}
