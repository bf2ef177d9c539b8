//! Future of one `get` call: marks the previous key of the worker as done, then dequeues a key, or waits in line and
//! possibly owns the timer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::task::coop;
use windlass_env::Instant;

use crate::Key;
use crate::shared::Shared;
use crate::state::DequeuedKey;
use crate::waiters::WaiterId;

pub(crate) struct GetFuture<'a, K: Key> {
    shared: &'a Shared<K>,
    /// Key in progress until it is marked as done, then the dequeued key.
    dequeued: &'a mut Option<DequeuedKey<K>>,
    waiter: Option<WaiterId>,
    timer: Option<DelayTimer>,
}

/// Timer for the earliest delayed key.
struct DelayTimer {
    at: Instant,
    sleep: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Result of one poll.
enum PollOutcome {
    /// A key is dequeued, or no key will follow.
    Done,
    /// The call waits in line. Contains the time for the timer if this call owns it.
    Wait(Option<Instant>),
}

impl<'a, K: Key> GetFuture<'a, K> {
    pub(crate) fn new(shared: &'a Shared<K>, dequeued: &'a mut Option<DequeuedKey<K>>) -> Self {
        GetFuture { shared, dequeued, waiter: None, timer: None }
    }

    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Without this yield, a worker that always finds a key would block the other tasks of its thread.
        let Poll::Ready(turn) = coop::poll_proceed(cx) else {
            self.shared.finish(self.dequeued.take());
            return Poll::Pending;
        };
        loop {
            match self.poll_once(cx.waker()) {
                PollOutcome::Done => {
                    turn.made_progress();
                    return Poll::Ready(());
                }
                PollOutcome::Wait(timer) => {
                    self.set_timer(timer);
                    ready!(self.poll_timer(cx));
                }
            }
        }
    }

    #[inline]
    fn poll_once(&mut self, waker: &Waker) -> PollOutcome {
        // Declared before the guard, so that the previous key is dropped outside of the lock.
        let previous = self.dequeued.take();
        let _left;
        let (mut inner, now) = self.shared.enter();
        _left = previous.as_ref().and_then(|previous| inner.state.done(now, previous));
        inner.waiters.on_poll(&mut self.waiter);
        *self.dequeued = inner.state.take(now);
        if self.dequeued.is_some() || inner.state.is_finished() {
            inner.waiters.leave(&mut self.waiter);
            return PollOutcome::Done;
        }
        let earliest = inner.state.earliest();
        PollOutcome::Wait(inner.waiters.wait(&mut self.waiter, waker, earliest))
    }

    fn set_timer(&mut self, at: Option<Instant>) {
        if self.timer.as_ref().map(|timer| timer.at) != at {
            self.timer = at.map(|at| DelayTimer { at, sleep: Box::pin(self.shared.env.sleep_until(at)) });
        }
    }

    /// Returns `Ready` when the timer has fired, and `Pending` if there is no timer.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.timer {
            None => Poll::Pending,
            Some(timer) => {
                ready!(timer.sleep.as_mut().poll(cx));
                self.timer = None;
                Poll::Ready(())
            }
        }
    }
}

impl<K: Key> Drop for GetFuture<'_, K> {
    /// Passes an unused wakeup, and the timer, on to the next waiting call.
    fn drop(&mut self) {
        if self.waiter.is_some() {
            self.shared.lock_for_change().waiters.leave(&mut self.waiter);
        }
    }
}
