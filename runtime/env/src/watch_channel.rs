//! A watch cell: one current value, any number of publishers and observers, wakes in registration order.
//!
//! What `tokio::sync::watch` does, save that its wake order draws on tokio's own random numbers, which would make a
//! simulation unrepeatable. A cell holds only the latest value: an observer that was slow sees the newest, not each.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::waiters::{WaiterId, Waiters, wake_all};

/// Every publisher is gone and nothing unseen is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every publisher of the cell is gone")]
pub struct RecvError;

/// A cell holding `initial`, which the returned observer counts as seen.
pub fn channel<T: Clone + Send + Sync + 'static>(initial: T) -> (Sender<T>, Receiver<T>) {
    let state = State { value: initial, version: 0, publishers: 1, waiters: Waiters::default() };
    let publisher = Sender { shared: Arc::new(Shared { state: Mutex::new(state) }) };
    let observer = publisher.subscribe();
    (publisher, observer)
}

/// Sets the value. The cell closes when the last clone is dropped.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Reads the value and waits for new ones. A clone has seen what the original has seen.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

struct Shared<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    value: T,
    /// How many times the value has been set.
    version: u64,
    publishers: usize,
    waiters: Waiters,
}

impl<T: Clone + Send + Sync + 'static> Sender<T> {
    /// Sets the value and wakes every waiting observer, also when it equals the old one.
    pub fn set(&self, value: T) {
        // The old value is dropped after the lock is released: its destructor may look at this cell.
        let _old = self.change(|held| std::mem::replace(held, value));
    }

    /// Changes the value in place and wakes every waiting observer. `change` must not touch this cell.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.change(change);
    }

    /// The current value.
    pub fn get(&self) -> T {
        self.shared.lock().value.clone()
    }

    /// A new observer, which counts the current value as seen.
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
    /// The current value. Does not count as having seen it: [`Receiver::changed`] still returns it.
    pub fn get(&self) -> T {
        self.shared.lock().value.clone()
    }

    /// Whether every publisher is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().publishers == 0
    }

    /// The newest value, once there is one this observer has not seen; at once if there already is.
    ///
    /// # Errors
    /// [`RecvError`] when every publisher is gone and the last value has been seen.
    ///
    /// # Cancel safety
    /// A value counts as seen only when it is returned.
    pub async fn changed(&mut self) -> Result<T, RecvError> {
        let seen = self.seen;
        self.wait(|state| state.version > seen).await
    }

    /// The current value if `wanted` accepts it, else the first newest value that it does.
    ///
    /// Values set in quick succession may be skipped, as everywhere in a cell. `wanted` must not touch this cell.
    ///
    /// # Errors
    /// [`RecvError`] when every publisher is gone and the last value is not wanted.
    ///
    /// # Cancel safety
    /// A value counts as seen only when it is returned.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<T, RecvError> {
        self.wait(|state| wanted(&state.value)).await
    }

    async fn wait(&mut self, mut ready: impl FnMut(&State<T>) -> bool) -> Result<T, RecvError> {
        let mut wait = Wait { shared: &self.shared, place: None };
        let (value, version) = poll_fn(|cx| wait.poll(cx, &mut ready)).await?;
        drop(wait);
        self.seen = version;
        Ok(value)
    }
}

impl<T> Shared<T> {
    /// A panic in a user's closure leaves a value of the user's making; the cell around it is intact.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait for one observer; withdraws its waker when dropped.
struct Wait<'a, T> {
    shared: &'a Shared<T>,
    place: Option<WaiterId>,
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
            state.waiters.register(&mut self.place, cx.waker());
            Poll::Pending
        }
    }
}

impl<T> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        self.shared.lock().waiters.withdraw(self.place);
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
        f.debug_struct("Publisher").field("version", &self.shared.lock().version).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("seen", &self.seen).finish_non_exhaustive()
    }
}
