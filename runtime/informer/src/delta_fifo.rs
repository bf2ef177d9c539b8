//! The queue between reflector and store: all changes in arrival order.
//!
//! Guarantees:
//! - `add`, `update`, `delete`, `replace` and `resync` are popped in order, without merging or loss. Exceptions: a
//!   queued resync stands for another one with the same target, and the later of two consecutive bookmarks replaces the
//!   earlier.
//! - A replacement is one entry. `pop` expands it against the objects known at that time: into the resulting deletions
//!   and the listed items. The consumer receives both in one batch and can apply them atomically. A resync is one entry
//!   too.
//! - `has_synced` becomes true after the first batch is processed, not when it is popped.
//! - The producer can wait for space, so a burst is held back at the source and not in memory.
//!
//! There is one consumer only: a second consumer would break the order.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::core::ObjectMeta;
use tokio::sync::Notify;
use windlass_env::watch_channel::{Sender, channel};
use windlass_object::{ObjectHeader, ObjectKey, ResourceVersion};

use crate::partition::{Partition, RemovalReason};

/// One object from the source.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<S> {
    /// Key, identity and version, read without decoding the rest.
    pub head: ObjectHeader,
    /// The decoded object or the error.
    pub body: Body<S>,
    /// Wire size in bytes, which budgets use as the memory size.
    pub bytes: u32,
}

/// The outcome of decoding an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Body<S> {
    /// The decoded object.
    Decoded(S),
    /// The object could not be decoded.
    Undecodable {
        /// The error.
        error: Arc<str>,
        /// The object's metadata, if that can be decoded.
        metadata: Option<Arc<ObjectMeta>>,
    },
}

/// One change, ready to be applied to a store.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<S> {
    /// The object was added.
    Added(Item<S>),
    /// The object was modified.
    Updated(Item<S>),
    /// The object was deleted; the item is its final state, if decodable.
    Deleted(Item<S>),
    /// The object is part of a replacement.
    Replaced(Item<S>),
    /// A known object is missing from a replacement: it must have been deleted.
    DeletedFinalStateUnknown(ObjectKey),
    /// The partition has no other changes up to this version.
    Bookmark {
        /// The partition.
        partition: Partition,
        /// The version.
        version: ResourceVersion,
    },
}

/// The handlers to which a resync applies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ResyncTarget {
    /// All handlers.
    All,
    /// The handler with this number.
    Only(u64),
}

/// The result of one `pop`.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch<S> {
    /// Individual changes in arrival order.
    Changes(Vec<Delta<S>>),
    /// An expanded replacement: first the deletions, then the listed items.
    Replacement {
        /// Deletions and replaced items.
        deltas: Vec<Delta<S>>,
        /// The version of the list, how it was read, and whether it is the first.
        list: ListMetadata,
    },
    /// A resync of all known objects to these handlers, without a change.
    Resync(ResyncTarget),
    /// The informer follows these partitions from now on and must list each. An empty list means nothing to follow.
    Joined(Vec<Partition>),
    /// All objects of a partition were removed together.
    Emptied {
        /// The partition.
        partition: Partition,
        /// The reason.
        reason: RemovalReason,
        /// The removed objects.
        removed: Vec<ObjectKey>,
    },
}

/// The metadata of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListMetadata {
    /// The listed partition.
    pub partition: Partition,
    /// The version of the collection.
    pub version: ResourceVersion,
    /// Whether the list was the newest state and can therefore contradict the known state.
    pub consistent: bool,
    /// Whether the list was the first entry of this queue, before any change.
    pub initial: bool,
}

/// The objects of the consumer, against which replacements are expanded.
pub trait KnownObjects {
    /// Returns every key of a partition that is not in `listed`.
    fn missing_from(&self, partition: &Partition, listed: &BTreeSet<&ObjectKey>) -> Vec<ObjectKey>;
}

/// The error for a queue that is closed and empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is closed")]
pub struct Closed;

/// A number of entries that have entered the queue: a position is reached once all of them are processed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

