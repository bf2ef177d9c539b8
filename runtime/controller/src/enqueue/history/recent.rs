//! Records by key: all held records and the most recent released records.
//!
//! A record that is created or changed is *held* until it is released into one of two eviction lists. Each list keeps
//! only the newest records, up to its limit. A free slot is reused together with the memory of its record, so that
//! recurring keys allocate nothing. When most slots are free, their memory is freed.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use windlass_object::ObjectKey;

/// The slot number that marks the end of a list.
const NONE: u32 = u32::MAX;

/// The number of free slots below which no memory is freed.
const MAX_FREE_SLOTS: usize = 1024;

/// A record that can be reused for another key.
pub(crate) trait Recycle: Default {
    /// Resets the record and keeps its allocated memory.
    fn recycle(&mut self);
}

/// The retention of a record after a change.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    /// The record is held.
    Hold,
    /// The record is released: kept while it is among the newest of this list.
    Release(EvictionList),
}

/// The lists of released records. A record in one list never evicts a record from the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvictionList {
    /// Keys that need no work.
    Idle,
    /// Keys that wait for an operator.
    Stuck,
}

/// The table of records; see the module documentation.
pub(crate) struct RecentKeys<V> {
    /// The numbers of used slots by key. Never iterated, so the hash order is not observable.
    numbers: HashTable<u32>,
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
    /// The eviction lists, indexed by [`EvictionList`].
    eviction_lists: [ListEnds; 2],
    /// Whether a record was ever evicted because its list was full.
    has_evicted: bool,
    hasher: FixedState,
}

/// The ends, the length and the limit of an eviction list.
#[derive(Copy, Clone)]
struct ListEnds {
    oldest: u32,
    newest: u32,
    length: usize,
    limit: usize,
}

struct Slot<V> {
    /// `None` when the slot is free.
    key: Option<ObjectKey>,
    hash: u64,
    older: u32,
    newer: u32,
    /// The eviction list of the record, if it was released.
    eviction_list: Option<EvictionList>,
    value: V,
}

impl<V: Recycle> RecentKeys<V> {
    /// Creates a table that keeps at most `idle` and `stuck` released records. The seed prevents clients that choose
    /// keys from causing hash collisions.
    pub(crate) fn new(seed: u64, idle: usize, stuck: usize) -> Self {
        let (numbers, hasher) = (HashTable::new(), FixedState::with_seed(seed));
        let (slots, free) = (Vec::new(), Vec::new());
        let lines = [idle, stuck].map(|limit| ListEnds { oldest: NONE, newest: NONE, length: 0, limit });
        Self { numbers, slots, free, eviction_lists: lines, has_evicted: false, hasher }
    }

    /// Sets the limit of idle records.
    pub(crate) fn limit(&mut self, idle: usize) {
        self.eviction_lists[EvictionList::Idle as usize].limit = idle;
        self.shrink(EvictionList::Idle);
    }

