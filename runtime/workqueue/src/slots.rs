//! Every key the queue knows of, each in a numbered slot, and where it is.
//!
//! A slot's number is what the other structures hold instead of the key. A slot that is left is used again, so that
//! keys that come and go allocate nothing.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use windlass_env::Instant;

use crate::Priority;

/// The number of no slot: the end of a list.
pub(crate) const NONE: usize = usize::MAX;

pub(crate) struct Slots<K> {
    /// The numbers of used slots by key. Never iterated: the order of a hash reaches nobody.
    numbers: HashTable<usize>,
    slots: Vec<Slot<K>>,
    /// The first of the free slots.
    free: usize,
    hasher: FixedState,
}

enum Slot<K> {
    Free { next: usize },
    Used(KeyRecord<K>),
}

/// What there is to know of one key.
pub(crate) struct KeyRecord<K> {
    pub(crate) key: K,
    hash: u64,
    /// The number of its tenant.
    pub(crate) tenant: usize,
    pub(crate) place: SlotState,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotState {
    /// Neither waiting nor held: delayed or parked.
    Idle,
    /// In the schedule.
    Queued,
    /// With a worker.
    Processing { since: Instant },
    /// With a worker, and added again meanwhile.
    HeldAgain { since: Instant, added: Instant, priority: Priority },
}

impl<K: Eq + Hash> Slots<K> {
    /// No keys. The seed keeps strangers who choose keys from choosing ones that collide.
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Slots { numbers: HashTable::new(), slots: Vec::new(), free: NONE, hasher }
    }

    pub(crate) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn find(&self, hash: u64, key: &K) -> Option<usize> {
        self.numbers.find(hash, |number| self.record(*number).key == *key).copied()
    }

    /// The slot of a key: a new one if it is not here, of whom `tenant` then says whose it is. A key that is here is
    /// returned as well.
    pub(crate) fn find_or_insert(&mut self, key: K, tenant: impl FnOnce(&K) -> usize) -> (usize, Option<K>) {
        let hash = self.hash(&key);
        let slots = &self.slots;
        let same = |number: &usize| in_use(&slots[*number]).key == key;
        let vacant = match self.numbers.entry(hash, same, |number| in_use(&slots[*number]).hash) {
            Entry::Occupied(found) => {
                let number = *found.get();
                return (number, Some(key));
            }
            Entry::Vacant(vacant) => vacant,
        };
        // The last that may panic: nothing has changed so far.
        let tenant = tenant(&key);
        let number = if self.free == NONE { self.slots.len() } else { self.free };
        vacant.insert(number);
        let used = Slot::Used(KeyRecord { key, hash, tenant, place: SlotState::Idle });
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
            Slot::Free { .. } => unreachable!("slot {number} is left twice"),
        }
    }
}

impl<K> Slots<K> {
    pub(crate) fn record(&self, number: usize) -> &KeyRecord<K> {
        in_use(&self.slots[number])
    }

    /// How many slots there are, free ones included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// What is in a slot; nothing if it is free.
    pub(crate) fn used(&self, number: usize) -> Option<&KeyRecord<K>> {
        match &self.slots[number] {
            Slot::Used(record) => Some(record),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn place_mut(&mut self, number: usize) -> &mut SlotState {
        match &mut self.slots[number] {
            Slot::Used(record) => &mut record.place,
            Slot::Free { .. } => unreachable!("a slot somebody holds the number of is in use"),
        }
    }

    /// Where every key is, in the order of the slots.
    pub(crate) fn places(&self) -> impl Iterator<Item = SlotState> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Used(record) => Some(record.place),
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
        Slot::Free { .. } => unreachable!("a slot somebody holds the number of is in use"),
    }
}
