//! What each worker of a controller does.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_env::Instant;
use windlass_object::ObjectKey;

/// What each worker does.
pub(crate) struct WorkerActivity {
    seats: Vec<Mutex<WorkerState>>,
    /// Notified when a worker has let go of a key.
    pub(crate) let_go: Notify,
}

/// What one worker does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WorkerState {
    /// It has not started.
    NotYet,
    /// It waits for a key.
    Idle,
    /// It has a key.
    Busy(ActiveKey),
    /// It has ended.
    Ended,
}

/// A key that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveKey {
    /// The key.
    pub key: ObjectKey,
    /// When the worker took it.
    pub since: Instant,
}

impl WorkerActivity {
    pub(crate) fn new(workers: usize) -> Self {
        Self { seats: (0..workers).map(|_| Mutex::new(WorkerState::NotYet)).collect(), let_go: Notify::new() }
    }

    /// The worker of this number runs until the seat is dropped.
    pub(crate) fn take_seat(&self, number: usize) -> WorkerSlot<'_> {
        *self.seat(number) = WorkerState::Idle;
        WorkerSlot { activity: self, number }
    }

    /// The keys that workers have.
    pub(crate) fn busy(&self) -> Vec<ActiveKey> {
        let busy = |seated| match seated {
            WorkerState::Busy(busy) => Some(busy),
            WorkerState::NotYet | WorkerState::Idle | WorkerState::Ended => None,
        };
        self.seats().filter_map(busy).collect()
    }

    /// Whether a worker has ended.
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

/// A worker's place, given up when the worker ends for whatever reason.
pub(crate) struct WorkerSlot<'a> {
    activity: &'a WorkerActivity,
    number: usize,
}

impl WorkerSlot<'_> {
    /// The worker has `key` until the turn is dropped.
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

/// One key's time with a worker.
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
