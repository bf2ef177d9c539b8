//! The caches that one controller reads, and no others: what it waits for at its start, and what read-your-writes asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use kube::Resource;
use windlass_env::cell::Observer;
use windlass_informer::{
    Laggard, NotSynced, Presence, Progress, Selection, SharedInformer, Site, UndecodableObjects,
    VersionSource,
};
use windlass_object::shard::ShardField;
use windlass_object::{GroupResource, ObjectKey, Representation, ResourceKind, ResourceVersion, Uid};

/// A representation that gives readers a shared object with metadata: whole, dynamic or metadata alone.
pub trait Observed: Representation<Read = Arc<<Self as Observed>::Object>> {
    /// What readers get.
    type Object: Resource + Send + Sync + 'static;
}

impl<R, O> Observed for R
where
    R: Representation<Read = Arc<O>>,
    O: Resource + Send + Sync + 'static,
{
    type Object = O;
}

/// A cache, of whatever representation.
pub(crate) trait Cache: VersionSource {
    fn kind(&self) -> &ResourceKind;
    fn selection(&self) -> &Selection;
    /// Whether the end of this very object shows: it is not there, or its deletion is under way.
    fn shows_end(&self, key: &ObjectKey, uid: &Uid) -> bool;
    /// Whether it holds shards that are told apart by the identity of their objects.
    fn is_sharded_by_uid(&self) -> bool;
    /// Whether namespaces are listed one by one, because a role can be limited to them.
    fn is_by_namespace(&self) -> bool;
    /// Whether the cache follows objects at this site, or will.
    fn expects(&self, site: Site<'_>) -> bool;
    /// Moves whenever what is cached changes.
    fn progress(&self) -> Observer<Progress>;
    /// Waits for the initial list; `false` if the informer was shut down first.
    fn synced(&self) -> BoxFuture<'_, bool>;
    /// Waits for the first lists of all namespaces and shards that it follows by then; `false` if the informer was shut
    /// down first.
    fn members_synced(&self) -> BoxFuture<'_, bool>;
    /// Whether the kind is known not to be served.
    fn is_absent(&self) -> bool {
        self.presence() == Presence::Absent
    }
    /// Whether the kind can be had, as far as is known.
    fn presence(&self) -> Presence;
    /// The keys of all objects.
    fn keys(&self) -> Vec<ObjectKey>;
    /// Version and UID of the object of this name, if it is there.
    fn held(&self, key: &ObjectKey) -> Option<(Option<String>, Option<String>)>;
    /// The objects that are there and cannot be decoded.
    fn undecodable(&self) -> UndecodableObjects;
    /// What may leave out an object of this name, which is not there.
    fn leaves_out(&self, key: &ObjectKey) -> Option<String>;
    /// Why there is no initial list, for each part that has none.
    fn laggards(&self) -> Vec<Laggard>;
    /// Why changes may be missing, although there is an initial list.
    fn trouble(&self) -> Option<String>;
}

impl<R: Observed> Cache for SharedInformer<R> {
    fn kind(&self) -> &ResourceKind {
        SharedInformer::kind(self)
    }

    fn selection(&self) -> &Selection {
        SharedInformer::selection(self)
    }

    fn shows_end(&self, key: &ObjectKey, uid: &Uid) -> bool {
        let Some(object) = self.lister().get(key) else { return true };
        let meta = object.meta();
        meta.uid.as_deref() != Some(uid.as_str()) || meta.deletion_timestamp.is_some()
    }

    fn is_sharded_by_uid(&self) -> bool {
        self.sharded_by() == Some(ShardField::Uid)
    }

    fn is_by_namespace(&self) -> bool {
        self.namespaces().is_some()
    }

    fn expects(&self, site: Site<'_>) -> bool {
        SharedInformer::expects(self, site)
    }

    fn progress(&self) -> Observer<Progress> {
        self.version_changes()
    }

    fn synced(&self) -> BoxFuture<'_, bool> {
        Box::pin(SharedInformer::synced(self))
    }

