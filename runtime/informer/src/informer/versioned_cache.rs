//! Versions of a cache, and requests to relist it.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use windlass_object::ResourceVersion;

use super::Informer;
use super::reflector_set::RelistTicket;
use crate::partition::ObjectLocation;
use crate::reflector::Urgency;
use crate::wait;

/// The version of the cache of a resource. Used for read-your-writes.
pub trait VersionedCache: Send + Sync {
    /// Returns the version of the store: it contains all changes up to this version. `None` before the initial list.
    fn version(&self) -> Option<ResourceVersion>;

    /// Returns how many times the version of the server moved back. Versions of different epochs cannot be compared.
    fn epoch(&self) -> u64;

    /// Returns the version of the store for objects at `location`. Differs from [`version`](Self::version) only if the
    /// informer follows namespaces or shards separately, each with its own version. Then it is also `None` for a
    /// namespace or shard that is not followed or has not been listed.
    fn version_in(&self, location: ObjectLocation<'_>) -> Option<ResourceVersion> {
        let _ = location;
        self.version()
    }

    /// Waits like [`wait_for_version`](Self::wait_for_version), for a write to an object at `location`. If the informer
    /// follows namespaces or shards separately, this does not wait for the others, whose versions might not advance for
    /// a minute when they are quiet. Returns true for a location that is not followed: the cache will never contain its
    /// objects.
    fn wait_for_version_in<'a>(
        &'a self,
        location: ObjectLocation<'a>,
        wanted: ResourceVersion,
        within: Duration,
    ) -> BoxFuture<'a, bool> {
        let _ = location;
        self.wait_for_version(wanted, within)
    }

    /// Returns whether the initial list is in the store. Callers must not act on the objects before.
    fn has_synced(&self) -> bool;

    /// Waits until all changes up to `wanted` are in the store, for `within` at most. Also returns true for a version
    /// that cannot be compared, and when a new epoch starts, which makes the version obsolete.
    fn wait_for_version(&self, wanted: ResourceVersion, within: Duration) -> BoxFuture<'_, bool>;

    /// Requests a consistent list of the partition that contains `location`, or of every partition for
    /// [`ObjectLocation::default()`]. Returns without waiting. The list starts after this call.
    ///
    /// Requests coalesce: one list serves all requests that arrived before it started. Requested relists are spaced:
    /// after a list that took `t`, the next one starts no earlier than `10 * t` later, at least 1 s and at most 60 s.
    /// Their pages bypass the client's rate limit.
    fn request_relist(&self, location: ObjectLocation<'_>) -> RelistTicket;

    /// Returns whether the lists of a ticket are in the store.
    fn relist_state(&self, ticket: &RelistTicket) -> RelistState;

    /// Requests a consistent list of all partitions. Returns when it is in the store, or when the informer has stopped,
    /// also if it had stopped before the call. Waits for the start of an informer that is not started.
    ///
    /// This request is urgent, for a takeover: it skips the spacing of lists and cancels a list that is in flight.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait, but not the request.
    fn relist_now(&self) -> BoxFuture<'_, ()>;
}

/// The state of a requested relist.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RelistState {
    /// The store might not contain the list yet.
    Pending,
    /// A consistent list that started after the request is in the store, and its events are queued for the handlers.
    /// Also used if the store cannot contain outdated objects: the namespace or shard left, or the kind is absent or
    /// forbidden and none of its objects are stored.
    Done,
}

impl Informer {
    /// Waits until [`relist_state`](VersionedCache::relist_state) of the ticket is [`RelistState::Done`]. Never returns
    /// for lists that the informer did not receive before it stopped.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait, but not the request.
    pub(crate) async fn wait_relisted(&self, ticket: &RelistTicket) {
        for part in &*ticket.0 {
            self.wait_partition_relisted(part).await;
        }
    }

    /// Waits until the partition for `location` contains all changes up to `wanted`.
    async fn wait_at(&self, location: ObjectLocation<'_>, wanted: ResourceVersion) -> bool {
        // A partition can be desired before it has joined.
        let joins = |location: ObjectLocation<'_>| {
            self.partitions.as_ref().is_some_and(|partitions| partitions.expects(location))
        };
        wait::wait_for_version_in(self.progress.subscribe(), location, wanted, joins).await
    }
}

impl VersionedCache for Informer {
    fn version(&self) -> Option<ResourceVersion> {
        Informer::version(self)
    }

    fn epoch(&self) -> u64 {
        self.progress.get().epoch
    }

    fn has_synced(&self) -> bool {
        Informer::has_synced(self)
    }

    fn wait_for_version(&self, wanted: ResourceVersion, within: Duration) -> BoxFuture<'_, bool> {
        self.wait_for_version_in(ObjectLocation::default(), wanted, within)
    }

    fn version_in(&self, location: ObjectLocation<'_>) -> Option<ResourceVersion> {
        self.progress.get().version_in(location).cloned()
    }

    fn wait_for_version_in<'a>(
        &'a self,
        location: ObjectLocation<'a>,
        wanted: ResourceVersion,
        within: Duration,
    ) -> BoxFuture<'a, bool> {
        let reached = self.wait_at(location, wanted);
        self.env.timeout(within, reached).map(|outcome| outcome == Ok(true)).boxed()
    }

    fn request_relist(&self, location: ObjectLocation<'_>) -> RelistTicket {
        self.request_relists(location, Urgency::Spaced)
    }

    fn relist_state(&self, RelistTicket(parts): &RelistTicket) -> RelistState {
        match parts.iter().all(|part| self.is_relisted(part)) {
            true => RelistState::Done,
            false => RelistState::Pending,
        }
    }

    fn relist_now(&self) -> BoxFuture<'_, ()> {
        let ticket = self.request_relists(ObjectLocation::default(), Urgency::Urgent);
        async move {
            let stopped = pin!(self.stop.cancelled());
            future::select(stopped, pin!(self.wait_relisted(&ticket))).await;
        }
        .boxed()
    }
}
