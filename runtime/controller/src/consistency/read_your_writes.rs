//! Read-your-writes, the waiting: a reconcile starts only when the caches reflect what its key wrote last.
//!
//! A cache reflects a write when its version has reached that of the write and the deleted objects are gone. A cache that
//! does not do so within [`LATE`] is listed again, because its watch can be stalled, its selection can exclude the object
//! that was written, and a server can accept a deletion and keep the object. A consistent list that began after the write
//! reflects it in any case. The informer bounds how many such lists it makes. While none succeeds, the key waits: nothing
//! is decided by elapsed time alone.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_env::{Env, Instant};
use windlass_informer::VersionSource as _;
use windlass_object::{GroupResource, ObjectKey};

use crate::consistency::caches::{Cache, CacheId, Caches};
use crate::consistency::key_log::KeyLog;
use crate::consistency::visible::{is_listed, shows_ends};
use crate::consistency::write_tracker::{AwaitedWrite, SharedWriteTracker, WrittenCollection};

/// How long a worker waits for its caches before it turns to another key. Watches usually show a write within a few
/// milliseconds; beyond this the worker's time is better spent elsewhere. A key that was put off once is only looked
/// at: many of them, behind one cache that is cut off, must not hold up keys that could be reconciled.
const TIMEOUT: Duration = Duration::from_millis(50);

/// The longest a key is put off before it is looked at again: once the cache is back, its keys should be too.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// How long a cache may take to reflect a write before it is listed again. A watch delivers a write within milliseconds; a
/// list sooner than this would only burden a server that is slow because it is busy.
const LATE: Duration = Duration::from_secs(2);

/// How a controller comes to read its own writes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadYourWrites {
    /// A key whose writes the caches do not show within 50 ms makes way for others, and is looked at again soon: after
    /// 50 ms at first, after a second at most. The default: no worker is held up by a cache that is behind.
    #[default]
    Requeue,
    /// The worker waits this long at each of the key's turns, then makes way. For controllers whose keys are few and
    /// whose order matters: the key continues the moment its writes show.
    Block {
        /// How long a worker waits at most, for each collection that the key wrote to.
        at_most: Duration,
    },
    /// A reconcile may run on a cache that does not show its own last writes. For controllers that write nothing they
    /// read, or whose every write is safe to repeat.
    Off,
}

/// Whether a key may be reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CacheFreshness {
    /// The caches show everything the key wrote.
    Fresh,
    /// Some cache is behind.
    Stale {
        /// Whose objects that cache holds.
        resource: GroupResource,
        /// When to look again. Doubles from turn to turn, up to [`MAX_DELAY`].
        again_after: Duration,
    },
}

/// Holds keys back until their own writes are visible.
#[derive(Clone)]
pub(crate) struct ReadYourWritesBarrier {
    pub(crate) env: Env,
    pub(crate) ledger: SharedWriteTracker,
    pub(crate) caches: Caches,
    pub(crate) mode: ReadYourWrites,
}

impl ReadYourWritesBarrier {
    /// Returns the write log of one reconcile of `key`.
    pub(crate) fn log(&self, key: &ObjectKey) -> KeyLog {
        KeyLog::new(self.env.clone(), self.ledger.clone(), self.caches.clone(), key.clone())
    }

    /// Waits a little for every cache that `key` wrote to.
    ///
    /// # Cancel safety
    /// May be dropped and called again: what was found out is in the ledger already.
    pub(crate) async fn pass(&self, key: &ObjectKey) -> CacheFreshness {
        if self.mode == ReadYourWrites::Off {
            return CacheFreshness::Fresh;
        }
        let (wanted, skips) = {
            let ledger = self.ledger.lock();
            (ledger.wanted(key), ledger.skips(key))
        };
        let patience = self.patience(skips);
        for (place, wanted) in wanted {
            if !self.visible(key, &place, wanted, patience).await {
                self.ledger.lock().skipped(key);
                let resource = place.resource;
                return CacheFreshness::Stale { resource, again_after: delay_after(skips) };
            }
        }
        self.ledger.lock().forget_skips(key);
        CacheFreshness::Fresh
    }

