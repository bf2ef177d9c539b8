//! Which caches can show a write, and whether they do.

use std::time::Duration;

use futures_util::FutureExt as _;
use windlass_informer::{RefreshState, UnsyncedReason, VersionSource as _};
use windlass_object::ResourceVersion;

use crate::consistency::caches::{Cache, CacheId, Caches};
use crate::consistency::write_tracker::{AwaitedWrite, WrittenCollection};

/// The caches a controller reads, as the gate asks them.
impl Caches {
    /// Whether nothing need be waited for any more, without waiting.
    pub(crate) fn passed(&self, place: &WrittenCollection, wanted: &AwaitedWrite) -> bool {
        let (epoch, caches) = (self.epoch(&place.resource), self.showing(place));
        // Of what is not followed nothing will ever show, so there is nothing to wait for.
        let reflects = |(id, cache): &(CacheId, Cache)| {
            is_listed(*id, cache, wanted) || epoch == Some(wanted.epoch) && shows(cache, place, wanted)
        };
        caches.is_empty() || wanted.doubt.is_none() && caches.iter().all(reflects)
    }

    /// The caches that can show what is written to `place`. Not those that hold nothing of it because their kind is not
    /// served or must not be read: they show nothing old either, and their next list is a consistent one.
    pub(crate) fn showing(&self, place: &WrittenCollection) -> Vec<(CacheId, Cache)> {
        let mut caches = self.identified(&place.resource);
        caches.retain(|(_, cache)| !is_barred(cache, place));
        caches
    }
}

/// Whether the cache contains no object of `place`, and cannot or will not follow it. Whoever must not be read any more, but was, holds
/// what is old, and is waited for.
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

/// Whether the cache, of the epoch of the writes, shows what was written and the end of what was deleted.
fn shows(cache: &Cache, place: &WrittenCollection, wanted: &AwaitedWrite) -> bool {
    // The future is ready when it is first polled, if the version is reached.
    let reached = |version: &ResourceVersion| {
        cache.reached_in(place.site(), version.clone(), Duration::ZERO).now_or_never() == Some(true)
    };
    wanted.version.as_ref().is_none_or(reached) && shows_ends(cache, wanted)
}

/// Whether the list is in the cache that was requested because the cache was late.
pub(crate) fn is_listed(id: CacheId, cache: &Cache, wanted: &AwaitedWrite) -> bool {
    wanted.lists.get(&id).is_some_and(|list| cache.refresh_state(list) == RefreshState::Done)
}

/// Whether the cache shows the end of everything that was deleted.
pub(crate) fn shows_ends(cache: &Cache, wanted: &AwaitedWrite) -> bool {
    wanted.deleted.iter().all(|(key, uid, end)| cache.shows_deletion(key, uid, *end))
}
