//! The wait of read-your-writes: a reconcile starts only when the caches reflect the last writes of its key.
//!
//! A cache reflects a write when it has reached the version of the write and the deleted objects are gone. A cache that
//! does not within [`LATE`] is relisted, because its watch can be stalled, its selection can exclude the written
//! object, and a server can accept a deletion and keep the object. A consistent list that began after the write
//! reflects it in any case. The informer limits the rate of these lists. While none succeeds, the key waits: no
//! decision depends on elapsed time alone.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_env::{Env, Instant};
use windlass_informer::VersionedCache as _;
use windlass_object::{GroupResource, ObjectKey};

use crate::consistency::caches::{Cache, CacheId, Caches};
use crate::consistency::key_log::KeyLog;
use crate::consistency::visible::{is_listed, reflects_deletions};
use crate::consistency::write_tracker::{AwaitedWrite, SharedWriteTracker, WrittenCollection};

/// Time that a worker waits for the caches before it dequeues another key. Watches usually deliver a write within a few
/// milliseconds. A key that was postponed once is only checked: many keys behind one disconnected cache must not delay
/// keys that could be reconciled.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Maximum delay before a postponed key is checked again, so that its keys continue soon after the cache recovers.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Time that a cache has to reflect a write before it is relisted. A watch delivers a write within milliseconds; an
/// earlier list would only burden a busy server.
const RELIST_AFTER: Duration = Duration::from_secs(2);

/// Mode of waiting for the own writes of a key.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadYourWrites {
    /// A key whose writes the caches do not reflect within 50 ms is requeued and checked again, first after 50 ms,
    /// later after at most 1 s. The default: no worker is blocked by a cache that is behind.
    #[default]
    Requeue,
    /// The worker blocks for this long in each attempt, then requeues the key. For controllers with few keys whose
    /// order matters: the key continues as soon as the caches reflect its writes.
    Block {
        /// Maximum wait of a worker for each collection that the key wrote to.
        at_most: Duration,
    },
    /// A reconcile can run on a cache that does not reflect its own last writes. For controllers that do not read the
    /// objects they write, or whose writes are all safe to repeat.
    Off,
}

/// Result of the check of a key's caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CacheFreshness {
    /// The caches reflect all writes of the key.
    Fresh,
    /// At least one cache is behind.
    Stale {
        /// The resource of that cache.
        resource: GroupResource,
        /// The delay before the next check. Doubles with each attempt, up to [`MAX_DELAY`].
        again_after: Duration,
    },
}

/// Blocks keys until the caches reflect their own writes.
#[derive(Clone)]
pub(crate) struct ReadYourWritesBarrier {
    pub(crate) env: Env,
    pub(crate) tracker: SharedWriteTracker,
    pub(crate) caches: Caches,
    pub(crate) mode: ReadYourWrites,
}

impl ReadYourWritesBarrier {
    /// Returns the write log of one reconcile of `key`.
    pub(crate) fn log(&self, key: &ObjectKey) -> KeyLog {
        KeyLog::new(self.env.clone(), self.tracker.clone(), self.caches.clone(), key.clone())
    }

    /// Waits briefly for every cache that `key` wrote to.
    ///
    /// # Cancel safety
    /// Can be dropped and called again: progress is recorded in the tracker.
    pub(crate) async fn wait_until_fresh(&self, key: &ObjectKey) -> CacheFreshness {
        if self.mode == ReadYourWrites::Off {
            return CacheFreshness::Fresh;
        }
        let (awaited, skips) = {
            let tracker = self.tracker.lock();
            (tracker.awaited(key), tracker.skips(key))
        };
        let wait_limit = self.wait_limit(skips);
        for (collection, awaited) in awaited {
            if !self.wait_until_reflected(key, &collection, awaited, wait_limit).await {
                self.tracker.lock().skipped(key);
                let resource = collection.resource;
                return CacheFreshness::Stale { resource, again_after: delay_after(skips) };
            }
        }
        self.tracker.lock().reset_skips(key);
        CacheFreshness::Fresh
    }

