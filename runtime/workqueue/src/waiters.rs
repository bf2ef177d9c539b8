//! Who waits for a key, in order, and which of them holds the alarm for the earliest delayed one.
//!
//! Three rules keep wakeups from getting lost:
//! - As long as keys are ready and somebody waits, at least as many have been told as there are keys for, or the next
//!   one who leaves tells another.
//! - One who was told and leaves without a key passes the word on.
//! - As long as a key is delayed and somebody waits, one of them holds an alarm no later than its time, or has been
//!   nudged to take it.

use std::collections::VecDeque;
use std::task::Waker;

use windlass_env::Instant;

/// A getter's place in the line. Kept by the getter between polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u64);

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    seated: u64,
    line: VecDeque<(WaiterId, Waker)>,
    /// How many have been told of a key and have not been back since.
    told: usize,
    alarm: Option<TimerOwner>,
}

#[derive(Debug)]
struct TimerOwner {
    holder: WaiterId,
    at: Instant,
}

/// Wakers to be woken once the lock is released.
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
    /// Whether nobody is in the line.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// A getter is being polled: if it had been told, it is back now, and out of the line.
    #[inline]
    pub(crate) fn arrive(&mut self, seat: &mut Option<WaiterId>) {
        if seat.is_some_and(|seat| self.position(seat).is_none()) {
            self.told -= 1;
            *seat = None;
        }
    }

    /// A getter found nothing: it joins the line, or keeps its place. Returns the time to arm its alarm for, if the
    /// alarm is its business.
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

    /// A getter leaves, with a key or without.
    #[inline]
    pub(crate) fn leave(&mut self, seat: &mut Option<WaiterId>) {
        let Some(left) = seat.take() else { return };
        match self.position(left) {
            Some(position) => drop(self.line.remove(position)),
            None => self.told -= 1,
        }
        self.release_alarm(left);
    }

    /// Who is to be woken, with `ready` keys to hand out and the next delayed one coming due at `earliest`.
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

    /// Everybody, because there is nothing left to wait for.
    pub(crate) fn all(&mut self) -> WakeList {
        self.told += self.line.len();
        self.alarm = None;
        if self.line.is_empty() {
            return WakeList::None;
        }
        WakeList::All(self.line.drain(..).map(|(_, waker)| waker).collect())
    }

    /// Wakes whoever should set an alarm or set it earlier. They keep their place in the line.
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

    /// Lines are as long as there are idle workers: a handful.
    fn position(&self, seat: WaiterId) -> Option<usize> {
        self.line.iter().position(|(seated, _)| *seated == seat)
    }
}
