//! The current activity of the workers of a controller.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_env::Instant;
use windlass_object::ObjectKey;

/// The current activity of all workers.
pub(crate) struct WorkerActivity {
    workers: Vec<Mutex<WorkerState>>,
    /// Notified when a worker releases a key.
    pub(crate) key_released: Notify,
}

/// The state of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WorkerState {
    /// The worker has not started.
    NotYet,
    /// The worker waits for a key.
    Idle,
    /// The worker reconciles a key.
    Busy(ActiveKey),
    /// The worker has exited.
    Ended,
}

/// A key that a worker reconciles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveKey {
    /// The key.
    pub key: ObjectKey,
    /// The time at which the worker dequeued it.
    pub since: Instant,
}

impl WorkerActivity {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| Mutex::new(WorkerState::NotYet)).collect(),
            key_released: Notify::new(),
        }
    }

    /// Marks the worker with this number as running until the slot is dropped.
    pub(crate) fn register_worker(&self, number: usize) -> WorkerSlot<'_> {
        *self.state(number) = WorkerState::Idle;
        WorkerSlot { activity: self, number }
    }

    /// Returns the keys that workers reconcile.
    pub(crate) fn busy(&self) -> Vec<ActiveKey> {
        let busy = |seated| match seated {
            WorkerState::Busy(busy) => Some(busy),
            WorkerState::NotYet | WorkerState::Idle | WorkerState::Ended => None,
        };
        self.states().filter_map(busy).collect()
    }

    /// Returns whether a worker has exited.
    pub(crate) fn has_ended(&self) -> bool {
        self.states().any(|seated| seated == WorkerState::Ended)
    }

    fn states(&self) -> impl Iterator<Item = WorkerState> {
        (0..self.workers.len()).map(|number| self.state(number).clone())
    }

    fn state(&self, number: usize) -> MutexGuard<'_, WorkerState> {
        self.workers[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a worker, released when the worker exits for any reason.
pub(crate) struct WorkerSlot<'a> {
    activity: &'a WorkerActivity,
    number: usize,
}

impl WorkerSlot<'_> {
    /// Marks the worker as busy with `key` until the guard is dropped.
    pub(crate) fn mark_busy(&self, key: &ObjectKey, since: Instant) -> KeyGuard<'_> {
        *self.activity.state(self.number) = WorkerState::Busy(ActiveKey { key: key.clone(), since });
        KeyGuard { activity: self.activity, number: self.number }
    }
}

impl Drop for WorkerSlot<'_> {
    fn drop(&mut self) {
        *self.activity.state(self.number) = WorkerState::Ended;
    }
}

/// The time during which a worker has a key.
pub(crate) struct KeyGuard<'a> {
    activity: &'a WorkerActivity,
    number: usize,
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        *self.activity.state(self.number) = WorkerState::Idle;
        self.activity.key_released.notify_waiters();
    }
}

impl fmt::Debug for WorkerActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.states()).finish()
    }
}