/// The queue, shared by one producer (the reflector), one consumer (the processing loop) and a resync timer.
pub struct DeltaFifo<S> {
    state: Mutex<State<S>>,
    capacity: usize,
    arrived: Notify,
    space: Notify,
    /// The position up to which the consumer has processed entries.
    processed: Sender<Position>,
}

struct State<S> {
    entries: VecDeque<Entry<S>>,
    /// Number of entries so far.
    entered: u64,
    first: FirstBatch,
    closed: bool,
}

enum Entry<S> {
    Change(Delta<S>),
    ReplaceAll { items: Vec<Item<S>>, list: ListMetadata },
    Join(Vec<Partition>),
    Empty(Partition, RemovalReason),
    SyncAll(ResyncTarget),
}

/// The progress of the first batch.
#[derive(Copy, Clone, PartialEq, Eq)]
enum FirstBatch {
    /// No entry has arrived.
    Awaited,
    /// A replacement arrived first and is not processed yet.
    Queued,
    /// The first batch is processed, or another entry arrived first, which makes the first batch empty.
    Processed,
}

impl<S> DeltaFifo<S> {
    /// Number of entries from which [`space`](Self::space) makes the producer wait: two batches, so that one fills
    /// while the consumer processes the other.
    pub const CAPACITY: usize = 2 * Self::BATCH;
    /// Maximum number of changes per `pop`: enough to spread the cost of publishing a snapshot.
    pub const BATCH: usize = 1000;

    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::with_capacity(Self::CAPACITY)
    }

    /// Creates an empty queue with this capacity.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let state = State { entries: VecDeque::new(), entered: 0, first: FirstBatch::Awaited, closed: false };
        let processed = channel(Position::default()).0;
        Self { state: Mutex::new(state), capacity, arrived: Notify::new(), space: Notify::new(), processed }
    }

    /// Queues an added object.
    pub fn add(&self, item: Item<S>) {
        self.change(Delta::Added(item));
    }

    /// Queues an added object unless an entry for its key is queued; that entry is newer.
    pub fn add_if_not_present(&self, item: Item<S>) {
        let mut state = self.lock();
        if !state.entries.iter().any(|entry| entry.concerns(&item.head.key)) {
            self.push_change(&mut state, Delta::Added(item));
        }
    }

    /// Queues a changed object.
    pub fn update(&self, item: Item<S>) {
        self.change(Delta::Updated(item));
    }

    /// Queues a deleted object, known or not.
    pub fn delete(&self, item: Item<S>) {
        self.change(Delta::Deleted(item));
    }

    /// Queues a bookmark: the partition has no other changes up to `version`.
    pub fn bookmark(&self, partition: &Partition, version: ResourceVersion) {
        let mut state = self.lock();
        if let Some(Entry::Change(Delta::Bookmark { partition: last, version: queued })) =
            state.entries.back_mut()
            && last == partition
            && *queued < version
        {
            *queued = version;
            return;
        }
        let partition = partition.clone();
        self.push(&mut state, Entry::Change(Delta::Bookmark { partition, version }));
    }

    /// Queues partitions that are followed from now on. A namespace or shard must join before its first entry;
    /// [`Partition::Whole`] never joins.
    pub fn add_partitions(&self, partitions: Vec<Partition>) {
        self.push(&mut self.lock(), Entry::Join(partitions));
    }

    /// Queues the removal of all objects that are known of a partition at `pop`, as one entry.
    pub fn remove_partition(&self, partition: Partition, reason: RemovalReason) {
        self.push(&mut self.lock(), Entry::Empty(partition, reason));
    }

    /// Queues a complete list of a partition, as one entry. `consistent` states whether it is the newest state.
    pub fn replace(
        &self,
        partition: &Partition,
        items: Vec<Item<S>>,
        version: ResourceVersion,
        consistent: bool,
    ) {
        let mut state = self.lock();
        let initial = state.first == FirstBatch::Awaited;
        if initial {
            state.first = FirstBatch::Queued;
        }
        let list = ListMetadata { partition: partition.clone(), version, consistent, initial };
        self.push(&mut state, Entry::ReplaceAll { items, list });
    }

    /// Queues a resync of all objects known at `pop`, as one entry. A queued resync with the same target suffices.
    pub fn resync(&self, target: ResyncTarget) {
        let mut state = self.lock();
        let waits = |entry: &Entry<S>| matches!(entry, Entry::SyncAll(waiting) if *waiting == target);
        if !state.entries.iter().any(waits) {
            self.push(&mut state, Entry::SyncAll(target));
        }
    }

    /// Waits for entries and passes them to `process`: up to [`BATCH`](Self::BATCH) changes, or one replacement or
    /// resync. No lock is held while `process` runs.
    ///
    /// # Errors
    /// [`Closed`] once the queue is closed and empty.
    ///
    /// # Cancel safety
    /// Nothing is removed before the last await.
    pub async fn pop<R>(
        &self,
        known: &impl KnownObjects,
        process: impl FnOnce(Batch<S>) -> R,
    ) -> Result<R, Closed> {
        loop {
            let arrived = self.arrived.notified();
            if let Some((taken, position)) = self.take()? {
                let result = process(taken.expand(known));
                self.processed(position);
                return Ok(result);
            }
            arrived.await;
        }
    }

    /// Waits until the queue has fewer entries than its capacity.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait.
    pub async fn space(&self) {
        loop {
            let space = self.space.notified();
            let (queued, closed) = {
                let state = self.lock();
                (state.entries.len(), state.closed)
            };
            if queued < self.capacity || closed {
                return;
            }
            space.await;
        }
    }

    /// Returns whether the first batch is processed: the first replacement, if no other entry arrived before it.
    pub fn has_synced(&self) -> bool {
        let state = self.lock();
        // A replacement that was popped but not yet processed still counts as queued.
        state.first == FirstBatch::Processed
    }

    /// Returns the position behind all current entries.
    pub(crate) fn end(&self) -> Position {
        Position(self.lock().entered)
    }

    /// Returns whether all entries before `position` are processed.
    pub(crate) fn is_processed(&self, position: Position) -> bool {
        self.processed.get() >= position
    }

    /// Waits until all entries before `position` are processed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait.
    pub(crate) async fn wait_processed(&self, position: Position) {
        // The channel closes only with this queue.
        let _processed = self.processed.subscribe().wait_for(|processed| *processed >= position).await;
    }

    /// Closes the queue: queued entries can still be popped, later entries are dropped.
    pub fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
        self.space.notify_waiters();
    }

    /// Returns the number of queued entries.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn change(&self, delta: Delta<S>) {
        self.push_change(&mut self.lock(), delta);
    }

    fn push_change(&self, state: &mut State<S>, delta: Delta<S>) {
        if state.first == FirstBatch::Awaited {
            state.first = FirstBatch::Processed;
        }
        self.push(state, Entry::Change(delta));
    }

    fn push(&self, state: &mut State<S>, entry: Entry<S>) {
        if !state.closed {
            state.entered += 1;
            state.entries.push_back(entry);
            self.arrived.notify_one();
        }
    }

    /// Removes the next entries; returns them with the position behind them.
    fn take(&self) -> Result<Option<(PoppedEntry<S>, Position)>, Closed> {
        let mut state = self.lock();
        let Some(taken) = PoppedEntry::from(&mut state.entries) else {
            return if state.closed { Err(Closed) } else { Ok(None) };
        };
        let waiting = u64::try_from(state.entries.len()).unwrap_or(u64::MAX);
        Ok(Some((taken, Position(state.entered - waiting))))
    }

    fn processed(&self, position: Position) {
        self.processed.set(position);
        let mut state = self.lock();
        let replacement_waits = state.entries.iter().any(Entry::is_initial);
        if state.first == FirstBatch::Queued && !replacement_waits {
            state.first = FirstBatch::Processed;
        }
        drop(state);
        self.space.notify_waiters();
    }

    /// Locks the state. No foreign code runs under this lock, so a poisoned lock is still consistent.
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The popped entries before expansion.
enum PoppedEntry<S> {
    Changes(Vec<Delta<S>>),
    ReplaceAll(Vec<Item<S>>, ListMetadata),
    Join(Vec<Partition>),
    Empty(Partition, RemovalReason),
    SyncAll(ResyncTarget),
}

