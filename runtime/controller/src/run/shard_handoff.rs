//! Keys that come to a controller, and keys that leave it, while it runs: where several replicas share its keys.
//!
//! Guarantees:
//! - A key that is queued while its shard is being taken over is reconciled once it is let in: none is lost, and none is
//!   reconciled before.
//! - After [`ShardHandoff::drain_keys`] no worker has a key that left, and nothing of it is remembered.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use windlass_informer::VersionSource;
use windlass_object::{GroupResource, ObjectKey, ResourceKind, ResourceVersion};

use crate::core::Core;
use crate::enqueue::wiring::Replay;

/// Brings keys to the workers of one controller, and takes them away. Clones are one; see [`Workers::steward`].
///
/// [`Workers::steward`]: crate::host::Workers::steward
#[derive(Clone)]
pub struct ShardHandoff {
    pub(crate) core: Arc<Core>,
    /// Of the caches that hold the objects of every shard.
    pub(crate) replays: Arc<[Replay]>,
}

impl ShardHandoff {
    /// The controller's name.
    pub fn name(&self) -> &'static str {
        self.core.name()
    }

    /// Waits until every cache that the controller declared has the first lists of all shards and namespaces that it
    /// follows by then; `false` if one was shut down before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn caches_synced(&self) -> bool {
        for cache in &self.core.needed {
            if !cache.members_synced().await {
                return false;
            }
        }
        true
    }

    /// Those caches.
    pub fn caches(&self) -> Vec<(ResourceKind, Arc<dyn VersionSource>)> {
        self.core.needed.iter().map(|cache| (cache.kind().clone(), cache.version_source())).collect()
    }

    /// See [`Workers::written`](crate::host::Workers::written).
    pub fn written(&self) -> Option<BTreeMap<GroupResource, ResourceVersion>> {
        self.core.gate.ledger.lock().written(|resource| self.core.gate.caches.epoch(resource))
    }

    /// Waits until writes of unknown outcome have settled: each has taken effect, or never will.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn writes_settled(&self) {
        let settled_at = self.core.gate.ledger.lock().settled_at();
        if let Some(settled_at) = settled_at {
            self.core.gate.env.sleep_until(settled_at).await;
        }
    }

    /// Releases the keys that are parked while their shard is taken over, if it is owned by now. Call it after the ownership has changed.
    pub fn resume_parked(&self) {
        self.core.keys.let_in();
    }

    /// Queues the keys that `joined` names of what the caches of every shard hold: these are told of nothing when a shard is
    /// taken over. Call it next to [`resume_parked`](Self::resume_parked).
    pub fn requeue_cached(&self, joined: impl Fn(&ObjectKey) -> bool) {
        self.replays.iter().for_each(|replay| replay(&self.core.wiring, &joined));
    }

    /// Lets go of the keys of which `gone` says so: those that wait, for a worker or for a time, and all that is
    /// remembered of them, are forgotten, and this resolves once no worker has one of them any more. The controller's
    /// [`KeyOwnership`](windlass_sharding::KeyOwnership) must not own them any more, or new ones are enqueued at any time.
    ///
    /// Reconciles that run go on to their end while the fence they began with is open, and are dropped when it closes.
    ///
    /// # Cancel safety
    /// The keys that wait are forgotten when it is first polled; calling it again waits for the rest.
    pub async fn drain_keys(&self, gone: impl Fn(&ObjectKey) -> bool) {
        let Core { keys, activity, gate, .. } = &*self.core;
        keys.forget_if(&gone);
        keys.gone.notify_waiters();
        loop {
            let mut let_go = pin!(activity.let_go.notified());
            // Listening begins before the look, so that a key that is let go of in between is not missed.
            let_go.as_mut().enable();
            if !activity.busy().iter().any(|busy| gone(&busy.key)) {
                break;
            }
            let_go.await;
        }
        // What their last reconciles left.
        keys.forget_if(&gone);
        gate.ledger.lock().forget_if(&gone);
    }
}

impl fmt::Debug for ShardHandoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steward").field("name", &self.name()).finish_non_exhaustive()
    }
}
