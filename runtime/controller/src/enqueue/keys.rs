//! The keys of one controller: where each waits, what keeps it from being reconciled, and what is remembered of it.

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

/// The shard of a parked key is being taken over.
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
    /// Notified when keys go: a worker that waits looks again whether its key is still its own.
    pub(crate) gone: Notify,
}

impl Keys {
    /// Parks a key that a worker holds, for as long as `holds` returns true.
    pub(crate) fn park(&self, item: &Item<ObjectKey>, reason: ParkReason, holds: impl FnOnce() -> bool) {
        item.park(reason);
        // A reason that ended before the key was parked releases no key.
        if !holds() {
            self.history.put_off(item.key());
            self.queue.release(item.key(), reason);
        }
    }

    /// Parks a key until it is [let in](Self::let_in).
    pub(crate) fn park_pending(&self, item: &Item<ObjectKey>) {
        self.park(item, SHARD_PENDING, || self.is_pending(item.key()));
    }

    /// Releases the keys whose shard is no longer being taken over.
    pub(crate) fn let_in(&self) {
        // The ownership is its user's code: not under the queue's lock.
        for key in self.queue.parked(SHARD_PENDING).iter().filter(|key| !self.is_pending(key)) {
            self.queue.release(key, SHARD_PENDING);
        }
    }

    fn is_pending(&self, key: &ObjectKey) -> bool {
        matches!(self.ownership.ownership(key), Ownership::Pending { .. })
    }

    /// Forgets the keys that are gone, but for what a worker has of them.
    pub(crate) fn forget_if(&self, gone: &impl Fn(&ObjectKey) -> bool) {
        self.queue.remove(gone);
        // Whoever has attempts to its name fails.
        self.history.failing().iter().filter(|key| gone(key)).for_each(|key| self.queue.forget(key));
        self.limits.iter().for_each(|limit| limit.forget_if(gone, &self.queue));
        self.triggers.iter().for_each(|trigger| trigger.forget_if(gone));
        self.quarantine.forget_if(gone);
        self.history.forget_if(gone);
    }
}