impl<S> PoppedEntry<S> {
    fn from(entries: &mut VecDeque<Entry<S>>) -> Option<Self> {
        Some(match entries.pop_front()? {
            Entry::ReplaceAll { items, list } => PoppedEntry::ReplaceAll(items, list),
            Entry::Join(partitions) => PoppedEntry::Join(partitions),
            Entry::Empty(partition, reason) => PoppedEntry::Empty(partition, reason),
            Entry::SyncAll(target) => PoppedEntry::SyncAll(target),
            Entry::Change(first) => PoppedEntry::Changes(changes(first, entries)),
        })
    }

    fn expand(self, known: &impl KnownObjects) -> Batch<S> {
        match self {
            PoppedEntry::Changes(deltas) => Batch::Changes(deltas),
            PoppedEntry::SyncAll(target) => Batch::Resync(target),
            PoppedEntry::ReplaceAll(items, list) => {
                let listed = items.iter().map(|item| &item.head.key).collect();
                let missing = known.missing_from(&list.partition, &listed);
                let missing = missing.into_iter().map(Delta::DeletedFinalStateUnknown);
                let deltas = missing.chain(items.into_iter().map(Delta::Replaced)).collect();
                Batch::Replacement { deltas, list }
            }
            PoppedEntry::Join(partitions) => Batch::Joined(partitions),
            PoppedEntry::Empty(partition, reason) => {
                let missing = known.missing_from(&partition, &BTreeSet::new());
                Batch::Emptied { partition, reason, removed: missing }
            }
        }
    }
}

