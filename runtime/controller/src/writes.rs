//! Read-your-writes, the bookkeeping: which versions each key's cache must have passed before the next reconcile.
//!
//! [`Ledger`] is pure. Per key and collection it keeps the highest version written, or that a write's fate is unknown,
//! and which objects were deleted, by UID: a deletion may be answered without any version. A write that is answered with
//! neither, as an eviction is, counts as one of unknown fate: both are bounded by a consistent read. With them goes the
//! epoch of the cache in which that happened: a new epoch (a restored etcd) voids the entry, since versions of two epochs
//! cannot be compared. Per resource it keeps the highest version of all, for a successor whose caches must show it.
//! [`WorkerLog`] feeds it from the client's write log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_client::{Write, WriteLog, WriteTarget};
use windlass_env::{Env, Instant};
use windlass_informer::Site;
use windlass_object::{GroupResource, ObjectKey, ResourceVersion, Uid, Verb};

use crate::caches::Caches;

/// For how long after a consistent read a write of unknown fate may still show, on a cache that follows its source.
/// A watch tells of a write within milliseconds, so a thousandfold of that has told whether it happened. The cache's
/// *version* may take up to a minute to pass that of the read, where nothing changes and only bookmarks move it.
const SHOWS_WITHIN: Duration = Duration::from_secs(5);

/// A collection that is written to: a resource, in one namespace if it has any. With many namespaces as one source each
/// has a version of its own. So has each shard: where those are told apart by the identity of objects, an object is a
/// place by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Group and resource.
    pub(crate) resource: GroupResource,
    namespace: Option<Arc<str>>,
    object: Option<Uid>,
}

impl Place {
    pub(crate) fn new(resource: GroupResource, namespace: Option<&str>) -> Self {
        Self { resource, namespace: namespace.map(Into::into), object: None }
    }

    /// That of one object.
    pub(crate) fn of_object(self, uid: Uid) -> Self {
        Self { object: Some(uid), ..self }
    }

    /// What tells the part of a cache that shows it.
    pub(crate) fn site(&self) -> Site<'_> {
        Site { namespace: self.namespace(), uid: self.object.as_ref() }
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// What one key's cache of one collection must show before the key is reconciled again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// The highest version written, if a version is known.
    pub(crate) version: Option<ResourceVersion>,
    /// Whether there may be a write beyond it.
    pub(crate) doubt: Doubt,
    /// The objects that were deleted.
    pub(crate) deleted: BTreeSet<(ObjectKey, Uid)>,
    /// The epoch of the cache when this was recorded.
    pub(crate) epoch: u64,
    /// When this was last recorded.
    pub(crate) since: Instant,
}

/// Whether there may be a write whose version is not known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Doubt {
    /// Every write was answered.
    None,
    /// A write may or may not have happened.
    Open,
    /// It happened, if at all, before a consistent read.
    Before {
        /// The version of the read.
        read: ResourceVersion,
        /// When it was answered, or when the cache was last seen not to follow its source, if that was later.
        at: Instant,
    },
}

impl Wanted {
    fn known(version: ResourceVersion, epoch: u64, since: Instant) -> Self {
        Self { version: Some(version), doubt: Doubt::None, deleted: BTreeSet::new(), epoch, since }
    }

    fn unknown(epoch: u64, since: Instant) -> Self {
        Self { version: None, doubt: Doubt::Open, deleted: BTreeSet::new(), epoch, since }
    }

    fn ended(object: (ObjectKey, Uid), epoch: u64, since: Instant) -> Self {
        Self { version: None, doubt: Doubt::None, deleted: BTreeSet::from([object]), epoch, since }
    }

    /// Both this and `later`, unless they are of different epochs: then only `later` still means anything.
    fn and(self, mut later: Self) -> Self {
        if self.epoch != later.epoch {
            return later;
        }
        later.deleted.extend(self.deleted);
        let doubt = if later.doubt == Doubt::None { self.doubt } else { later.doubt };
        Self { version: higher(self.version, later.version), doubt, ..later }
    }

