//! The keys of one controller: where each waits, what keeps it from being reconciled, and what is remembered of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_object::ObjectKey;
use windlass_sharding::{KeyOwnership, Ownership};
use windlass_workqueue::{Add, Priority, Queue};

use crate::enqueue::history::History;
use crate::enqueue::limits::Limit;
use crate::enqueue::pause::Pause;
use crate::enqueue::quarantine::Quarantine;
use crate::enqueue::trigger::Trigger;
use crate::enqueue::undecodable::Undecodable;

/// The keys of one controller.
pub(crate) struct Keys {
    pub(crate) queue: Queue<ObjectKey>,
    pub(crate) history: History,
    pub(crate) quarantine: Quarantine,
    pub(crate) limits: Vec<Limit>,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) undecodable: Undecodable,
    pub(crate) ownership: Arc<dyn KeyOwnership>,
    /// Keys that a worker took before they were let in.
    pub(crate) aside: Mutex<BTreeMap<ObjectKey, Priority>>,
    /// Notified when keys go: a worker that waits looks again whether its key is still its own.
    pub(crate) gone: Notify,
}

impl Keys {
    /// Keeps a key until it is [let in](Self::let_in); `false` if that has happened, and the key is to go on.
    pub(crate) fn put_aside(&self, key: &ObjectKey, priority: Priority) -> bool {
        self.aside().insert(key.clone(), priority);
        if matches!(self.ownership.ownership(key), Ownership::Pending { .. }) {
            return true;
        }
        // Let in meanwhile: if whoever did so has seen the key, it is queued.
        self.aside().remove(key).is_none()
    }

    /// Queues the keys that were put aside and are to be reconciled by now.
    pub(crate) fn let_in(&self) {
        let is_pending = |key: &ObjectKey| matches!(self.ownership.ownership(key), Ownership::Pending { .. });
        let known: Vec<ObjectKey> = self.aside().keys().cloned().collect();
        for key in known.into_iter().filter(|key| !is_pending(key)) {
            if let Some(priority) = self.aside().remove(&key) {
                self.queue.add_with(key, Add::now().priority(priority));
            }
        }
    }

    /// Forgets the keys that are gone, but for what a worker has of them.
    pub(crate) fn forget_if(&self, gone: &impl Fn(&ObjectKey) -> bool) {
        self.queue.withdraw(gone);
        self.aside().retain(|key, _| !gone(key));
        // Whoever has attempts to its name fails.
        self.history.failing().iter().filter(|key| gone(key)).for_each(|key| self.queue.forget(key));
        self.limits.iter().for_each(|limit| limit.forget_if(gone, &self.queue));
        self.triggers.iter().for_each(|trigger| trigger.forget_if(gone));
        self.quarantine.forget_if(gone);
        self.undecodable.forget_if(gone);
        self.history.forget_if(gone);
    }

    /// Nothing else runs under this lock, so poison cannot mean a broken map.
    fn aside(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Priority>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
