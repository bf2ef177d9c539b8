//! Selects the caches that can reflect a write, and checks them.

use std::time::Duration;

use futures_util::FutureExt as _;
use windlass_informer::{RelistState, UnsyncedReason, VersionedCache as _};
use windlass_object::ResourceVersion;

use crate::consistency::caches::{Cache, CacheId, Caches};
use crate::consistency::write_tracker::{AwaitedWrite, WrittenCollection};

/// The checks of read-your-writes on a controller's caches.
impl Caches {
    /// Returns whether the caches reflect `awaited`, without waiting.
    pub(crate) fn reflect(&self, collection: &WrittenCollection, awaited: &AwaitedWrite) -> bool {
        let (epoch, caches) = (self.epoch(&collection.resource), self.caches_of_writes(collection));
        // No cache follows the collection, so there is nothing to wait for.
        let has_write = |(id, cache): &(CacheId, Cache)| {
            is_listed(*id, cache, awaited)
                || epoch == Some(awaited.epoch) && reflects(cache, collection, awaited)
        };
        caches.is_empty() || awaited.settled_at.is_none() && caches.iter().all(has_write)
    }

    /// Returns the caches that can reflect writes to `collection`. Excludes caches that contain no object of it because
    /// their kind is not served or forbidden: they contain nothing old either, and their next list is consistent.
    pub(crate) fn caches_of_writes(&self, collection: &WrittenCollection) -> Vec<(CacheId, Cache)> {
        let mut caches = self.identified(&collection.resource);
        caches.retain(|(_, cache)| !cannot_follow(cache, collection));
        caches
    }
}

/// Returns whether the cache contains no object of `collection` and cannot or will not follow it. A cache that lost its
/// permission after its initial list contains old objects and is waited for.
fn cannot_follow(cache: &Cache, collection: &WrittenCollection) -> bool {
    let namespace = collection.namespace();
    let selected = cache.selection().namespace.as_deref();
    if selected.is_some() && namespace.is_some() && selected != namespace {
        return true;
    }
    let progress = cache.version_changes().get();
    if progress.has_listed(collection.location()) {
        return false;
    }
    if progress.is_unfollowed(collection.location()) && !cache.expects(collection.location()) {
        return true;
    }
    cache.is_absent()
        || cache.unsynced().iter().any(|unsynced| {
            let of_namespace = unsynced.selection.namespace.as_deref().is_none_or(|it| Some(it) == namespace);
            of_namespace && matches!(unsynced.reason, UnsyncedReason::Absent | UnsyncedReason::Forbidden(_))
        })
}

/// Returns whether the cache, in the epoch of the writes, reflects the writes and the deletions.
fn reflects(cache: &Cache, collection: &WrittenCollection, awaited: &AwaitedWrite) -> bool {
    // The future is ready at the first poll if the version is reached.
    let reached = |version: &ResourceVersion| {
        cache.wait_for_version_in(collection.location(), version.clone(), Duration::ZERO).now_or_never()
            == Some(true)
    };
    awaited.version.as_ref().is_none_or(reached) && reflects_deletions(cache, awaited)
}

/// Returns whether the cache contains the list that was requested because the cache was late.
pub(crate) fn is_listed(id: CacheId, cache: &Cache, awaited: &AwaitedWrite) -> bool {
    awaited.lists.get(&id).is_some_and(|list| cache.relist_state(list) == RelistState::Done)
}

/// Returns whether the cache reflects all deletions.
pub(crate) fn reflects_deletions(cache: &Cache, awaited: &AwaitedWrite) -> bool {
    awaited.deleted.iter().all(|(key, uid, end)| cache.reflects_deletion(key, uid, *end))
}