    /// The version beyond which nothing is waited for; none while there is no such version.
    pub(crate) fn bound(&self) -> Option<ResourceVersion> {
        match &self.doubt {
            Doubt::None => self.version.clone(),
            Doubt::Open => None,
            Doubt::Before { read, .. } => higher(self.version.clone(), Some(read.clone())),
        }
    }

    /// Whether a cache that has `shown` some versions need not be waited for at `now`, deletions aside. One that `follows`
    /// its source and has not shown a doubtful write for long enough never will: it did not happen, or has been shown.
    pub(crate) fn is_met(
        &self,
        shown: impl Fn(&ResourceVersion) -> bool,
        follows: bool,
        now: Instant,
    ) -> bool {
        let settled = match &self.doubt {
            Doubt::None => true,
            Doubt::Open => false,
            Doubt::Before { read, at } => {
                shown(read) || follows && now.saturating_duration_since(*at) >= SHOWS_WITHIN
            }
        };
        settled && self.version.as_ref().is_none_or(shown)
    }
}

fn higher(one: Option<ResourceVersion>, other: Option<ResourceVersion>) -> Option<ResourceVersion> {
    match (one, other) {
        (Some(a), Some(b)) => Some(if a > b { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// At how many keys each write looks whether caches have passed what they wrote. A write adds one key at most, so with two
/// what keys that never come back have left, at some two kilobytes each, melts away, however many there were at once.
const SWEPT_PER_WRITE: usize = 2;

/// What each key still waits for.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    keys: BTreeMap<ObjectKey, BTreeMap<Place, Wanted>>,
    highest: BTreeMap<GroupResource, Highest>,
    skips: BTreeMap<ObjectKey, u32>,
    /// The key that was looked at last.
    swept: Option<ObjectKey>,
}

/// The highest version written of a resource.
#[derive(Clone, Debug)]
struct Highest {
    version: ResourceVersion,
    /// The epoch of its cache at that time, if it has one.
    epoch: Option<u64>,
}

impl Ledger {
    /// Records a write that returned `version`. A version that cannot be compared is not recorded: waiting for it
    /// would never end.
    pub(crate) fn wrote(
        &mut self,
        key: &ObjectKey,
        place: &Place,
        version: &ResourceVersion,
        epoch: u64,
        now: Instant,
    ) {
        if version.is_comparable() {
            self.record(key, place, Wanted::known(version.clone(), epoch, now));
        }
    }

    /// Records the deletion of an object.
    pub(crate) fn deleted(
        &mut self,
        key: &ObjectKey,
        place: &Place,
        object: (ObjectKey, Uid),
        epoch: u64,
        now: Instant,
    ) {
        self.record(key, place, Wanted::ended(object, epoch, now));
    }

    /// Records a write whose fate is unknown.
    pub(crate) fn ambiguous(&mut self, key: &ObjectKey, place: &Place, epoch: u64, now: Instant) {
        self.record(key, place, Wanted::unknown(epoch, now));
    }

    fn record(&mut self, key: &ObjectKey, place: &Place, wanted: Wanted) {
        let places = self.keys.entry(key.clone()).or_default();
        let merged = match places.remove(place) {
            Some(earlier) => earlier.and(wanted),
            None => wanted,
        };
        places.insert(place.clone(), merged);
    }

    /// What `key` waits for.
    pub(crate) fn wanted(&self, key: &ObjectKey) -> Vec<(Place, Wanted)> {
        let places = self.keys.get(key).into_iter().flatten();
        places.map(|(place, wanted)| (place.clone(), wanted.clone())).collect()
    }

    /// Removes what was waited for, unless something was recorded since `wanted` was read.
    pub(crate) fn satisfied(&mut self, key: &ObjectKey, place: &Place, wanted: &Wanted) {
        let Some(places) = self.keys.get_mut(key) else { return };
        if places.get(place) == Some(wanted) {
            places.remove(place);
        }
        if places.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Notes that something of `resource` was written, by whichever key, watched or not.
    pub(crate) fn reached(
        &mut self,
        resource: &GroupResource,
        version: &ResourceVersion,
        epoch: Option<u64>,
    ) {
        let passed = |last: &Highest| last.epoch == epoch && last.version >= *version;
        if version.is_comparable() && !self.highest.get(resource).is_some_and(passed) {
            self.highest.insert(resource.clone(), Highest { version: version.clone(), epoch });
        }
    }

    /// The highest version written of each resource, but for those written before the cache's present epoch.
    pub(crate) fn written(
        &self,
        epoch: impl Fn(&GroupResource) -> Option<u64>,
    ) -> BTreeMap<GroupResource, ResourceVersion> {
        let present = self.highest.iter().filter(|(resource, highest)| highest.epoch == epoch(resource));
        present.map(|(resource, highest)| (resource.clone(), highest.version.clone())).collect()
    }

    /// Puts the version of a consistent read in the place of an unknown fate, unless something was recorded since.
    pub(crate) fn resolve(
        &mut self,
        key: &ObjectKey,
        place: &Place,
        wanted: &Wanted,
        read: ResourceVersion,
        now: Instant,
    ) -> Wanted {
        let resolved = Wanted { doubt: Doubt::Before { read, at: now }, ..wanted.clone() };
        let slot = self.keys.get_mut(key).and_then(|places| places.get_mut(place));
        if let Some(slot) = slot.filter(|slot| *slot == wanted) {
            slot.clone_from(&resolved);
        }
        resolved
    }

    /// The cache does not follow its source: the time in which a doubtful write would have shown begins anew.
    pub(crate) fn unfollowed(&mut self, key: &ObjectKey, place: &Place, wanted: &Wanted, now: Instant) {
        if let Doubt::Before { read, .. } = &wanted.doubt {
            self.resolve(key, place, wanted, read.clone(), now);
        }
    }

    /// Counts a turn of `key` that passed without a reconcile, because a cache was behind.
    pub(crate) fn skipped(&mut self, key: &ObjectKey) {
        *self.skips.entry(key.clone()).or_default() += 1;
    }

    /// How many turns of `key` in a row were skipped.
    pub(crate) fn skips(&self, key: &ObjectKey) -> u32 {
        self.skips.get(key).copied().unwrap_or_default()
    }

    /// The resource whose cache has held up `key` in its last turn, if one has.
    pub(crate) fn held_up_by(&self, key: &ObjectKey) -> Option<GroupResource> {
        self.skips.get(key)?;
        self.pending(key)
    }

    /// The first resource whose cache has not been seen yet to show what `key` wrote.
    pub(crate) fn pending(&self, key: &ObjectKey) -> Option<GroupResource> {
        self.keys.get(key)?.keys().next().map(|place| place.resource.clone())
    }

    /// Forgets what keys wait for of which `gone` says so.
    pub(crate) fn forget_if(&mut self, gone: impl Fn(&ObjectKey) -> bool) {
        self.keys.retain(|key, _| !gone(key));
        self.skips.retain(|key, _| !gone(key));
    }

    /// The caches have caught up with `key`.
    pub(crate) fn forget_skips(&mut self, key: &ObjectKey) {
        self.skips.remove(key);
    }

    /// Forgets what caches have passed of the next few keys, in order and round and round, since a key may never come back.
    /// Call it with every write.
    pub(crate) fn sweep_some(&mut self, passed: impl Fn(&Place, &Wanted) -> bool) {
        for _ in 0..SWEPT_PER_WRITE.min(self.keys.len()) {
            let after = self.swept.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.keys.range::<ObjectKey, _>((after, Bound::Unbounded)).next();
            let Some((key, _)) = next.or_else(|| self.keys.first_key_value()) else { return };
            let key = key.clone();
            if let Some(places) = self.keys.get_mut(&key) {
                places.retain(|place, wanted| !passed(place, wanted));
                if places.is_empty() {
                    self.keys.remove(&key);
                }
            }
            self.swept = Some(key);
        }
    }
}

/// The ledger of one controller, shared by its workers: a key may meet another worker next time.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The write log of one worker: its client's writes belong to the key the worker has, or had last if a task outlived
/// its reconcile.
pub(crate) struct WorkerLog {
    env: Env,
    ledger: SharedLedger,
    caches: Caches,
    current: Mutex<Option<ObjectKey>>,
}

impl WorkerLog {
    pub(crate) fn new(env: Env, ledger: SharedLedger, caches: Caches) -> Self {
        Self { env, ledger, caches, current: Mutex::new(None) }
    }

    /// From here on writes belong to `key`.
    pub(crate) fn begin(&self, key: &ObjectKey) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
    }

    fn record(
        &self,
        target: &WriteTarget,
        object: Option<&Uid>,
        write: impl FnOnce(&mut Ledger, &ObjectKey, &Place, u64, Instant),
    ) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A resource this controller does not watch has no cache that could be stale.
        let resource = changed(target);
        let (Some(key), Some(epoch)) = (current, self.caches.epoch(&resource)) else { return };
        let object = object.filter(|_| self.caches.sharded_by_uid(&resource));
        let place = Place::new(resource, target.namespace.as_deref());
        let place = match object {
            Some(uid) => place.of_object(uid.clone()),
            None => place,
        };
        let mut ledger = self.ledger.lock();
        write(&mut ledger, &key, &place, epoch, self.env.now());
        ledger.sweep_some(|place, wanted| self.caches.passed(place, wanted));
    }
}

impl WriteLog for WorkerLog {
    fn wrote(&self, write: Write) {
        let resource = &write.target.resource;
        if let Some(version) = &write.version {
            self.ledger.lock().reached(resource, version, self.caches.epoch(resource));
        }
        if changes_nothing(&write.target) {
            return;
        }
        let ended = ended(&write);
        if write.version.is_none() && ended.is_none() {
            // It happened, but not at which version: a consistent read tells what must show.
            return self.ambiguous(write.target);
        }
        self.record(&write.target, write.uid.as_ref(), |ledger, key, place, epoch, now| {
            if let Some(version) = &write.version {
                ledger.wrote(key, place, version, epoch, now);
            }
            if let Some(object) = ended {
                ledger.deleted(key, place, object, epoch, now);
            }
        });
    }

    fn ambiguous(&self, target: WriteTarget) {
        self.record(&target, None, |ledger, key, place, epoch, now| ledger.ambiguous(key, place, epoch, now));
    }
}

/// Whether a request that is made like a write leaves the object as it is: a token is issued, and kept nowhere.
fn changes_nothing(target: &WriteTarget) -> bool {
    target.resource == GroupResource::new("", "serviceaccounts")
        && target.subresource.as_deref() == Some("token")
}

/// The resource whose objects a write changes: that of its path, but for bindings, which are kept nowhere and change the
/// Pod they name.
fn changed(target: &WriteTarget) -> GroupResource {
    let binds = target.resource == GroupResource::new("", "bindings");
    if binds { GroupResource::new("", "pods") } else { target.resource.clone() }
}

/// The object that a write deleted, if the answer says which. Its name alone would not do: another may bear it by now.
fn ended(write: &Write) -> Option<(ObjectKey, Uid)> {
    let deletes = write.target.verb == Verb::Delete && write.target.subresource.is_none();
    let object = write.key.clone().zip(write.uid.clone());
    object.filter(|_| deletes)
}

impl std::fmt::Debug for WorkerLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerLog").field("current", &self.current).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> GroupResource {
        GroupResource::new("", "pods")
    }

    fn place() -> Place {
        Place::new(pods(), Some("shop"))
    }

    fn key() -> ObjectKey {
        ObjectKey::namespaced("shop", "web")
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(&number.to_string())
    }

    fn only(ledger: &Ledger) -> Wanted {
        let [(_, wanted)] = ledger.wanted(&key()).try_into().expect("one resource is waited for");
        wanted
    }

    #[tokio::test(start_paused = true)]
    async fn the_highest_version_of_one_key_and_resource_is_waited_for() {
        let now = Env::virtual_time(1).now();
        let mut ledger = Ledger::default();
        for number in [9, 100, 11] {
            ledger.wrote(&key(), &place(), &version(number), 0, now);
        }
        assert_eq!(only(&ledger).version, Some(version(100)));
        assert_eq!(ledger.wanted(&ObjectKey::namespaced("shop", "other")), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_is_no_number_is_not_waited_for() {
        let mut ledger = Ledger::default();
        ledger.wrote(&key(), &place(), &ResourceVersion::new("opaque"), 0, Env::virtual_time(1).now());
        assert_eq!(ledger.wanted(&key()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_of_a_new_epoch_voids_those_of_the_old() {
        let now = Env::virtual_time(1).now();
        let mut ledger = Ledger::default();
        ledger.wrote(&key(), &place(), &version(500), 0, now);
        ledger.wrote(&key(), &place(), &version(7), 1, now);
        assert_eq!(only(&ledger), Wanted::known(version(7), 1, now));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_fate_stays_until_a_read_resolves_it() {
        let now = Env::virtual_time(1).now();
        let mut ledger = Ledger::default();
        ledger.ambiguous(&key(), &place(), 0, now);
        ledger.wrote(&key(), &place(), &version(5), 0, now);
        let wanted = only(&ledger);
        assert_eq!((wanted.doubt.clone(), wanted.bound()), (Doubt::Open, None));
        ledger.resolve(&key(), &place(), &wanted, version(9), now);
        let resolved = only(&ledger);
        assert_eq!((&resolved.version, resolved.bound()), (&Some(version(5)), Some(version(9))));
        ledger.wrote(&key(), &place(), &version(7), 0, now);
        assert_eq!((only(&ledger).version, only(&ledger).doubt), (Some(version(7)), resolved.doubt));
        ledger.ambiguous(&key(), &place(), 0, now);
        assert_eq!(only(&ledger).doubt, Doubt::Open, "another one needs another read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubtful_write_is_waited_for_until_it_is_passed_or_would_long_have_shown() {
        let now = Env::virtual_time(1).now();
        let doubt = Doubt::Before { read: version(9), at: now };
        let wanted = Wanted { doubt, ..Wanted::known(version(5), 0, now) };
        let (early, late) = (now + SHOWS_WITHIN - Duration::from_nanos(1), now + SHOWS_WITHIN);
        let at = |number: u64| move |wanted: &ResourceVersion| version(number) >= *wanted;
        assert!(wanted.is_met(at(9), false, now), "passed");
        assert!(wanted.is_met(at(5), true, late), "it did not happen, or has been shown");
        assert!(!wanted.is_met(at(8), true, early) && !wanted.is_met(at(8), false, late));
        assert!(!wanted.is_met(at(4), true, late), "a write that surely happened is waited for all the same");
        assert!(!Wanted::unknown(0, now).is_met(at(100), true, late), "a read comes first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_does_not_follow_its_source_is_given_the_whole_time_again() {
        let now = Env::virtual_time(1).now();
        let mut ledger = Ledger::default();
        ledger.ambiguous(&key(), &place(), 0, now);
        let open = only(&ledger);
        let resolved = ledger.resolve(&key(), &place(), &open, version(9), now);
        let later = now + Duration::from_secs(4);
        ledger.unfollowed(&key(), &place(), &resolved, later);
        assert_eq!(only(&ledger).doubt, Doubt::Before { read: version(9), at: later });
    }

    #[tokio::test(start_paused = true)]
    async fn the_highest_version_of_each_resource_is_told_unless_the_server_went_back_since() {
        let (mut ledger, sets) = (Ledger::default(), GroupResource::new("apps", "replicasets"));
        for number in [9, 100, 11] {
            ledger.reached(&pods(), &version(number), Some(0));
        }
        ledger.reached(&sets, &version(7), None);
        ledger.reached(&sets, &ResourceVersion::new("opaque"), None);
        let epoch = |of_pods: u64| move |resource: &GroupResource| (*resource == pods()).then_some(of_pods);
        let all = BTreeMap::from([(pods(), version(100)), (sets.clone(), version(7))]);
        assert_eq!(ledger.written(epoch(0)), all);
        assert_eq!(ledger.written(epoch(1)), BTreeMap::from([(sets, version(7))]));
        ledger.reached(&pods(), &version(3), Some(1));
        assert_eq!(ledger.written(epoch(1))[&pods()], version(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_recorded_meanwhile_is_not_cleared_by_an_older_wait() {
        let now = Env::virtual_time(1).now();
        let mut ledger = Ledger::default();
        ledger.wrote(&key(), &place(), &version(5), 0, now);
        let waited_for = only(&ledger);
        ledger.wrote(&key(), &place(), &version(6), 0, now);
        ledger.satisfied(&key(), &place(), &waited_for);
        assert_eq!(only(&ledger).version, Some(version(6)));
        let current = only(&ledger);
        ledger.satisfied(&key(), &place(), &current);
        assert!(ledger.keys.is_empty(), "nothing is kept for a key that waits for nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_are_waited_for_by_uid_beside_the_highest_version() {
        let now = Env::virtual_time(1).now();
        let (mut ledger, web) = (Ledger::default(), ObjectKey::namespaced("shop", "web-1"));
        ledger.deleted(&key(), &place(), (web.clone(), "u1".into()), 0, now);
        assert_eq!((only(&ledger).bound(), only(&ledger).doubt), (None, Doubt::None), "no version is known");
        ledger.wrote(&key(), &place(), &version(5), 0, now);
        ledger.deleted(&key(), &place(), (web.clone(), "u2".into()), 0, now);
        let wanted = only(&ledger);
        assert_eq!(wanted.version, Some(version(5)));
        assert_eq!(wanted.deleted, BTreeSet::from([(web.clone(), "u1".into()), (web, "u2".into())]));
        ledger.wrote(&key(), &place(), &version(1), 1, now);
        assert_eq!(only(&ledger).deleted, BTreeSet::new(), "a new epoch voids them");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_in_two_namespaces_is_waited_for_in_each() {
        let now = Env::virtual_time(1).now();
        let mut ledger = Ledger::default();
        ledger.wrote(&key(), &place(), &version(5), 0, now);
        ledger.wrote(&key(), &Place::new(pods(), Some("depot")), &version(9), 0, now);
        let versions: Vec<_> = ledger.wanted(&key()).into_iter().map(|(_, wanted)| wanted.version).collect();
        assert_eq!(versions, [Some(version(9)), Some(version(5))], "depot comes before shop");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_never_come_back_are_swept_once_their_writes_were_seen() {
        let now = Env::virtual_time(1).now();
        let mut ledger = Ledger::default();
        let mut write = |number: u64, seen: u64| {
            ledger.wrote(&ObjectKey::cluster(&number.to_string()), &place(), &version(number), 0, now);
            ledger.sweep_some(|_, wanted| wanted.version <= Some(version(seen)));
            ledger.keys.len()
        };
        assert_eq!((1..=100).map(|number| write(number, 0)).max(), Some(100), "the cache is behind");
        let left: Vec<usize> = (101..=300).map(|number| write(number, number - 1)).collect();
        assert!(left[110..].iter().all(|left| *left <= 2), "{left:?}");
    }
}
