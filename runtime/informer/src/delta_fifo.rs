//! The queue between reflector and store: all changes in arrival order.
//!
//! Guarantees:
//! - `add`, `update`, `delete`, `replace` and `resync` are popped in order, without merging or loss. Exceptions: a
//!   queued resync replaces a later one with the same target, and the later of two consecutive bookmarks replaces the
//!   earlier.
//! - A replacement is one entry. `pop` expands it against the objects known at that time: into the resulting deletions
//!   and the listed items. The consumer receives both in one batch and can apply them atomically. A resync is one entry
//!   too.
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
pub(crate) struct Item<S> {
    /// Key, identity and version, read without decoding the rest.
    pub(crate) head: ObjectHeader,
    /// The decoded object or the error.
    pub(crate) body: Body<S>,
    /// Wire size in bytes, which budgets use as the memory size.
    pub(crate) bytes: u32,
}

/// The outcome of decoding an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body<S> {
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
pub(crate) enum Delta<S> {
    /// The object was added.
    Added(Item<S>),
    /// The object was modified.
    Updated(Item<S>),
    /// The object was deleted; the item is its final state, if decodable.
    Deleted(Item<S>),
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
pub(crate) enum Batch<S> {
    /// Individual changes in arrival order.
    Changes(Vec<Delta<S>>),
    /// A list that replaces the objects of a partition.
    Replacement {
        /// The known objects that are not in the list: they must have been deleted.
        missing: Vec<ObjectKey>,
        /// The listed objects.
        items: Vec<Item<S>>,
        /// The version of the list, how it was read, and whether it is the first.
        list: ListMetadata,
    },
    /// A resync of all known objects to these handlers, without a change.
    Resync(ResyncTarget),
    /// The informer follows these partitions from now on and must list each. An empty list means nothing to follow.
    AddedPartitions(Vec<Partition>),
    /// All objects of a partition were removed together.
    RemovedPartition {
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
pub(crate) struct ListMetadata {
    /// The listed partition.
    pub(crate) partition: Partition,
    /// The version of the collection.
    pub(crate) version: ResourceVersion,
    /// Whether the list was the newest state and can therefore contradict the known state.
    pub(crate) consistent: bool,
    /// Whether the list was the first entry of this queue, before any change.
    pub(crate) initial: bool,
}

/// The objects of the consumer, against which replacements are expanded.
pub(crate) trait KnownObjects {
    /// Returns every key of a partition that is not in `listed`.
    fn missing_from(&self, partition: &Partition, listed: &BTreeSet<&ObjectKey>) -> Vec<ObjectKey>;
}

/// The error for a queue that is closed and empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is closed")]
pub(crate) struct Closed;

/// A number of entries that have entered the queue: a position is reached once all of them are processed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

/// The queue, shared by one producer (the reflector), one consumer (the processing loop) and a resync timer.
pub(crate) struct DeltaFifo<S> {
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
    /// Whether a change or a replacement has arrived.
    has_content: bool,
    closed: bool,
}

enum Entry<S> {
    Change(Delta<S>),
    Replacement { items: Vec<Item<S>>, list: ListMetadata },
    AddedPartitions(Vec<Partition>),
    RemovedPartition(Partition, RemovalReason),
    Resync(ResyncTarget),
}

impl<S> DeltaFifo<S> {
    /// Number of entries from which [`space`](Self::space) makes the producer wait: two batches, so that one fills
    /// while the consumer processes the other.
    pub(crate) const CAPACITY: usize = 2 * Self::BATCH;
    /// Maximum number of changes per `pop`: enough to spread the cost of publishing a snapshot.
    pub(crate) const BATCH: usize = 1000;

    /// Creates an empty queue.
    pub(crate) fn new() -> Self {
        Self::with_capacity(Self::CAPACITY)
    }

    /// Creates an empty queue with this capacity.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let state = State { entries: VecDeque::new(), entered: 0, has_content: false, closed: false };
        let processed = channel(Position::default()).0;
        Self { state: Mutex::new(state), capacity, arrived: Notify::new(), space: Notify::new(), processed }
    }

    /// Queues an added object.
    pub(crate) fn add(&self, item: Item<S>) {
        self.change(Delta::Added(item));
    }

    /// Queues a changed object.
    pub(crate) fn update(&self, item: Item<S>) {
        self.change(Delta::Updated(item));
    }

    /// Queues a deleted object, known or not.
    pub(crate) fn delete(&self, item: Item<S>) {
        self.change(Delta::Deleted(item));
    }

    /// Queues a bookmark: the partition has no other changes up to `version`.
    pub(crate) fn bookmark(&self, partition: &Partition, version: ResourceVersion) {
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
    pub(crate) fn add_partitions(&self, partitions: Vec<Partition>) {
        self.push(&mut self.lock(), Entry::AddedPartitions(partitions));
    }

    /// Queues the removal of all objects that are known of a partition at `pop`, as one entry.
    pub(crate) fn remove_partition(&self, partition: Partition, reason: RemovalReason) {
        self.push(&mut self.lock(), Entry::RemovedPartition(partition, reason));
    }

    /// Queues a complete list of a partition, as one entry. `consistent` states whether it is the newest state.
    pub(crate) fn replace(
        &self,
        partition: &Partition,
        items: Vec<Item<S>>,
        version: ResourceVersion,
        consistent: bool,
    ) {
        let mut state = self.lock();
        let initial = !std::mem::replace(&mut state.has_content, true);
        let list = ListMetadata { partition: partition.clone(), version, consistent, initial };
        self.push(&mut state, Entry::Replacement { items, list });
    }

    /// Queues a resync of all objects known at `pop`, as one entry. A queued resync with the same target suffices.
    pub(crate) fn resync(&self, target: ResyncTarget) {
        let mut state = self.lock();
        let waits = |entry: &Entry<S>| matches!(entry, Entry::Resync(waiting) if *waiting == target);
        if !state.entries.iter().any(waits) {
            self.push(&mut state, Entry::Resync(target));
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
    pub(crate) async fn pop<R>(
        &self,
        known: &impl KnownObjects,
        process: impl FnOnce(Batch<S>) -> R,
    ) -> Result<R, Closed> {
        loop {
            let arrived = self.arrived.notified();
            if let Some((entry, changes, position)) = self.take()? {
                let result = process(expand(entry, changes, known));
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
    pub(crate) async fn space(&self) {
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
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
        self.space.notify_waiters();
    }

    /// Returns the number of queued entries.
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    fn change(&self, delta: Delta<S>) {
        let mut state = self.lock();
        state.has_content = true;
        self.push(&mut state, Entry::Change(delta));
    }

    fn push(&self, state: &mut State<S>, entry: Entry<S>) {
        if !state.closed {
            state.entered += 1;
            state.entries.push_back(entry);
            self.arrived.notify_one();
        }
    }

    /// Removes the next entry, and if it is a change, the changes that follow it directly, up to a full batch. Returns
    /// them with the position behind them.
    fn take(&self) -> Result<Option<TakenEntries<S>>, Closed> {
        let mut state = self.lock();
        let Some(entry) = state.entries.pop_front() else {
            return if state.closed { Err(Closed) } else { Ok(None) };
        };
        let is_change = matches!(entry, Entry::Change(_));
        let changes = if is_change { following_changes(&mut state.entries) } else { Vec::new() };
        let waiting = u64::try_from(state.entries.len()).unwrap_or(u64::MAX);
        Ok(Some((entry, changes, Position(state.entered - waiting))))
    }

    fn processed(&self, position: Position) {
        self.processed.set(position);
        self.space.notify_waiters();
    }

    /// Locks the state. No foreign code runs under this lock, so a poisoned lock is still consistent.
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry, the changes after it, and the position behind them.
type TakenEntries<S> = (Entry<S>, Vec<Delta<S>>, Position);

/// Removes the changes at the front, as many as fit into a batch after another change.
fn following_changes<S>(entries: &mut VecDeque<Entry<S>>) -> Vec<Delta<S>> {
    let mut changes = Vec::new();
    while changes.len() + 1 < DeltaFifo::<()>::BATCH {
        match entries.pop_front() {
            Some(Entry::Change(delta)) => changes.push(delta),
            Some(other) => {
                entries.push_front(other);
                break;
            }
            None => break,
        }
    }
    changes
}

/// Returns the batch of an entry and of the changes after it.
fn expand<S>(entry: Entry<S>, changes: Vec<Delta<S>>, known: &impl KnownObjects) -> Batch<S> {
    match entry {
        Entry::Change(first) => Batch::Changes(std::iter::once(first).chain(changes).collect()),
        Entry::Replacement { items, list } => {
            let listed = items.iter().map(|item| &item.head.key).collect();
            let missing = known.missing_from(&list.partition, &listed);
            Batch::Replacement { missing, items, list }
        }
        Entry::AddedPartitions(partitions) => Batch::AddedPartitions(partitions),
        Entry::RemovedPartition(partition, reason) => {
            let removed = known.missing_from(&partition, &BTreeSet::new());
            Batch::RemovedPartition { partition, reason, removed }
        }
        Entry::Resync(target) => Batch::Resync(target),
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
        let (missing, items) = (vec![ObjectKey::cluster("a")], vec![item("b", 5), item("c", 4)]);
        let list =
            ListMetadata { partition: Partition::Whole, version: at(7), consistent: true, initial: true };
        assert_eq!(pop(&fifo, &known(&["a", "b"])), Batch::Replacement { missing, items, list });
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

    // parity: has-synced-first, has-synced-after, test-real-fifo-has-synced
    #[test]
    fn only_first_replacement_before_any_change_is_initial() {
        let list = |fifo: &DeltaFifo<u32>| {
            fifo.replace(&Partition::Whole, vec![item("a", 1)], at(2), true);
            match pop(fifo, &known(&[])) {
                Batch::Replacement { list, .. } => list.initial,
                other => panic!("{other:?}"),
            }
        };
        let (first, changed) = (DeltaFifo::new(), DeltaFifo::new());
        assert!(list(&first) && !list(&first));
        changed.add(item("a", 1));
        pop(&changed, &known(&[]));
        assert!(!list(&changed), "a change arrived first");
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
