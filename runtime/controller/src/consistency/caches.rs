//! The caches that one controller reads: its start waits for them, and read-your-writes checks them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_informer::{
    Informer, KindAvailability, NotSynced, ObjectLocation, Selection, UnsyncedInformer, VersionedCache,
};
use windlass_object::shard::ShardField;
use windlass_object::{GroupResource, ObjectKey, ResourceKind, ResourceVersion, Uid};

/// The state of a deletion that the cache must reflect.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeletionState {
    /// The deletion has begun.
    Terminating,
    /// The object is gone.
    Gone,
}

/// One cache. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Cache(Arc<Informer>);

impl Cache {
    pub(crate) fn of(informer: &Arc<Informer>) -> Self {
        Self(Arc::clone(informer))
    }

    pub(crate) fn version_source(&self) -> Arc<dyn VersionedCache> {
        Arc::<Informer>::clone(&self.0)
    }

    /// Returns whether the cache reflects this state of the deletion of this very object.
    pub(crate) fn reflects_deletion(&self, key: &ObjectKey, uid: &Uid, end: DeletionState) -> bool {
        let Some(header) = self.header(key) else { return true };
        if header.uid.as_ref() != Some(uid) || end != DeletionState::Terminating {
            return header.uid.as_ref() != Some(uid);
        }
        self.with_metadata(key, |meta| meta.deletion_timestamp().is_some()).unwrap_or(true)
    }

    /// Returns whether it contains shards that are divided by the UID of their objects.
    pub(crate) fn is_sharded_by_uid(&self) -> bool {
        self.shard_field() == Some(ShardField::Uid)
    }

    /// Returns whether namespaces are listed separately, because a role can be limited to them.
    pub(crate) fn is_by_namespace(&self) -> bool {
        self.namespaces().is_some()
    }

    /// Returns whether the kind is known not to be served.
    pub(crate) fn is_absent(&self) -> bool {
        self.availability() == KindAvailability::Absent
    }

    /// Returns version and UID of the object of this name, if the cache contains it.
    pub(crate) fn version_and_uid(&self, key: &ObjectKey) -> Option<(Option<String>, Option<String>)> {
        self.with_metadata(key, |meta| {
            (meta.resource_version().map(str::to_owned), meta.uid().map(str::to_owned))
        })
    }

    /// Returns a reason for which the cache can exclude an object of this name that it does not contain.
    pub(crate) fn exclusion_reason(&self, key: &ObjectKey) -> Option<String> {
        let (kind, selection) = (self.kind(), self.selection());
        if let (Some(selected), Some(namespace)) = (&selection.namespace, key.namespace())
            && selected != namespace
        {
            return Some(format!("the watch on {kind} is on namespace {selected} alone"));
        }
        if let (Some(selected), Some(namespace)) = (self.namespaces(), key.namespace())
            && !selected.contains(namespace)
        {
            return Some(format!(
                "namespace {namespace} is not among those whose {kind} this process watches"
            ));
        }
        if let (Some(shards), Some(namespace)) = (self.shards(), key.namespace())
            && shards.shard_of(windlass_object::shard::hash(namespace)).is_none()
        {
            return Some(format!("namespace {namespace} is in no shard that this process owns"));
        }
        let absent = selection.is_filtered() && self.version_and_uid(key).is_none();
        absent.then(|| {
            format!("the watch on {kind} selects {selection}, and no object of that name is among those")
        })
    }

    /// Returns the reason for which changes can be missing, although there is an initial list.
    pub(crate) fn staleness_reason(&self) -> Option<String> {
        let stuck = || self.stalled_for().map(|stuck| format!("it has made no progress for {stuck:?}"));
        self.0.problem().or_else(stuck)
    }
}

impl Deref for Cache {
    type Target = Informer;

    fn deref(&self) -> &Informer {
        &self.0
    }
}

/// Identifies one cache among those of a controller.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheId(u64);

