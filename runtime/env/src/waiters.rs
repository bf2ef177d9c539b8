//! Wakers in registration order: the first to register is woken first, independent of hashes and addresses.

use std::collections::BTreeMap;
use std::task::Waker;

/// A position in a [`Waiters`] list. The waiting future keeps it between polls.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(u64);

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    next: u64,
    wakers: BTreeMap<WaiterId, Waker>,
}

impl Waiters {
    /// Registers `waker`, at its present position if it has one.
    pub(crate) fn register(&mut self, waiter_id: &mut Option<WaiterId>, waker: &Waker) {
        let waiter_id = *waiter_id.get_or_insert_with(|| {
            self.next += 1;
            WaiterId(self.next)
        });
        self.wakers
            .entry(waiter_id)
            .and_modify(|held| held.clone_from(waker))
            .or_insert_with(|| waker.clone());
    }

    pub(crate) fn withdraw(&mut self, waiter_id: Option<WaiterId>) {
        if let Some(waiter_id) = waiter_id {
            self.wakers.remove(&waiter_id);
        }
    }

    /// Removes and returns all wakers in registration order. Wake them after the lock around this list is released.
    pub(crate) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_values().collect()
    }
}

/// Wakes in the given order. Call this without holding a lock: a waker can run arbitrary code.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
