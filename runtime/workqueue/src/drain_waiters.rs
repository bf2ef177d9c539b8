//! Calls that wait until the queue is drained. They are woken in arrival order.

use std::task::Waker;

use crate::waiters::WakeList;

#[derive(Debug, Default)]
pub(crate) struct DrainWaiters {
    last_id: u64,
    waiting: Vec<(u64, Waker)>,
}

impl DrainWaiters {
    /// Returns whether no call is waiting.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns all waiting calls: the queue is drained.
    #[inline]
    pub(crate) fn take_all(&mut self) -> WakeList {
        if self.waiting.is_empty() {
            return WakeList::None;
        }
        WakeList::All(self.waiting.drain(..).map(|(_, waker)| waker).collect())
    }

    pub(crate) fn wait(&mut self, waiter: &mut Option<u64>, waker: &Waker) {
        let found = waiter.and_then(|waiter| self.waiting.iter_mut().find(|(other, _)| *other == waiter));
        if let Some((_, old)) = found {
            old.clone_from(waker);
            return;
        }
        self.last_id += 1;
        self.waiting.push((self.last_id, waker.clone()));
        *waiter = Some(self.last_id);
    }

    pub(crate) fn leave(&mut self, waiter: u64) {
        self.waiting.retain(|(other, _)| *other != waiter);
    }
}
