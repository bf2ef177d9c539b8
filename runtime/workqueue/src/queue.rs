//! The queue itself: the lock around the state, the clock, and who is woken after a change.

use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use windlass_env::{Env, Instant};
use windlass_metrics::WorkqueueMetrics;

use crate::delays::Reason;
use crate::drain::{Drained, Drainers};
use crate::getter::Getter;
use crate::limiter::RateLimiter;
use crate::state::{Delay, State};
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::{Waiters, Wakes};
use crate::{Add, Ageing, Key, Priority, QueueOptions, Tenancy, When, Whereabouts};

/// A defect that tests plant, in two places.
const GIVEN_BACK_EARLY: &str = "key given back early";

const RELEASED: &str = "the keys are asked for after their lock was released";

/// A queue of keys. Cloning is cheap and yields the same queue.
pub struct Queue<K: Key> {
    shared: Arc<Shared<K>>,
}

/// A key in the hands of a worker. Dropping it says that the worker is done; if the key was added meanwhile, it is
/// queued again then.
pub struct Item<K: Key> {
    queue: Queue<K>,
    key: K,
    slot: usize,
    priority: Priority,
}

pub(crate) struct Shared<K: Key> {
    name: String,
    pub(crate) env: Env,
    /// A lock of its own: a limiter is the user's code and may take its time.
    limiter: Mutex<Box<dyn RateLimiter<K>>>,
    inner: Mutex<Inner<K>>,
}

/// The keys, and who waits for what.
pub(crate) struct Inner<K> {
    pub(crate) state: State<K>,
    pub(crate) waiters: Waiters,
    pub(crate) drainers: Drainers,
}

/// The keys while they are changed. Dropping it releases the lock and wakes whoever has something to do now, also when
/// the change ended in a panic: what it had done by then may be what others wait for.
pub(crate) struct Changing<'a, K> {
    /// Empty only while it is dropped: the lock is released before anybody is woken.
    inner: Option<MutexGuard<'a, Inner<K>>>,
}

impl<K: Key> Queue<K> {
    /// An empty queue. `name` shows in [`fmt::Debug`]; the label of `metrics` is the business of whoever made them.
    /// A queue without metrics (`None`), ageing and delayed keys reads the clock for its limiter only.
    pub fn new(
        env: Env,
        name: &str,
        options: QueueOptions<K>,
        metrics: impl Into<Option<WorkqueueMetrics>>,
    ) -> Self {
        let QueueOptions { limiter, ageing, tenancy } = options;
        let metrics = metrics.into();
        let state = State::new(env.hash_seed(name), ageing, tenancy, metrics.clone());
        let inner = Inner { state, waiters: Waiters::default(), drainers: Drainers::default() };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            env,
            limiter: Mutex::new(limiter),
            inner: Mutex::new(inner),
        });
        if let Some(metrics) = metrics {
            metrics.on_gather(show_when_asked(Arc::downgrade(&shared)));
        }
        Queue { shared }
    }

    /// Queues `key` with normal priority, unless it waits already. If a worker holds it, it is queued when that worker
    /// is done. Supersedes a pending retry of the same key. Ignored after [`Queue::shut_down`].
    pub fn add(&self, key: K) {
        self.add_with(key, Add::now());
    }

    /// Queues `key` with normal priority once `delay` has passed, or at the earlier time it is already due at. A delay
    /// of zero is [`Queue::add`]. Ignored after [`Queue::shut_down`].
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with(key, Add::after(delay));
    }

    /// Queues `key` again with normal priority once the limiter allows, and counts the attempt. Ignored after
    /// [`Queue::shut_down`].
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(key, Add::rate_limited());
    }

    /// Queues `key` as `add` says. A key that waits already is only ever raised: to the back of the higher priority. A
    /// key that a worker holds has the highest priority that was asked for meanwhile when its turn comes again. A
    /// delayed key keeps the earliest time and the highest priority. Ignored after [`Queue::shut_down`].
    pub fn add_with(&self, key: K, add: Add) {
        let Add { priority, when } = add;
        let (length, reason) = match when {
            When::Now => return drop(self.shared.change(|state, now| state.add(now, key, priority))),
            When::After(delay) => (delay, Reason::Appointment),
            When::RateLimited => {
                let now = self.shared.env.now();
                (self.shared.limiter().when(now, &key), Reason::Retry)
            }
            When::RateLimitedPerKey(max) => {
                let now = self.shared.env.now();
                (self.shared.limiter().when_per_key(now, &key).min(max), Reason::Retry)
            }
        };
        let delay = Delay { length, reason };
        let postpones = self.shared.env.is_planted("latest time kept");
        drop(self.shared.change_timed(|state, now| {
            if postpones {
                state.cancel_delayed(&key);
            }
            state.add_after(now, key, delay, priority)
        }));
    }

    /// Queues many keys at once: as [`Queue::add_with`] for each, with one lock and one reading of the clock. `keys`
    /// is asked under the lock, so it must not come back to the queue. If it panics, what it gave before is queued.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>, priority: Priority) {
        self.shared.change(|state, now| {
            keys.into_iter().for_each(|key| drop(state.add(now, key, priority)));
        });
    }

    /// Takes back whatever delayed add of `key` is pending, appointment or retry; says whether there was one. A key
    /// that has come due is beyond recall.
    pub fn cancel_delayed(&self, key: &K) -> bool {
        let (cancelled, _left) = self.shared.change(|state, _now| state.cancel_delayed(key));
        cancelled
    }

    /// Takes back every key that waits, for a worker or for a time, and of which `gone` says so, as if it had never been
    /// added. One that a worker holds stays with it. `gone` is asked under the lock, so it must not come back to the
    /// queue. What the limiter holds against the keys stands: [`Queue::forget`].
    pub fn withdraw(&self, gone: impl Fn(&K) -> bool) {
        let _left = self.shared.change(|state, _now| state.withdraw(gone));
    }

    /// Where `key` is now.
    pub fn whereabouts(&self, key: &K) -> Whereabouts {
        self.shared.change(|state, _now| state.whereabouts(key))
    }

    /// Clears what the limiter holds against `key`: call it when the key has succeeded or is given up on.
    pub fn forget(&self, key: &K) {
        let now = self.shared.env.now();
        self.shared.limiter().forget(now, key);
    }

    /// How often `key` has been added with the limiter since it was last forgotten.
    pub fn attempts(&self, key: &K) -> u32 {
        self.shared.limiter().attempts(key)
    }

    /// Puts another limiter in place; what the old one held against its keys is gone. Delays already set stand.
    pub fn replace_limiter(&self, limiter: Box<dyn RateLimiter<K>>) {
        let _old = std::mem::replace(&mut *self.shared.limiter(), limiter);
    }

    /// Lets low priorities age otherwise, or not at all. Where nothing measured how long keys wait, they age from now.
    pub fn replace_ageing(&self, ageing: Option<Ageing>) {
        self.shared.change_timed(|state, now| state.set_ageing(now, ageing));
    }

    /// Divides the keys among other tenants, or weighs them otherwise. Keys that are here stay with whom they are.
    pub fn replace_tenancy(&self, tenancy: Tenancy<K>) {
        let _old = self.shared.change(|state, _now| state.replace_tenancy(tenancy));
    }

    /// The next key, once there is one. `None` when the queue is shut down and no key will come any more.
    ///
    /// # Cancel safety
    /// A dropped call has taken nothing: a key it was woken for goes to the next who waits.
    pub async fn get(&self) -> Option<Item<K>> {
        let mut getter = Getter::new(&self.shared);
        let taken = poll_fn(|cx| getter.poll(cx)).await?;
        if self.shared.env.is_planted(GIVEN_BACK_EARLY) {
            self.shared.change(|state, now| drop(state.done(now, taken.slot)));
        }
        Some(Item { queue: self.clone(), key: taken.key, slot: taken.slot, priority: taken.priority })
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
        let mut drained = Drained::new(&self.shared);
        poll_fn(|cx| drained.poll(cx)).await;
    }
}

