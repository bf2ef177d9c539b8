//! The objects of one informer: one writer and any number of readers, which never block the writer.
//!
//! The writer changes a working copy and publishes it as an immutable [`Snapshot`] that shares all unchanged branches
//! with the previous one. A reader loads the newest snapshot and can keep it indefinitely.
//!
//! Guarantees:
//! - A snapshot is consistent: its objects, indexes, undecodable objects and version belong together.
//! - The version never moves back within an epoch. A consistent list at a lower version (a restored etcd) begins a new
//!   epoch and is logged. Versions of different epochs cannot be compared, and no cached object is trusted to be
//!   current.
//! - Replayed events undo nothing: a state older than the version of its partition is ignored, for cached and for
//!   deleted objects.
//! - An undecodable object is not returned, nor is its previous state. It is kept as undecodable, with its version and
//!   error, until it changes, disappears or is deleted, or until a list contains it in decodable form, even at the same
//!   version.
//!
//! An object that becomes undecodable is removed instead of being kept in its last known state. So the content of a
//! cache depends only on the state of the server and not on the start time of the process: after a restart, or on a
//! standby that takes over, the older state would be missing too. Keeping it would also let the store report a version
//! at which the object was different. Handlers receive an *inferred* deletion. The controller runtime does not
//! reconcile a key whose own object is undecodable. A controller for which a missing related object is dangerous calls
//! [`Lister::check_decodable`](crate::Lister::check_decodable).

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use imbl::OrdMap;
use windlass_object::{ObjectHeader, ObjectKey, ResourceVersion, Uid};

pub use self::progress::Progress;
use self::progress::{ListHandling, Tracker};
use crate::budget::ByteBudget;
use crate::delta_fifo::{Batch, Body, Delta, Item, KnownObjects, ListMetadata, ResyncTarget};
use crate::handler::{Cause, DeletionEvidence, Event};
use crate::indexer::{Entries, IndexFunction, IndexId, IndexSnapshots, Indexers};
use crate::partition::{Partition, RemovalReason};
use crate::undecodable::UndecodableObject;

mod progress;

/// An immutable state of a store.
pub(crate) struct Snapshot<S> {
    contents: Contents<S>,
    progress: Progress,
}

/// The objects of a store.
struct Contents<S> {
    objects: OrdMap<ObjectKey, S>,
    indexes: IndexSnapshots,
    undecodable: OrdMap<ObjectKey, UndecodableObject>,
}

/// The newest snapshot, for readers.
pub(crate) struct Store<S> {
    current: ArcSwap<Snapshot<S>>,
    /// Whether the writer has stopped.
    stopped: AtomicBool,
}

/// The writer of a store.
pub(crate) struct StoreWriter<S> {
    store: Arc<Store<S>>,
    working: Contents<S>,
    tracker: Tracker,
    indexers: Indexers<S>,
    /// The byte accounting of the stored objects.
    budget: Arc<ByteBudget>,
    /// Returns key, identity and version of a stored object.
    head: fn(&S) -> ObjectHeader,
}

/// The change of one object by a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change<S> {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Option<Uid>,
    pub(crate) event: Event<S>,
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Applied<S> {
    /// The changes, in order.
    Changes(Vec<Change<S>>),
    /// The initial list filled an empty store: every object in it is new.
    Filled,
    /// No change, but a resync of these handlers.
    Resync(ResyncTarget),
}

/// Whether the server can have assigned one version to two states. If it cannot, an object at the cached version is
/// unchanged.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum VersionReuse {
    /// Within an epoch a version is assigned once.
    Impossible,
    /// This list begins a new epoch, which can assign versions again.
    Possible,
}

impl<S> Snapshot<S> {
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn objects(&self) -> &OrdMap<ObjectKey, S> {
        &self.contents.objects
    }

    pub(crate) fn index(&self, id: IndexId) -> Option<&Entries> {
        self.contents.indexes.get(id)
    }

