//! All keys of the queue in numbered slots, with their states.
//!
//! Other structures store the number of a slot instead of the key. Free slots are reused, so that adding and removing
//! keys does not allocate.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use windlass_env::Instant;

use crate::Priority;

/// Marks the end of a list; not the number of a slot.
pub(crate) const NONE: usize = usize::MAX;

pub(crate) struct Slots<K> {
    /// Numbers of used slots by key. Never iterated, so the hash order has no effect.
    numbers: HashTable<usize>,
    slots: Vec<Slot<K>>,
    /// First free slot.
    free: usize,
}

enum Slot<K> {
    Free { next: usize },
    Used(KeyRecord<K>),
}

/// Data of one key.
pub(crate) struct KeyRecord<K> {
    pub(crate) key: K,
    hash: u64,
    /// Number of its tenant.
    pub(crate) tenant: usize,
    pub(crate) state: SlotState,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotState {
    /// Neither queued nor in progress: delayed or parked.
    Idle,
    /// In the schedule.
    Queued,
    /// In progress.
    Processing { since: Instant },
    /// In progress, and added again.
    ProcessingDirty { since: Instant, added: Instant, priority: Priority },
}

impl<K: Eq> Slots<K> {
    pub(crate) fn new() -> Self {
        Slots { numbers: HashTable::new(), slots: Vec::new(), free: NONE }
    }

    pub(crate) fn find(&self, hash: u64, key: &K) -> Option<usize> {
        self.numbers.find(hash, |number| self.record(*number).key == *key).copied()
    }

    /// Returns the slot of a key, and the key itself if it was already present. For a new key, `tenant` returns its
    /// tenant.
    pub(crate) fn find_or_insert(
        &mut self,
        hash: u64,
        key: K,
        tenant: impl FnOnce(&K) -> usize,
    ) -> (usize, Option<K>) {
        let slots = &self.slots;
        let same = |number: &usize| in_use(&slots[*number]).key == key;
        let vacant = match self.numbers.entry(hash, same, |number| in_use(&slots[*number]).hash) {
            Entry::Occupied(found) => {
                let number = *found.get();
                return (number, Some(key));
            }
            Entry::Vacant(vacant) => vacant,
        };
        // The last call that can panic: nothing has changed yet.
        let tenant = tenant(&key);
        let number = if self.free == NONE { self.slots.len() } else { self.free };
        vacant.insert(number);
        let used = Slot::Used(KeyRecord { key, hash, tenant, state: SlotState::Idle });
        match self.slots.get_mut(number) {
            None => self.slots.push(used),
            Some(slot) => {
                if let Slot::Free { next } = std::mem::replace(slot, used) {
                    self.free = next;
                }
            }
        }
        (number, None)
    }

    pub(crate) fn remove(&mut self, number: usize) -> KeyRecord<K> {
        let hash = self.record(number).hash;
        if let Ok(found) = self.numbers.find_entry(hash, |other| *other == number) {
            found.remove();
        }
        let free = Slot::Free { next: self.free };
        self.free = number;
        match std::mem::replace(&mut self.slots[number], free) {
            Slot::Used(record) => record,
            Slot::Free { .. } => unreachable!("slot {number} is removed twice"),
        }
    }
}

impl<K> Slots<K> {
    pub(crate) fn record(&self, number: usize) -> &KeyRecord<K> {
        in_use(&self.slots[number])
    }

    /// Returns the number of slots, including free ones.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the data in a slot, or `None` if it is free.
    pub(crate) fn used(&self, number: usize) -> Option<&KeyRecord<K>> {
        match &self.slots[number] {
            Slot::Used(record) => Some(record),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn state_mut(&mut self, number: usize) -> &mut SlotState {
        match &mut self.slots[number] {
            Slot::Used(record) => &mut record.state,
            Slot::Free { .. } => unreachable!("a free slot is accessed by its number"),
        }
    }

    /// Returns the states of all keys, ordered by slot.
    pub(crate) fn states(&self) -> impl Iterator<Item = SlotState> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Used(record) => Some(record.state),
            Slot::Free { .. } => None,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

fn in_use<K>(slot: &Slot<K>) -> &KeyRecord<K> {
    match slot {
        Slot::Used(record) => record,
        Slot::Free { .. } => unreachable!("a free slot is accessed by its number"),
    }
}
