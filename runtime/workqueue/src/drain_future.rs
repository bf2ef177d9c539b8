//! Future of `wait_drained`: completes when no key is queued or in progress.

use std::task::{Context, Poll};

use crate::Key;
use crate::shared::Shared;

/// Future of one `wait_drained` call.
pub(crate) struct DrainFuture<'a, K: Key> {
    shared: &'a Shared<K>,
    waiter: Option<u64>,
}

impl<'a, K: Key> DrainFuture<'a, K> {
    pub(crate) fn new(shared: &'a Shared<K>) -> Self {
        DrainFuture { shared, waiter: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.shared.inner();
        if inner.state.is_drained() {
            return Poll::Ready(());
        }
        inner.drain_waiters.wait(&mut self.waiter, cx.waker());
        Poll::Pending
    }
}

impl<K: Key> Drop for DrainFuture<'_, K> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.shared.inner().drain_waiters.leave(waiter);
        }
    }
}