    /// How long a key may wait for its caches at most, as far as its controller asks for that: [`ReadYourWrites::Block`].
    pub(crate) fn longest_wait(&self) -> Duration {
        match self.mode {
            ReadYourWrites::Block { at_most } => {
                at_most.saturating_mul(u32::try_from(self.caches.all().len()).unwrap_or(u32::MAX))
            }
            ReadYourWrites::Requeue | ReadYourWrites::Off => Duration::ZERO,
        }
    }

    fn patience(&self, skips: u32) -> Duration {
        match self.mode {
            ReadYourWrites::Block { at_most } => at_most,
            ReadYourWrites::Requeue if skips == 0 => TIMEOUT,
            ReadYourWrites::Requeue | ReadYourWrites::Off => Duration::ZERO,
        }
    }

    async fn visible(
        &self,
        key: &ObjectKey,
        place: &WrittenCollection,
        wanted: AwaitedWrite,
        patience: Duration,
    ) -> bool {
        let caches = self.caches.showing(place);
        if caches.is_empty() {
            tracing::debug!(resource = %place.resource, "no cache can show own writes: not waiting");
            self.ledger.lock().satisfied(key, place, &wanted);
            return true;
        }
        if wanted.doubt.is_some() {
            // The place had no cache when its read was due, and has one now.
            if self.ledger.lock().renew_doubt(place, self.env.now()) {
                self.ledger.doubts_changed();
            }
            return false;
        }
        let (deadline, mut behind) = (self.env.now() + patience, Vec::new());
        let is_of_epoch = || self.caches.epoch(&place.resource) == Some(wanted.epoch);
        for (id, cache) in caches {
            // The epoch can change during the wait.
            let reflects = is_listed(id, &cache, &wanted)
                || is_of_epoch() && self.shown(&cache, place, &wanted, deadline).await && is_of_epoch();
            if !reflects {
                behind.push((id, cache));
            }
        }
        let is_late = self.env.now().saturating_duration_since(wanted.since) >= LATE;
        match behind.is_empty() {
            true => self.ledger.lock().satisfied(key, place, &wanted),
            // Versions of another epoch cannot be compared, so waiting for one is without effect.
            false if is_late || !is_of_epoch() => self.relist(key, place, &wanted, &behind),
            false => {}
        }
        behind.is_empty()
    }

    /// Has those of the caches listed again that have not been requested to.
    fn relist(
        &self,
        key: &ObjectKey,
        place: &WrittenCollection,
        wanted: &AwaitedWrite,
        behind: &[(CacheId, Cache)],
    ) {
        let unlisted = behind.iter().filter(|(id, _)| !wanted.lists.contains_key(id));
        let lists: BTreeMap<_, _> =
            unlisted.map(|(id, cache)| (*id, cache.request_refresh(place.site()))).collect();
        if !lists.is_empty() {
            tracing::debug!(resource = %place.resource, %key, "own writes do not show in the cache: listing again");
            self.ledger.lock().requested(key, place, wanted, lists);
        }
    }

    /// Waits until the cache shows what is wanted, or `deadline`.
    async fn shown(
        &self,
        cache: &Cache,
        place: &WrittenCollection,
        wanted: &AwaitedWrite,
        deadline: Instant,
    ) -> bool {
        let left = || deadline.saturating_duration_since(self.env.now());
        if let Some(version) = &wanted.version
            && !cache.reached_in(place.site(), version.clone(), left()).await
        {
            return false;
        }
        if shows_ends(cache, wanted) {
            return true;
        }
        let mut progress = cache.version_changes();
        let ended = progress.wait_for(|_| shows_ends(cache, wanted));
        self.env.timeout(left(), ended).await.is_ok_and(|shown| shown.is_ok())
    }
}

/// How long a key is put off that was put off `skips` times in a row before.
fn delay_after(skips: u32) -> Duration {
    TIMEOUT.saturating_mul(1 << skips.min(16)).min(MAX_DELAY)
}
