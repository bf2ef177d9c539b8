//! The keys of one controller: its queue, the conditions that prevent a reconcile, and the history.

use std::sync::Arc;

use tokio::sync::Notify;
use windlass_object::ObjectKey;
use windlass_sharding::{KeyOwnership, Ownership};
use windlass_workqueue::{Item, ParkReason, Queue};

use crate::enqueue::history::History;
use crate::enqueue::limits::ConcurrencyLimit;
use crate::enqueue::pause::PauseAnnotation;
use crate::enqueue::quarantine::Quarantine;
use crate::enqueue::trigger::Trigger;
use crate::enqueue::undecodable::Undecodable;

/// Reason: the takeover of the key's shard is in progress.
const SHARD_PENDING: ParkReason = ParkReason("its shard is being taken over");

/// The keys of one controller.
pub(crate) struct Keys {
    pub(crate) queue: Queue<ObjectKey>,
    pub(crate) history: History,
    pub(crate) quarantine: Quarantine,
    pub(crate) limits: Vec<ConcurrencyLimit>,
    pub(crate) pauses: Vec<PauseAnnotation>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) undecodable: Undecodable,
    pub(crate) ownership: Arc<dyn KeyOwnership>,
    /// Notified when keys are removed: a waiting worker then rechecks whether this replica still owns its key.
    pub(crate) ownership_lost: Notify,
}

impl Keys {
    /// Parks a key that a worker holds, unless `holds` returns false after the key was parked.
    pub(crate) fn park(&self, item: &Item<ObjectKey>, reason: ParkReason, holds: impl FnOnce() -> bool) {
        item.park(reason);
        // If the reason ended before the key was parked, no other code releases the key.
        if !holds() {
            self.history.record_postponed(item.key());
            self.queue.release(item.key(), reason);
        }
    }

    /// Parks a key until [`release_pending`](Self::release_pending) releases it.
    pub(crate) fn park_pending(&self, item: &Item<ObjectKey>) {
        self.park(item, SHARD_PENDING, || self.is_pending(item.key()));
    }

    /// Releases the keys whose shard is no longer being taken over.
    pub(crate) fn release_pending(&self) {
        // The ownership is user code, so it is called without the queue's lock.
        for key in self.queue.parked(SHARD_PENDING).iter().filter(|key| !self.is_pending(key)) {
            self.queue.release(key, SHARD_PENDING);
        }
    }

    fn is_pending(&self, key: &ObjectKey) -> bool {
        matches!(self.ownership.ownership(key), Ownership::Pending { .. })
    }

    /// Removes the keys for which `gone` returns true, except keys that a worker holds.
    pub(crate) fn forget_if(&self, gone: &impl Fn(&ObjectKey) -> bool) {
        self.queue.remove_if(gone);
        // Only failing keys have attempts in the rate limiter.
        self.history.failing().iter().filter(|key| gone(key)).for_each(|key| self.queue.forget(key));
        self.limits.iter().for_each(|limit| limit.remove_if(gone, &self.queue));
        self.triggers.iter().for_each(|trigger| trigger.remove_if(gone));
        self.quarantine.remove_if(gone);
        self.history.remove_if(gone);
    }
}