/// Returns `first` and the changes that follow it directly, up to a full batch.
fn changes<S>(first: Delta<S>, entries: &mut VecDeque<Entry<S>>) -> Vec<Delta<S>> {
    let mut deltas = vec![first];
    while deltas.len() < DeltaFifo::<()>::BATCH {
        match entries.pop_front() {
            Some(Entry::Change(delta)) => deltas.push(delta),
            Some(other) => {
                entries.push_front(other);
                break;
            }
            None => break,
        }
    }
    deltas
}

impl<S> Entry<S> {
    fn is_initial(&self) -> bool {
        matches!(self, Entry::ReplaceAll { list, .. } if list.initial)
    }

    fn concerns(&self, key: &ObjectKey) -> bool {
        match self {
            Entry::Change(delta) => delta.key() == Some(key),
            Entry::ReplaceAll { items, .. } => items.iter().any(|item| item.head.key == *key),
            Entry::Join(_) | Entry::Empty(..) | Entry::SyncAll(_) => false,
        }
    }
}

impl<S> Delta<S> {
    /// Returns the key of the changed object; `None` for a bookmark.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Delta::Added(item) | Delta::Updated(item) | Delta::Deleted(item) | Delta::Replaced(item) => {
                Some(&item.head.key)
            }
            Delta::DeletedFinalStateUnknown(key) => Some(key),
            Delta::Bookmark { .. } => None,
        }
    }
}