    /// Returns the limit of idle records if a record of any list was evicted, otherwise `None`.
    pub(crate) fn eviction_limit(&self) -> Option<usize> {
        self.has_evicted.then_some(self.eviction_lists[EvictionList::Idle as usize].limit)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&V> {
        Some(&self.slots[self.find(key)? as usize].value)
    }

    /// Changes the record of `key` and creates it if it is missing. `change` returns whether the record is held or
    /// released. A released record is the newest of its list.
    pub(crate) fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut V) -> Retention) {
        let number = self.find(key).unwrap_or_else(|| self.find_or_insert(key));
        self.unlink(number);
        if let Retention::Release(line) = change(&mut self.slots[number as usize].value) {
            self.release(number, line);
        }
    }

    fn release(&mut self, number: u32, line: EvictionList) {
        let ends = &mut self.eviction_lists[line as usize];
        ends.length += 1;
        let newest = std::mem::replace(&mut ends.newest, number);
        let slot = &mut self.slots[number as usize];
        (slot.older, slot.newer, slot.eviction_list) = (newest, NONE, Some(line));
        match newest {
            NONE => ends.oldest = number,
            _ => self.slots[newest as usize].newer = number,
        }
        self.shrink(line);
    }

    /// Removes the record of `key`.
    pub(crate) fn remove_key(&mut self, key: &ObjectKey) {
        if let Some(number) = self.find(key) {
            self.remove(number);
        }
    }

    /// Removes the records of the keys for which `gone` returns true.
    pub(crate) fn remove_if(&mut self, gone: impl Fn(&ObjectKey) -> bool) {
        for number in 0..self.slots.len() {
            if self.slots[number].key.as_ref().is_some_and(&gone) {
                self.remove(number_of(number));
            }
        }
        self.compact();
    }

    /// Returns all records in unspecified order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &V)> {
        self.slots.iter().filter_map(|slot| Some((slot.key.as_ref()?, &slot.value)))
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    fn find(&self, key: &ObjectKey) -> Option<u32> {
        let same = |number: &u32| self.slots[*number as usize].key.as_ref() == Some(key);
        self.numbers.find(self.hasher.hash_one(key), same).copied()
    }

    fn find_or_insert(&mut self, key: &ObjectKey) -> u32 {
        let hash = self.hasher.hash_one(key);
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                key: None,
                hash,
                older: NONE,
                newer: NONE,
                eviction_list: None,
                value: V::default(),
            });
            number_of(self.slots.len() - 1)
        });
        let slot = &mut self.slots[number as usize];
        (slot.key, slot.hash) = (Some(key.clone()), hash);
        let slots = &self.slots;
        if let Entry::Vacant(vacant) =
            self.numbers.entry(hash, |other| *other == number, |other| slots[*other as usize].hash)
        {
            vacant.insert(number);
        }
        number
    }

    fn shrink(&mut self, line: EvictionList) {
        loop {
            let ListEnds { oldest, length, limit, .. } = self.eviction_lists[line as usize];
            if length <= limit || oldest == NONE {
                break;
            }
            self.remove(oldest);
            self.has_evicted = true;
        }
        self.compact();
    }

    fn remove(&mut self, number: u32) {
        self.unlink(number);
        let slot = &mut self.slots[number as usize];
        let hash = slot.hash;
        slot.key = None;
        slot.value.recycle();
        if let Ok(found) = self.numbers.find_entry(hash, |other| *other == number) {
            found.remove();
        }
        self.free.push(number);
    }

    /// Removes a record from its eviction list, if it is in one.
    fn unlink(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let Some(line) = slot.eviction_list.take() else { return };
        let (older, newer) = (slot.older, slot.newer);
        let ends = &mut self.eviction_lists[line as usize];
        ends.length -= 1;
        match older {
            NONE => ends.oldest = newer,
            _ => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => ends.newest = older,
            _ => self.slots[newer as usize].older = older,
        }
    }

    /// Compacts the slots when most of them are free, as after the initial list has been processed.
    fn compact(&mut self) {
        if self.free.len() <= MAX_FREE_SLOTS.max(3 * self.len()) {
            return;
        }
        let mut moved = vec![NONE; self.slots.len()];
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.key.is_some());
        used.enumerate().for_each(|(new, (old, _))| moved[old] = number_of(new));
        let to = |number: u32| if number == NONE { NONE } else { moved[number as usize] };
        let mut slots = Vec::with_capacity(self.len());
        slots.extend(std::mem::take(&mut self.slots).into_iter().filter(|slot| slot.key.is_some()));
        for slot in &mut slots {
            (slot.older, slot.newer) = (to(slot.older), to(slot.newer));
        }
        for ends in &mut self.eviction_lists {
            (ends.oldest, ends.newest) = (to(ends.oldest), to(ends.newest));
        }
        self.numbers = HashTable::with_capacity(slots.len());
        for (number, slot) in slots.iter().enumerate() {
            self.numbers.insert_unique(slot.hash, number_of(number), |other| slots[*other as usize].hash);
        }
        (self.slots, self.free) = (slots, Vec::new());
    }
}

