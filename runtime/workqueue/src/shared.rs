//! What all clones of a queue share: the keys under one lock, the clock, the limiter, and who is woken after a change.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, Weak};

use windlass_env::{Env, Instant};
use windlass_metrics::WorkqueueMetrics;

use crate::Key;
use crate::drainers::DrainWaiters;
use crate::limiter::{RateLimiter, default_limiter};
use crate::state::State;
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::{Waiters, WakeList};

const RELEASED: &str = "the keys are asked for after their lock was released";

pub(crate) struct Shared<K: Key> {
    name: String,
    pub(crate) env: Env,
    /// Its own lock: a limiter is the user's code and may take its time.
    limiter: Mutex<Box<dyn RateLimiter<K>>>,
    inner: Mutex<Inner<K>>,
}

/// The keys, and who waits for what.
pub(crate) struct Inner<K> {
    pub(crate) state: State<K>,
    pub(crate) waiters: Waiters,
    pub(crate) drainers: DrainWaiters,
}

/// The keys while they are changed. Dropping it releases the lock and wakes whoever has something to do now, also when
/// the change ended in a panic: what it had done by then may be what others wait for.
pub(crate) struct StateGuard<'a, K> {
    /// Empty only while it is dropped: the lock is released before anybody is woken.
    inner: Option<MutexGuard<'a, Inner<K>>>,
}

impl<K: Key> Shared<K> {
    pub(crate) fn new(env: Env, name: &str, metrics: Option<WorkqueueMetrics>) -> Arc<Self> {
        let state = State::new(env.hash_seed(name), metrics.clone());
        let inner = Inner { state, waiters: Waiters::default(), drainers: DrainWaiters::default() };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            env,
            limiter: Mutex::new(default_limiter()),
            inner: Mutex::new(inner),
        });
        if let Some(metrics) = metrics {
            metrics.on_gather(show_when_asked(Arc::downgrade(&shared)));
        }
        shared
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Changes the keys. The caller drops what `change` returns, outside the lock.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let (mut inner, now) = self.enter();
        change(&mut inner.state, now)
    }

    /// The keys as they are now, those that have come due included.
    #[inline]
    pub(crate) fn enter(&self) -> (StateGuard<'_, K>, Instant) {
        let mut inner = self.changing();
        // The clock is read under the lock, so that times in the queue never run back.
        let now = self.env.now();
        inner.state.promote(now);
        (inner, now)
    }

    /// The keys, for a change after which somebody may have to be woken.
    pub(crate) fn changing(&self) -> StateGuard<'_, K> {
        StateGuard { inner: Some(self.inner()) }
    }

    /// What a key brings along (comparison, hash, clone, tenant) and the iterator of [`crate::Queue::add_all`] are the only
    /// code under this lock that is not ours. It runs before its own key has changed anything, so a panic in it leaves
    /// the state whole; what was changed for keys before it is settled by [`StateGuard`].
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A limiter that panicked keeps what it knew.
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
        // Mostly nobody waits, which is all that is looked at then.
        if self.is_waited_for()
            && let Some(inner) = self.inner.take()
        {
            wake(inner);
        }
    }
}

/// Releases the lock, then wakes whoever has something to do: a waker may run code of its own.
#[inline(never)]
fn wake<K>(mut inner: MutexGuard<'_, Inner<K>>) {
    let (keys, drained) = (inner.settle(), inner.drained());
    drop(inner);
    keys.wake();
    drained.wake();
}

impl<K> Inner<K> {
    /// Whether there is anybody who might have to be woken.
    #[inline]
    fn is_waited_for(&self) -> bool {
        !self.waiters.is_empty() || !self.drainers.is_empty()
    }

    /// Who is to be woken after a change because of keys.
    fn settle(&mut self) -> WakeList {
        if self.state.is_finished() {
            return self.waiters.all();
        }
        self.waiters.next(self.state.ready(), self.state.earliest())
    }

    /// Who is to be woken after a change because nothing is left.
    fn drained(&mut self) -> WakeList {
        if self.state.is_drained() { self.drainers.all() } else { WakeList::None }
    }
}

/// Brings the metrics up to date whenever they are gathered, as long as the queue lives.
fn show_when_asked<K: Key>(queue: Weak<Shared<K>>) -> Box<dyn Fn() + Send + Sync> {
    Box::new(move || {
        if let Some(shared) = queue.upgrade() {
            shared.change(|state, now| state.show(now));
        }
    })
}
