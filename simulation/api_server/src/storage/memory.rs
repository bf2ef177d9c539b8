//! Objects in memory, with a bounded history.
//!
//! Guarantees what [`Storage`] does. History is bounded by a number of writes, over all collections.
//!
//! It refuses to keep a copy of a collection per revision: older states are made by undoing what was written since.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use imbl::OrdMap;
use serde_json::Value;
use windlass_env::watch_channel::{Receiver, Sender, channel};

use super::{Change, Collection, Key, Precondition, Snapshot, Storage, StorageError, Stored, Transition};

/// How much [`InMemoryStorage`] keeps.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// How many writes are remembered.
    ///
    /// By default 4096: more than a watch misses while its client reconnects, even when a workload of a thousand
    /// pods is rolled out meanwhile, and at some 3 kB per remembered pod about 10 MB. Tests of compaction set it low.
    pub history: usize,
}

/// Objects in memory.
pub struct InMemoryStorage {
    options: MemoryOptions,
    state: Mutex<State>,
    /// Of writes to any collection; the shelves have their own, so that a write wakes only whom it concerns.
    news: Sender<u64>,
}

/// The order of writes, and what they left.
pub(super) struct State {
    /// The revision it began with, of whose past nothing is known.
    origin: u64,
    revision: u64,
    floor: u64,
    shelves: BTreeMap<Collection, CollectionState>,
    /// To which collection each remembered write went: the first to revision `floor + 1`, and so on.
    order: VecDeque<Collection>,
}

/// One collection.
struct CollectionState {
    objects: OrdMap<Key, Arc<Stored>>,
    log: VecDeque<Arc<Transition>>,
    /// The revision of the latest write that was forgotten.
    forgotten: u64,
    news: Arc<Sender<u64>>,
}

/// The revision of a server to which nothing has been written. Zero means "any" to clients.
const FIRST: u64 = 1;

/// How many writes back objects are kept taken apart: watches that keep up look into them, later ones hardly.
const WARM: u64 = 128;

/// How many writes long an object that is not written stays taken apart. Longer: it is read whenever it, or what
/// refers to it, is written.
const WARM_OBJECT: u64 = 1024;

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions { history: 4096 }
    }
}

impl InMemoryStorage {
    /// An empty storage.
    pub fn new(options: MemoryOptions) -> InMemoryStorage {
        InMemoryStorage::of(State::restored(FIRST), options)
    }

    pub(super) fn of(state: State, options: MemoryOptions) -> InMemoryStorage {
        let (news, _) = channel(state.revision);
        InMemoryStorage { options, state: Mutex::new(state), news }
    }

    /// The revision, and every object there is at it.
    pub(super) fn everything(&self) -> (u64, Vec<(Collection, Arc<Stored>)>) {
        let state = self.lock();
        let objects = state.shelves.iter().flat_map(|(collection, shelf)| {
            shelf.objects.values().map(|stored| (collection.clone(), Arc::clone(stored)))
        });
        (state.revision, objects.collect())
    }

    /// Whatever panicked while it held the lock had not yet changed what the lock guards.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for InMemoryStorage {
    fn default() -> Self {
        InMemoryStorage::new(MemoryOptions::default())
    }
}

impl fmt::Debug for InMemoryStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Memory")
            .field("revision", &state.revision)
            .field("floor", &state.floor)
            .field("collections", &state.shelves.len())
            .finish_non_exhaustive()
    }
}

impl Storage for InMemoryStorage {
    fn revision(&self) -> u64 {
        self.lock().revision
    }

    fn floor(&self) -> u64 {
        self.lock().floor
    }

    fn get(&self, collection: &Collection, key: &Key) -> Option<Arc<Stored>> {
        self.lock().shelves.get(collection)?.objects.get(key).map(Stored::lent)
    }

    fn read(&self, collection: &Collection, at: Option<u64>) -> Result<Snapshot, StorageError> {
        let state = self.lock();
        let revision = at.unwrap_or(state.revision);
        state.expect_kept(revision)?;
        let shelf = state.shelves.get(collection);
        let objects = shelf.map(|shelf| shelf.objects_at(revision)).unwrap_or_default();
        Ok(Snapshot { revision, objects })
    }

