//! Keys that join or leave a running controller when several replicas share its keys.
//!
//! Guarantees:
//! - A key that is queued while its shard is being taken over is reconciled once the takeover completes: none is lost,
//!   and none is reconciled earlier.
//! - After [`ShardHandoff::drain_keys`] no worker has a key that left, and all its records are removed.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use windlass_informer::VersionedCache;
use windlass_object::{GroupResource, ObjectKey, ResourceKind, ResourceVersion};
use windlass_sharding::KeyPosition;

use crate::core::Core;
use crate::enqueue::wiring::Replay;

/// Adds keys to the workers of one controller and removes them. Clones share the state; see [`Workers::shard_handoff`].
///
/// [`Workers::shard_handoff`]: crate::host::Workers::shard_handoff
#[derive(Clone)]
pub struct ShardHandoff {
    pub(crate) core: Arc<Core>,
    /// Replays of the caches that contain the objects of every shard.
    pub(crate) replays: Arc<[Replay]>,
}

impl ShardHandoff {
    /// Returns the controller's name.
    pub fn name(&self) -> &'static str {
        self.core.name()
    }

    /// Returns the position of the controller's keys on the hash ring.
    pub fn key_position(&self) -> KeyPosition {
        self.core.descriptor.key_position()
    }

    /// Waits until every cache that the controller declared has the first lists of all shards and namespaces that it
    /// currently follows; `false` if one was shut down before that.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the wait.
    pub async fn caches_synced(&self) -> bool {
        for cache in &self.core.start_caches {
            if !cache.partitions_synced().await {
                return false;
            }
        }
        true
    }

    /// Returns the caches that the controller declared.
    pub fn caches(&self) -> Vec<(ResourceKind, Arc<dyn VersionedCache>)> {
        self.core.start_caches.iter().map(|cache| (cache.kind().clone(), cache.version_source())).collect()
    }

    /// See [`Workers::written`](crate::host::Workers::written).
    pub fn written(&self) -> Option<BTreeMap<GroupResource, ResourceVersion>> {
        self.core.barrier.tracker.lock().written_versions(|resource| self.core.barrier.caches.epoch(resource))
    }

    /// Waits until writes of unknown outcome have settled: each has taken effect, or never will.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn writes_settled(&self) {
        let settled_at = self.core.barrier.tracker.lock().settled_at();
        if let Some(settled_at) = settled_at {
            self.core.barrier.env.sleep_until(settled_at).await;
        }
    }

    /// Releases the keys that were parked while their shard was taken over, if it is owned by now. Call it after the
    /// ownership has changed.
    pub fn resume_parked(&self) {
        self.core.keys.release_pending();
    }

    /// Queues the keys that `joined` selects from the caches that contain every shard. These caches receive no events
    /// when a shard is taken over. Call it next to [`resume_parked`](Self::resume_parked).
    pub fn requeue_cached(&self, joined: impl Fn(&ObjectKey) -> bool) {
        self.replays.iter().for_each(|replay| replay(&self.core.handler_context, &joined));
    }

    /// Drops the keys for which `gone` returns true. Queued and delayed keys and all their records are removed, and
    /// this resolves once no worker has one of these keys. The controller's
    /// [`KeyOwnership`](windlass_sharding::KeyOwnership) must no longer own them; otherwise new ones can be enqueued at
    /// any time.
    ///
    /// Running reconciles continue to their end while their fence is open, and are dropped when it closes.
    ///
    /// # Cancel safety
    /// The waiting keys are removed at the first poll; calling it again waits for the rest.
    pub async fn drain_keys(&self, gone: impl Fn(&ObjectKey) -> bool) {
        let Core { keys, activity, barrier: gate, .. } = &*self.core;
        keys.forget_if(&gone);
        keys.ownership_lost.notify_waiters();
        loop {
            let mut key_released = pin!(activity.key_released.notified());
            // Subscribed before the check, so that no key released in between is missed.
            key_released.as_mut().enable();
            if !activity.busy().iter().any(|busy| gone(&busy.key)) {
                break;
            }
            key_released.await;
        }
        // Removes the records that the last reconciles left.
        keys.forget_if(&gone);
        gate.tracker.lock().remove_if(&gone);
    }
}

impl fmt::Debug for ShardHandoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardHandoff").field("name", &self.name()).finish_non_exhaustive()
    }
}
