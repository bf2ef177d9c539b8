//! A watch channel: one current value, any number of senders and receivers, wakeups in registration order.
//!
//! Replaces `tokio::sync::watch`, whose wakeup order uses tokio's own random numbers and would make simulations
//! unrepeatable. The channel holds only the latest value: a slow receiver skips intermediate values.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::waiters::{WaiterId, Waiters, wake_all};

/// Error: every sender was dropped and the receiver has seen the last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("channel closed: every sender was dropped")]
pub struct RecvError;

/// Creates a channel with the value `initial`, which counts as seen by the returned receiver.
pub fn channel<T: Clone + Send + Sync + 'static>(initial: T) -> (Sender<T>, Receiver<T>) {
    let state = State { value: initial, version: 0, publishers: 1, waiters: Waiters::default() };
    let publisher = Sender { shared: Arc::new(Shared { state: Mutex::new(state) }) };
    let observer = publisher.subscribe();
    (publisher, observer)
}

/// Sets the value. The channel closes when the last clone is dropped.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Reads the value and waits for new ones. A clone has seen the same value as the original.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

struct Shared<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    value: T,
    /// Number of times that the value has been set.
    version: u64,
    publishers: usize,
    waiters: Waiters,
}

impl<T: Clone + Send + Sync + 'static> Sender<T> {
    /// Sets the value and wakes every waiting receiver, even if the value is equal to the previous one.
    pub fn set(&self, value: T) {
        // The old value is dropped after the lock is released: its destructor can access this channel.
        let _old = self.change(|held| std::mem::replace(held, value));
    }

    /// Modifies the value in place and wakes every waiting receiver. `change` must not access this channel.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.change(change);
    }

    /// Returns the current value.
    pub fn get(&self) -> T {
        self.shared.lock().value.clone()
    }

    /// Creates a receiver. The current value counts as seen.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { seen: self.shared.lock().version, shared: Arc::clone(&self.shared) }
    }

    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let (result, wakers) = {
            let mut state = self.shared.lock();
            let result = change(&mut state.value);
            state.version += 1;
            (result, state.waiters.take())
        };
        wake_all(wakers);
        result
    }
}

impl<T: Clone + Send + Sync + 'static> Receiver<T> {
    /// Returns the current value without marking it as seen: [`Receiver::changed`] still returns it.
    pub fn get(&self) -> T {
        self.shared.lock().value.clone()
    }

    /// Returns whether every sender was dropped.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().publishers == 0
    }

    /// Waits for a value that this receiver has not seen and returns the latest. Returns immediately if there is one.
    ///
    /// # Errors
    /// [`RecvError`] if every sender was dropped and the last value has been seen.
    ///
    /// # Cancel safety
    /// A value counts as seen only when it is returned.
    pub async fn changed(&mut self) -> Result<T, RecvError> {
        let seen = self.seen;
        self.wait(|state| state.version > seen).await
    }

    /// Returns the current value if `wanted` accepts it, otherwise the next value that it accepts.
    ///
    /// Values that are set in quick succession can be skipped. `wanted` must not access this channel.
    ///
    /// # Errors
    /// [`RecvError`] if every sender was dropped and `wanted` rejects the last value.
    ///
    /// # Cancel safety
    /// A value counts as seen only when it is returned.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<T, RecvError> {
        self.wait(|state| wanted(&state.value)).await
    }

    async fn wait(&mut self, mut ready: impl FnMut(&State<T>) -> bool) -> Result<T, RecvError> {
        let mut wait = Wait { shared: &self.shared, waiter_id: None };
        let (value, version) = poll_fn(|cx| wait.poll(cx, &mut ready)).await?;
        drop(wait);
        self.seen = version;
        Ok(value)
    }
}

impl<T> Shared<T> {
    /// Ignores poisoning: a panic in a user's closure can affect the value, but not the channel.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait of one receiver. Removes its waker when dropped.
struct Wait<'a, T> {
    shared: &'a Shared<T>,
    waiter_id: Option<WaiterId>,
}

impl<T: Clone> Wait<'_, T> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        ready: &mut impl FnMut(&State<T>) -> bool,
    ) -> Poll<Result<(T, u64), RecvError>> {
        let mut state = self.shared.lock();
        if ready(&state) {
            Poll::Ready(Ok((state.value.clone(), state.version)))
        } else if state.publishers == 0 {
            Poll::Ready(Err(RecvError))
        } else {
            state.waiters.register(&mut self.waiter_id, cx.waker());
            Poll::Pending
        }
    }
}

impl<T> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        self.shared.lock().waiters.withdraw(self.waiter_id);
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.lock().publishers += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let wakers = {
            let mut state = self.shared.lock();
            state.publishers -= 1;
            if state.publishers == 0 { state.waiters.take() } else { Vec::new() }
        };
        wake_all(wakers);
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("version", &self.shared.lock().version).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("seen", &self.seen).finish_non_exhaustive()
    }
}