    /// Returns the maximum wait of a worker that the controller configured: [`ReadYourWrites::Block`].
    pub(crate) fn max_wait(&self) -> Duration {
        match self.mode {
            ReadYourWrites::Block { at_most } => {
                at_most.saturating_mul(u32::try_from(self.caches.all().len()).unwrap_or(u32::MAX))
            }
            ReadYourWrites::Requeue | ReadYourWrites::Off => Duration::ZERO,
        }
    }

    fn wait_limit(&self, skips: u32) -> Duration {
        match self.mode {
            ReadYourWrites::Block { at_most } => at_most,
            ReadYourWrites::Requeue if skips == 0 => TIMEOUT,
            ReadYourWrites::Requeue | ReadYourWrites::Off => Duration::ZERO,
        }
    }

    async fn wait_until_reflected(
        &self,
        key: &ObjectKey,
        collection: &WrittenCollection,
        awaited: AwaitedWrite,
        wait_limit: Duration,
    ) -> bool {
        let caches = self.caches.caches_of_writes(collection);
        if caches.is_empty() {
            tracing::debug!(resource = %collection.resource, "no cache can reflect own writes; not waiting");
            self.tracker.lock().remove_reflected(key, collection, &awaited);
            return true;
        }
        if let Some(settled_at) = awaited.settled_at {
            // The collection had no cache when its read was due, and has one now.
            if self.tracker.lock().schedule_read(collection, settled_at) {
                self.tracker.notify_outcomes_changed();
            }
            return false;
        }
        let (deadline, mut behind) = (self.env.now() + wait_limit, Vec::new());
        let is_of_epoch = || self.caches.epoch(&collection.resource) == Some(awaited.epoch);
        for (id, cache) in caches {
            // The epoch can change during the wait.
            let reflects = is_listed(id, &cache, &awaited)
                || is_of_epoch()
                    && self.wait_for_cache(&cache, collection, &awaited, deadline).await
                    && is_of_epoch();
            if !reflects {
                behind.push((id, cache));
            }
        }
        let is_late = self.env.now().saturating_duration_since(awaited.since) >= RELIST_AFTER;
        match behind.is_empty() {
            true => self.tracker.lock().remove_reflected(key, collection, &awaited),
            // Versions of another epoch cannot be compared, so waiting for one is without effect.
            false if is_late || !is_of_epoch() => self.relist(key, collection, &awaited, &behind),
            false => {}
        }
        behind.is_empty()
    }

    /// Requests lists of those caches for which none has been requested.
    fn relist(
        &self,
        key: &ObjectKey,
        collection: &WrittenCollection,
        awaited: &AwaitedWrite,
        behind: &[(CacheId, Cache)],
    ) {
        let unlisted = behind.iter().filter(|(id, _)| !awaited.lists.contains_key(id));
        let lists: BTreeMap<_, _> =
            unlisted.map(|(id, cache)| (*id, cache.request_relist(collection.location()))).collect();
        if !lists.is_empty() {
            tracing::debug!(resource = %collection.resource, %key, "cache does not reflect own writes; relisting");
            self.tracker.lock().record_relist(key, collection, awaited, lists);
        }
    }

    /// Waits until the cache reflects `awaited`, or until `deadline`.
    async fn wait_for_cache(
        &self,
        cache: &Cache,
        collection: &WrittenCollection,
        awaited: &AwaitedWrite,
        deadline: Instant,
    ) -> bool {
        let left = || deadline.saturating_duration_since(self.env.now());
        if let Some(version) = &awaited.version
            && !cache.wait_for_version_in(collection.location(), version.clone(), left()).await
        {
            return false;
        }
        if reflects_deletions(cache, awaited) {
            return true;
        }
        let mut progress = cache.version_changes();
        let ended = progress.wait_for(|_| reflects_deletions(cache, awaited));
        self.env.timeout(left(), ended).await.is_ok_and(|shown| shown.is_ok())
    }
}

/// Returns the delay of a key that was postponed `skips` consecutive times before.
fn delay_after(skips: u32) -> Duration {
    TIMEOUT.saturating_mul(1 << skips.min(16)).min(MAX_DELAY)
}
