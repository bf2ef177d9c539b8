//! What can be asked of an informer at any time. No answer waits for its lock.

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
use crate::sync;

impl Informer {
    /// Whether the initial list is in the store. Handlers may still be busy with it:
    /// [`HandlerHandle::has_synced`](crate::HandlerHandle::has_synced).
    pub fn has_synced(&self) -> bool {
        self.progress.get().synced
    }

    /// Waits until the initial list is in the store; `false` if the informer is shut down before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn synced(&self) -> bool {
        let synced = sync::synced(self.progress.subscribe());
        let stopped = self.stop.cancelled();
        matches!(future::select(pin!(synced), pin!(stopped)).await, Either::Left((true, _)))
    }

    /// Waits until the initial list is in the store, at most for `within` if that is given. A kind that is not served
    /// is waited for like any other.
    ///
    /// # Errors
    ///
    /// [`NotSynced`] says why not: it was not in time, was never started, or was stopped first. Of many namespaces,
    /// each is named that is behind.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_for_sync(&self, within: Option<Duration>) -> Result<(), NotSynced> {
        let synced = async { self.is_running() && self.synced().await };
        let in_time = match within {
            Some(within) => self.env.timeout(within, synced).await == Ok(true),
            None => synced.await,
        };
        if in_time || self.has_synced() { Ok(()) } else { Err(NotSynced { laggards: self.laggards() }) }
    }

    /// Waits until the first lists of all namespaces or shards that are wanted by then are in the store; `false` if the
    /// informer is stopped before that. The same as [`synced`](Self::synced) for one that follows no set.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn members_synced(&self) -> bool {
        let Some(members) = &self.members else { return self.synced().await };
        let mut progress = self.progress.subscribe();
        let come = async {
            let listed = |progress: &Progress| {
                progress.synced && members.current().iter().all(|part| progress.has_come(part))
            };
            // What is wanted may change without a word from here, but then something is listed or leaves.
            progress.wait_for(listed).await.is_ok()
        };
        let stopped = self.stop.cancelled();
        matches!(future::select(pin!(come), pin!(stopped)).await, Either::Left((true, _)))
    }

    /// Whether the source serves the kind, as far as is known. Of many namespaces, one that must not be read comes
    /// first.
    pub fn presence(&self) -> KindAvailability {
        self.following.board.presence()
    }

    /// Says that something was done about a kind that is not served, or must not be read: it is asked for at once, and
    /// soon again if that was too early. Nothing happens if nothing is in the way.
    pub fn look_again(&self) {
        self.following.board.look_again();
    }

    /// Everything up to this version is in the store; `None` before the initial list.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.progress.get().version
    }

    /// Whether objects may be missing by choice: the selection is not everything.
    pub fn is_filtered(&self) -> bool {
        self.selection.is_filtered() || self.members.is_some()
    }

    /// How far the store has come, as it continues.
    pub fn version_changes(&self) -> Receiver<Progress> {
        self.progress.subscribe()
    }

    /// What the informer last failed at, if nothing has succeeded since.
    pub fn last_error(&self) -> Option<String> {
        self.following.last_error()
    }

    /// From here on `handler` is told of everything that goes wrong between this informer and its source, in place of
    /// the log. It may be set before the informer is started or at any time after; the last one set is told.
    pub fn on_watch_error(&self, handler: impl WatchErrorHandler) {
        drop(self.following.trouble.tell(Arc::new(handler)));
    }

    /// Whether the informer has been started, and is not stopped. Answered at once, however busy the informer
    /// is.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Whether the informer is running and the tasks that follow its source are alive. They outlast every
    /// failure of the source, so an informer that is running and does not follow has met a defect, and only a
    /// new process will follow again. Answered at once, however busy the informer is.
    pub fn is_following(&self) -> bool {
        self.is_running() && !self.unfollowed.is_cancelled()
    }

    /// Why changes may be missing right now, if the informer knows of a reason.
    pub fn trouble(&self) -> Option<String> {
        let dead = || (!self.is_following()).then(|| "it does not follow its source".to_owned());
        self.last_error().or_else(dead)
    }

    /// Returns for how long the informer has been stuck, if that is longer than two windows of a watch (400 s).
    ///
    /// It is stuck while one of its tasks is in code of others (an index function, a handler, and what they call) that
    /// does not return, and while its lists and watches do not complete although the source answers other requests of the
    /// process. A quiet watch, a source that is unreachable, and a source that answers with an error (429 included) do not
    /// count: a new process would not help. This call never blocks.
    pub fn stuck_for(&self) -> Option<Duration> {
        self.stuck_at(self.env.now())
    }

    /// Returns whether the informer follows objects at `site`, or will: a namespace that joins counts before it is followed.
    pub fn expects<'a>(&self, site: impl Into<ObjectLocation<'a>>) -> bool {
        self.members.as_ref().is_none_or(|members| members.expects(site.into()))
    }

    /// Why there is no initial list yet, for each part that has none.
    pub fn laggards(&self) -> Vec<UnsyncedInformer> {
        let (kind, selection) = (self.kind(), self.selection());
        let one = |lag| vec![UnsyncedInformer { kind: kind.clone(), selection: selection.clone(), lag }];
        // Not waited for: an index function may be called under the lock, and not return. What runs has been started.
        let idle = match self.hub.try_lock() {
            Ok(hub) => hub.phase.lag(),
            Err(TryLockError::Poisoned(hub)) => hub.into_inner().phase.lag(),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(lag) = idle {
            return one(lag);
        }
        let progress = self.progress.get();
        let parts = self.following.followers();
        let behind =
            parts.into_iter().map(|(partition, _)| partition).filter(|part| !progress.has_come(part));
        let laggard = |partition: Partition| UnsyncedInformer {
            kind: kind.clone(),
            selection: self.selection_of(&partition),
            lag: self.lag_of(&partition),
        };
        let laggards: Vec<UnsyncedInformer> = behind.map(laggard).collect();
        if laggards.is_empty() { one(UnsyncedReason::Listing) } else { laggards }
    }

    fn lag_of(&self, partition: &Partition) -> UnsyncedReason {
        if let Some(refusal) = self.budget.refused(partition) {
            return UnsyncedReason::OverBudget(refusal);
        }
        match (self.following.board.of(partition), self.following.error_of(partition)) {
            (KindAvailability::Absent, _) => UnsyncedReason::Absent,
            (KindAvailability::Forbidden(denial), _) => UnsyncedReason::Forbidden(denial),
            (_, Some(last_error)) => UnsyncedReason::Failing { last_error },
            (_, None) => UnsyncedReason::Listing,
        }
    }

    /// Whether there is nothing to wait for: the initial list is there, or there will be none for want of a definition.
    pub(crate) fn is_settled(&self) -> bool {
        self.has_synced() || self.presence() == KindAvailability::Absent
    }

    /// Waits until there is nothing to wait for; also ends when the informer does.
    pub(crate) async fn settled(&self) {
        let mut presence = self.following.board.observe();
        let absent = presence.wait_for(|presence| *presence == KindAvailability::Absent);
        future::select(pin!(self.synced()), pin!(absent)).await;
    }

    pub(crate) fn stuck_at(&self, now: Instant) -> Option<Duration> {
        let poll = self.polls.longest(now).filter(|poll| *poll > STUCK_AFTER);
        self.following.stuck_for(now).max(poll)
    }
}
