//! Records by key: all of those that are held, and the most recent of the others.
//!
//! A record that is made or touched is *held* until it is let go, into one of two lines; of each line only so many are
//! kept, the newest. A slot that is left is used again with whatever room its record has, so that keys that come and go allocate
//! nothing; when most slots are free they are given back.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use windlass_object::ObjectKey;

/// The number of no slot: the end of a list.
const NONE: u32 = u32::MAX;

/// Free slots are given back only above so many.
const FREE_KEPT: usize = 1024;

/// A record that can be used again for another key.
pub(crate) trait Recycle: Default {
    /// Forgets everything but its room.
    fn recycle(&mut self);
}

/// What becomes of a record after a change.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    /// It is held.
    Hold,
    /// It is kept as long as it is among the newest of its line.
    LetGo(EvictionList),
}

/// The lines of records that were let go. None of them can push a record out of the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvictionList {
    /// Of keys that nothing is the matter with.
    Idle,
    /// Of keys that wait for somebody to do something about them.
    Stuck,
}

/// See the module.
pub(crate) struct RecentKeys<V> {
    /// The numbers of used slots by key. Never iterated: the order of a hash reaches nobody.
    numbers: HashTable<u32>,
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
    /// By [`EvictionList`].
    lines: [ListEnds; 2],
    /// Whether a record was ever lost because its line was full.
    has_lost: bool,
    hasher: FixedState,
}

/// The ends of a line, how many records are in it and how many may be.
#[derive(Copy, Clone)]
struct ListEnds {
    oldest: u32,
    newest: u32,
    length: usize,
    limit: usize,
}

struct Slot<V> {
    /// None when the slot is free.
    key: Option<ObjectKey>,
    hash: u64,
    older: u32,
    newer: u32,
    /// The line it is in, if it was let go.
    line: Option<EvictionList>,
    value: V,
}

impl<V: Recycle> RecentKeys<V> {
    /// Keeps at most so many records that are not held, of those that are idle and of those that are stuck. The seed keeps
    /// strangers who choose keys from choosing ones that collide.
    pub(crate) fn new(seed: u64, idle: usize, stuck: usize) -> Self {
        let (numbers, hasher) = (HashTable::new(), FixedState::with_seed(seed));
        let (slots, free) = (Vec::new(), Vec::new());
        let lines = [idle, stuck].map(|limit| ListEnds { oldest: NONE, newest: NONE, length: 0, limit });
        Self { numbers, slots, free, lines, has_lost: false, hasher }
    }

    /// Keeps so many idle ones from here on.
    pub(crate) fn limit(&mut self, idle: usize) {
        self.lines[EvictionList::Idle as usize].limit = idle;
        self.shrink(EvictionList::Idle);
    }

