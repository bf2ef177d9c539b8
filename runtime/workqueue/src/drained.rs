//! One call of `drained`: waits until nothing is queued and nothing is in flight.

use std::task::{Context, Poll};

use crate::Key;
use crate::shared::Shared;

/// One call of `drained`.
pub(crate) struct DrainFuture<'a, K: Key> {
    shared: &'a Shared<K>,
    seat: Option<u64>,
}

impl<'a, K: Key> DrainFuture<'a, K> {
    pub(crate) fn new(shared: &'a Shared<K>) -> Self {
        DrainFuture { shared, seat: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.shared.inner();
        if inner.state.is_drained() {
            return Poll::Ready(());
        }
        inner.drainers.wait(&mut self.seat, cx.waker());
        Poll::Pending
    }
}

impl<K: Key> Drop for DrainFuture<'_, K> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            self.shared.inner().drainers.leave(seat);
        }
    }
}
