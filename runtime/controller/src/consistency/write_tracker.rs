//! The records of read-your-writes: the versions that each key's caches must reflect before the next reconcile.
//!
//! [`WriteTracker`] does no I/O. Per key and collection it keeps the highest version written, the UIDs of deleted
//! objects (the response to a deletion can lack a version), and when a write of unknown outcome has settled: it has
//! taken effect by then or never will, so a consistent read that begins later reflects it if it took effect. A response
//! with neither version nor UID, as to an eviction, counts as an unknown outcome. Each entry records the epoch of the
//! cache: versions of two epochs (before and after the restore of an etcd) cannot be compared, so an entry of another
//! epoch is settled only by a list. Per resource the tracker keeps the highest version of all keys, for a successor
//! whose caches must reflect it.
//!
//! No decision depends on elapsed time alone. A consistent read of the collection turns an unknown outcome into a
//! version ([`unknown_outcomes`](crate::consistency::unknown_outcomes)). A version or deletion that a cache does not
//! reflect is settled by a list of the cache that began after the write was recorded
//! ([`read_your_writes`](crate::consistency::read_your_writes)).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_env::Instant;
use windlass_env::watch_channel::{Receiver, Sender, channel};
use windlass_informer::{ObjectLocation, RelistTicket};
use windlass_object::{GroupResource, ObjectKey, ResourceVersion, Uid};

use crate::consistency::caches::{CacheId, DeletionState};

/// A written collection: a resource, in one namespace if it is namespaced. If namespaces are separate sources, each has
/// its own version. So has each shard: if shards are divided by UID, each object counts as a separate collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WrittenCollection {
    /// Group and resource.
    pub(crate) resource: GroupResource,
    namespace: Option<Arc<str>>,
    object: Option<Uid>,
}

impl WrittenCollection {
    pub(crate) fn new(resource: GroupResource, namespace: Option<&str>) -> Self {
        Self { resource, namespace: namespace.map(Into::into), object: None }
    }

    /// Narrows the collection to one object.
    pub(crate) fn of_object(self, uid: Uid) -> Self {
        Self { object: Some(uid), ..self }
    }

    /// Returns the location in a cache that reflects writes to this collection.
    pub(crate) fn location(&self) -> ObjectLocation<'_> {
        ObjectLocation { namespace: self.namespace(), uid: self.object.as_ref() }
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// The epoch of writes whose versions cannot be compared with those of any cache. Only a list settles them.
pub(crate) const NO_EPOCH: u64 = u64::MAX;

/// The writes that the caches of one collection must reflect before the key is reconciled again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AwaitedWrite {
    /// The highest version written, if a version is known.
    pub(crate) version: Option<ResourceVersion>,
    /// The objects that were deleted.
    pub(crate) deleted: BTreeSet<(ObjectKey, Uid, DeletionState)>,
    /// The time at which all writes of unknown outcome have settled, if there are any.
    pub(crate) settled_at: Option<Instant>,
    /// The epoch of the cache when this was recorded.
    pub(crate) epoch: u64,
    /// The time at which this was last recorded.
    pub(crate) since: Instant,
    /// The lists requested from late caches since then. A completed list reflects all writes above.
    pub(crate) lists: BTreeMap<CacheId, RelistTicket>,
}

impl AwaitedWrite {
    fn new(epoch: u64, since: Instant) -> Self {
        Self {
            version: None,
            deleted: BTreeSet::new(),
            settled_at: None,
            epoch,
            since,
            lists: BTreeMap::new(),
        }
    }

    /// Adds `later`. Versions of two epochs cannot be compared: only a list settles their union. The cost does not
    /// depend on the number of earlier deletions.
    fn merge(&mut self, later: Self) {
        let Self { version, deleted, settled_at, epoch, since, lists } = later;
        self.version = higher(self.version.take(), version);
        self.deleted.extend(deleted);
        self.settled_at = self.settled_at.max(settled_at);
        self.epoch = if self.epoch == epoch { epoch } else { NO_EPOCH };
        self.since = since;
        // A list that was requested before `later` was written might not reflect it.
        self.lists = lists;
    }
}

