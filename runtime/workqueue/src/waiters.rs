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
    seated: u64,
    line: VecDeque<(WaiterId, Waker)>,
    /// Number of notified calls that have not been polled since.
    told: usize,
    alarm: Option<TimerOwner>,
}

#[derive(Debug)]
struct TimerOwner {
    holder: WaiterId,
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
            WakeList::All(line) => line.into_iter().for_each(Waker::wake),
        }
    }
}

impl Waiters {
    /// Returns whether no call is waiting.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Records that a call is polled. If it was notified, it has left the line.
    #[inline]
    pub(crate) fn arrive(&mut self, seat: &mut Option<WaiterId>) {
        if seat.is_some_and(|seat| self.position(seat).is_none()) {
            self.told -= 1;
            *seat = None;
        }
    }

    /// Adds a call that found no key to the line, or keeps its position. Returns the time for the timer if this call
    /// owns the timer.
    pub(crate) fn wait(
        &mut self,
        seat: &mut Option<WaiterId>,
        waker: &Waker,
        earliest: Option<Instant>,
    ) -> Option<Instant> {
        let seat = self.sit(seat, waker);
        if self.alarm.as_ref().is_some_and(|alarm| alarm.holder != seat) {
            return None;
        }
        self.alarm = earliest.map(|at| TimerOwner { holder: seat, at });
        earliest
    }

    /// Removes a call, with or without a key.
    #[inline]
    pub(crate) fn leave(&mut self, seat: &mut Option<WaiterId>) {
        let Some(left) = seat.take() else { return };
        match self.position(left) {
            Some(position) => drop(self.line.remove(position)),
            None => self.told -= 1,
        }
        self.release_alarm(left);
    }

    /// Returns the call to wake if `ready` keys are available and the next delayed key is due at `earliest`.
    #[inline]
    pub(crate) fn next(&mut self, ready: usize, earliest: Option<Instant>) -> WakeList {
        if self.line.is_empty() {
            return WakeList::None;
        }
        if ready > self.told {
            let Some((seat, waker)) = self.line.pop_front() else { return WakeList::None };
            self.told += 1;
            self.release_alarm(seat);
            return WakeList::One(waker);
        }
        self.nudge(earliest)
    }

    /// Removes and returns all waiting calls: no key will follow.
    pub(crate) fn all(&mut self) -> WakeList {
        self.told += self.line.len();
        self.alarm = None;
        if self.line.is_empty() {
            return WakeList::None;
        }
        WakeList::All(self.line.drain(..).map(|(_, waker)| waker).collect())
    }

    /// Returns the call that must start the timer or set it to an earlier time. It keeps its position in line.
    #[inline]
    fn nudge(&self, earliest: Option<Instant>) -> WakeList {
        let Some(earliest) = earliest else { return WakeList::None };
        let waker = match &self.alarm {
            Some(alarm) if alarm.at <= earliest => None,
            Some(alarm) => self.position(alarm.holder).map(|position| &self.line[position].1),
            None => self.line.front().map(|(_, waker)| waker),
        };
        waker.cloned().map_or(WakeList::None, WakeList::One)
    }

    fn sit(&mut self, seat: &mut Option<WaiterId>, waker: &Waker) -> WaiterId {
        if let Some(seat) = *seat
            && let Some(position) = self.position(seat)
        {
            self.line[position].1.clone_from(waker);
            return seat;
        }
        self.seated += 1;
        let taken = WaiterId(self.seated);
        self.line.push_back((taken, waker.clone()));
        *seat = Some(taken);
        taken
    }

    fn release_alarm(&mut self, seat: WaiterId) {
        if self.alarm.as_ref().is_some_and(|alarm| alarm.holder == seat) {
            self.alarm = None;
        }
    }

    /// Linear search: the line has at most one entry per idle worker.
    fn position(&self, seat: WaiterId) -> Option<usize> {
        self.line.iter().position(|(seated, _)| *seated == seat)
    }
}
