//! The status of an informer. No method waits for the informer's lock.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use futures_util::future::{self, Either};
use windlass_env::Instant;
use windlass_env::watch_channel::Receiver;
use windlass_object::ResourceVersion;

use super::Informer;
use crate::availability::KindAvailability;
use crate::error::{NotSynced, UnsyncedInformer, UnsyncedReason};
use crate::partition::{ObjectLocation, Partition};
use crate::reflector::{STUCK_AFTER, WatchErrorHandler};
use crate::store::Progress;
use crate::wait;

impl Informer {
    /// Returns whether the initial list is in the store. Handlers might still be processing it, see
    /// [`HandlerHandle::has_synced`](crate::HandlerHandle::has_synced).
    pub fn has_synced(&self) -> bool {
        self.progress.get().synced
    }

    /// Waits until the initial list is in the store. Returns `false` if the informer is stopped before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn synced(&self) -> bool {
        let synced = wait::synced(self.progress.subscribe());
        let stopped = self.stop.cancelled();
        matches!(future::select(pin!(synced), pin!(stopped)).await, Either::Left((true, _)))
    }

    /// Waits until the initial list is in the store, for `within` at most if set. This includes a kind that is not
    /// served.
    ///
    /// # Errors
    ///
    /// [`NotSynced`] with an [`UnsyncedReason`]. For a set of namespaces, it names each namespace that is not synced.
    /// Without `within`, the call waits indefinitely for a kind that the client is not permitted to read.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_for_sync(&self, within: Option<Duration>) -> Result<(), NotSynced> {
        let synced = async { self.is_running() && self.synced().await };
        let in_time = match within {
            Some(within) => self.env.timeout(within, synced).await == Ok(true),
            None => synced.await,
        };
        if in_time || self.has_synced() { Ok(()) } else { Err(NotSynced { unsynced: self.unsynced() }) }
    }

    /// Waits until the initial lists of all currently desired namespaces or shards are in the store. Returns `false` if
    /// the informer is stopped before that. Equal to [`synced`](Self::synced) if the informer has no set.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn partitions_synced(&self) -> bool {
        let Some(partitions) = &self.partitions else { return self.synced().await };
        let mut progress = self.progress.subscribe();
        let all_listed = async {
            let listed = |progress: &Progress| {
                progress.synced && partitions.current().iter().all(|part| progress.has_listed_partition(part))
            };
            // The desired set can change without an event here, but then a partition is listed or leaves.
            progress.wait_for(listed).await.is_ok()
        };
        let stopped = self.stop.cancelled();
        matches!(future::select(pin!(all_listed), pin!(stopped)).await, Either::Left((true, _)))
    }

    /// Returns whether the source serves the kind, as far as is known. For a set of namespaces, a namespace that must
    /// not be read takes precedence.
    pub fn availability(&self) -> KindAvailability {
        self.reflectors.availability.overall()
    }

    /// Requests an immediate retry for a kind that is not served or must not be read, with another retry soon after.
    /// Has no effect if the kind is available.
    pub fn recheck(&self) {
        self.reflectors.availability.request_recheck();
    }

    /// Returns the version of the store: it contains all changes up to this version. `None` before the initial list.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.progress.get().version
    }

    /// Returns whether the informer selects only a part of the objects.
    pub fn is_filtered(&self) -> bool {
        self.selection.is_filtered() || self.partitions.is_some()
    }

    /// Returns a receiver of the progress of the store.
    pub fn version_changes(&self) -> Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Returns the last error of the informer, if no request has succeeded since.
    pub fn last_error(&self) -> Option<String> {
        self.reflectors.last_error()
    }

    /// Sets the handler for errors between this informer and its source. It replaces the log and any earlier handler.
    /// It can be set before or after the start.
    pub fn on_watch_error(&self, handler: impl WatchErrorHandler) {
        drop(self.reflectors.failures.replace_handler(Arc::new(handler)));
    }

    /// Returns whether the informer has been started and is not stopped. Never blocks.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Returns whether the informer is running and the tasks that follow its source are alive. These tasks survive
    /// every failure of the source. If the informer is running and not following, it has a defect and needs a restart
    /// of the process. Never blocks.
    pub fn is_following(&self) -> bool {
        self.is_running() && !self.core_task_died.is_cancelled()
    }

    /// Returns why changes might be missing now, if the informer knows a reason.
    pub fn problem(&self) -> Option<String> {
        let dead =
            || (!self.is_following()).then(|| "one of its tasks has stopped; restart the process".to_owned());
        self.last_error().or_else(dead)
    }

    /// Returns how long the informer has been stuck, if that is longer than two watch timeouts (400 s).
    ///
    /// It is stuck while user code in one of its tasks (an index function, a handler, or a function that they call)
    /// does not return. It is also stuck while its lists and watches do not complete although the source answers other
    /// requests of the process. A quiet watch, an unreachable source, and a source that returns errors (including 429)
    /// do not count: a restart would not help. Never blocks.
    pub fn stalled_for(&self) -> Option<Duration> {
        self.stuck_at(self.env.now())
    }

    /// Returns whether the informer follows objects at `location` or will do so: a namespace that joins counts before
    /// it is followed.
    pub fn expects<'a>(&self, location: impl Into<ObjectLocation<'a>>) -> bool {
        self.partitions.as_ref().is_none_or(|partitions| partitions.expects(location.into()))
    }

    /// Returns why the initial list is missing, for each partition without one.
    pub fn unsynced(&self) -> Vec<UnsyncedInformer> {
        let (kind, selection) = (self.kind(), self.selection());
        let one =
            |reason| vec![UnsyncedInformer { kind: kind.clone(), selection: selection.clone(), reason }];
        // `try_lock`, because an index function can run under the lock and never return. A held lock means that it was
        // started.
        let idle = match self.state.try_lock() {
            Ok(state) => state.phase.unsynced_reason(),
            Err(TryLockError::Poisoned(state)) => state.into_inner().phase.unsynced_reason(),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(reason) = idle {
            return one(reason);
        }
        let progress = self.progress.get();
        let parts = self.reflectors.reflectors();
        let behind = parts
            .into_iter()
            .map(|(partition, _)| partition)
            .filter(|part| !progress.has_listed_partition(part));
        let unsynced = |partition: Partition| UnsyncedInformer {
            kind: kind.clone(),
            selection: self.selection_of(&partition),
            reason: self.unsynced_reason(&partition),
        };
        let unsynced: Vec<UnsyncedInformer> = behind.map(unsynced).collect();
        if unsynced.is_empty() { one(UnsyncedReason::Listing) } else { unsynced }
    }

    fn unsynced_reason(&self, partition: &Partition) -> UnsyncedReason {
        if let Some(refusal) = self.budget.exceeded(partition) {
            return UnsyncedReason::OverBudget(refusal);
        }
        match (self.reflectors.availability.of(partition), self.reflectors.error_of(partition)) {
            (KindAvailability::Absent, _) => UnsyncedReason::Absent,
            (KindAvailability::Forbidden(denial), _) => UnsyncedReason::Forbidden(denial),
            (_, Some(last_error)) => UnsyncedReason::Failing { last_error },
            (_, None) => UnsyncedReason::Listing,
        }
    }

    /// Returns whether there is nothing to wait for: the informer is synced, or the kind is not served.
    pub(crate) fn is_settled(&self) -> bool {
        self.has_synced() || self.availability() == KindAvailability::Absent
    }

    /// Waits until there is nothing to wait for, or until the informer stops.
    pub(crate) async fn settled(&self) {
        let mut availability = self.reflectors.availability.subscribe();
        let absent = availability.wait_for(|availability| *availability == KindAvailability::Absent);
        future::select(pin!(self.synced()), pin!(absent)).await;
    }

    pub(crate) fn stuck_at(&self, now: Instant) -> Option<Duration> {
        let poll = self.poll_timers.longest(now).filter(|poll| *poll > STUCK_AFTER);
        self.reflectors.stalled_for(now).max(poll)
    }
}
