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
    /// Slot of the previous key until it is marked as done.
    held: &'a mut Option<usize>,
    waiter: Option<WaiterId>,
    timer: Option<DelayTimer>,
}

/// Timer for the earliest delayed key.
struct DelayTimer {
    at: Instant,
    sleep: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Result of one poll.
enum PollOutcome<K> {
    /// A key, or `None` if no key will follow.
    Done(Option<DequeuedKey<K>>),
    /// The call waits in line. Contains the time for the timer if this call owns it.
    Wait(Option<Instant>),
}

impl<'a, K: Key> GetFuture<'a, K> {
    pub(crate) fn new(shared: &'a Shared<K>, held: &'a mut Option<usize>) -> Self {
        GetFuture { shared, held, waiter: None, timer: None }
    }

    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<DequeuedKey<K>>> {
        // Without this yield, a worker that always finds a key would block the other tasks of its thread.
        let Poll::Ready(turn) = coop::poll_proceed(cx) else {
            self.shared.finish(self.held);
            return Poll::Pending;
        };
        loop {
            match self.poll_once(cx.waker()) {
                PollOutcome::Done(taken) => {
                    turn.made_progress();
                    return Poll::Ready(taken);
                }
                PollOutcome::Wait(timer) => {
                    self.set_timer(timer);
                    ready!(self.poll_timer(cx));
                }
            }
        }
    }

    #[inline]
    fn poll_once(&mut self, waker: &Waker) -> PollOutcome<K> {
        // Declared before the guard, so that the previous key is dropped outside of the lock.
        let _left;
        let (mut inner, now) = self.shared.enter();
        _left = self.held.take().and_then(|slot| inner.state.done(now, slot));
        inner.waiters.on_poll(&mut self.waiter);
        let taken = inner.state.take(now);
        if taken.is_some() || inner.state.is_finished() {
            inner.waiters.leave(&mut self.waiter);
            return PollOutcome::Done(taken);
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