    /// How many idle ones are kept, if some were lost for that.
    pub(crate) fn lost_beyond(&self) -> Option<usize> {
        self.has_lost.then_some(self.lines[EvictionList::Idle as usize].limit)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&V> {
        Some(&self.slots[self.find(key)? as usize].value)
    }

    /// Changes the record of `key`, which is made if there is none. `change` says whether it is held from now on, or let
    /// go: then it is the newest of those.
    pub(crate) fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut V) -> Retention) {
        let number = self.find(key).unwrap_or_else(|| self.enter(key));
        self.unlink(number);
        if let Retention::LetGo(line) = change(&mut self.slots[number as usize].value) {
            self.let_go(number, line);
        }
    }

    fn let_go(&mut self, number: u32, line: EvictionList) {
        let ends = &mut self.lines[line as usize];
        ends.length += 1;
        let newest = std::mem::replace(&mut ends.newest, number);
        let slot = &mut self.slots[number as usize];
        (slot.older, slot.newer, slot.line) = (newest, NONE, Some(line));
        match newest {
            NONE => ends.oldest = number,
            _ => self.slots[newest as usize].newer = number,
        }
        self.shrink(line);
    }

    /// Forgets the record of `key`.
    pub(crate) fn remove_key(&mut self, key: &ObjectKey) {
        if let Some(number) = self.find(key) {
            self.remove(number);
        }
    }

    /// Forgets every record of which `gone` says so.
    pub(crate) fn remove_if(&mut self, gone: impl Fn(&ObjectKey) -> bool) {
        for number in 0..self.slots.len() {
            if self.slots[number].key.as_ref().is_some_and(&gone) {
                self.remove(number_of(number));
            }
        }
        self.give_back();
    }

    /// Every record, in no order that means anything.
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

    fn enter(&mut self, key: &ObjectKey) -> u32 {
        let hash = self.hasher.hash_one(key);
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                key: None,
                hash,
                older: NONE,
                newer: NONE,
                line: None,
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
            let ListEnds { oldest, length, limit, .. } = self.lines[line as usize];
            if length <= limit || oldest == NONE {
                break;
            }
            self.remove(oldest);
            self.has_lost = true;
        }
        self.give_back();
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

    /// Takes a record out of its line, if it is in one.
    fn unlink(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let Some(line) = slot.line.take() else { return };
        let (older, newer) = (slot.older, slot.newer);
        let ends = &mut self.lines[line as usize];
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

    /// Moves what is left into less room when most of it is free, as it is once a first list has been worked off.
    fn give_back(&mut self) {
        if self.free.len() <= FREE_KEPT.max(3 * self.len()) {
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
        for ends in &mut self.lines {
            (ends.oldest, ends.newest) = (to(ends.oldest), to(ends.newest));
        }
        self.numbers = HashTable::with_capacity(slots.len());
        for (number, slot) in slots.iter().enumerate() {
            self.numbers.insert_unique(slot.hash, number_of(number), |other| slots[*other as usize].hash);
        }
        (self.slots, self.free) = (slots, Vec::new());
    }
}

/// More than four billion keys do not fit into memory.
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

    /// Every third key is stuck when it is let go.
    fn line_of(number: u32) -> EvictionList {
        if number.is_multiple_of(3) { EvictionList::Stuck } else { EvictionList::Idle }
    }

    fn hold(recent: &mut RecentKeys<Note>, number: u32, note: u32) {
        recent.change(&key(number), |it| {
            it.0 = note;
            Retention::Hold
        });
    }

    fn let_go(recent: &mut RecentKeys<Note>, number: u32) {
        recent.change(&key(number), |_| Retention::LetGo(line_of(number)));
    }

    #[derive(Clone, Debug)]
    enum Deed {
        Hold(u32, u32),
        LetGo(u32),
        RemoveEven,
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            6 => (0..12u32, 1..100u32).prop_map(|(key, note)| Deed::Hold(key, note)),
            6 => (0..12u32).prop_map(Deed::LetGo),
            1 => Just(Deed::RemoveEven),
        ]
    }

    /// What it should do, said plainly.
    #[derive(Default)]
    struct Model {
        notes: BTreeMap<u32, u32>,
        lines: [VecDeque<u32>; 2],
        has_lost: bool,
    }

    impl Model {
        fn act(&mut self, deed: &Deed, limits: [usize; 2]) {
            match deed {
                Deed::Hold(key, note) => {
                    self.lines[line_of(*key) as usize].retain(|other| other != key);
                    self.notes.insert(*key, *note);
                }
                Deed::LetGo(key) if self.notes.contains_key(key) => {
                    let line = &mut self.lines[line_of(*key) as usize];
                    line.retain(|other| other != key);
                    line.push_back(*key);
                    while line.len() > limits[line_of(*key) as usize] {
                        let oldest = line.pop_front().expect("not empty");
                        self.notes.remove(&oldest);
                        self.has_lost = true;
                    }
                }
                Deed::LetGo(_) => {}
                Deed::RemoveEven => {
                    self.notes.retain(|key, _| key % 2 == 1);
                    self.lines.iter_mut().for_each(|line| line.retain(|key| key % 2 == 1));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_held_is_kept_and_of_the_rest_the_newest_of_each_line(deeds in prop::collection::vec(deed(), 0..200)) {
            let (mut model, mut recent) = (Model::default(), RecentKeys::<Note>::new(7, 3, 2));
            for deed in &deeds {
                model.act(deed, [3, 2]);
                match deed {
                    Deed::Hold(number, note) => hold(&mut recent, *number, *note),
                    Deed::LetGo(number) if recent.get(&key(*number)).is_some() => let_go(&mut recent, *number),
                    Deed::LetGo(_) => {}
                    Deed::RemoveEven => {
                        recent.remove_if(|key| key.name().parse::<u32>().is_ok_and(|it| it % 2 == 0));
                    }
                }
                let notes: BTreeMap<u32, u32> =
                    recent.iter().map(|(key, note)| (key.name().parse().expect("a number"), note.0)).collect();
                prop_assert_eq!(&notes, &model.notes);
                prop_assert_eq!(recent.lost_beyond(), model.has_lost.then_some(3));
                for number in 0..12 {
                    prop_assert_eq!(recent.get(&key(number)).map(|note| note.0), model.notes.get(&number).copied());
                }
            }
        }
    }

    #[test]
    fn line_that_was_worked_off_gives_its_room_back_and_forgets_nobody() {
        let mut recent = RecentKeys::<Note>::new(7, 100, 100);
        let let_go = |recent: &mut RecentKeys<Note>, number| {
            recent.change(&key(number), |_| Retention::LetGo(EvictionList::Idle))
        };
        (0..20_000).for_each(|number| hold(&mut recent, number, number));
        (0..20_000).for_each(|number| let_go(&mut recent, number));
        assert_eq!(recent.len(), 100);
        assert!(recent.slots.capacity() < 2_000, "{} slots", recent.slots.capacity());
        assert_eq!(recent.get(&key(19_999)).map(|note| note.0), Some(19_999));
        assert!((0..19_900).all(|number| recent.get(&key(number)).is_none()));
        hold(&mut recent, 1, 1);
        let_go(&mut recent, 1);
        assert!(
            recent.get(&key(19_900)).is_none() && recent.get(&key(19_901)).is_some(),
            "the oldest goes first"
        );
    }
}
