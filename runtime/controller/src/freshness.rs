//! Read-your-writes, the waiting: a reconcile starts only when the caches show what its key wrote last.

use std::sync::Arc;
use std::time::Duration;

use windlass_client::{ListQuery, RawClient, RequestError};
use windlass_env::{Env, Instant};
use windlass_informer::Lag;
use windlass_object::{GroupResource, ObjectKey, ResourceVersion};

use crate::caches::{Cache, Caches};
use crate::writes::{Doubt, Place, SharedLedger, Wanted};

/// How long a worker waits for its caches before it turns to another key. Watches usually show a write within a few
/// milliseconds; beyond this the worker's time is better spent elsewhere. A key that was put off once is only looked
/// at: many of them, behind one cache that is cut off, must not hold up keys that could be reconciled.
const PATIENCE: Duration = Duration::from_millis(50);

/// The longest a key is put off before it is looked at again: once the cache is back, its keys should be too.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// How long a write is waited for that may never show: one on a cache that holds only some objects, since a write that
/// moves its object out of the selection yields no event with its version; and a deletion, since a server of its own
/// kind may say yes and keep the object. These waits must end.
const DOUBTFUL_PATIENCE: Duration = Duration::from_secs(10);

/// How long a read that tells whether a write happened may keep a worker. A server that answers at all does so in far
/// less; without an answer the worker turns to other keys, and asks again with the key's next turn.
const READ_PATIENCE: Duration = Duration::from_secs(3);

/// How a controller comes to read its own writes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadYourWrites {
    /// A key whose writes the caches do not show within 50 ms makes way for others, and is looked at again soon: after
    /// 50 ms at first, after a second at most. The default: no worker is held up by a cache that is behind.
    #[default]
    Requeue,
    /// The worker waits this long at each of the key's turns, then makes way. For controllers whose keys are few and
    /// whose order matters: the key goes on the moment its writes show.
    Block {
        /// How long a worker waits at most, for each collection that the key wrote to.
        at_most: Duration,
    },
    /// A reconcile may run on a cache that does not show its own last writes. For controllers that write nothing they
    /// read, or whose every write is safe to repeat.
    Off,
}

/// The caches a controller reads, as the gate asks them.
impl Caches {
    /// Whether nothing need be waited for any more, without waiting.
    pub(crate) fn passed(&self, place: &Place, wanted: &Wanted) -> bool {
        if self.epoch(&place.resource) != Some(wanted.epoch) {
            return true;
        }
        let caches = self.showing(place);
        // Of what is not followed nothing will ever show, so there is nothing to wait for.
        let has_passed = |cache: &Arc<dyn Cache>, bound: &ResourceVersion| {
            cache.progress().get().has_reached_in(place.site(), bound)
        };
        let bounded = caches.is_empty()
            || wanted.bound().map_or(wanted.doubt == Doubt::None, |bound| {
                caches.iter().all(|cache| has_passed(cache, &bound))
            });
        bounded && caches.iter().all(|cache| shows_ends(&**cache, wanted))
    }

    /// The caches that can show what is written to `place`. Not those that hold nothing of it because their kind is not
    /// served or must not be read: they show nothing old either, and their next list is a consistent one.
    fn showing(&self, place: &Place) -> Vec<Arc<dyn Cache>> {
        self.of(&place.resource).into_iter().filter(|cache| !is_barred(&**cache, place)).collect()
    }

    /// Whether all caches of what is written to `place` follow their source.
    fn follow(&self, place: &Place) -> bool {
        self.showing(place).iter().all(|cache| cache.follows())
    }
}

/// Whether the cache holds nothing of `place`, and cannot have it. Whoever must not be read any more, but was, holds
/// what is old, and is waited for.
fn is_barred(cache: &dyn Cache, place: &Place) -> bool {
    let namespace = place.namespace();
    if cache.progress().get().has_listed(place.site()) {
        return false;
    }
    cache.is_absent()
        || cache.laggards().iter().any(|laggard| {
            let of_namespace = laggard.selection.namespace.as_deref().is_none_or(|it| Some(it) == namespace);
            of_namespace && matches!(laggard.lag, Lag::Absent | Lag::Forbidden(_))
        })
}

/// Whether the cache has passed `version`. Versions that cannot be compared fail open: nobody could say when the wait
/// would end.
fn shows(cache: &dyn Cache, place: &Place, version: &ResourceVersion) -> bool {
    cache.version_in(place.site()).is_some_and(|store| store.reached(version).unwrap_or(true))
}

/// Whether the cache shows the end of everything that was deleted.
fn shows_ends(cache: &dyn Cache, wanted: &Wanted) -> bool {
    wanted.deleted.iter().all(|(key, uid)| cache.shows_end(key, uid))
}

/// Whether a key may be reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The caches show everything the key wrote.
    Fresh,
    /// Some cache is behind.
    Stale {
        /// Whose objects that cache holds.
        resource: GroupResource,
        /// When to look again. Doubles from turn to turn, up to [`LONGEST_DELAY`].
        again_after: Duration,
    },
}

/// Holds keys back until their own writes are visible.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) env: Env,
    pub(crate) ledger: SharedLedger,
    pub(crate) caches: Caches,
    pub(crate) reader: RawClient,
    pub(crate) mode: ReadYourWrites,
}

