//! Calls that wait until the queue is drained. They are woken in arrival order.

use std::task::Waker;

use crate::waiters::WakeList;

#[derive(Debug, Default)]
pub(crate) struct DrainWaiters {
    seated: u64,
    line: Vec<(u64, Waker)>,
}

impl DrainWaiters {
    /// Returns whether no call is waiting.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Removes and returns all waiting calls: the queue is drained.
    #[inline]
    pub(crate) fn all(&mut self) -> WakeList {
        if self.line.is_empty() {
            return WakeList::None;
        }
        WakeList::All(self.line.drain(..).map(|(_, waker)| waker).collect())
    }

    pub(crate) fn wait(&mut self, seat: &mut Option<u64>, waker: &Waker) {
        let seated = seat.and_then(|seat| self.line.iter_mut().find(|(other, _)| *other == seat));
        if let Some((_, old)) = seated {
            old.clone_from(waker);
            return;
        }
        self.seated += 1;
        self.line.push((self.seated, waker.clone()));
        *seat = Some(self.seated);
    }

    pub(crate) fn leave(&mut self, seat: u64) {
        self.line.retain(|(other, _)| *other != seat);
    }
}