    fn members_synced(&self) -> BoxFuture<'_, bool> {
        Box::pin(SharedInformer::members_synced(self))
    }

    fn presence(&self) -> Presence {
        SharedInformer::presence(self)
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.lister().list().iter().map(|object| ObjectKey::of(object.meta())).collect()
    }

    fn held(&self, key: &ObjectKey) -> Option<(Option<String>, Option<String>)> {
        let object = self.lister().get(key)?;
        Some((object.meta().resource_version.clone(), object.meta().uid.clone()))
    }

    fn undecodable(&self) -> UndecodableObjects {
        self.lister().undecodable()
    }

    fn leaves_out(&self, key: &ObjectKey) -> Option<String> {
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
            return Some(format!("namespace {namespace} is of no shard that this process holds"));
        }
        let absent = selection.is_filtered() && self.held(key).is_none();
        absent.then(|| {
            format!("the watch on {kind} selects {selection}, and no object of that name is among those")
        })
    }

    fn laggards(&self) -> Vec<Laggard> {
        SharedInformer::laggards(self)
    }

    fn trouble(&self) -> Option<String> {
        let stuck = || self.stuck_for().map(|stuck| format!("it has got nowhere for {stuck:?}"));
        SharedInformer::trouble(self).or_else(stuck)
    }
}

/// Identifies one cache among those of a controller.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheId(u64);

/// The caches of one controller, by resource. Some may come and go while it runs. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Caches(Arc<Mutex<Registered>>);

#[derive(Default)]
struct Registered {
    by_resource: ByResource,
    /// How many caches have been added.
    added: u64,
}

type ByResource = BTreeMap<GroupResource, Vec<(CacheId, Arc<dyn Cache>)>>;

impl Caches {
    pub(crate) fn add(&self, cache: Arc<dyn Cache>) {
        let mut caches = self.lock();
        let id = CacheId(caches.added);
        caches.added += 1;
        caches.by_resource.entry(cache.kind().group_resource()).or_default().push((id, cache));
    }

    /// Forgets one that [`add`](Self::add) was given.
    pub(crate) fn remove(&self, cache: &Arc<dyn Cache>) {
        let mut caches = self.lock();
        let resource = cache.kind().group_resource();
        if let Some(of_resource) = caches.by_resource.get_mut(&resource) {
            of_resource.retain(|(_, one)| !Arc::ptr_eq(one, cache));
        }
        caches.by_resource.retain(|_, of_resource| !of_resource.is_empty());
    }

    pub(crate) fn of(&self, resource: &GroupResource) -> Vec<Arc<dyn Cache>> {
        self.identified(resource).into_iter().map(|(_, cache)| cache).collect()
    }

    /// Returns the caches of `resource`, each with what identifies it.
    pub(crate) fn identified(&self, resource: &GroupResource) -> Vec<(CacheId, Arc<dyn Cache>)> {
        self.lock().by_resource.get(resource).cloned().unwrap_or_default()
    }

    /// Whether some hold shards of `resource` that are told apart by the identity of their objects.
    pub(crate) fn sharded_by_uid(&self, resource: &GroupResource) -> bool {
        self.of(resource).iter().any(|cache| cache.is_sharded_by_uid())
    }

    /// Returns the newest version that one of the caches of `resource` has reached at `site`.
    pub(crate) fn newest_version(&self, resource: &GroupResource, site: Site<'_>) -> Option<ResourceVersion> {
        let versions = self.of(resource).into_iter().filter_map(|cache| cache.version_in(site));
        versions.reduce(|newest, version| if version > newest { version } else { newest })
    }

    /// Returns the UID of an object that all caches of `resource` contain.
    pub(crate) fn uid_of(&self, resource: &GroupResource, key: &ObjectKey) -> Option<Uid> {
        let mut uids = self.of(resource).into_iter().map(|cache| cache.held(key).and_then(|(_, uid)| uid));
        let first = uids.next()??;
        uids.all(|uid| uid.as_ref() == Some(&first)).then(|| first.into())
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Cache>> {
        self.lock().by_resource.values().flatten().map(|(_, cache)| Arc::clone(cache)).collect()
    }

    /// The epoch of the caches of `resource`: none if it is not watched. Epochs only grow, so their sum changes when
    /// any of them does.
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

/// Which of `caches` have no initial list, and why.
///
/// # Errors
/// If there are such.
pub(crate) fn behind(caches: &[Arc<dyn Cache>]) -> Result<(), NotSynced> {
    let behind = caches.iter().filter(|cache| !cache.has_synced());
    let laggards: Vec<Laggard> = behind.flat_map(|cache| cache.laggards()).collect();
    if laggards.is_empty() { Ok(()) } else { Err(NotSynced { laggards }) }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().by_resource.keys()).finish()
    }
}