impl<S> Default for DeltaFifo<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> fmt::Debug for DeltaFifo<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("DeltaFifo")
            .field("queued", &state.entries.len())
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    struct Known(Vec<ObjectKey>);

    impl KnownObjects for Known {
        fn missing_from(&self, partition: &Partition, listed: &BTreeSet<&ObjectKey>) -> Vec<ObjectKey> {
            let missing = |key: &&ObjectKey| partition.contains(key, None) && !listed.contains(key);
            self.0.iter().filter(missing).cloned().collect()
        }
    }

    fn known(names: &[&str]) -> Known {
        Known(names.iter().map(|name| ObjectKey::cluster(name)).collect())
    }

    fn item(name: &str, version: u32) -> Item<u32> {
        let head = ObjectHeader {
            key: ObjectKey::cluster(name),
            uid: None,
            version: Some(ResourceVersion::new(&version.to_string())),
        };
        Item { head, body: Body::Decoded(version), bytes: 1 }
    }

    fn at(version: u32) -> ResourceVersion {
        ResourceVersion::new(&version.to_string())
    }

    fn pop(fifo: &DeltaFifo<u32>, known: &Known) -> Batch<u32> {
        fifo.pop(known, |batch| batch)
            .now_or_never()
            .expect("something is queued")
            .expect("the queue is open")
    }

    // parity: queue-delta, delta-fifo, real-fifo, test-real-fifo-basic
    #[test]
    fn changes_are_popped_in_arrival_order_without_merging() {
        let fifo = DeltaFifo::new();
        fifo.add(item("a", 1));
        fifo.update(item("b", 2));
        fifo.update(item("a", 3));
        fifo.delete(item("a", 4));
        fifo.bookmark(&Partition::Whole, at(9));
        let expected = vec![
            Delta::Added(item("a", 1)),
            Delta::Updated(item("b", 2)),
            Delta::Updated(item("a", 3)),
            Delta::Deleted(item("a", 4)),
            Delta::Bookmark { partition: Partition::Whole, version: at(9) },
        ];
        assert_eq!(pop(&fifo, &known(&[])), Batch::Changes(expected));
    }

    // parity: queue-delta, known-objects, atomic-replace-resync, test-real-fifo-replace-atomic, test-real-fifo-basic
    // parity: test-real-fifo-replace-with-delete-delta
    #[test]
    fn replacement_is_expanded_at_pop_against_known_objects() {
        let fifo = DeltaFifo::new();
        fifo.replace(&Partition::Whole, vec![item("b", 5), item("c", 4)], at(7), true);
        assert_eq!(fifo.len(), 1);
        let deltas = vec![
            Delta::DeletedFinalStateUnknown(ObjectKey::cluster("a")),
            Delta::Replaced(item("b", 5)),
            Delta::Replaced(item("c", 4)),
        ];
        let list =
            ListMetadata { partition: Partition::Whole, version: at(7), consistent: true, initial: true };
        assert_eq!(pop(&fifo, &known(&["a", "b"])), Batch::Replacement { deltas, list });
    }

    // parity: queue-delta, atomic-replace-resync, test-real-fifo-replace-atomic, test-real-fifo-resync
    #[test]
    fn resync_is_one_entry_per_target_in_queue_order() {
        let fifo = DeltaFifo::<u32>::new();
        fifo.add(item("a", 1));
        for target in [ResyncTarget::Only(1), ResyncTarget::Only(2), ResyncTarget::Only(1), ResyncTarget::All]
        {
            fifo.resync(target);
        }
        fifo.update(item("a", 2));
        assert_eq!(fifo.len(), 5, "one queued resync per target");
        let batches: Vec<_> = (0..5).map(|_| pop(&fifo, &known(&["a", "b"]))).collect();
        let expected = [
            Batch::Changes(vec![Delta::Added(item("a", 1))]),
            Batch::Resync(ResyncTarget::Only(1)),
            Batch::Resync(ResyncTarget::Only(2)),
            Batch::Resync(ResyncTarget::All),
            Batch::Changes(vec![Delta::Updated(item("a", 2))]),
        ];
        assert_eq!(batches, expected);
    }

    #[test]
    fn consecutive_bookmarks_of_a_partition_coalesce() {
        let fifo = DeltaFifo::<u32>::new();
        let part = Partition::Namespace("a".into());
        let queued =
            [(&Partition::Whole, 1), (&Partition::Whole, 3), (&Partition::Whole, 2), (&part, 9), (&part, 10)];
        for (part, version) in queued {
            fifo.bookmark(part, at(version));
        }
        let bookmark = |partition: &Partition, version| Delta::Bookmark {
            partition: partition.clone(),
            version: at(version),
        };
        let expected =
            vec![bookmark(&Partition::Whole, 3), bookmark(&Partition::Whole, 2), bookmark(&part, 10)];
        assert_eq!(pop(&fifo, &known(&[])), Batch::Changes(expected));
    }

    // parity: pop-batch, test-real-fifo-pop-multiple-delta-in, test-process-deltas-in-batch
    #[test]
    fn batch_ends_before_replacement_and_at_size_limit() {
        let fifo = DeltaFifo::new();
        for version in 0..1001 {
            fifo.add(item("a", version));
        }
        fifo.replace(&Partition::Whole, vec![], at(2000), false);
        let sizes: Vec<usize> = (0..3)
            .map(|_| match pop(&fifo, &known(&[])) {
                Batch::Changes(deltas) => deltas.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(sizes, [1000, 1, 0]);
    }

    // parity: add-if-not-present
    #[test]
    fn add_if_not_present_skips_queued_keys() {
        let fifo = DeltaFifo::new();
        fifo.update(item("a", 2));
        fifo.replace(&Partition::Whole, vec![item("b", 3)], at(3), true);
        for name in ["a", "b", "c"] {
            fifo.add_if_not_present(item(name, 1));
        }
        assert_eq!(fifo.len(), 3);
        pop(&fifo, &known(&[]));
        pop(&fifo, &known(&[]));
        assert_eq!(pop(&fifo, &known(&[])), Batch::Changes(vec![Delta::Added(item("c", 1))]));
    }

    // parity: has-synced-first, has-synced-after, test-real-fifo-has-synced
    #[test]
    fn has_synced_after_first_replacement_is_processed() {
        let fifo = DeltaFifo::new();
        assert!(!fifo.has_synced());
        fifo.replace(&Partition::Whole, vec![item("a", 1)], at(1), true);
        fifo.update(item("a", 2));
        let during = fifo.pop(&known(&[]), |_| fifo.has_synced()).now_or_never();
        assert_eq!((during, fifo.has_synced()), (Some(Ok(false)), true));
    }

    // parity: has-synced-first, test-real-fifo-has-synced
    #[test]
    fn change_before_first_replacement_makes_first_batch_empty() {
        let fifo = DeltaFifo::new();
        fifo.add(item("a", 1));
        assert!(fifo.has_synced());
        fifo.replace(&Partition::Whole, vec![], at(2), true);
        assert!(fifo.has_synced());
    }

    // parity: parts-articles-close
    #[test]
    fn closed_queue_drains_and_drops_new_entries() {
        let fifo = DeltaFifo::new();
        fifo.add(item("a", 1));
        fifo.close();
        fifo.add(item("b", 2));
        assert_eq!(pop(&fifo, &known(&[])), Batch::Changes(vec![Delta::Added(item("a", 1))]));
        assert_eq!(fifo.pop(&known(&[]), |_| ()).now_or_never(), Some(Err(Closed)));
    }

    // parity: pop-blocks, test-real-fifo-pop-should-unblock-when
    #[tokio::test]
    async fn closing_wakes_waiting_consumer_and_producer() {
        let (empty, full) = (DeltaFifo::<u32>::new(), DeltaFifo::with_capacity(1));
        let nothing = known(&[]);
        full.add(item("a", 1));
        let mut consumer = pin!(empty.pop(&nothing, |_| ()));
        let mut producer = pin!(full.space());
        assert_eq!((consumer.as_mut().now_or_never(), producer.as_mut().now_or_never()), (None, None));
        empty.close();
        full.close();
        assert_eq!((consumer.now_or_never(), producer.now_or_never()), (Some(Err(Closed)), Some(())));
    }

    // parity: pop-blocks, unlock-while-processing
    #[tokio::test]
    async fn full_queue_blocks_producer_until_batch_is_processed() {
        let fifo = DeltaFifo::new();
        for version in 0..u32::try_from(DeltaFifo::<u32>::CAPACITY).unwrap() {
            fifo.space().now_or_never().expect("there is space");
            fifo.add(item("a", version));
        }
        let mut space = pin!(fifo.space());
        assert_eq!(space.as_mut().now_or_never(), None);
        pop(&fifo, &known(&[]));
        assert_eq!(space.now_or_never(), Some(()));
    }
}