    pub(crate) fn undecodable(&self) -> &OrdMap<ObjectKey, UndecodableObject> {
        &self.contents.undecodable
    }
}

impl<S> Store<S> {
    pub(crate) fn new() -> Self {
        Self { current: ArcSwap::from_pointee(Snapshot::default()), stopped: AtomicBool::new(false) }
    }

    /// Marks the store as stopped: the writer changes it no longer.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns the newest snapshot. Never waits.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot<S>> {
        self.current.load_full()
    }
}

/// The contents of a store, by partition.
pub(crate) struct PartitionContents<'a, S> {
    pub(crate) store: &'a Store<S>,
    /// Returns key, identity and version of a stored object.
    pub(crate) head: fn(&S) -> ObjectHeader,
}

impl<S> KnownObjects for PartitionContents<'_, S> {
    fn missing_from(&self, partition: &Partition, listed: &BTreeSet<&ObjectKey>) -> Vec<ObjectKey> {
        let snapshot = self.store.snapshot();
        let first = partition.namespace().map(|namespace| ObjectKey::namespaced(namespace, ""));
        let from = (first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded);
        // A namespace is a contiguous key range; the keys of a shard are not.
        let inside = |key: &ObjectKey| partition.namespace().is_none_or(|it| key.namespace() == Some(it));
        let objects = snapshot.objects().range::<_, ObjectKey>(from.clone());
        let objects = objects.take_while(|(key, _)| inside(key)).filter(|(key, object)| match partition {
            Partition::Whole | Partition::Namespace(_) => true,
            Partition::Shard(shard) => shard.contains(key, (self.head)(object).uid.as_ref()),
        });
        let undecodable = snapshot.undecodable().range::<_, ObjectKey>(from);
        let undecodable = undecodable.take_while(|(key, _)| inside(key));
        let undecodable = undecodable.filter(|(key, it)| partition.contains(key, it.uid.as_ref()));
        let known = objects.map(|(key, _)| key).chain(undecodable.map(|(key, _)| key));
        known.filter(|key| !listed.contains(key)).cloned().collect()
    }
}

impl<S: Clone> StoreWriter<S> {
    /// Creates a writer for an empty store. `head` returns key, identity and version of a stored object.
    pub(crate) fn new(store: Arc<Store<S>>, head: fn(&S) -> ObjectHeader, budget: Arc<ByteBudget>) -> Self {
        let (working, tracker) = (Contents::default(), Tracker::default());
        Self { store, working, tracker, indexers: Indexers::new(), budget, head }
    }

    /// Applies a batch as one transaction and publishes the result.
    pub(crate) fn apply(&mut self, batch: Batch<S>) -> Applied<S> {
        let applied = match batch {
            Batch::Changes(deltas) => Applied::Changes(self.change(deltas)),
            Batch::Replacement { missing, items, list } => {
                let applied = self.replace(&missing, items, &list);
                self.budget.list_applied(&list.partition);
                applied
            }
            Batch::Resync(target) => return Applied::Resync(target),
            Batch::AddedPartitions(partitions) => {
                self.tracker.join(partitions);
                Applied::Changes(Vec::new())
            }
            Batch::RemovedPartition { partition, reason, removed } => {
                Applied::Changes(self.remove_partition(&partition, reason, &removed))
            }
        };
        self.tracker.settle();
        self.publish();
        applied
    }

    /// Adds an index over all present and future objects.
    pub(crate) fn add_index(&mut self, name: &'static str, function: IndexFunction<S>) -> IndexId {
        let objects = self.working.objects.iter();
        let id = self.indexers.add(&mut self.working.indexes, name, function, objects);
        self.publish();
        id
    }

