//! Who waits for the queue to be empty for good. They are woken in the order in which they came.

use std::task::{Context, Poll, Waker};

use crate::Key;
use crate::queue::Shared;
use crate::waiters::Wakes;

#[derive(Debug, Default)]
pub(crate) struct Drainers {
    seated: u64,
    line: Vec<(u64, Waker)>,
}

impl Drainers {
    /// Whether nobody waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Everybody: there is nothing left to wait for.
    #[inline]
    pub(crate) fn all(&mut self) -> Wakes {
        if self.line.is_empty() {
            return Wakes::None;
        }
        Wakes::All(self.line.drain(..).map(|(_, waker)| waker).collect())
    }

    fn wait(&mut self, seat: &mut Option<u64>, waker: &Waker) {
        let seated = seat.and_then(|seat| self.line.iter_mut().find(|(other, _)| *other == seat));
        if let Some((_, old)) = seated {
            old.clone_from(waker);
            return;
        }
        self.seated += 1;
        self.line.push((self.seated, waker.clone()));
        *seat = Some(self.seated);
    }
}

/// One call of `drained`.
pub(crate) struct Drained<'a, K: Key> {
    shared: &'a Shared<K>,
    seat: Option<u64>,
}

impl<'a, K: Key> Drained<'a, K> {
    pub(crate) fn new(shared: &'a Shared<K>) -> Self {
        Drained { shared, seat: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.shared.inner();
        let early = self.shared.env.is_planted("early drain") && inner.state.is_shut_down();
        if inner.state.is_drained() || early {
            return Poll::Ready(());
        }
        inner.drainers.wait(&mut self.seat, cx.waker());
        Poll::Pending
    }
}

impl<K: Key> Drop for Drained<'_, K> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            self.shared.inner().drainers.line.retain(|(other, _)| *other != seat);
        }
    }
}
