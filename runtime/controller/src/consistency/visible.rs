//! Selects the caches that can reflect a write, and checks them.

use std::time::Duration;

use futures_util::FutureExt as _;
use windlass_informer::{RefreshState, UnsyncedReason, VersionSource as _};
use windlass_object::ResourceVersion;

use crate::consistency::caches::{Cache, CacheId, Caches};
use crate::consistency::write_tracker::{AwaitedWrite, WrittenCollection};

/// The checks of read-your-writes on a controller's caches.
impl Caches {
    /// Returns whether the caches reflect `wanted`, without waiting.
    pub(crate) fn passed(&self, place: &WrittenCollection, wanted: &AwaitedWrite) -> bool {
        let (epoch, caches) = (self.epoch(&place.resource), self.showing(place));
        // No cache follows the collection, so there is nothing to wait for.
        let reflects = |(id, cache): &(CacheId, Cache)| {
            is_listed(*id, cache, wanted) || epoch == Some(wanted.epoch) && shows(cache, place, wanted)
        };
        caches.is_empty() || wanted.settled_at.is_none() && caches.iter().all(reflects)
    }

    /// Returns the caches that can reflect writes to `place`. Excludes caches that contain no object of it because
    /// their kind is not served or forbidden: they contain nothing old either, and their next list is consistent.
    pub(crate) fn showing(&self, place: &WrittenCollection) -> Vec<(CacheId, Cache)> {
        let mut caches = self.identified(&place.resource);
        caches.retain(|(_, cache)| !is_barred(cache, place));
        caches
    }
}

/// Returns whether the cache contains no object of `place` and cannot or will not follow it. A cache that lost its
/// permission after its initial list contains old objects and is waited for.
fn is_barred(cache: &Cache, place: &WrittenCollection) -> bool {
    let namespace = place.namespace();
    let selected = cache.selection().namespace.as_deref();
    if selected.is_some() && namespace.is_some() && selected != namespace {
        return true;
    }
    let progress = cache.version_changes().get();
    if progress.has_listed(place.site()) {
        return false;
    }
    if progress.is_unfollowed(place.site()) && !cache.expects(place.site()) {
        return true;
    }
    cache.is_absent()
        || cache.laggards().iter().any(|laggard| {
            let of_namespace = laggard.selection.namespace.as_deref().is_none_or(|it| Some(it) == namespace);
            of_namespace && matches!(laggard.lag, UnsyncedReason::Absent | UnsyncedReason::Forbidden(_))
        })
}

/// Returns whether the cache, in the epoch of the writes, reflects the writes and the deletions.
fn shows(cache: &Cache, place: &WrittenCollection, wanted: &AwaitedWrite) -> bool {
    // The future is ready at the first poll if the version is reached.
    let reached = |version: &ResourceVersion| {
        cache.reached_in(place.site(), version.clone(), Duration::ZERO).now_or_never() == Some(true)
    };
    wanted.version.as_ref().is_none_or(reached) && shows_ends(cache, wanted)
}

/// Returns whether the cache contains the list that was requested because the cache was late.
pub(crate) fn is_listed(id: CacheId, cache: &Cache, wanted: &AwaitedWrite) -> bool {
    wanted.lists.get(&id).is_some_and(|list| cache.refresh_state(list) == RefreshState::Done)
}

/// Returns whether the cache reflects all deletions.
pub(crate) fn shows_ends(cache: &Cache, wanted: &AwaitedWrite) -> bool {
    wanted.deleted.iter().all(|(key, uid, end)| cache.shows_deletion(key, uid, *end))
}