impl Gate {
    /// Waits a little for every cache that `key` wrote to.
    ///
    /// # Cancel safety
    /// May be dropped and called again: what was found out is in the ledger already.
    pub(crate) async fn pass(&self, key: &ObjectKey) -> Freshness {
        if self.mode == ReadYourWrites::Off || self.env.is_planted("no read-your-writes") {
            return Freshness::Fresh;
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
                return Freshness::Stale { resource, again_after: delay_after(skips) };
            }
        }
        self.ledger.lock().forget_skips(key);
        Freshness::Fresh
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
            ReadYourWrites::Requeue if skips == 0 => PATIENCE,
            ReadYourWrites::Requeue | ReadYourWrites::Off => Duration::ZERO,
        }
    }

    async fn visible(&self, key: &ObjectKey, place: &Place, wanted: Wanted, patience: Duration) -> bool {
        if self.caches.epoch(&place.resource) != Some(wanted.epoch) {
            tracing::debug!(resource = %place.resource, "the cache began a new epoch: own writes are not waited for");
            self.ledger.lock().satisfied(key, place, &wanted);
            return true;
        }
        if self.caches.showing(place).is_empty() {
            tracing::debug!(resource = %place.resource, "no cache can have it: own writes are not waited for");
            self.ledger.lock().satisfied(key, place, &wanted);
            return true;
        }
        let Some(wanted) = self.resolved(key, place, wanted).await else { return false };
        let visible = self.caught_up(place, &wanted, self.env.now() + patience).await;
        if visible {
            self.ledger.lock().satisfied(key, place, &wanted);
        } else if !self.caches.follow(place) {
            self.ledger.lock().unfollowed(key, place, &wanted, self.env.now());
        }
        visible
    }

    /// `wanted` with every unknown fate bounded by a read that surely came after it. None while no such read
    /// succeeds.
    async fn resolved(&self, key: &ObjectKey, place: &Place, wanted: Wanted) -> Option<Wanted> {
        if wanted.doubt != Doubt::Open {
            return Some(wanted);
        }
        let read = self.consistent_version(place).await?;
        Some(self.ledger.lock().resolve(key, place, &wanted, read, self.env.now()))
    }

    /// The version of the resource's collection now. A list without a version is answered from a quorum; one object
    /// is enough, the list's own version is what counts. Asked within the informer's selection, as rights allow.
    async fn consistent_version(&self, place: &Place) -> Option<ResourceVersion> {
        let cache = self.caches.showing(place).into_iter().next()?;
        let selection = cache.selection();
        let query = ListQuery {
            labels: selection.labels.clone(),
            fields: selection.fields.clone(),
            limit: Some(1),
            ..ListQuery::default()
        };
        // The collection written to lies within what the cache lists, and whoever may write there may list there.
        let namespace = selection.namespace.as_deref().or(place.namespace());
        let read = self.reader.list(cache.kind(), namespace, &query);
        match self.env.timeout(READ_PATIENCE, read).await.unwrap_or(Err(RequestError::Deadline)) {
            Ok(list) => list.version,
            Err(error) => {
                tracing::debug!(resource = %place.resource, %error, "cannot tell yet whether a write happened");
                None
            }
        }
    }

    async fn caught_up(&self, place: &Place, wanted: &Wanted, deadline: Instant) -> bool {
        for cache in self.caches.showing(place) {
            if !self.reached(&*cache, place, wanted, deadline).await {
                return false;
            }
        }
        true
    }

    async fn reached(&self, cache: &dyn Cache, place: &Place, wanted: &Wanted, deadline: Instant) -> bool {
        let left = || deadline.saturating_duration_since(self.env.now());
        let reached = match wanted.bound() {
            Some(bound) => cache.reached_in(place.site(), bound, left()).await,
            None => true,
        };
        if reached && self.ended(cache, wanted, left()).await {
            return true;
        }
        let now = self.env.now();
        let met = wanted.is_met(|version| shows(cache, place, version), cache.follows(), now);
        met && shows_ends(cache, wanted) || given_up(cache, wanted, met, now)
    }

    /// Waits until the cache shows the end of everything deleted.
    async fn ended(&self, cache: &dyn Cache, wanted: &Wanted, within: Duration) -> bool {
        if shows_ends(cache, wanted) {
            return true;
        }
        let mut progress = cache.progress();
        let ended = progress.wait_until(|_| shows_ends(cache, wanted));
        self.env.timeout(within, ended).await.is_ok_and(|shown| shown.is_ok())
    }
}

/// Whether a write would have shown by now if it ever did: in a cache that holds only some objects it has left the
/// selection, and an object whose end alone is missing was kept by its server. `met` says that nothing else is.
fn given_up(cache: &dyn Cache, wanted: &Wanted, met: bool, now: Instant) -> bool {
    let late = now.saturating_duration_since(wanted.since) >= DOUBTFUL_PATIENCE;
    let given_up = late && (cache.filtered() || met && cache.follows());
    if given_up {
        tracing::debug!(kind = %cache.kind().kind, "an own write never showed in the cache: it is waited for no more");
    }
    given_up
}

/// How long a key is put off that was put off `skips` times in a row before.
fn delay_after(skips: u32) -> Duration {
    PATIENCE.saturating_mul(1 << skips.min(16)).min(LONGEST_DELAY)
}
