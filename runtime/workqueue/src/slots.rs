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
    /// Numbers for reuse.
    free: Vec<usize>,
}

/// Data of one key. The key is separate from the rest, so that the removal moves only the key.
struct Slot<K> {
    /// `None` while the slot is free.
    key: Option<K>,
    hash: u64,
    /// Number of its tenant.
    tenant: usize,
    state: SlotState,
    /// Whether the key does not rest after its processing.
    skips_rest: bool,
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
    /// Processed, and not added since: an add before its rest ends waits for the end.
    Resting,
    /// Added during its processing or its rest, and queued when the rest ends.
    RestingDirty { added: Instant, priority: Priority },
}

impl<K: Eq> Slots<K> {
    pub(crate) fn new() -> Self {
        Slots { numbers: HashTable::new(), slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn find(&self, hash: u64, key: &K) -> Option<usize> {
        self.numbers.find(hash, |number| self.slots[*number].key.as_ref() == Some(key)).copied()
    }

    /// Returns the slot of a key, and the key itself if it was already present. For a new key, `tenant` returns its
    /// tenant.
    #[inline]
    pub(crate) fn find_or_insert(
        &mut self,
        hash: u64,
        key: K,
        tenant: impl FnOnce(&K) -> usize,
    ) -> (usize, Option<K>) {
        let slots = &self.slots;
        let same = |number: &usize| slots[*number].key.as_ref() == Some(&key);
        let vacant = match self.numbers.entry(hash, same, |number| slots[*number].hash) {
            Entry::Occupied(found) => return (*found.get(), Some(key)),
            Entry::Vacant(vacant) => vacant,
        };
        // The last call that can panic: nothing has changed yet.
        let tenant = tenant(&key);
        let number = self.free.pop().unwrap_or(self.slots.len());
        vacant.insert(number);
        let used = Slot { key: Some(key), hash, tenant, state: SlotState::Idle, skips_rest: false };
        match self.slots.get_mut(number) {
            Some(slot) => *slot = used,
            None => self.slots.push(used),
        }
        (number, None)
    }

    /// Frees a slot and returns its key and tenant.
    #[inline]
    pub(crate) fn remove(&mut self, number: usize) -> (K, usize) {
        let Slot { key, hash, tenant, .. } = &mut self.slots[number];
        let Some(key) = key.take() else { unreachable!("slot {number} is removed twice") };
        if let Ok(found) = self.numbers.find_entry(*hash, |other| *other == number) {
            found.remove();
        }
        self.free.push(number);
        (key, *tenant)
    }
}

impl<K> Slots<K> {
    #[inline]
    pub(crate) fn key(&self, number: usize) -> &K {
        let Some(key) = &self.slots[number].key else { unreachable!("slot {number} is free") };
        key
    }

    /// Returns the number of the tenant of a key.
    #[inline]
    pub(crate) fn tenant(&self, number: usize) -> usize {
        self.slots[number].tenant
    }

    /// Sets whether the key does not rest after its processing, and returns the previous value.
    #[inline]
    pub(crate) fn set_skips_rest(&mut self, number: usize, skips_rest: bool) -> bool {
        std::mem::replace(&mut self.slots[number].skips_rest, skips_rest)
    }

    #[inline]
    pub(crate) fn state(&self, number: usize) -> &SlotState {
        &self.slots[number].state
    }

    #[inline]
    pub(crate) fn state_mut(&mut self, number: usize) -> &mut SlotState {
        &mut self.slots[number].state
    }

    /// Returns the number of slots, including free ones.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the key in a slot, or `None` if it is free.
    pub(crate) fn used(&self, number: usize) -> Option<&K> {
        self.slots[number].key.as_ref()
    }

    /// Returns the states of all keys, ordered by slot.
    pub(crate) fn states(&self) -> impl Iterator<Item = SlotState> {
        self.slots.iter().filter(|slot| slot.key.is_some()).map(|slot| slot.state)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}
