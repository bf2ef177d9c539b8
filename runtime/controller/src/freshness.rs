//! Read-your-writes, the waiting: a reconcile starts only when the caches show what its key wrote last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_client::{ListQuery, RawClient, RequestError};
use windlass_env::{Env, Instant};
use windlass_object::{GroupResource, ObjectKey, ResourceVersion};

use crate::setup::Watched;
use crate::writes::{Doubt, SharedLedger, Wanted};

/// How long a worker waits for its caches before it turns to another key. Watches usually show a write within a few
/// milliseconds; beyond this the worker's time is better spent elsewhere. A key that was put off once is only looked
/// at: many of them, behind one cache that is cut off, must not hold up keys that could be reconciled.
const PATIENCE: Duration = Duration::from_millis(50);

/// The longest a key is put off before it is looked at again: once the cache is back, its keys should be too.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// How long a write is waited for on a cache that holds only some objects. A write that moves its object out of the
/// selection yields no event with its version, so this wait must end.
const FILTERED_PATIENCE: Duration = Duration::from_secs(10);

/// How long a read that tells whether a write happened may keep a worker. A server that answers at all does so in far
/// less; without an answer the worker turns to other keys, and asks again with the key's next turn.
const READ_PATIENCE: Duration = Duration::from_secs(3);

/// The caches a controller reads, by resource.
#[derive(Default)]
pub(crate) struct Caches(BTreeMap<GroupResource, Vec<Watched>>);

impl Caches {
    pub(crate) fn new(watched: Vec<Watched>) -> Self {
        let mut caches = BTreeMap::<_, Vec<_>>::new();
        for one in watched {
            caches.entry(one.kind.group_resource()).or_default().push(one);
        }
        Self(caches)
    }

    /// The epoch of the caches of `resource`: none if it is not watched. Epochs only grow, so their sum changes when
    /// any of them does.
    pub(crate) fn epoch(&self, resource: &GroupResource) -> Option<u64> {
        self.0.get(resource).map(|caches| caches.iter().map(|cache| cache.source.epoch()).sum())
    }

    /// Whether nothing need be waited for any more, without waiting.
    pub(crate) fn passed(&self, resource: &GroupResource, wanted: &Wanted) -> bool {
        if self.epoch(resource) != Some(wanted.epoch) {
            return true;
        }
        let Some(bound) = wanted.bound() else { return false };
        self.of(resource).iter().all(|cache| shows(cache, &bound))
    }

    /// Whether all caches of `resource` follow their source.
    fn follow(&self, resource: &GroupResource) -> bool {
        self.of(resource).iter().all(|cache| cache.source.follows())
    }

    fn of(&self, resource: &GroupResource) -> &[Watched] {
        self.0.get(resource).map_or(&[], Vec::as_slice)
    }
}

/// Whether the cache has passed `version`. Versions that cannot be compared fail open: nobody could say when the wait
/// would end.
fn shows(cache: &Watched, version: &ResourceVersion) -> bool {
    cache.source.version().is_some_and(|store| store.reached(version).unwrap_or(true))
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
    pub(crate) caches: Arc<Caches>,
    pub(crate) reader: RawClient,
}

impl Gate {
    /// Waits a little for every cache that `key` wrote to.
    ///
    /// # Cancel safety
    /// May be dropped and called again: what was found out is in the ledger already.
    pub(crate) async fn pass(&self, key: &ObjectKey) -> Freshness {
        if self.env.is_planted("no read-your-writes") {
            return Freshness::Fresh;
        }
        let (wanted, skips) = {
            let ledger = self.ledger.lock();
            (ledger.wanted(key), ledger.skips(key))
        };
        let patience = if skips == 0 { PATIENCE } else { Duration::ZERO };
        for (resource, wanted) in wanted {
            if !self.visible(key, &resource, wanted, patience).await {
                self.ledger.lock().skipped(key);
                return Freshness::Stale { resource, again_after: delay_after(skips) };
            }
        }
        self.ledger.lock().forget_skips(key);
        Freshness::Fresh
    }

    async fn visible(
        &self,
        key: &ObjectKey,
        resource: &GroupResource,
        wanted: Wanted,
        patience: Duration,
    ) -> bool {
        if self.caches.epoch(resource) != Some(wanted.epoch) {
            tracing::debug!(%resource, "the cache began a new epoch: own writes are not waited for");
            self.ledger.lock().satisfied(key, resource, &wanted);
            return true;
        }
        let Some(wanted) = self.resolved(key, resource, wanted).await else { return false };
        let visible = self.caught_up(resource, &wanted, patience).await;
        if visible {
            self.ledger.lock().satisfied(key, resource, &wanted);
        } else if !self.caches.follow(resource) {
            self.ledger.lock().unfollowed(key, resource, &wanted, self.env.now());
        }
        visible
    }

    /// `wanted` with every unknown fate bounded by a read that surely came after it. None while no such read
    /// succeeds.
    async fn resolved(&self, key: &ObjectKey, resource: &GroupResource, wanted: Wanted) -> Option<Wanted> {
        if wanted.doubt != Doubt::Open {
            return Some(wanted);
        }
        let read = self.consistent_version(resource).await?;
        Some(self.ledger.lock().resolve(key, resource, &wanted, read, self.env.now()))
    }

    /// The version of the resource's collection now. A list without a version is answered from a quorum; one object
    /// is enough, the list's own version is what counts. Asked within the informer's selection, as rights allow.
    async fn consistent_version(&self, resource: &GroupResource) -> Option<ResourceVersion> {
        let Watched { kind, selection, .. } = self.caches.of(resource).first()?;
        let query = ListQuery {
            labels: selection.labels.clone(),
            fields: selection.fields.clone(),
            limit: Some(1),
            ..ListQuery::default()
        };
        let read = self.reader.list(kind, selection.namespace.as_deref(), &query);
        match self.env.timeout(READ_PATIENCE, read).await.unwrap_or(Err(RequestError::Deadline)) {
            Ok(list) => list.version,
            Err(error) => {
                tracing::debug!(%resource, %error, "cannot tell yet whether a write happened");
                None
            }
        }
    }

    async fn caught_up(&self, resource: &GroupResource, wanted: &Wanted, patience: Duration) -> bool {
        let deadline = self.env.now() + patience;
        for cache in self.caches.of(resource) {
            if !self.reached(cache, wanted, deadline).await {
                return false;
            }
        }
        true
    }

    async fn reached(&self, cache: &Watched, wanted: &Wanted, deadline: Instant) -> bool {
        let within = deadline.saturating_duration_since(self.env.now());
        let Some(bound) = wanted.bound() else { return true };
        if cache.source.reached(bound, within).await {
            return true;
        }
        let now = self.env.now();
        wanted.is_met(|version| shows(cache, version), cache.source.follows(), now)
            || given_up(cache, wanted.since, now)
    }
}

/// Whether a write would have shown by now in a cache that holds only some objects, and so has left the selection.
fn given_up(cache: &Watched, since: Instant, now: Instant) -> bool {
    let given_up = cache.source.filtered() && now.saturating_duration_since(since) >= FILTERED_PATIENCE;
    if given_up {
        tracing::debug!(kind = %cache.kind.kind, "an own write never showed in a filtered cache: it left the filter");
    }
    given_up
}

/// How long a key is put off that was put off `skips` times in a row before.
fn delay_after(skips: u32) -> Duration {
    PATIENCE.saturating_mul(1 << skips.min(16)).min(LONGEST_DELAY)
}