    fn commit(
        &self,
        collection: &Collection,
        key: &Key,
        expected: Precondition,
        change: Change,
    ) -> Result<Arc<Stored>, StorageError> {
        let (stored, news) = self.lock().commit(collection, key, expected, change, self.options.history)?;
        // Without the lock: whoever is woken may read at once.
        news.set(stored.revision);
        self.news.set(stored.revision);
        Ok(stored)
    }

    fn changes(
        &self,
        collection: &Collection,
        after: u64,
        through: u64,
        most: usize,
    ) -> Result<Vec<Arc<Transition>>, StorageError> {
        let state = self.lock();
        let Some(shelf) = state.shelves.get(collection) else { return Ok(Vec::new()) };
        // What was forgotten of other collections was not missed.
        if after < shelf.forgotten {
            return Err(StorageError::Compacted { asked: after, floor: shelf.forgotten });
        }
        let start = shelf.log.partition_point(|it| it.revision() <= after);
        let wanted = shelf.log.range(start..).take_while(|it| it.revision() <= through);
        Ok(wanted.take(most).cloned().collect())
    }

    fn compact(&self, revision: u64) {
        self.lock().compact(revision);
    }

    fn restore(&self, revision: u64) -> Result<(), StorageError> {
        let _before = {
            let mut state = self.lock();
            let restored = state.at(revision)?;
            // Its publishers wake observers when they are dropped, which is done without the lock.
            std::mem::replace(&mut *state, restored)
        };
        self.news.set(revision);
        Ok(())
    }

    fn observe(&self, collection: Option<&Collection>) -> Receiver<u64> {
        match collection {
            Some(collection) => self.lock().shelf(collection).news.subscribe(),
            None => self.news.subscribe(),
        }
    }
}