impl<K: Key> Item<K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority with which it was handed out: what a requeue should ask for, unless it knows better.
    pub fn priority(&self) -> Priority {
        self.priority
    }
}

impl<K: Key> Drop for Item<K> {
    fn drop(&mut self) {
        if self.queue.shared.env.is_planted(GIVEN_BACK_EARLY) {
            return;
        }
        let planted = self.queue.shared.env.is_planted("lost enqueue during processing");
        let _left = self.queue.shared.change(|state, now| {
            if planted {
                state.lose_add(self.slot);
            }
            state.done(now, self.slot)
        });
    }
}

impl<K: Key> Shared<K> {
    /// Changes the keys. What is told as the time is the time only if it matters: see [`State::needs_time`]. What
    /// `change` returns is dropped by the caller, outside the lock.
    fn change<R>(&self, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let (mut inner, now) = self.enter();
        change(&mut inner.state, now)
    }

    /// As [`Shared::change`], for a change to which the time matters always.
    fn change_timed<R>(&self, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let mut inner = self.changing();
        let now = self.env.now();
        inner.state.promote(now);
        change(&mut inner.state, now)
    }

    /// The keys as they are now, those that have come due included.
    #[inline]
    pub(crate) fn enter(&self) -> (Changing<'_, K>, Instant) {
        let mut inner = self.changing();
        if !inner.state.needs_time() {
            return (inner, Instant::ORIGIN);
        }
        // The clock is read under the lock, so that times in the queue never run back.
        let now = self.env.now();
        inner.state.promote(now);
        (inner, now)
    }

    /// The keys, for a change after which somebody may have to be woken.
    pub(crate) fn changing(&self) -> Changing<'_, K> {
        Changing { inner: Some(self.inner()) }
    }

    /// What a key brings along (comparison, hash, clone, tenant) and the iterator of [`Queue::add_all`] are the only
    /// code under this lock that is not ours. It runs before its own key has changed anything, so a panic in it leaves
    /// the state whole; what was changed for keys before it is settled by [`Changing`].
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A limiter that panicked keeps what it knew.
    fn limiter(&self) -> MutexGuard<'_, Box<dyn RateLimiter<K>>> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Deref for Changing<'_, K> {
    type Target = Inner<K>;

    #[inline]
    fn deref(&self) -> &Inner<K> {
        let Some(inner) = &self.inner else { unreachable!("{RELEASED}") };
        inner
    }
}

impl<K> DerefMut for Changing<'_, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner<K> {
        let Some(inner) = &mut self.inner else { unreachable!("{RELEASED}") };
        inner
    }
}

impl<K> Drop for Changing<'_, K> {
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
    fn settle(&mut self) -> Wakes {
        if self.state.is_finished() {
            return self.waiters.all();
        }
        self.waiters.next(self.state.ready(), self.state.earliest())
    }

    /// Who is to be woken after a change because nothing is left.
    fn drained(&mut self) -> Wakes {
        if self.state.is_drained() { self.drainers.all() } else { Wakes::None }
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
        f.debug_struct("Item")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}
