//! State that all clones of a queue share: the keys under one lock, the clock, the limiter, and the waiting calls.

use std::hash::BuildHasher;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, Weak};

use foldhash::fast::FixedState;
use windlass_env::{Env, Instant};
use windlass_metrics::WorkqueueMetrics;

use crate::Key;
use crate::drain_waiters::DrainWaiters;
use crate::limiter::{RateLimiter, default_limiter};
use crate::state::{DequeuedKey, HashedKey, State};
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::{Waiters, WakeList};

const RELEASED: &str = "the state is accessed after its lock was released";

pub(crate) struct Shared<K: Key> {
    name: String,
    pub(crate) env: Env,
    hasher: FixedState,
    /// Separate lock: a limiter is user code and can be slow.
    limiter: Mutex<Box<dyn RateLimiter<K>>>,
    inner: Mutex<Inner<K>>,
}

/// Keys and waiting calls.
pub(crate) struct Inner<K> {
    /// Time of the latest call.
    latest: Instant,
    pub(crate) state: State<K>,
    pub(crate) waiters: Waiters,
    pub(crate) drain_waiters: DrainWaiters,
}

/// Guard for a change of the state. Dropping it releases the lock and wakes the waiting calls that can continue. It
/// also does so after a panic, because a partial change can complete a wait.
pub(crate) struct StateGuard<'a, K> {
    /// `None` only during the drop: the lock is released before any waker runs.
    inner: Option<MutexGuard<'a, Inner<K>>>,
}

impl<K: Key> Shared<K> {
    pub(crate) fn new(env: Env, name: &str, metrics: Option<WorkqueueMetrics>) -> Arc<Self> {
        // The seed prevents clients from choosing keys with colliding hashes.
        let seed = env.hash_seed(name);
        let inner = Inner {
            latest: Instant::ORIGIN,
            state: State::new(seed, metrics.clone()),
            waiters: Waiters::default(),
            drain_waiters: DrainWaiters::default(),
        };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            env,
            hasher: FixedState::with_seed(seed),
            limiter: Mutex::new(default_limiter()),
            inner: Mutex::new(inner),
        });
        if let Some(metrics) = metrics {
            metrics.on_gather(gather_callback(Arc::downgrade(&shared)));
        }
        shared
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Applies `change` under the lock. The caller drops the result outside of the lock.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let (mut inner, now) = self.enter();
        change(&mut inner.state, now)
    }

    /// Marks a dequeued key as done.
    pub(crate) fn finish(&self, dequeued: Option<DequeuedKey<K>>) {
        if let Some(dequeued) = dequeued {
            let _left = self.change(|state, now| state.done(now, &dequeued));
        }
    }

    pub(crate) fn update_metrics(&self) {
        self.change(|state, now| state.update_metrics(now));
    }

    /// Locks the state, and enqueues the keys whose delay has expired.
    #[inline]
    pub(crate) fn enter(&self) -> (StateGuard<'_, K>, Instant) {
        // Read before the lock is acquired, because other threads wait for the lock.
        let now = self.env.now();
        let mut inner = self.lock_for_change();
        // Another call can have read the clock later and acquired the lock earlier.
        let now = now.max(inner.latest);
        inner.latest = now;
        inner.state.promote(now);
        (inner, now)
    }

    pub(crate) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn hashed(&self, key: K) -> HashedKey<K> {
        HashedKey { hash: self.hash(&key), key }
    }

    /// Locks the state for a change that can complete a wait.
    pub(crate) fn lock_for_change(&self) -> StateGuard<'_, K> {
        StateGuard { inner: Some(self.inner()) }
    }

    /// Locks the state. The only foreign code under this lock is code of the key type (comparison, clone, tenant) and
    /// the iterator of [`crate::Queue::add_all`]. It runs before any change for its key, so a panic leaves the
    /// state consistent. [`StateGuard`] completes the changes for earlier keys.
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the limiter. A limiter that panicked keeps its state.
    pub(crate) fn limiter(&self) -> MutexGuard<'_, Box<dyn RateLimiter<K>>> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Deref for StateGuard<'_, K> {
    type Target = Inner<K>;

    #[inline]
    fn deref(&self) -> &Inner<K> {
        let Some(inner) = &self.inner else { unreachable!("{RELEASED}") };
        inner
    }
}

impl<K> DerefMut for StateGuard<'_, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner<K> {
        let Some(inner) = &mut self.inner else { unreachable!("{RELEASED}") };
        inner
    }
}

impl<K> Drop for StateGuard<'_, K> {
    #[inline]
    fn drop(&mut self) {
        // Usually no call is waiting, and this check is all.
        if self.has_waiters()
            && let Some(inner) = self.inner.take()
        {
            wake(inner);
        }
    }
}

/// Releases the lock and then wakes the waiting calls, because a waker can run foreign code.
#[inline(never)]
fn wake<K>(mut inner: MutexGuard<'_, Inner<K>>) {
    let (keys, drained) = (inner.wakers_for_keys(), inner.wakers_for_drain());
    drop(inner);
    keys.wake();
    drained.wake();
}

impl<K> Inner<K> {
    /// Returns whether any call is waiting.
    #[inline]
    fn has_waiters(&self) -> bool {
        !self.waiters.is_empty() || !self.drain_waiters.is_empty()
    }

    /// Returns the calls to wake because of queued keys.
    fn wakers_for_keys(&mut self) -> WakeList {
        if self.state.is_finished() {
            return self.waiters.take_all();
        }
        self.waiters.next(self.state.ready(), self.state.earliest())
    }

    /// Returns the calls to wake because the queue is drained.
    fn wakers_for_drain(&mut self) -> WakeList {
        if self.state.is_drained() { self.drain_waiters.take_all() } else { WakeList::None }
    }
}

/// Returns a callback that updates the metrics when they are gathered, while the queue exists.
fn gather_callback<K: Key>(queue: Weak<Shared<K>>) -> Box<dyn Fn() + Send + Sync> {
    Box::new(move || {
        if let Some(shared) = queue.upgrade() {
            shared.update_metrics();
        }
    })
}
