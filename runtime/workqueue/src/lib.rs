//! Fair, deduplicating, delayed, rate-limited work. Knows nothing of Kubernetes.
//!
//! Guarantees, each with a test of that name:
//! - A key is never handed to two workers at once.
//! - An add during processing is not lost: the key runs once more when its worker is done.
//! - Adds before processing collapse into one.
//! - Keys come in the order in which they became ready: first in, first out.
//! - A delayed add keeps the earliest of the times asked for, and can be cancelled.
//! - Draining ends only when nothing is queued and nothing is in flight, and what is queued when the queue shuts down
//!   is still handed out, also when the worker that held it is gone.
//! - An [`Item`] releases its key when it is dropped, so neither a panic nor a cancelled worker can leak one.
//! - A cancelled [`Queue::get`] takes nothing with it: the key goes to the next who waits.
//!
//! There is no background task. Whoever waits in [`Queue::get`] also waits for the earliest delayed key, and every
//! call first moves the keys that have come due, so that order and metrics are as if a task had done it on time.
//!
//! # Two kinds of delay
//! [`Queue::add_after`] makes an *appointment*: somebody wants a run at that time or, when several ask, at the earliest
//! of their times. [`Queue::add_rate_limited`] asks for a *retry*: a run as soon as the limiter allows. An immediate
//! add supersedes a pending retry, whose run it brings forward, and leaves an appointment standing, because a run
//! that starts now cannot see what the world will look like then. Where a key has both, the earlier time counts and
//! the appointment's rule applies.
//!
//! What it refuses: priorities, batches, bounded length. An add never waits and never fails.

mod delayed;
mod getter;
mod limiter;
mod state;
#[cfg(test)]
mod tests;
mod waiters;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_env::{Env, Instant};
use windlass_metrics::WorkqueueMetrics;

pub use crate::limiter::{Bucket, Exponential, FastSlow, MaxOf, MaxWait, RateLimiter, default_limiter};

use crate::delayed::Reason;
use crate::getter::Getter;
use crate::state::State;
use crate::waiters::{Waiters, Wakes};

/// What a key must be able to do.
pub trait Key: Ord + Clone + Send + fmt::Debug + 'static {}

impl<K: Ord + Clone + Send + fmt::Debug + 'static> Key for K {}

/// A queue of keys. Cloning is cheap and yields the same queue.
pub struct Queue<K: Key> {
    shared: Arc<Shared<K>>,
}

/// A key in the hands of a worker. Dropping it says that the worker is done; if the key was added meanwhile, it is
/// queued again then.
pub struct Item<K: Key> {
    queue: Queue<K>,
    key: K,
}

struct Shared<K: Key> {
    name: String,
    env: Env,
    /// A lock of its own: a limiter is the user's code and may take its time.
    limiter: Mutex<Box<dyn RateLimiter<K>>>,
    inner: Mutex<Inner<K>>,
    drained: Notify,
}

/// The keys, and who waits for them.
struct Inner<K> {
    state: State<K>,
    waiters: Waiters,
}