/// The caches of one controller, by resource. Some can be added and removed while it runs. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Caches(Arc<Mutex<Registered>>);

#[derive(Default)]
struct Registered {
    by_resource: ByResource,
    /// Total number of added caches.
    added: u64,
}

type ByResource = BTreeMap<GroupResource, Vec<(CacheId, Cache)>>;

impl Caches {
    pub(crate) fn add(&self, cache: Cache) -> CacheId {
        let mut caches = self.lock();
        let id = CacheId(caches.added);
        caches.added += 1;
        caches.by_resource.entry(cache.kind().group_resource()).or_default().push((id, cache));
        id
    }

    /// Removes the cache that [`add`](Self::add) gave this id. The same informer can have been added several times.
    pub(crate) fn remove(&self, id: CacheId) {
        let mut caches = self.lock();
        caches.by_resource.retain(|_, of_resource| {
            of_resource.retain(|(one, _)| *one != id);
            !of_resource.is_empty()
        });
    }

    pub(crate) fn of(&self, resource: &GroupResource) -> Vec<Cache> {
        self.identified(resource).into_iter().map(|(_, cache)| cache).collect()
    }

    /// Returns the caches of `resource` with their ids.
    pub(crate) fn identified(&self, resource: &GroupResource) -> Vec<(CacheId, Cache)> {
        self.lock().by_resource.get(resource).cloned().unwrap_or_default()
    }

    /// Returns whether any cache contains shards of `resource` that are divided by the UID of their objects.
    pub(crate) fn sharded_by_uid(&self, resource: &GroupResource) -> bool {
        self.of(resource).iter().any(|cache| cache.is_sharded_by_uid())
    }

    /// Returns the newest version that one of the caches of `resource` has reached at `site`.
    pub(crate) fn newest_version(
        &self,
        resource: &GroupResource,
        location: ObjectLocation<'_>,
    ) -> Option<ResourceVersion> {
        let versions = self.of(resource).into_iter().filter_map(|cache| cache.version_in(location));
        versions.reduce(|newest, version| if version > newest { version } else { newest })
    }

    /// Returns the UID of an object that all caches of `resource` contain.
    pub(crate) fn uid_of(&self, resource: &GroupResource, key: &ObjectKey) -> Option<Uid> {
        let mut uids =
            self.of(resource).into_iter().map(|cache| cache.version_and_uid(key).and_then(|(_, uid)| uid));
        let first = uids.next()??;
        uids.all(|uid| uid.as_ref() == Some(&first)).then(|| first.into())
    }

    /// Returns all caches, in order.
    pub(crate) fn all(&self) -> Vec<Cache> {
        self.lock().by_resource.values().flatten().map(|(_, cache)| cache.clone()).collect()
    }

    /// Returns the kinds and selections of all caches.
    pub(crate) fn watches(&self) -> Vec<(ResourceKind, Selection)> {
        self.all().iter().map(|cache| (cache.kind().clone(), cache.selection().clone())).collect()
    }

    /// Returns the epoch of the caches of `resource`: `None` if it is not watched. Epochs only grow, so their sum
    /// changes when any of them does.
    pub(crate) fn epoch(&self, resource: &GroupResource) -> Option<u64> {
        self.lock()
            .by_resource
            .get(resource)
            .map(|caches| caches.iter().map(|(_, cache)| cache.epoch()).sum())
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that all `caches` have their initial list.
///
/// # Errors
/// [`NotSynced`] with the caches that have none, and the causes.
pub(crate) fn check_synced(caches: &[Cache]) -> Result<(), NotSynced> {
    let behind = caches.iter().filter(|cache| !cache.has_synced());
    let unsynced: Vec<UnsyncedInformer> = behind.flat_map(|cache| cache.unsynced()).collect();
    if unsynced.is_empty() { Ok(()) } else { Err(NotSynced { unsynced }) }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().by_resource.keys()).finish()
    }
}
