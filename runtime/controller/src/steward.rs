//! Keys that come to a controller, and keys that leave it, while it runs: where several replicas share its keys.
//!
//! Guarantees:
//! - A key that is queued while its shard is being taken over is reconciled once it is let in: none is lost, and none is
//!   reconciled before.
//! - After [`Steward::retire`] no worker has a key that left, and nothing of it is remembered.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_informer::VersionSource;
use windlass_object::{GroupResource, ObjectKey, ResourceKind, ResourceVersion};
use windlass_workqueue::{Add, Priority, Queue};

use crate::caches::Cache;
use crate::freshness::Gate;
use crate::history::History;
use crate::limits::Limit;
use crate::quarantine::Quarantine;
use crate::scope::{Scope, Verdict};
use crate::trigger::Trigger;
use crate::undecodable::Undecodable;
use crate::watch::{Replay, Wiring};
use crate::worker_pool::Activity;

/// What passes between workers and whoever takes keys away from them.
#[derive(Default)]
pub(crate) struct Handover {
    /// Told when keys go: a worker that waits looks again whether its key is still its own.
    pub(crate) gone: Notify,
    /// Told when a worker has let go of a key.
    pub(crate) let_go: Notify,
}

/// Brings keys to the workers of one controller, and takes them away. Clones are one; see [`Workers::steward`].
///
/// [`Workers::steward`]: crate::Workers::steward
#[derive(Clone)]
pub struct Steward {
    pub(crate) name: &'static str,
    pub(crate) queue: Queue<ObjectKey>,
    pub(crate) activity: Activity,
    pub(crate) gate: Gate,
    pub(crate) quarantine: Quarantine,
    pub(crate) undecodable: Undecodable,
    pub(crate) history: History,
    pub(crate) limits: Vec<Limit>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) handover: Arc<Handover>,
    pub(crate) needed: Vec<Arc<dyn Cache>>,
    pub(crate) scope: Arc<dyn Scope>,
    /// Keys that a worker took before they were let in.
    pub(crate) aside: Arc<Mutex<BTreeMap<ObjectKey, Priority>>>,
    /// Of the caches that hold the objects of every shard.
    pub(crate) replays: Vec<Replay>,
    pub(crate) wiring: Wiring,
}

impl Steward {
    /// The controller's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until every cache that the controller declared has the first lists of all shards and namespaces that it
    /// follows by then; `false` if one was shut down before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn caches_synced(&self) -> bool {
        for cache in &self.needed {
            if !cache.members_synced().await {
                return false;
            }
        }
        true
    }

    /// Those caches.
    pub fn caches(&self) -> Vec<(ResourceKind, Arc<dyn VersionSource>)> {
        self.needed.iter().map(|cache| (cache.kind().clone(), Arc::clone(cache) as _)).collect()
    }

    /// See [`Workers::written`](crate::Workers::written).
    pub fn written(&self) -> Option<BTreeMap<GroupResource, ResourceVersion>> {
        self.gate.ledger.lock().written(|resource| self.gate.caches.epoch(resource))
    }

    /// Waits until writes of unknown outcome have settled: each has taken effect, or never will.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn writes_settled(&self) {
        let settled_at = self.gate.ledger.lock().settled_at();
        if let Some(settled_at) = settled_at {
            self.gate.env.sleep_until(settled_at).await;
        }
    }

    /// Queues the keys that were put aside and are to be reconciled by now. Call it when the scope has said so.
    pub fn let_in(&self) {
        let is_soon = |key: &ObjectKey| matches!(self.scope.verdict(key), Verdict::Soon { .. });
        let known: Vec<ObjectKey> = self.lock().keys().cloned().collect();
        for key in known.into_iter().filter(|key| !is_soon(key)) {
            if let Some(priority) = self.lock().remove(&key) {
                self.queue.add_with(key, Add::now().priority(priority));
            }
        }
    }

    /// Queues the keys that `joined` names of what the caches of every shard hold: these are told of nothing when a shard is
    /// taken over. Call it beside [`let_in`](Self::let_in).
    pub fn replay(&self, joined: impl Fn(&ObjectKey) -> bool) {
        self.replays.iter().for_each(|replay| replay(&self.wiring, &joined));
    }

    /// Lets go of the keys of which `gone` says so: those that wait, for a worker or for a time, and all that is
    /// remembered of them, are forgotten, and this resolves once no worker has one of them any more. The controller's
    /// [`Scope`] must say by now that they are elsewhere, or new ones come at any time.
    ///
    /// Reconciles that run go on to their end while the fence they began with is open, and are dropped when it closes.
    ///
    /// # Cancel safety
    /// The keys that wait are forgotten when it is first polled; calling it again waits for the rest.
    pub async fn retire(&self, gone: impl Fn(&ObjectKey) -> bool) {
        self.sweep(&gone);
        self.handover.gone.notify_waiters();
        loop {
            let mut let_go = pin!(self.handover.let_go.notified());
            // Listening begins before the look, so that a key that is let go of in between is not missed.
            let_go.as_mut().enable();
            if !self.activity.busy().iter().any(|busy| gone(&busy.key)) {
                break;
            }
            let_go.await;
        }
        // What their last reconciles left.
        self.sweep(&gone);
        self.gate.ledger.lock().forget_if(&gone);
    }

    /// Forgets the keys that are gone, but for what a worker has of them.
    fn sweep(&self, gone: &impl Fn(&ObjectKey) -> bool) {
        self.queue.withdraw(gone);
        self.lock().retain(|key, _| !gone(key));
        // Whoever has attempts to its name fails.
        self.history.failing().iter().filter(|key| gone(key)).for_each(|key| self.queue.forget(key));
        self.limits.iter().for_each(|limit| limit.forget_if(gone, &self.queue));
        self.triggers.iter().for_each(|trigger| trigger.forget_if(gone));
        self.quarantine.forget_if(gone);
        self.undecodable.forget_if(gone);
        self.history.forget_if(gone);
    }

    /// Keeps a key until it is [let in](Self::let_in); `false` if that has happened, and the key is to go on.
    pub(crate) fn put_aside(&self, key: &ObjectKey, priority: Priority) -> bool {
        self.lock().insert(key.clone(), priority);
        if matches!(self.scope.verdict(key), Verdict::Soon { .. }) {
            return true;
        }
        // Let in meanwhile: if whoever did so has seen the key, it is queued.
        self.lock().remove(key).is_none()
    }

    /// Nothing else runs under this lock, so poison cannot mean a broken map.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Priority>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Steward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steward").field("name", &self.name).finish_non_exhaustive()
    }
}
