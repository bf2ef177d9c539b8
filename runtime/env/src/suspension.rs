//! Total suspension time of a machine, shared by all incarnations of the instance on it.
//!
//! When a hypervisor pauses a machine, its monotonic clock stops, and its wall clock is set forward afterwards.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::tasks::Pause;
use crate::{Instant, tasks::Tasks};

#[derive(Clone, Debug, Default)]
pub(crate) struct SuspensionTotal(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    total: Duration,
    /// The clock reading up to which suspensions are counted, so that overlapping suspensions are counted once.
    until: Duration,
}

impl SuspensionTotal {
    pub(crate) fn total(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    fn add(&self, from: Instant, until: Instant) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, until) = (from.since_origin().max(counted.until), until.since_origin());
        counted.total += until.saturating_sub(from);
        counted.until = counted.until.max(until);
    }

    /// Waits until the clock without suspensions reads `at`. A suspension during the wait moves the deadline.
    pub(crate) async fn sleep_until(self, clock: Clock, at: Instant) {
        loop {
            let before = self.total();
            clock.sleep_until(at + before).await;
            if self.total() == before {
                return;
            }
        }
    }
}

/// Keeps an instance suspended until it is dropped; see [`Env::suspend`](crate::Env::suspend).
#[must_use = "a suspension ends when it is dropped"]
#[derive(Debug)]
pub struct Suspension {
    clock: Clock,
    begun: Instant,
    suspension_total: SuspensionTotal,
    tasks: Arc<Tasks>,
    /// Dropped after the clock is set, so that no task runs before that.
    _pause: Pause,
}

impl Suspension {
    pub(crate) fn new(clock: Clock, suspension_total: SuspensionTotal, tasks: &Arc<Tasks>) -> Self {
        let (tasks, pause) = (Arc::clone(tasks), Tasks::pause(tasks));
        Suspension { clock, begun: clock.now(), suspension_total, tasks, _pause: pause }
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        // A later incarnation was not suspended, and its clock must not move back.
        if self.tasks.open() {
            self.suspension_total.add(self.begun, self.clock.now());
        }
    }
}
