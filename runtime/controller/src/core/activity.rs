//! What each worker of a controller does.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use windlass_env::Instant;
use windlass_object::ObjectKey;

/// What each worker does.
pub(crate) struct Activity {
    seats: Vec<Mutex<Seated>>,
    /// Notified when a worker has let go of a key.
    pub(crate) let_go: Notify,
}

/// What one worker does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seated {
    /// It has not started.
    NotYet,
    /// It waits for a key.
    Idle,
    /// It has a key.
    Busy(Busy),
    /// It has ended.
    Ended,
}

/// A key that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The key.
    pub key: ObjectKey,
    /// When the worker took it.
    pub since: Instant,
}

impl Activity {
    pub(crate) fn new(workers: usize) -> Self {
        Self { seats: (0..workers).map(|_| Mutex::new(Seated::NotYet)).collect(), let_go: Notify::new() }
    }

    /// The worker of this number runs until the seat is dropped.
    pub(crate) fn take_seat(&self, number: usize) -> Seat<'_> {
        *self.seat(number) = Seated::Idle;
        Seat { activity: self, number }
    }

    /// The keys that workers have.
    pub(crate) fn busy(&self) -> Vec<Busy> {
        let busy = |seated| match seated {
            Seated::Busy(busy) => Some(busy),
            Seated::NotYet | Seated::Idle | Seated::Ended => None,
        };
        self.seats().filter_map(busy).collect()
    }

    /// Whether a worker has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.seats().any(|seated| seated == Seated::Ended)
    }

    fn seats(&self) -> impl Iterator<Item = Seated> {
        (0..self.seats.len()).map(|number| self.seat(number).clone())
    }

    fn seat(&self, number: usize) -> MutexGuard<'_, Seated> {
        self.seats[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's place, given up when the worker ends for whatever reason.
pub(crate) struct Seat<'a> {
    activity: &'a Activity,
    number: usize,
}

impl Seat<'_> {
    /// The worker has `key` until the turn is dropped.
    pub(crate) fn begin_turn(&self, key: &ObjectKey, since: Instant) -> Turn<'_> {
        *self.activity.seat(self.number) = Seated::Busy(Busy { key: key.clone(), since });
        Turn { activity: self.activity, number: self.number }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *self.activity.seat(self.number) = Seated::Ended;
    }
}

/// One key's time with a worker.
pub(crate) struct Turn<'a> {
    activity: &'a Activity,
    number: usize,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.activity.seat(self.number) = Seated::Idle;
        self.activity.let_go.notify_waiters();
    }
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.seats()).finish()
    }
}