impl<K: Key> Queue<K> {
    /// An empty queue. `name` shows in [`fmt::Debug`]; the label of `metrics` is the business of whoever made them.
    pub fn new(env: Env, name: &str, limiter: Box<dyn RateLimiter<K>>, metrics: WorkqueueMetrics) -> Self {
        let inner = Inner { state: State::new(metrics.clone()), waiters: Waiters::default() };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            env,
            limiter: Mutex::new(limiter),
            inner: Mutex::new(inner),
            drained: Notify::new(),
        });
        metrics.on_gather(measure_when_asked(Arc::downgrade(&shared)));
        Queue { shared }
    }

    /// Queues `key`, unless it waits already. If a worker holds it, it is queued when that worker is done. Supersedes
    /// a pending retry of the same key. Ignored after [`Queue::shut_down`].
    pub fn add(&self, key: K) {
        self.shared.change(|state, now| state.add(now, key));
    }

    /// Queues `key` once `delay` has passed, or at the earlier time it is already due at. A delay of zero is
    /// [`Queue::add`]. Ignored after [`Queue::shut_down`].
    pub fn add_after(&self, key: K, delay: Duration) {
        self.shared.change(|state, now| state.add_after(now, key, delay, Reason::Appointment));
    }

    /// Takes back whatever delayed add of `key` is pending, appointment or retry; says whether there was one. A key
    /// that has come due is beyond recall.
    pub fn cancel_delayed(&self, key: &K) -> bool {
        self.shared.change(|state, _now| state.cancel_delayed(key))
    }

    /// Queues `key` again once the limiter allows, and counts the attempt. Ignored after [`Queue::shut_down`].
    pub fn add_rate_limited(&self, key: K) {
        let delay = self.shared.limiter().when(self.shared.env.now(), &key);
        self.shared.change(|state, now| state.add_after(now, key, delay, Reason::Retry));
    }

    /// Clears what the limiter holds against `key`: call it when the key has succeeded or is given up on.
    pub fn forget(&self, key: &K) {
        self.shared.limiter().forget(key);
    }

    /// How often `key` has been added with the limiter since it was last forgotten.
    pub fn attempts(&self, key: &K) -> u32 {
        self.shared.limiter().attempts(key)
    }

    /// Puts another limiter in place; what the old one held against its keys is gone. Delays already set stand.
    pub fn replace_limiter(&self, limiter: Box<dyn RateLimiter<K>>) {
        *self.shared.limiter() = limiter;
    }

    /// The next key, once there is one. `None` when the queue is shut down and no key will come any more.
    ///
    /// # Cancel safety
    /// A dropped call has taken nothing: a key it was woken for goes to the next who waits.
    pub async fn get(&self) -> Option<Item<K>> {
        let mut getter = Getter::new(&self.shared);
        poll_fn(|cx| getter.poll(cx)).await.map(|key| Item { queue: self.clone(), key })
    }

    /// How many keys are ready to be handed out: neither delayed nor held by a worker.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a queue that is empty now may not be when the caller looks"
    )]
    pub fn len(&self) -> usize {
        self.shared.change(|state, _now| state.ready())
    }

    /// Ignores adds from now on and drops delayed ones. Keys already queued are still handed out, as are keys that
    /// were added again while a worker held them; then [`Queue::get`] says `None`. Calling it twice is calling it
    /// once.
    pub fn shut_down(&self) {
        self.shared.change(|state, _now| state.shut_down());
    }

    /// Whether [`Queue::shut_down`] has been called.
    pub fn is_shut_down(&self) -> bool {
        self.shared.inner().state.is_shut_down()
    }

    /// Completes once the queue is shut down and nothing is queued or in flight. It needs somebody to get the keys:
    /// without workers it waits for ever, so bound it.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn drained(&self) {
        loop {
            let mut notified = pin!(self.shared.drained.notified());
            // Listening starts before looking, so that a drain in between is not missed.
            notified.as_mut().enable();
            if self.shared.inner().state.is_drained() {
                return;
            }
            notified.await;
        }
    }
}

impl<K: Key> Item<K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Key> Drop for Item<K> {
    fn drop(&mut self) {
        let planted = self.queue.shared.env.is_planted("lost enqueue during processing");
        self.queue.shared.change(|state, now| {
            if planted {
                state.lose_add(&self.key);
            }
            state.done(now, &self.key);
        });
    }
}

impl<K: Key> Shared<K> {
    /// Changes the keys, and wakes afterwards whoever has something to do now.
    fn change<R>(&self, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let (result, wakes, drained) = {
            let (mut inner, now) = self.enter();
            let result = change(&mut inner.state, now);
            (result, inner.settle(), inner.state.is_drained())
        };
        self.tell(wakes, drained);
        result
    }

    /// The keys as they are now, those that have come due included.
    fn enter(&self) -> (MutexGuard<'_, Inner<K>>, Instant) {
        let mut inner = self.inner();
        // The clock is read under the lock, so that times in the queue never run back.
        let now = self.env.now();
        inner.state.promote(now);
        (inner, now)
    }

    /// Outside the lock: a waker may run code of its own.
    fn tell(&self, wakes: Wakes, drained: bool) {
        wakes.wake();
        if drained {
            self.drained.notify_waiters();
        }
    }

    /// A panic of a key's own comparison or clone is the only code under this lock that is not ours.
    fn inner(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A limiter that panicked keeps what it knew.
    fn limiter(&self) -> MutexGuard<'_, Box<dyn RateLimiter<K>>> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key> Inner<K> {
    /// Who is to be woken after a change.
    fn settle(&mut self) -> Wakes {
        if self.state.is_finished() {
            return self.waiters.all();
        }
        self.waiters.next(self.state.ready(), self.state.earliest())
    }
}

/// Sets the ages of what is held now whenever metrics are gathered, as long as the queue lives.
fn measure_when_asked<K: Key>(queue: Weak<Shared<K>>) -> Box<dyn Fn() + Send + Sync> {
    Box::new(move || {
        if let Some(shared) = queue.upgrade() {
            shared.change(|state, now| state.measure(now));
        }
    })
}

impl<K: Key> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Queue { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Key> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.shared.inner();
        f.debug_struct("Queue")
            .field("name", &self.shared.name)
            .field("ready", &inner.state.ready())
            .field("in_flight", &inner.state.in_flight())
            .field("shut_down", &inner.state.is_shut_down())
            .finish_non_exhaustive()
    }
}

impl<K: Key> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("key", &self.key).finish_non_exhaustive()
    }
}