/// Converts a slot index. More than four billion keys do not fit into memory.
fn number_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Note(u32);

    impl Recycle for Note {
        fn recycle(&mut self) {
            self.0 = 0;
        }
    }

    fn key(number: u32) -> ObjectKey {
        ObjectKey::namespaced("shop", &number.to_string())
    }

    /// Every third key is stuck when it is released.
    fn line_of(number: u32) -> EvictionList {
        if number.is_multiple_of(3) { EvictionList::Stuck } else { EvictionList::Idle }
    }

    fn hold(recent: &mut RecentKeys<Note>, number: u32, note: u32) {
        recent.change(&key(number), |it| {
            it.0 = note;
            Retention::Hold
        });
    }

    fn release(recent: &mut RecentKeys<Note>, number: u32) {
        recent.change(&key(number), |_| Retention::Release(line_of(number)));
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Hold(u32, u32),
        Release(u32),
        RemoveEven,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            6 => (0..12u32, 1..100u32).prop_map(|(key, note)| Operation::Hold(key, note)),
            6 => (0..12u32).prop_map(Operation::Release),
            1 => Just(Operation::RemoveEven),
        ]
    }

    /// The reference model.
    #[derive(Default)]
    struct Model {
        notes: BTreeMap<u32, u32>,
        eviction_lists: [VecDeque<u32>; 2],
        has_evicted: bool,
    }

    impl Model {
        fn act(&mut self, operation: &Operation, limits: [usize; 2]) {
            match operation {
                Operation::Hold(key, note) => {
                    self.eviction_lists[line_of(*key) as usize].retain(|other| other != key);
                    self.notes.insert(*key, *note);
                }
                Operation::Release(key) if self.notes.contains_key(key) => {
                    let line = &mut self.eviction_lists[line_of(*key) as usize];
                    line.retain(|other| other != key);
                    line.push_back(*key);
                    while line.len() > limits[line_of(*key) as usize] {
                        let oldest = line.pop_front().expect("not empty");
                        self.notes.remove(&oldest);
                        self.has_evicted = true;
                    }
                }
                Operation::Release(_) => {}
                Operation::RemoveEven => {
                    self.notes.retain(|key, _| key % 2 == 1);
                    self.eviction_lists.iter_mut().for_each(|line| line.retain(|key| key % 2 == 1));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn held_records_and_newest_released_records_are_kept(operations in prop::collection::vec(operation(), 0..200)) {
            let (mut model, mut recent) = (Model::default(), RecentKeys::<Note>::new(7, 3, 2));
            for operation in &operations {
                model.act(operation, [3, 2]);
                match operation {
                    Operation::Hold(number, note) => hold(&mut recent, *number, *note),
                    Operation::Release(number) if recent.get(&key(*number)).is_some() => release(&mut recent, *number),
                    Operation::Release(_) => {}
                    Operation::RemoveEven => {
                        recent.remove_if(|key| key.name().parse::<u32>().is_ok_and(|it| it % 2 == 0));
                    }
                }
                let notes: BTreeMap<u32, u32> =
                    recent.iter().map(|(key, note)| (key.name().parse().expect("a number"), note.0)).collect();
                prop_assert_eq!(&notes, &model.notes);
                prop_assert_eq!(recent.eviction_limit(), model.has_evicted.then_some(3));
                for number in 0..12 {
                    prop_assert_eq!(recent.get(&key(number)).map(|note| note.0), model.notes.get(&number).copied());
                }
            }
        }
    }

    #[test]
    fn full_list_is_compacted_and_evicts_oldest_record() {
        let mut recent = RecentKeys::<Note>::new(7, 100, 100);
        let release = |recent: &mut RecentKeys<Note>, number| {
            recent.change(&key(number), |_| Retention::Release(EvictionList::Idle));
        };
        (0..20_000).for_each(|number| hold(&mut recent, number, number));
        (0..20_000).for_each(|number| release(&mut recent, number));
        assert_eq!(recent.len(), 100);
        assert!(recent.slots.capacity() < 2_000, "{} slots", recent.slots.capacity());
        assert_eq!(recent.get(&key(19_999)).map(|note| note.0), Some(19_999));
        assert!((0..19_900).all(|number| recent.get(&key(number)).is_none()));
        hold(&mut recent, 1, 1);
        release(&mut recent, 1);
        assert!(
            recent.get(&key(19_900)).is_none() && recent.get(&key(19_901)).is_some(),
            "the oldest record is evicted first"
        );
    }
}
