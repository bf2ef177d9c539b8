//! How far the cache of a resource has come, and how to bring it up to date.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use windlass_object::ResourceVersion;

use super::Informer;
use super::reflector_set::RefreshTicket;
use crate::partition::ObjectLocation;
use crate::reflector::Urgency;
use crate::sync;

/// How far the cache of a resource has come: what read-your-writes asks.
pub trait VersionSource: Send + Sync {
    /// Everything up to this version is in the store; `None` before the initial list.
    fn version(&self) -> Option<ResourceVersion>;

    /// How many times the server went back in time. Versions of different epochs cannot be compared.
    fn epoch(&self) -> u64;

    /// Everything at `site` up to this version is in the store. The same as [`version`](Self::version) unless namespaces
    /// or shards are followed one by one, each with its own version: then also `None` for one that is not followed, or
    /// has not been listed.
    fn version_in(&self, site: ObjectLocation<'_>) -> Option<ResourceVersion> {
        let _ = site;
        self.version()
    }

    /// Like [`reached`](Self::reached), for a write to an object at `site`. The same unless namespaces or shards are
    /// followed one by one: then the others are not waited for, of which a quiet one may stand still for a minute. True
    /// for one that is not followed: of it, nothing will ever be seen.
    fn reached_in<'a>(
        &'a self,
        site: ObjectLocation<'a>,
        wanted: ResourceVersion,
        within: Duration,
    ) -> BoxFuture<'a, bool> {
        let _ = site;
        self.reached(wanted, within)
    }

    /// Whether the initial list is in the store. Without it nobody acts on what is there.
    fn has_synced(&self) -> bool;

    /// Waits until everything up to `wanted` is in the store, at most for `within`. True also if a new epoch
    /// begins meanwhile, which makes the question meaningless, and for a version that cannot be compared.
    fn reached(&self, wanted: ResourceVersion, within: Duration) -> BoxFuture<'_, bool>;

    /// Requests a consistent list of the part that holds `site`, or of every part for the default site, and returns
    /// without waiting. The list begins after this call.
    ///
    /// Requests coalesce: one list serves all requests that came before it began. Lists on request are spaced: after a
    /// list that took `t`, the next one begins no earlier than `10 * t` later, at least 1 s and at most 60 s. Their pages
    /// bypass the client's rate limit.
    fn request_refresh(&self, site: ObjectLocation<'_>) -> RefreshTicket;

    /// Returns whether the lists of a ticket are in the store.
    fn refresh_state(&self, ticket: &RefreshTicket) -> RefreshState;

    /// Waits until [`refresh_state`](Self::refresh_state) of the ticket is [`RefreshState::Done`].
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait, and not the request.
    fn refreshed_since(&self, ticket: &RefreshTicket) -> BoxFuture<'_, ()>;

    /// Requests a consistent list of everything and waits until it is in the store or the informer stops. Waits forever if
    /// the informer was never started.
    ///
    /// This request is urgent, for a takeover: it waits for no pause between lists, and abandons a list that is in flight.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait, and not the request.
    fn refreshed(&self) -> BoxFuture<'_, ()>;
}

/// How far a requested refresh has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RefreshState {
    /// The store might not contain the list yet.
    Pending,
    /// A consistent list that began after the request is in the store, and handlers have it queued. Also if nothing old
    /// can be held: the namespace or shard was left, or the kind is absent or forbidden and nothing is held.
    Done,
}

impl Informer {
    /// Waits until everything up to `wanted` is in the store of the part that holds what is at `site`.
    async fn reached_at(&self, site: ObjectLocation<'_>, wanted: ResourceVersion) -> bool {
        // A part may be known to be wanted before it has joined.
        let joins =
            |site: ObjectLocation<'_>| self.members.as_ref().is_some_and(|members| members.expects(site));
        sync::reached_in(self.progress.subscribe(), site, wanted, joins).await
    }
}

impl VersionSource for Informer {
    fn version(&self) -> Option<ResourceVersion> {
        Informer::version(self)
    }

    fn epoch(&self) -> u64 {
        self.progress.get().epoch
    }

    fn has_synced(&self) -> bool {
        Informer::has_synced(self)
    }

    fn reached(&self, wanted: ResourceVersion, within: Duration) -> BoxFuture<'_, bool> {
        self.reached_in(ObjectLocation::default(), wanted, within)
    }

    fn version_in(&self, site: ObjectLocation<'_>) -> Option<ResourceVersion> {
        self.progress.get().version_in(site).cloned()
    }

    fn reached_in<'a>(
        &'a self,
        site: ObjectLocation<'a>,
        wanted: ResourceVersion,
        within: Duration,
    ) -> BoxFuture<'a, bool> {
        let reached = self.reached_at(site, wanted);
        self.env.timeout(within, reached).map(|outcome| outcome == Ok(true)).boxed()
    }

    fn request_refresh(&self, site: ObjectLocation<'_>) -> RefreshTicket {
        self.request_lists(site, Urgency::Spaced)
    }

    fn refresh_state(&self, RefreshTicket(parts): &RefreshTicket) -> RefreshState {
        match parts.iter().all(|part| self.is_refreshed(part)) {
            true => RefreshState::Done,
            false => RefreshState::Pending,
        }
    }

    fn refreshed_since(&self, RefreshTicket(parts): &RefreshTicket) -> BoxFuture<'_, ()> {
        let parts = Arc::clone(parts);
        async move {
            for part in &*parts {
                self.refreshed(part).await;
            }
        }
        .boxed()
    }

    fn refreshed(&self) -> BoxFuture<'_, ()> {
        let ticket = self.request_lists(ObjectLocation::default(), Urgency::Urgent);
        async move {
            if !self.is_running() {
                return future::pending().await;
            }
            let stopped = pin!(self.stop.cancelled());
            future::select(stopped, self.refreshed_since(&ticket)).await;
        }
        .boxed()
    }
}