impl State {
    /// Nothing yet, at a revision behind which nothing is known.
    pub(super) fn restored(revision: u64) -> State {
        let revision = revision.max(FIRST);
        State {
            origin: revision,
            revision,
            floor: revision,
            shelves: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// The state at a revision, as a backup of that time holds it.
    fn at(&self, revision: u64) -> Result<State, StorageError> {
        self.expect_kept(revision)?;
        let mut restored = State::restored(revision);
        for (collection, shelf) in &self.shelves {
            restored.shelf(collection).objects = shelf.objects_at(revision);
        }
        Ok(restored)
    }

    fn expect_kept(&self, asked: u64) -> Result<(), StorageError> {
        let (current, floor) = (self.revision, self.floor);
        match asked {
            _ if asked > current => Err(StorageError::Future { asked, current }),
            _ if asked < floor => Err(StorageError::Compacted { asked, floor }),
            _ => Ok(()),
        }
    }

    /// Puts an object where it was, without a write.
    pub(super) fn put_back(&mut self, collection: &Collection, stored: &Stored) -> Result<(), String> {
        let (key, revision, latest) = (stored.key.clone(), stored.revision, self.revision);
        if revision > latest {
            return Err(format!("{key} is of revision {revision}, behind the snapshot's {latest}"));
        }
        match self.shelf(collection).objects.insert(key, stored.folded()) {
            None => Ok(()),
            Some(twice) => Err(format!("{} is there twice", twice.key)),
        }
    }

    fn commit(
        &mut self,
        collection: &Collection,
        key: &Key,
        expected: Precondition,
        change: Change,
        history: usize,
    ) -> Result<(Arc<Stored>, Arc<Sender<u64>>), StorageError> {
        let revision = self.revision + 1;
        let shelf = self.shelf(collection);
        let before = shelf.expect(key, expected)?;
        let store = |value: Value| Stored::encode(key.clone(), revision, value).map(Arc::new);
        let transition = match (change, before) {
            (Change::Put(value), None) => Transition::Created { now: store(value)? },
            (Change::Put(value), Some(before)) => {
                Transition::Replaced { before, now: store(value)?, left: OnceLock::new() }
            }
            (Change::Delete(value), Some(before)) => Transition::Removed { before, last: store(value)? },
            (Change::Delete(_), None) => return Err(StorageError::Missing { key: key.clone() }),
        };
        let stored = Arc::clone(transition.now());
        shelf.apply(transition);
        let news = Arc::clone(&shelf.news);
        self.revision = revision;
        self.order.push_back(collection.clone());
        self.fold(revision.saturating_sub(WARM));
        self.fold_object(revision.saturating_sub(WARM_OBJECT));
        self.compact(revision.saturating_sub(u64::try_from(history).unwrap_or(u64::MAX)));
        Ok((stored, news))
    }

    fn compact(&mut self, revision: u64) {
        while self.floor < revision.min(self.revision) {
            self.floor += 1;
            let Some(collection) = self.order.pop_front() else { continue };
            if let Some(shelf) = self.shelves.get_mut(&collection) {
                shelf.log.pop_front();
                shelf.forgotten = self.floor;
            }
        }
    }

    /// Folds what is remembered of one write; who still holds it unfolded is not disturbed.
    fn fold(&mut self, revision: u64) {
        if let Some(shelf) = self.shelf_of(revision) {
            shelf.fold(revision);
        }
    }

    /// Folds the object that one write left behind, if it still is as it was left.
    fn fold_object(&mut self, revision: u64) {
        if let Some(shelf) = self.shelf_of(revision) {
            shelf.fold_object(revision);
        }
    }

    /// Where a remembered write went.
    fn shelf_of(&mut self, revision: u64) -> Option<&mut CollectionState> {
        let at = revision.checked_sub(self.floor + 1)?;
        let collection = self.order.get(usize::try_from(at).ok()?)?;
        self.shelves.get_mut(collection)
    }

    fn shelf(&mut self, collection: &Collection) -> &mut CollectionState {
        self.shelves.entry(collection.clone()).or_insert_with(|| CollectionState::new(self.origin))
    }
}

impl CollectionState {
    /// An empty one. What was on it before the origin is forgotten.
    fn new(origin: u64) -> CollectionState {
        let (news, _) = channel(origin);
        CollectionState {
            objects: OrdMap::new(),
            log: VecDeque::new(),
            forgotten: origin,
            news: Arc::new(news),
        }
    }

    fn objects_at(&self, revision: u64) -> OrdMap<Key, Arc<Stored>> {
        let mut objects = self.objects.clone();
        for transition in self.log.iter().rev().take_while(|it| it.revision() > revision) {
            let key = &transition.now().key;
            match transition.before() {
                Some(before) => objects.insert(key.clone(), Arc::clone(before)),
                None => objects.remove(key),
            };
        }
        objects
    }

    fn expect(&self, key: &Key, expected: Precondition) -> Result<Option<Arc<Stored>>, StorageError> {
        match (expected, self.objects.get(key)) {
            (Precondition::Absent, None) => Ok(None),
            (Precondition::Absent, Some(held)) => {
                Err(StorageError::Exists { key: key.clone(), found: held.revision })
            }
            (Precondition::Revision(_), None) => Err(StorageError::Missing { key: key.clone() }),
            (Precondition::Revision(expected), Some(held)) if expected != held.revision => {
                Err(StorageError::Conflict { key: key.clone(), expected, found: held.revision })
            }
            (Precondition::Revision(_), Some(held)) => Ok(Some(Arc::clone(held))),
        }
    }

    fn fold(&mut self, revision: u64) {
        let at = self.log.partition_point(|it| it.revision() < revision);
        if let Some(transition) = self.log.get_mut(at) {
            *transition = Arc::new(transition.folded());
        }
    }

    fn fold_object(&mut self, revision: u64) {
        let at = self.log.partition_point(|it| it.revision() < revision);
        let Some(folded) = self.log.get(at).map(|it| it.now()) else { return };
        if self.objects.get(&folded.key).is_some_and(|it| it.revision == revision) {
            self.objects.insert(folded.key.clone(), Arc::clone(folded));
        }
    }

    fn apply(&mut self, transition: Transition) {
        let now = transition.now();
        match transition {
            Transition::Removed { .. } => self.objects.remove(&now.key),
            _ => self.objects.insert(now.key.clone(), Arc::clone(now)),
        };
        self.log.push_back(Arc::new(transition));
    }
}
