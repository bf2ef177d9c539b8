//! The current activity of the workers of a controller.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_env::Instant;
use windlass_object::ObjectKey;

/// The current activity of all workers.
pub(crate) struct WorkerActivity {
    seats: Vec<Mutex<WorkerState>>,
    /// Notified when a worker releases a key.
    pub(crate) let_go: Notify,
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
        Self { seats: (0..workers).map(|_| Mutex::new(WorkerState::NotYet)).collect(), let_go: Notify::new() }
    }

    /// Marks the worker with this number as running until the slot is dropped.
    pub(crate) fn take_seat(&self, number: usize) -> WorkerSlot<'_> {
        *self.seat(number) = WorkerState::Idle;
        WorkerSlot { activity: self, number }
    }

    /// Returns the keys that workers reconcile.
    pub(crate) fn busy(&self) -> Vec<ActiveKey> {
        let busy = |seated| match seated {
            WorkerState::Busy(busy) => Some(busy),
            WorkerState::NotYet | WorkerState::Idle | WorkerState::Ended => None,
        };
        self.seats().filter_map(busy).collect()
    }

    /// Returns whether a worker has exited.
    pub(crate) fn has_ended(&self) -> bool {
        self.seats().any(|seated| seated == WorkerState::Ended)
    }

    fn seats(&self) -> impl Iterator<Item = WorkerState> {
        (0..self.seats.len()).map(|number| self.seat(number).clone())
    }

    fn seat(&self, number: usize) -> MutexGuard<'_, WorkerState> {
        self.seats[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a worker, released when the worker exits for any reason.
pub(crate) struct WorkerSlot<'a> {
    activity: &'a WorkerActivity,
    number: usize,
}

impl WorkerSlot<'_> {
    /// Marks the worker as busy with `key` until the turn is dropped.
    pub(crate) fn begin_turn(&self, key: &ObjectKey, since: Instant) -> Turn<'_> {
        *self.activity.seat(self.number) = WorkerState::Busy(ActiveKey { key: key.clone(), since });
        Turn { activity: self.activity, number: self.number }
    }
}

impl Drop for WorkerSlot<'_> {
    fn drop(&mut self) {
        *self.activity.seat(self.number) = WorkerState::Ended;
    }
}

/// The time during which a worker has a key.
pub(crate) struct Turn<'a> {
    activity: &'a WorkerActivity,
    number: usize,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.activity.seat(self.number) = WorkerState::Idle;
        self.activity.let_go.notify_waiters();
    }
}

impl fmt::Debug for WorkerActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.seats()).finish()
    }
}