fn higher(one: Option<ResourceVersion>, other: Option<ResourceVersion>) -> Option<ResourceVersion> {
    match (one, other) {
        (Some(a), Some(b)) => Some(if a > b { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// Number of keys that each write sweeps. A write adds at most one key, so with two the records of keys that never
/// return (about 2 kB each) are removed over time, however many there were.
const SWEPT_PER_WRITE: usize = 2;

/// The writes that each key still waits for.
#[derive(Debug, Default)]
pub(crate) struct WriteTracker {
    keys: BTreeMap<ObjectKey, BTreeMap<WrittenCollection, AwaitedWrite>>,
    highest: BTreeMap<GroupResource, HighestVersion>,
    /// The collections with writes of unknown outcome, including those of keys that are no longer here.
    unknown_outcomes: BTreeMap<WrittenCollection, WriteUncertainty>,
    /// The resources with a write of unknown outcome that no cache here can reflect, and when the write has settled.
    unknown_uncached: BTreeMap<GroupResource, Instant>,
    skips: BTreeMap<ObjectKey, u32>,
    /// The key that was swept last.
    swept: Option<ObjectKey>,
}

/// Writes of unknown outcome to one collection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct WriteUncertainty {
    /// The time at which all of them have settled.
    settled_at: Instant,
    /// The time at which the collection must be read.
    due: Instant,
}

/// The highest version written of a resource.
#[derive(Clone, Debug)]
struct HighestVersion {
    version: ResourceVersion,
    /// The epoch of its cache at that time, if it has one.
    epoch: Option<u64>,
    /// The epoch of the cache that the server has left, as proven by a write or a read.
    left: Option<u64>,
}

impl WriteTracker {
    /// Records a write that returned `version`. A version that cannot be compared is not recorded, because the wait for
    /// it would never end.
    pub(crate) fn record_write(
        &mut self,
        key: &ObjectKey,
        collection: &WrittenCollection,
        version: &ResourceVersion,
        epoch: u64,
        now: Instant,
    ) {
        if version.is_comparable() {
            let version = Some(version.clone());
            self.record(key, collection, AwaitedWrite { version, ..AwaitedWrite::new(epoch, now) });
        }
    }

    /// Records the deletion of an object.
    pub(crate) fn record_deletion(
        &mut self,
        key: &ObjectKey,
        collection: &WrittenCollection,
        object: (ObjectKey, Uid, DeletionState),
        epoch: u64,
        now: Instant,
    ) {
        let deleted = BTreeSet::from([object]);
        self.record(key, collection, AwaitedWrite { deleted, ..AwaitedWrite::new(epoch, now) });
    }

    /// Records a write of unknown outcome.
    pub(crate) fn record_unknown_outcome(
        &mut self,
        key: &ObjectKey,
        collection: &WrittenCollection,
        epoch: u64,
        now: Instant,
        settled_at: Instant,
    ) {
        let awaited = AwaitedWrite { settled_at: Some(settled_at), ..AwaitedWrite::new(epoch, now) };
        self.record(key, collection, awaited);
        let latest = WriteUncertainty { settled_at, due: settled_at };
        let uncertainty = self.unknown_outcomes.entry(collection.clone()).or_insert(latest);
        // A read that is due stays due: unknown outcomes that keep arriving must not postpone the resolution of earlier
        // ones.
        *uncertainty = WriteUncertainty {
            settled_at: uncertainty.settled_at.max(settled_at),
            due: uncertainty.due.min(settled_at),
        };
    }

    fn record(&mut self, key: &ObjectKey, collection: &WrittenCollection, awaited: AwaitedWrite) {
        let collections = match self.keys.get_mut(key) {
            Some(collections) => collections,
            None => self.keys.entry(key.clone()).or_default(),
        };
        match collections.get_mut(collection) {
            Some(earlier) => earlier.merge(awaited),
            None => drop(collections.insert(collection.clone(), awaited)),
        }
    }

    /// Returns the writes that `key` waits for.
    pub(crate) fn awaited(&self, key: &ObjectKey) -> Vec<(WrittenCollection, AwaitedWrite)> {
        let collections = self.keys.get(key).into_iter().flatten();
        collections.map(|(collection, awaited)| (collection.clone(), awaited.clone())).collect()
    }

    /// Removes `awaited`, unless a write was recorded since it was read.
    pub(crate) fn remove_reflected(
        &mut self,
        key: &ObjectKey,
        collection: &WrittenCollection,
        awaited: &AwaitedWrite,
    ) {
        let Some(collections) = self.keys.get_mut(key) else { return };
        if collections.get(collection) == Some(awaited) {
            collections.remove(collection);
        }
        if collections.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Records a write of unknown outcome that no cache can reflect. Its key does not wait for it, but a successor
    /// does.
    pub(crate) fn record_unknown_uncached(&mut self, resource: &GroupResource, settled_at: Instant) {
        let latest = self.unknown_uncached.entry(resource.clone()).or_insert(settled_at);
        *latest = settled_at.max(*latest);
    }

    /// Records that `resource` had `version` at `now`, from any key, watched or not.
    pub(crate) fn record_version(
        &mut self,
        resource: &GroupResource,
        version: &ResourceVersion,
        epoch: Option<u64>,
        now: Instant,
    ) {
        // A later version covers a write that had settled before.
        if self.unknown_uncached.get(resource).is_some_and(|settled_at| *settled_at <= now)
            && version.is_comparable()
        {
            self.unknown_uncached.remove(resource);
        }
        let passed = |last: &HighestVersion| last.epoch == epoch && last.version >= *version;
        let last = self.highest.get(resource);
        if version.is_comparable() && !last.is_some_and(passed) {
            let left = last.and_then(|last| last.left).filter(|left| Some(*left) == epoch);
            self.highest.insert(resource.clone(), HighestVersion { version: version.clone(), epoch, left });
        }
    }

    /// Records that the server was restored and has left this epoch of the caches of `resource`: until the caches begin
    /// the next epoch, no version covers the writes.
    pub(crate) fn left_epoch(&mut self, resource: &GroupResource, epoch: Option<u64>) {
        if let Some(highest) = self.highest.get_mut(resource) {
            highest.left = epoch;
        }
    }

    /// Returns the highest version written of each resource; `None` if the versions do not cover every write: the
    /// outcome of one is unknown, or one was made in another epoch of its cache.
    pub(crate) fn written_versions(
        &self,
        epoch: impl Fn(&GroupResource) -> Option<u64>,
    ) -> Option<BTreeMap<GroupResource, ResourceVersion>> {
        let is_present = |(resource, highest): (&GroupResource, &HighestVersion)| {
            highest.epoch == epoch(resource) && highest.left.is_none()
        };
        if self.has_unknown_outcomes()
            || !self.unknown_uncached.is_empty()
            || !self.highest.iter().all(is_present)
        {
            return None;
        }
        let versions =
            self.highest.iter().map(|(resource, highest)| (resource.clone(), highest.version.clone()));
        Some(versions.collect())
    }

    /// Records that a list of one cache was requested for `key`, unless a write was recorded since `awaited` was read.
    pub(crate) fn record_relist(
        &mut self,
        key: &ObjectKey,
        collection: &WrittenCollection,
        awaited: &AwaitedWrite,
        lists: BTreeMap<CacheId, RelistTicket>,
    ) {
        let slot = self.keys.get_mut(key).and_then(|collections| collections.get_mut(collection));
        if let Some(slot) = slot.filter(|slot| *slot == awaited) {
            slot.lists.extend(lists);
        }
    }

    /// Returns the time of the next read of a collection with writes of unknown outcome.
    pub(crate) fn next_read_at(&self) -> Option<Instant> {
        self.unknown_outcomes.values().map(|uncertainty| uncertainty.due).min()
    }

    /// Returns the collections with writes of unknown outcome whose read is due.
    pub(crate) fn due_reads(&self, now: Instant) -> Vec<WrittenCollection> {
        let due = self.unknown_outcomes.iter().filter(|(_, uncertainty)| uncertainty.due <= now);
        due.map(|(collection, _)| collection.clone()).collect()
    }

    /// Returns whether a write of unknown outcome has not been resolved.
    pub(crate) fn has_unknown_outcomes(&self) -> bool {
        !self.unknown_outcomes.is_empty()
    }

    /// Returns the time after which no recorded write can take effect; `None` if all outcomes are known.
    pub(crate) fn settled_at(&self) -> Option<Instant> {
        let uncached = self.unknown_uncached.values().copied();
        self.unknown_outcomes.values().map(|uncertainty| uncertainty.settled_at).chain(uncached).max()
    }

    /// Resolves the unknown outcomes in a collection by a consistent read that was sent at `sent`: writes that had
    /// settled by then are reflected at the version of the read, if they took effect. Without a version there is
    /// nothing to wait for. A read that is older than `seen`, the version of a cache before the read, is of another
    /// epoch: only a list settles the writes.
    pub(crate) fn resolve(
        &mut self,
        collection: &WrittenCollection,
        sent: Instant,
        read: Option<&ResourceVersion>,
        seen: Option<&ResourceVersion>,
        now: Instant,
    ) {
        let settled = |settled_at: Instant| settled_at <= sent;
        let entries = self.keys.values_mut().filter_map(|collections| collections.get_mut(collection));
        for awaited in entries.filter(|awaited| awaited.settled_at.is_some_and(settled)) {
            awaited.version =
                higher(awaited.version.take(), read.cloned().filter(ResourceVersion::is_comparable));
            if read.zip(seen).is_some_and(|(read, seen)| read < seen) {
                awaited.epoch = NO_EPOCH;
            }
            (awaited.settled_at, awaited.since) = (None, now);
            awaited.lists.clear();
        }
        let waiting = self.keys.values().filter_map(|collections| collections.get(collection)?.settled_at);
        let next = waiting.min();
        match self.unknown_outcomes.get_mut(collection) {
            Some(uncertainty) if settled(uncertainty.settled_at) => {
                self.unknown_outcomes.remove(collection);
            }
            // The latest write can belong to a key that was removed.
            Some(uncertainty) => {
                uncertainty.due = next.unwrap_or(uncertainty.settled_at).min(uncertainty.settled_at);
            }
            None => {}
        }
    }

    /// Drops the unknown outcomes at `collection`, because no cache can reflect them any longer.
    pub(crate) fn drop_unknown_outcomes(&mut self, collection: &WrittenCollection) {
        if let Some(uncertainty) = self.unknown_outcomes.remove(collection) {
            self.record_unknown_uncached(&collection.resource, uncertainty.settled_at);
        }
    }

    /// Schedules the read of a collection for whose unknown outcomes a key waits, unless a read is scheduled. Returns
    /// whether it did.
    pub(crate) fn schedule_read(&mut self, collection: &WrittenCollection, settled_at: Instant) -> bool {
        let is_new = !self.unknown_outcomes.contains_key(collection);
        if is_new {
            self.unknown_outcomes
                .insert(collection.clone(), WriteUncertainty { settled_at, due: settled_at });
        }
        is_new
    }

    /// Postpones the read of a collection to `due`.
    pub(crate) fn postpone_read(&mut self, collection: &WrittenCollection, due: Instant) {
        if let Some(uncertainty) = self.unknown_outcomes.get_mut(collection) {
            uncertainty.due = uncertainty.due.max(due);
        }
    }

    /// Counts an attempt at `key` that was skipped because a cache was behind.
    pub(crate) fn skipped(&mut self, key: &ObjectKey) {
        *self.skips.entry(key.clone()).or_default() += 1;
    }

    /// Returns the number of consecutive skipped attempts at `key`.
    pub(crate) fn skips(&self, key: &ObjectKey) -> u32 {
        self.skips.get(key).copied().unwrap_or_default()
    }

    /// Returns the resource whose cache delayed `key` in its last attempt, if any.
    pub(crate) fn awaited_resource(&self, key: &ObjectKey) -> Option<GroupResource> {
        self.skips.get(key)?;
        self.pending(key)
    }

    /// Returns the first resource whose cache does not yet reflect the writes of `key`.
    pub(crate) fn pending(&self, key: &ObjectKey) -> Option<GroupResource> {
        self.keys.get(key)?.keys().next().map(|collection| collection.resource.clone())
    }

    /// Removes the records of keys for which `gone` returns true.
    pub(crate) fn remove_if(&mut self, gone: impl Fn(&ObjectKey) -> bool) {
        self.keys.retain(|key, _| !gone(key));
        self.skips.retain(|key, _| !gone(key));
    }

    /// Resets the skips of `key`, because the caches have caught up.
    pub(crate) fn reset_skips(&mut self, key: &ObjectKey) {
        self.skips.remove(key);
    }

    /// Removes writes that the caches reflect from the next few keys, in cyclic order, since a key might never be
    /// reconciled again. Call it with every write.
    pub(crate) fn sweep_some(&mut self, passed: impl Fn(&WrittenCollection, &AwaitedWrite) -> bool) {
        for _ in 0..SWEPT_PER_WRITE.min(self.keys.len()) {
            let after = self.swept.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.keys.range::<ObjectKey, _>((after, Bound::Unbounded)).next();
            let Some((key, _)) = next.or_else(|| self.keys.first_key_value()) else { return };
            let key = key.clone();
            if let Some(collections) = self.keys.get_mut(&key) {
                collections.retain(|collection, awaited| !passed(collection, awaited));
                if collections.is_empty() {
                    self.keys.remove(&key);
                }
            }
            self.swept = Some(key);
        }
    }
}

/// The tracker of one controller, shared by its workers: a key can have another worker next time.
#[derive(Clone, Debug)]
pub(crate) struct SharedWriteTracker {
    tracker: Arc<Mutex<WriteTracker>>,
    /// Notified whenever an outcome becomes unknown or known.
    unknown_outcomes: Sender<()>,
}

impl Default for SharedWriteTracker {
    fn default() -> Self {
        Self { tracker: Arc::default(), unknown_outcomes: channel(()).0 }
    }
}

impl SharedWriteTracker {
    pub(crate) fn lock(&self) -> MutexGuard<'_, WriteTracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver for changes of unknown outcomes.
    pub(crate) fn outcome_changes(&self) -> Receiver<()> {
        self.unknown_outcomes.subscribe()
    }

    /// Notifies the receivers that an outcome has become unknown or known.
    pub(crate) fn notify_outcomes_changed(&self) {
        self.unknown_outcomes.set(());
    }

    /// Waits until the outcome of every write is known.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(crate) async fn wait_resolved(&self) {
        let mut changes = self.outcome_changes();
        while self.lock().has_unknown_outcomes() {
            // `self` owns the sender, so the channel cannot close.
            let _changed = changes.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_env::Env;

    use super::*;

    fn pods() -> GroupResource {
        GroupResource::new("", "pods")
    }

    fn collection() -> WrittenCollection {
        WrittenCollection::new(pods(), Some("shop"))
    }

    fn key() -> ObjectKey {
        ObjectKey::namespaced("shop", "web")
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(&number.to_string())
    }

    fn only(tracker: &WriteTracker) -> AwaitedWrite {
        let [(_, awaited)] = tracker.awaited(&key()).try_into().expect("one resource is waited for");
        awaited
    }

    #[tokio::test(start_paused = true)]
    async fn highest_version_of_one_key_and_resource_is_waited_for() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        for number in [9, 100, 11] {
            tracker.record_write(&key(), &collection(), &version(number), 0, now);
        }
        assert_eq!(only(&tracker).version, Some(version(100)));
        assert_eq!(tracker.awaited(&ObjectKey::namespaced("shop", "other")), []);
    }

    #[tokio::test(start_paused = true)]
    async fn recording_a_deletion_copies_no_earlier_deletion() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        let mut record = |number: u32| {
            let pod = ObjectKey::namespaced("shop", &number.to_string());
            let object = (pod, Uid::from("u"), DeletionState::Terminating);
            allocation_counter::measure(|| tracker.record_deletion(&key(), &collection(), object, 0, now))
        };
        let bytes: u64 = (0..1_000).map(|number| record(number).bytes_total).sum();
        assert!(bytes < 1_000 * 1_000, "{bytes} bytes for a thousand deletions");
        assert_eq!(only(&tracker).deleted.len(), 1_000);
    }

    // parity: malformed-empty-versions-fail
    #[tokio::test(start_paused = true)]
    async fn incomparable_version_is_not_waited_for() {
        let mut tracker = WriteTracker::default();
        tracker.record_write(
            &key(),
            &collection(),
            &ResourceVersion::new("opaque"),
            0,
            Env::virtual_time(1).now(),
        );
        assert_eq!(tracker.awaited(&key()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn write_of_a_new_epoch_keeps_its_key_waiting_for_a_list() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        tracker.record_write(&key(), &collection(), &version(500), 0, now);
        tracker.record_write(&key(), &collection(), &version(7), 1, now);
        assert_eq!(
            only(&tracker).epoch,
            NO_EPOCH,
            "no cache of the new epoch can reflect both by its version"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_outcome_becomes_version_of_a_read_sent_after_it_settled() {
        let begun = Env::virtual_time(1).now();
        let (mut tracker, at) = (WriteTracker::default(), |millis| begun + Duration::from_millis(millis));
        tracker.record_write(&key(), &collection(), &version(5), 0, begun);
        tracker.record_unknown_outcome(&key(), &collection(), 0, begun, at(1000));
        assert_eq!((tracker.next_read_at(), tracker.settled_at()), (Some(at(1000)), Some(at(1000))));
        tracker.resolve(&collection(), at(999), Some(&version(9)), None, at(999));
        assert!(
            tracker.has_unknown_outcomes() && only(&tracker).settled_at.is_some(),
            "the read was sent too soon"
        );
        tracker.resolve(&collection(), at(1000), Some(&version(9)), None, at(1001));
        let resolved = AwaitedWrite { version: Some(version(9)), ..AwaitedWrite::new(0, at(1001)) };
        assert_eq!(only(&tracker), resolved);
        assert!(!tracker.has_unknown_outcomes() && tracker.next_read_at().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn read_older_than_a_cache_leaves_the_outcome_to_a_list() {
        let begun = Env::virtual_time(1).now();
        let (mut tracker, at) = (WriteTracker::default(), |millis| begun + Duration::from_millis(millis));
        for (seen, epoch) in [(9, 0), (10, NO_EPOCH)] {
            tracker.record_unknown_outcome(&key(), &collection(), 0, begun, at(1000));
            tracker.resolve(&collection(), at(1000), Some(&version(9)), Some(&version(seen)), at(1001));
            assert_eq!(only(&tracker).epoch, epoch, "the cache was at {seen}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn read_resolves_settled_writes_while_new_unknown_outcomes_arrive() {
        let begun = Env::virtual_time(1).now();
        let (mut tracker, at) = (WriteTracker::default(), |millis| begun + Duration::from_millis(millis));
        let late = ObjectKey::namespaced("shop", "late");
        tracker.record_unknown_outcome(&key(), &collection(), 0, begun, at(1000));
        tracker.record_unknown_outcome(&late, &collection(), 0, at(600), at(1600));
        assert_eq!(
            tracker.due_reads(at(1000)),
            [collection()],
            "later unknown outcomes do not postpone the read"
        );
        tracker.resolve(&collection(), at(1000), Some(&version(9)), None, at(1000));
        assert_eq!(only(&tracker).settled_at, None);
        assert!(tracker.awaited(&late)[0].1.settled_at.is_some());
        assert_eq!(tracker.next_read_at(), Some(at(1600)), "one more read is needed");
        tracker.postpone_read(&collection(), at(2000));
        assert_eq!(tracker.due_reads(at(1999)), []);
    }

    #[tokio::test(start_paused = true)]
    async fn early_settled_outcome_is_resolved_before_one_that_settles_late() {
        let begun = Env::virtual_time(1).now();
        let (mut tracker, at) = (WriteTracker::default(), |millis| begun + Duration::from_millis(millis));
        let (early, later) = (ObjectKey::namespaced("shop", "early"), ObjectKey::namespaced("shop", "later"));
        tracker.record_unknown_outcome(&key(), &collection(), 0, begun, at(9000));
        tracker.record_unknown_outcome(&later, &collection(), 0, begun, at(5000));
        tracker.record_unknown_outcome(&early, &collection(), 0, begun, at(1000));
        assert_eq!(tracker.due_reads(at(1000)), [collection()]);
        tracker.resolve(&collection(), at(1000), Some(&version(9)), None, at(1000));
        assert_eq!(tracker.awaited(&early)[0].1.settled_at, None);
        assert_eq!(tracker.next_read_at(), Some(at(5000)), "the next write to settle");
        tracker.record_unknown_outcome(&key(), &collection(), 0, at(2000), at(3000));
        assert_eq!(only(&tracker).settled_at, Some(at(9000)), "the first write can still take effect");
        assert_eq!((tracker.next_read_at(), tracker.settled_at()), (Some(at(3000)), Some(at(9000))));
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_outcome_that_no_cache_could_show_is_resolved_once_one_can() {
        let begun = Env::virtual_time(1).now();
        let (mut tracker, at) = (WriteTracker::default(), |millis| begun + Duration::from_millis(millis));
        tracker.record_unknown_outcome(&key(), &collection(), 0, begun, at(1000));
        tracker.drop_unknown_outcomes(&collection());
        assert!(
            !tracker.has_unknown_outcomes() && only(&tracker).settled_at.is_some(),
            "no read is scheduled"
        );
        assert!(
            tracker.schedule_read(&collection(), at(6000)) && !tracker.schedule_read(&collection(), at(6000))
        );
        assert_eq!(tracker.due_reads(at(6000)), [collection()]);
        tracker.resolve(&collection(), at(6000), Some(&version(9)), None, at(6001));
        assert_eq!((only(&tracker).settled_at, only(&tracker).version), (None, Some(version(9))));
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_outcome_outlives_its_key() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        tracker.record_unknown_outcome(&key(), &collection(), 0, now, now);
        tracker.remove_if(|_| true);
        assert!(tracker.awaited(&key()).is_empty() && tracker.has_unknown_outcomes());
    }

    #[tokio::test(start_paused = true)]
    async fn write_after_a_requested_list_voids_the_request() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        tracker.record_write(&key(), &collection(), &version(5), 0, now);
        let lists = BTreeMap::from([(CacheId::default(), RelistTicket::default())]);
        tracker.record_relist(&key(), &collection(), &only(&tracker), lists);
        assert_eq!(only(&tracker).lists.len(), 1);
        tracker.record_write(&key(), &collection(), &version(6), 0, now);
        assert_eq!(only(&tracker).lists.len(), 0, "the list may have begun before the second write");
    }

    #[tokio::test(start_paused = true)]
    async fn highest_versions_are_named_unless_they_do_not_cover_every_write() {
        let now = Env::virtual_time(1).now();
        let (mut tracker, sets) = (WriteTracker::default(), GroupResource::new("apps", "replicasets"));
        for number in [9, 100, 11] {
            tracker.record_version(&pods(), &version(number), Some(0), now);
        }
        tracker.record_version(&sets, &version(7), None, now);
        tracker.record_version(&sets, &ResourceVersion::new("opaque"), None, now);
        let epoch = |of_pods: u64| move |resource: &GroupResource| (*resource == pods()).then_some(of_pods);
        let all = BTreeMap::from([(pods(), version(100)), (sets.clone(), version(7))]);
        assert_eq!(tracker.written_versions(epoch(0)), Some(all));
        assert_eq!(tracker.written_versions(epoch(1)), None, "the server went back since");
        tracker.record_version(&pods(), &version(3), Some(1), now);
        assert_eq!(tracker.written_versions(epoch(1)).expect("known")[&pods()], version(3));
        tracker.left_epoch(&pods(), Some(1));
        tracker.record_version(&pods(), &version(4), Some(1), now);
        assert_eq!(tracker.written_versions(epoch(1)), None, "the server was restored");
        tracker.record_version(&pods(), &version(4), Some(2), now);
        assert_eq!(tracker.written_versions(epoch(2)).expect("known")[&pods()], version(4));
        tracker.record_version(&pods(), &version(5), Some(1), now);
        tracker.record_unknown_uncached(&sets, now + Duration::from_secs(1));
        tracker.record_version(&sets, &version(8), None, now);
        assert_eq!(tracker.written_versions(epoch(1)), None, "the write can still take effect");
        tracker.record_version(&sets, &version(9), None, now + Duration::from_secs(1));
        assert_eq!(tracker.written_versions(epoch(1)).expect("known")[&sets], version(9));
        tracker.record_unknown_outcome(&key(), &collection(), 1, now, now);
        assert_eq!(tracker.written_versions(epoch(1)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn write_recorded_meanwhile_is_not_cleared_by_an_older_wait() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        tracker.record_write(&key(), &collection(), &version(5), 0, now);
        let waited_for = only(&tracker);
        tracker.record_write(&key(), &collection(), &version(6), 0, now);
        tracker.remove_reflected(&key(), &collection(), &waited_for);
        assert_eq!(only(&tracker).version, Some(version(6)));
        let current = only(&tracker);
        tracker.remove_reflected(&key(), &collection(), &current);
        assert!(tracker.keys.is_empty(), "nothing is kept for a key that waits for nothing");
    }

    // parity: read-your-writes-0
    #[tokio::test(start_paused = true)]
    async fn deletions_are_tracked_by_uid_next_to_the_highest_version() {
        let now = Env::virtual_time(1).now();
        let (mut tracker, web) = (WriteTracker::default(), ObjectKey::namespaced("shop", "web-1"));
        tracker.record_deletion(
            &key(),
            &collection(),
            (web.clone(), "u1".into(), DeletionState::Terminating),
            0,
            now,
        );
        assert_eq!((only(&tracker).version, only(&tracker).settled_at), (None, None), "no version is known");
        tracker.record_write(&key(), &collection(), &version(5), 0, now);
        tracker.record_deletion(
            &key(),
            &collection(),
            (web.clone(), "u2".into(), DeletionState::Gone),
            0,
            now,
        );
        let awaited = only(&tracker);
        assert_eq!(awaited.version, Some(version(5)));
        let deleted =
            [(web.clone(), "u1".into(), DeletionState::Terminating), (web, "u2".into(), DeletionState::Gone)];
        assert_eq!(awaited.deleted, BTreeSet::from(deleted));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_in_two_namespaces_are_waited_for_in_each() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        tracker.record_write(&key(), &collection(), &version(5), 0, now);
        tracker.record_write(&key(), &WrittenCollection::new(pods(), Some("depot")), &version(9), 0, now);
        let versions: Vec<_> =
            tracker.awaited(&key()).into_iter().map(|(_, awaited)| awaited.version).collect();
        assert_eq!(versions, [Some(version(9)), Some(version(5))], "depot comes before shop");
    }

    // parity: clear-new
    #[tokio::test(start_paused = true)]
    async fn keys_that_never_return_are_swept_once_caches_reflect_writes() {
        let now = Env::virtual_time(1).now();
        let mut tracker = WriteTracker::default();
        let mut write = |number: u64, seen: u64| {
            tracker.record_write(
                &ObjectKey::cluster(&number.to_string()),
                &collection(),
                &version(number),
                0,
                now,
            );
            tracker.sweep_some(|_, awaited| awaited.version <= Some(version(seen)));
            tracker.keys.len()
        };
        assert_eq!((1..=100).map(|number| write(number, 0)).max(), Some(100), "the cache is behind");
        let left: Vec<usize> = (101..=300).map(|number| write(number, number - 1)).collect();
        assert!(left[110..].iter().all(|left| *left <= 2), "{left:?}");
    }
}
