//! Delayed keys: one due time per key, the earliest of the requested times.
//!
//! A heap over slot numbers. Each key knows its position in the heap, so a delay can be canceled.

use windlass_env::Instant;

use crate::Priority;

/// Reason of a delay. When delays are merged, the greater reason is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DelayReason {
    /// A run as soon as the limiter allows. An immediate add replaces it.
    Retry,
    /// A run at a given time.
    Scheduled,
}

#[derive(Debug, Default)]
pub(crate) struct Delays {
    heap: Vec<Due>,
    /// By slot: the pending delay of its key.
    pending: Vec<Option<Pending>>,
    arrivals: u64,
}

/// Due time; equal times are ordered by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    arrival: u64,
    slot: usize,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Index in the heap.
    position: usize,
    reason: DelayReason,
    priority: Priority,
}

impl Delays {
    /// Sets the due time of the key in `slot` to `at`, unless it is due earlier. The higher priority and the greater
    /// reason are kept.
    pub(crate) fn insert(&mut self, slot: usize, at: Instant, reason: DelayReason, priority: Priority) {
        if slot >= self.pending.len() {
            self.pending.resize(slot + 1, None);
        }
        self.arrivals += 1;
        let due = Due { at, arrival: self.arrivals, slot };
        let position = if let Some(pending) = &mut self.pending[slot] {
            pending.reason = pending.reason.max(reason);
            pending.priority = pending.priority.max(priority);
            if self.heap[pending.position].at <= at {
                return;
            }
            self.heap[pending.position] = due;
            pending.position
        } else {
            let position = self.heap.len();
            self.heap.push(due);
            self.pending[slot] = Some(Pending { position, reason, priority });
            position
        };
        self.sift_up(position);
    }

    #[inline]
    pub(crate) fn contains(&self, slot: usize) -> bool {
        self.pending(slot).is_some()
    }

    /// Returns the due time of the key in `slot`, and the reason.
    pub(crate) fn due(&self, slot: usize) -> Option<(Instant, DelayReason)> {
        self.pending(slot).map(|pending| (self.heap[pending.position].at, pending.reason))
    }

    /// Cancels the delay of the key in `slot`.
    pub(crate) fn cancel(&mut self, slot: usize) -> bool {
        self.remove(slot).is_some()
    }

    /// Cancels a retry and returns its priority. A scheduled add is kept.
    #[inline]
    pub(crate) fn supersede(&mut self, slot: usize) -> Option<Priority> {
        let superseded = self.pending(slot).is_some_and(|pending| pending.reason == DelayReason::Retry);
        if superseded { self.remove(slot).map(|pending| pending.priority) } else { None }
    }

    /// Returns the number of keys with a due time.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the earliest due time.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.heap.first().map(|due| due.at)
    }

    /// Removes the key with the earliest due time if it is due by `now`. Returns its due time, slot and priority.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, usize, Priority)> {
        self.earliest().filter(|at| *at <= now)?;
        self.pop_first()
    }

    /// Removes the key with the earliest due time. Returns its due time, slot and priority.
    pub(crate) fn pop_first(&mut self) -> Option<(Instant, usize, Priority)> {
        let due = *self.heap.first()?;
        self.remove(due.slot).map(|pending| (due.at, due.slot, pending.priority))
    }

    #[inline]
    fn pending(&self, slot: usize) -> Option<&Pending> {
        self.pending.get(slot)?.as_ref()
    }

    fn remove(&mut self, slot: usize) -> Option<Pending> {
        let pending = self.pending.get_mut(slot)?.take()?;
        self.heap.swap_remove(pending.position);
        if pending.position < self.heap.len() {
            self.record_position(pending.position);
            self.sift_up(pending.position);
            self.sift_down(pending.position);
        }
        Some(pending)
    }

    fn sift_up(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent] <= self.heap[position] {
                return;
            }
            self.swap(parent, position);
            position = parent;
        }
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let children = [2 * position + 1, 2 * position + 2];
            let children = children.into_iter().filter(|child| *child < self.heap.len());
            match children.min_by_key(|child| self.heap[*child]) {
                Some(child) if self.heap[child] < self.heap[position] => {
                    self.swap(child, position);
                    position = child;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.record_position(a);
        self.record_position(b);
    }

    /// Stores the index `position` in the pending delay of its key.
    fn record_position(&mut self, position: usize) {
        if let Some(pending) = &mut self.pending[self.heap[position].slot] {
            pending.position = position;
        }
    }
}
