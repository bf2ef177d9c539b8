//! Calls that wait for a key, in arrival order. One of them owns the timer for the earliest delayed key.
//!
//! Three rules prevent lost wakeups:
//! - While keys are ready and calls are waiting, at least as many calls are notified as keys are ready, or the next
//!   call that leaves notifies another one.
//! - A notified call that leaves without a key passes the notification on.
//! - While a key is delayed and calls are waiting, one of them owns a timer that fires no later than the key's due
//!   time, or has been woken to start it.

use std::collections::VecDeque;
use std::task::Waker;

use windlass_env::Instant;

/// Identity of a waiting call. The call keeps it between polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u64);

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    last_id: u64,
    queue: VecDeque<(WaiterId, Waker)>,
    /// Number of notified calls that have not been polled since.
    notified: usize,
    timer: Option<TimerOwner>,
}

#[derive(Debug)]
struct TimerOwner {
    owner: WaiterId,
    at: Instant,
}

/// Wakers to call after the lock is released.
#[derive(Debug, Default)]
#[must_use = "a waker that is dropped is a wakeup lost"]
pub(crate) enum WakeList {
    #[default]
    None,
    One(Waker),
    All(Vec<Waker>),
}

impl WakeList {
    #[inline]
    pub(crate) fn wake(self) {
        match self {
            WakeList::None => {}
            WakeList::One(waker) => waker.wake(),
            WakeList::All(wakers) => wakers.into_iter().for_each(Waker::wake),
        }
    }
}

impl Waiters {
    /// Returns whether no call is waiting.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Records that a call is polled. If it was notified, it has left the line.
    #[inline]
    pub(crate) fn on_poll(&mut self, waiter: &mut Option<WaiterId>) {
        if waiter.is_some_and(|waiter| self.position(waiter).is_none()) {
            self.notified -= 1;
            *waiter = None;
        }
    }

    /// Adds a call that found no key to the line, or keeps its position. Returns the time for the timer if this call
    /// owns the timer.
    pub(crate) fn wait(
        &mut self,
        waiter: &mut Option<WaiterId>,
        waker: &Waker,
        earliest: Option<Instant>,
    ) -> Option<Instant> {
        let waiter = self.register(waiter, waker);
        if self.timer.as_ref().is_some_and(|timer| timer.owner != waiter) {
            return None;
        }
        self.timer = earliest.map(|at| TimerOwner { owner: waiter, at });
        earliest
    }

    /// Removes a call, with or without a key.
    #[inline]
    pub(crate) fn leave(&mut self, waiter: &mut Option<WaiterId>) {
        let Some(left) = waiter.take() else { return };
        match self.position(left) {
            Some(position) => drop(self.queue.remove(position)),
            None => self.notified -= 1,
        }
        self.release_timer(left);
    }

    /// Returns the call to wake if `ready` keys are available and the next delayed key is due at `earliest`.
    #[inline]
    pub(crate) fn next(&mut self, ready: usize, earliest: Option<Instant>) -> WakeList {
        if self.queue.is_empty() {
            return WakeList::None;
        }
        if ready > self.notified {
            let Some((waiter, waker)) = self.queue.pop_front() else { return WakeList::None };
            self.notified += 1;
            self.release_timer(waiter);
            return WakeList::One(waker);
        }
        self.wake_timer_owner(earliest)
    }

    /// Removes and returns all waiting calls: no key will follow.
    pub(crate) fn take_all(&mut self) -> WakeList {
        self.notified += self.queue.len();
        self.timer = None;
        if self.queue.is_empty() {
            return WakeList::None;
        }
        WakeList::All(self.queue.drain(..).map(|(_, waker)| waker).collect())
    }

    /// Returns the call that must start the timer or set it to an earlier time. It keeps its position in line.
    #[inline]
    fn wake_timer_owner(&self, earliest: Option<Instant>) -> WakeList {
        let Some(earliest) = earliest else { return WakeList::None };
        let waker = match &self.timer {
            Some(timer) if timer.at <= earliest => None,
            Some(timer) => self.position(timer.owner).map(|position| &self.queue[position].1),
            None => self.queue.front().map(|(_, waker)| waker),
        };
        waker.cloned().map_or(WakeList::None, WakeList::One)
    }

    fn register(&mut self, waiter: &mut Option<WaiterId>, waker: &Waker) -> WaiterId {
        if let Some(waiter) = *waiter
            && let Some(position) = self.position(waiter)
        {
            self.queue[position].1.clone_from(waker);
            return waiter;
        }
        self.last_id += 1;
        let id = WaiterId(self.last_id);
        self.queue.push_back((id, waker.clone()));
        *waiter = Some(id);
        id
    }

    fn release_timer(&mut self, waiter: WaiterId) {
        if self.timer.as_ref().is_some_and(|timer| timer.owner == waiter) {
            self.timer = None;
        }
    }

    /// Linear search: the line has at most one entry per idle worker.
    fn position(&self, waiter: WaiterId) -> Option<usize> {
        self.queue.iter().position(|(other, _)| *other == waiter)
    }
}
