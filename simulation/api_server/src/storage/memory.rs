//! Objects in memory, with a bounded history.
//!
//! Guarantees are those of [`Storage`]. A number of writes, over all collections, bounds the history.
//!
//! The storage has no copy of a collection per revision: it derives older states by undoing later writes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use imbl::OrdMap;
use serde_json::Value;
use windlass_env::watch_channel::{Receiver, Sender, channel};

use super::{Change, Collection, Key, Precondition, Snapshot, Storage, StorageError, Stored, Transition};

/// The options of [`InMemoryStorage`].
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Number of writes in the history.
    ///
    /// The default is 4096: more than a watch misses while its client reconnects, even during a rollout of a thousand
    /// pods. At about 3 kB per pod this needs about 10 MB. Tests of compaction use a low number.
    pub history: usize,
}

/// A storage in memory.
pub struct InMemoryStorage {
    options: MemoryOptions,
    state: Mutex<State>,
    /// Latest write to any collection. Each collection also has its own channel, so a write wakes only its observers.
    news: Sender<u64>,
}

/// The order of writes, and the resulting collections.
pub(super) struct State {
    /// Initial revision; nothing is known about earlier ones.
    origin: u64,
    revision: u64,
    floor: u64,
    shelves: BTreeMap<Collection, CollectionState>,
    /// Collection of each write in the history: the first has revision `floor + 1`, and so on.
    order: VecDeque<Collection>,
}

/// One collection.
struct CollectionState {
    objects: OrdMap<Key, Arc<Stored>>,
    log: VecDeque<Arc<Transition>>,
    /// Revision of the latest dropped write.
    forgotten: u64,
    news: Arc<Sender<u64>>,
}

/// Revision of an empty server. Zero means "any" to clients.
const FIRST: u64 = 1;

/// Number of writes after which a change in the history is unparsed: watches that keep up read it parsed.
const WARM: u64 = 128;

/// Number of writes after which an idle object is unparsed. It is larger than [`WARM`] because an object is read with
/// every write to it or to objects that refer to it.
const WARM_OBJECT: u64 = 1024;

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions { history: 4096 }
    }
}

impl InMemoryStorage {
    /// Creates an empty storage.
    pub fn new(options: MemoryOptions) -> InMemoryStorage {
        InMemoryStorage::of(State::restored(FIRST), options)
    }

    pub(super) fn of(state: State, options: MemoryOptions) -> InMemoryStorage {
        let (news, _) = channel(state.revision);
        InMemoryStorage { options, state: Mutex::new(state), news }
    }

    /// Returns the revision and all objects.
    pub(super) fn everything(&self) -> (u64, Vec<(Collection, Arc<Stored>)>) {
        let state = self.lock();
        let objects = state.shelves.iter().flat_map(|(collection, shelf)| {
            shelf.objects.values().map(|stored| (collection.clone(), Arc::clone(stored)))
        });
        (state.revision, objects.collect())
    }

    /// Locks the state. A panic under the lock happens before any change, so poisoning is ignored.
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
        f.debug_struct("InMemoryStorage")
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
        self.lock().shelves.get(collection)?.objects.get(key).map(Stored::parsable_copy)
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
        precondition: Precondition,
        change: Change,
    ) -> Result<Arc<Stored>, StorageError> {
        let (stored, news) =
            self.lock().commit(collection, key, precondition, change, self.options.history)?;
        // Outside of the lock: an observer can read immediately.
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
        // Dropped writes of other collections do not matter.
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
            // Dropping the old senders wakes observers, so it happens outside of the lock.
            std::mem::replace(&mut *state, restored)
        };
        self.news.set(revision);
        Ok(())
    }

    fn observe(&self, collection: Option<&Collection>) -> Receiver<u64> {
        match collection {
            Some(collection) => self.lock().collection(collection).news.subscribe(),
            None => self.news.subscribe(),
        }
    }
}

impl State {
    /// Returns an empty state at a revision, without history.
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

    /// Returns the state at a revision, as in a backup of that time.
    fn at(&self, revision: u64) -> Result<State, StorageError> {
        self.expect_kept(revision)?;
        let mut restored = State::restored(revision);
        for (collection, shelf) in &self.shelves {
            restored.collection(collection).objects = shelf.objects_at(revision);
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

    /// Restores an object without a write.
    pub(super) fn put_back(&mut self, collection: &Collection, stored: &Stored) -> Result<(), String> {
        let (key, revision, latest) = (stored.key.clone(), stored.revision, self.revision);
        if revision > latest {
            return Err(format!("{key} is of revision {revision}, behind the snapshot's {latest}"));
        }
        match self.collection(collection).objects.insert(key, stored.unparsed()) {
            None => Ok(()),
            Some(twice) => Err(format!("{} is there twice", twice.key)),
        }
    }

    fn commit(
        &mut self,
        collection: &Collection,
        key: &Key,
        precondition: Precondition,
        change: Change,
        history: usize,
    ) -> Result<(Arc<Stored>, Arc<Sender<u64>>), StorageError> {
        let revision = self.revision + 1;
        let shelf = self.collection(collection);
        let before = shelf.expect(key, precondition)?;
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

    /// Unparses one change of the history. Readers that hold the parsed version keep it.
    fn fold(&mut self, revision: u64) {
        if let Some(shelf) = self.collection_of(revision) {
            shelf.fold(revision);
        }
    }

    /// Unparses the object that one write stored, unless it has changed since.
    fn fold_object(&mut self, revision: u64) {
        if let Some(shelf) = self.collection_of(revision) {
            shelf.fold_object(revision);
        }
    }

    /// Returns the collection of a write in the history.
    fn collection_of(&mut self, revision: u64) -> Option<&mut CollectionState> {
        let at = revision.checked_sub(self.floor + 1)?;
        let collection = self.order.get(usize::try_from(at).ok()?)?;
        self.shelves.get_mut(collection)
    }

    fn collection(&mut self, collection: &Collection) -> &mut CollectionState {
        self.shelves.entry(collection.clone()).or_insert_with(|| CollectionState::new(self.origin))
    }
}

impl CollectionState {
    /// Returns an empty collection. The history before `origin` counts as dropped.
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

    fn expect(&self, key: &Key, precondition: Precondition) -> Result<Option<Arc<Stored>>, StorageError> {
        match (precondition, self.objects.get(key)) {
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
            *transition = Arc::new(transition.unparsed());
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