    /// Removes an index; returns its function so that the caller drops it outside of any lock.
    pub(crate) fn remove_index(&mut self, id: IndexId) -> Option<IndexFunction<S>> {
        let removed = self.indexers.remove(&mut self.working.indexes, id);
        self.publish();
        removed
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot<S>> {
        self.store.snapshot()
    }

    /// Returns the number of indexes.
    #[cfg(test)]
    pub(crate) fn indexes(&self) -> usize {
        self.indexers.len()
    }

    pub(crate) fn index_panics(&self) -> u64 {
        self.indexers.panics()
    }

    fn publish(&self) {
        let (contents, progress) = (self.working.clone(), self.tracker.progress().clone());
        self.store.current.store(Arc::new(Snapshot { contents, progress }));
    }

    fn change(&mut self, deltas: Vec<Delta<S>>) -> Vec<Change<S>> {
        let mut changes = Vec::with_capacity(deltas.len());
        for delta in deltas {
            self.apply_change(delta, &mut changes);
        }
        changes
    }

    /// Applies an individual change.
    fn apply_change(&mut self, delta: Delta<S>, changes: &mut Vec<Change<S>>) {
        match delta {
            Delta::Bookmark { partition, version } => self.tracker.advance(&partition, &version),
            Delta::Added(item) | Delta::Updated(item) => {
                self.budget.leave_queue(&self.partition_of(&item.head), item.bytes);
                self.tracker.advance_of(&item.head);
                if self.is_relevant(&item.head) && !self.is_before_partition_version(&item.head) {
                    self.store_or_exclude(item, Cause::Watch, VersionReuse::Impossible, changes);
                }
            }
            Delta::Deleted(item) => {
                self.tracker.advance_of(&item.head);
                if self.is_relevant(&item.head) {
                    self.delete(item, changes);
                }
            }
        }
    }

    fn replace(&mut self, missing: &[ObjectKey], items: Vec<Item<S>>, list: &ListMetadata) -> Applied<S> {
        if !self.tracker.progress().follows(&list.partition) {
            return Applied::Changes(Vec::new());
        }
        let ListHandling { reuse, cause } = self.tracker.listed(list);
        let fills = list.initial && self.working.objects.is_empty();
        let mut changes = Vec::new();
        for key in missing {
            self.remove_unlisted(key, cause, &mut changes);
        }
        // Ordered items fill half of each node of a B-tree. The second half of the items then fills the nodes. Of two
        // states of one object, which only a list without order has, the later one must be stored last.
        let step = if fills && is_ordered(&items) { 2 } else { 1 };
        for item in in_steps(items, step) {
            if self.is_accepted(&item.head, &list.partition, reuse) {
                self.store_or_exclude(item, cause, reuse, &mut changes);
            }
            if fills {
                // Everything is new: handlers read the snapshot instead of a second list of the same length.
                changes.clear();
            }
        }
        if fills { Applied::Filled } else { Applied::Changes(changes) }
    }

    /// Returns whether a listed object is stored. A source that ignores its selection would fill the cache with objects
    /// that are never removed.
    fn is_accepted(&self, head: &ObjectHeader, partition: &Partition, reuse: VersionReuse) -> bool {
        let superseded =
            reuse == VersionReuse::Impossible && self.belongs_to_newer_shard_object(partition, head);
        partition.contains(&head.key, head.uid.as_ref()) && !superseded
    }

    /// Removes all objects of a partition.
    fn remove_partition(
        &mut self,
        partition: &Partition,
        reason: RemovalReason,
        removed: &[ObjectKey],
    ) -> Vec<Change<S>> {
        let cause = match reason {
            RemovalReason::Deselected => Cause::Deselected,
            RemovalReason::Unserved => Cause::Relist,
        };
        let mut changes = Vec::with_capacity(removed.len());
        for key in removed {
            self.remove_unlisted(key, cause, &mut changes);
        }
        self.budget.clear_exceeded(partition);
        self.tracker.emptied(partition, reason);
        changes
    }

    /// Returns whether the object is in a followed partition and not older than the cached object.
    fn is_relevant(&self, head: &ObjectHeader) -> bool {
        self.tracker.progress().covers(head) && !self.is_older_than_cached(head)
    }

    /// Returns whether the state is older than the partition's version, so that replayed events cannot restore a
    /// deleted object. Deletions are exempt, because some sources report them with the version of the last state. A
    /// source that replays a state after a deletion at the same version would restore the object. API servers assign a
    /// new version to each deletion, and replay the deletion too.
    fn is_before_partition_version(&self, head: &ObjectHeader) -> bool {
        self.tracker.progress().is_before_partition_version(head)
    }

    /// Returns whether the name belongs to a newer object of another shard. With sharding by UID, shards do not wait
    /// for each other.
    fn belongs_to_newer_shard_object(&self, partition: &Partition, head: &ObjectHeader) -> bool {
        let Partition::Shard(shard) = partition else { return false };
        let key = &head.key;
        let undecodable = || self.working.undecodable.get(key).map(|held| held.uid.clone());
        let held = self.working.objects.get(key).map(|held| (self.head)(held).uid).or_else(undecodable);
        held.is_some_and(|uid| !shard.contains(key, uid.as_ref())) && self.is_older_than_cached(head)
    }

    /// Returns the partition of an object, for the byte accounting.
    fn partition_of(&self, head: &ObjectHeader) -> Partition {
        // The queue has no objects of partitions that are no longer followed.
        self.tracker.progress().partition_of(head).unwrap_or(Partition::Whole)
    }

    /// Returns whether the cached object with this key is newer.
    fn is_older_than_cached(&self, head: &ObjectHeader) -> bool {
        let held = self.cached_version(&head.key);
        matches!((&head.version, held), (Some(version), Some(held)) if *version < held)
    }

    fn cached_version(&self, key: &ObjectKey) -> Option<ResourceVersion> {
        let undecodable = self.working.undecodable.get(key).and_then(|it| it.version.clone());
        self.working.objects.get(key).and_then(|object| (self.head)(object).version).or(undecodable)
    }

    /// Stores an object; excludes it if it is undecodable.
    fn store_or_exclude(
        &mut self,
        item: Item<S>,
        cause: Cause,
        reuse: VersionReuse,
        changes: &mut Vec<Change<S>>,
    ) {
        let Item { head, body, bytes } = item;
        match body {
            Body::Decoded(object) => {
                let (key, part) = (head.key.clone(), self.partition_of(&head));
                self.put(head, object, cause, reuse, changes);
                self.budget.add_cached(&part, &key, bytes);
            }
            Body::Undecodable { error, metadata } => {
                self.remove_unlisted(&head.key, cause, changes);
                let ObjectHeader { key, uid, version } = head;
                let undecodable = UndecodableObject { key: key.clone(), uid, version, error, metadata };
                self.working.undecodable.insert(key, undecodable);
            }
        }
    }

    fn put(
        &mut self,
        head: ObjectHeader,
        object: S,
        cause: Cause,
        reuse: VersionReuse,
        changes: &mut Vec<Change<S>>,
    ) {
        self.working.undecodable.remove(&head.key);
        let stored = self.working.objects.get_key_value(&head.key);
        let Some((key, old)) = stored.map(|(key, old)| (key.clone(), old.clone())) else {
            return self.insert(head, object, cause, changes);
        };
        let held = (self.head)(&old);
        if !same_identity(&held, &head) {
            self.remove_unlisted(&head.key, cause, changes);
            return self.insert(head, object, cause, changes);
        }
        if reuse == VersionReuse::Impossible && held.version.is_some() && held.version == head.version {
            return;
        }
        // The indexes have clones of the stored key: comparing two clones does not read their text.
        self.keep(&key, object.clone());
        let event = Event::Updated { old, new: object, cause };
        changes.push(Change { key, uid: head.uid, event });
    }

    fn insert(&mut self, head: ObjectHeader, object: S, cause: Cause, changes: &mut Vec<Change<S>>) {
        self.keep(&head.key, object.clone());
        changes.push(Change { key: head.key, uid: head.uid, event: Event::Added { object, cause } });
    }

    /// Removes an object whose deletion was not observed.
    fn remove_unlisted(&mut self, key: &ObjectKey, cause: Cause, changes: &mut Vec<Change<S>>) {
        if let Some((last, uid)) = self.take(key) {
            let event = Event::Deleted { last, observed: DeletionEvidence::Inferred, cause };
            changes.push(Change { key: key.clone(), uid, event });
        }
    }

    /// Removes an object whose deletion was observed. The deletion of an unknown object causes no event.
    fn delete(&mut self, item: Item<S>, changes: &mut Vec<Change<S>>) {
        let Item { head, body, bytes: _ } = item;
        let Some(held) = self.working.objects.get(&head.key).map(self.head) else {
            self.working.undecodable.remove(&head.key);
            return;
        };
        if !same_identity(&held, &head) {
            // The deletion of a later object with this name was observed; that of the cached object was not.
            return self.remove_unlisted(&head.key, Cause::Watch, changes);
        }
        let Some((held, uid)) = self.take(&head.key) else { return };
        let last = match body {
            Body::Decoded(last) => last,
            Body::Undecodable { .. } => held,
        };
        let event = Event::Deleted { last, observed: DeletionEvidence::Observed, cause: Cause::Watch };
        changes.push(Change { key: head.key, uid, event });
    }

    fn keep(&mut self, key: &ObjectKey, object: S) {
        self.indexers.set_values(&mut self.working.indexes, key, &object);
        self.working.objects.insert(key.clone(), object);
    }

    /// Removes an object from all collections.
    fn take(&mut self, key: &ObjectKey) -> Option<(S, Option<Uid>)> {
        self.working.undecodable.remove(key);
        let object = self.working.objects.remove(key)?;
        self.budget.release(key);
        self.working.indexes.forget(key);
        let uid = (self.head)(&object).uid;
        Some((object, uid))
    }
}

/// Returns whether the items are in the order in which an API server lists them, without duplicates.
fn is_ordered<S>(items: &[Item<S>]) -> bool {
    items.is_sorted_by(|a, b| a.head.key.as_str() < b.head.key.as_str())
}

/// Returns every `step`-th item, then the items after these, and so on.
fn in_steps<T>(items: Vec<T>, step: usize) -> impl Iterator<Item = T> {
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    let positions = 0..items.len();
    let order = (0..step).flat_map(move |first| positions.clone().skip(first).step_by(step));
    order.filter_map(move |at| items[at].take())
}

/// Returns whether two headers of one key belong to the same object. A missing UID matches any UID.
fn same_identity(a: &ObjectHeader, b: &ObjectHeader) -> bool {
    !matches!((&a.uid, &b.uid), (Some(a), Some(b)) if a != b)
}

impl<S> Default for Snapshot<S> {
    fn default() -> Self {
        Self { contents: Contents::default(), progress: Progress::default() }
    }
}

impl<S> Default for Contents<S> {
    fn default() -> Self {
        Self { objects: OrdMap::new(), indexes: IndexSnapshots::default(), undecodable: OrdMap::new() }
    }
}

impl<S> Clone for Contents<S> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            indexes: self.indexes.clone(),
            undecodable: self.undecodable.clone(),
        }
    }
}

impl<S> fmt::Debug for Snapshot<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("contents", &self.contents)
            .field("progress", &self.progress)
            .finish()
    }
}

impl<S> fmt::Debug for Contents<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents")
            .field("objects", &self.objects.len())
            .field("undecodable", &self.undecodable.len())
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Store<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current.load().fmt(f)
    }
}

impl<S> fmt::Debug for StoreWriter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreWriter")
            .field("working", &self.working)
            .field("indexers", &self.indexers)
            .finish()
    }
}

#[cfg(test)]
mod tests;
