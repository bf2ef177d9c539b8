//! The queue that users hold, and the key in the hands of a worker.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use windlass_env::Env;
use windlass_metrics::WorkqueueMetrics;

use crate::delays::DelayReason;
use crate::drained::DrainFuture;
use crate::getter::GetFuture;
use crate::limiter::RateLimiter;
use crate::shared::Shared;
use crate::state::Delay;
use crate::{AddDelay, AddOptions, Key, KeyStatus, ParkReason, Parked, Priority};

/// A key that fails again and again is retried no faster than this: the first step of the default limiter.
const MIN_RETRY: Duration = Duration::from_millis(5);

/// A queue of keys. Cloning is cheap and yields the same queue.
pub struct Queue<K: Key> {
    shared: Arc<Shared<K>>,
}

/// A key in the hands of a worker. Dropping it says that the worker is done; if the key was added meanwhile, it is
/// queued again then, and if it was [parked](Item::park), it waits for its release.
pub struct Item<K: Key> {
    queue: Queue<K>,
    key: K,
    slot: usize,
    priority: Priority,
}

impl<K: Key> Queue<K> {
    /// Returns an empty queue with the [default limiter](crate::default_limiter) and a single tenant. `name` shows in
    /// [`fmt::Debug`]; the caller chooses the label of `metrics`.
    pub fn new(env: Env, name: &str, metrics: impl Into<Option<WorkqueueMetrics>>) -> Self {
        Queue { shared: Shared::new(env, name, metrics.into()) }
    }

    /// Queues `key` with normal priority, unless it waits already. If a worker holds it, it is queued when that worker
    /// is done. Supersedes a pending retry of the same key. Ignored after [`Queue::shut_down`].
    pub fn add(&self, key: K) {
        self.add_with(key, AddOptions::now());
    }

    /// Queues `key` with normal priority once `delay` has passed, or at the earlier time it is already due at. A delay
    /// of zero is [`Queue::add`]. Ignored after [`Queue::shut_down`].
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with(key, AddOptions::after(delay));
    }

    /// Queues `key` again with normal priority once the limiter allows, and counts the attempt. Ignored after
    /// [`Queue::shut_down`].
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(key, AddOptions::rate_limited());
    }

    /// Queues `key` as `add` says. A key that waits already is only ever raised: to the back of the higher priority. A
    /// key that a worker holds has the highest priority that was asked for meanwhile when its turn comes again. A
    /// delayed key keeps the earliest time and the highest priority. Ignored after [`Queue::shut_down`].
    pub fn add_with(&self, key: K, add: AddOptions) {
        let AddOptions { priority, when } = add;
        let (length, reason) = match when {
            AddDelay::Now => return drop(self.shared.change(|state, now| state.add(now, key, priority))),
            AddDelay::After(delay) => (delay, DelayReason::Scheduled),
            AddDelay::RateLimited => {
                let now = self.shared.env.now();
                (self.shared.limiter().when(now, &key), DelayReason::Retry)
            }
            AddDelay::RateLimitedPerKey(max) => {
                let now = self.shared.env.now();
                (self.shared.limiter().when_per_key(now, &key).min(max), DelayReason::Retry)
            }
            AddDelay::RetryAfter(delay) => {
                let now = self.shared.env.now();
                // Asked for the count: its own answer does not matter.
                let _back_off = self.shared.limiter().when_per_key(now, &key);
                (delay.max(MIN_RETRY), DelayReason::Retry)
            }
        };
        let delay = Delay { length, reason };
        drop(self.shared.change(|state, now| state.add_after(now, key, delay, priority)));
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

    /// Queues `key` as an add does, as urgent as it was, if it is parked for `reason`.
    pub fn release(&self, key: &K, reason: ParkReason) {
        self.shared.change(|state, now| state.release(now, key, reason));
    }

    /// The keys that are parked for `reason`, in their order.
    pub fn parked(&self, reason: ParkReason) -> Vec<K> {
        self.shared.change(|state, _now| state.parked(reason))
    }

    /// How many keys are parked for `reason`.
    pub fn count_parked(&self, reason: ParkReason) -> usize {
        self.shared.change(|state, _now| state.count_parked(reason))
    }

    /// Whether `key` is parked for `reason`.
    pub fn is_parked(&self, key: &K, reason: ParkReason) -> bool {
        self.key_status(key).parked.is_some_and(|parked| parked.reason == reason)
    }

    /// Takes back every key that waits, for a worker, a time or its release, and of which `gone` says so, as if it had never been
    /// added. One that a worker holds stays with it. `gone` is asked under the lock, so it must not come back to the
    /// queue. What the limiter holds against the keys stands: [`Queue::forget`].
    pub fn remove(&self, gone: impl Fn(&K) -> bool) {
        let _left = self.shared.change(|state, _now| state.withdraw(gone));
    }

    /// Where `key` is now.
    pub fn key_status(&self, key: &K) -> KeyStatus {
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

    /// Sets the function that returns the tenant of a key. Tenants with keys of one priority take turns, so a tenant with
    /// a hundred thousand keys does not delay another. Keys that are in the queue keep their tenant.
    ///
    /// The function runs under the queue's lock, once per key that enters: it must be fast and must not call the queue.
    pub fn fair_by(&self, tenant_of: impl for<'k> Fn(&'k K) -> &'k str + Send + 'static) {
        let _old = self.shared.change(|state, _now| state.fair_by(Box::new(tenant_of)));
    }

    /// The next key, once there is one. `None` when the queue is shut down and no key will come any more.
    ///
    /// # Cancel safety
    /// A dropped call has taken nothing: a key it was woken for goes to the next who waits.
    pub async fn get(&self) -> Option<Item<K>> {
        let mut getter = GetFuture::new(&self.shared);
        let taken = poll_fn(|cx| getter.poll(cx)).await?;
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

    /// Ignores adds from now on, and drops delayed and parked keys. Keys already queued are still handed out, as are keys that
    /// were added again while a worker held them; then [`Queue::get`] says `None`. Calling it twice is calling it
    /// once.
    pub fn shut_down(&self) {
        self.shared.change(|state, _now| state.shut_down());
    }

    /// Completes once the queue is shut down and nothing is queued or in flight. It needs somebody to get the keys:
    /// without workers it waits forever, so bound it.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn wait_drained(&self) {
        let mut drained = DrainFuture::new(&self.shared);
        poll_fn(|cx| drained.poll(cx)).await;
    }
}

impl<K: Key> Item<K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Parks the key once this item is dropped, unless the key is added or [released](Queue::release) before that. It keeps
    /// its priority. Parks nothing after [`Queue::shut_down`].
    ///
    /// The end of the reason may precede this call. Check afterwards that the reason still holds, and release the key if
    /// it does not.
    pub fn park(&self, reason: ParkReason) {
        let parked = Parked { reason, priority: self.priority };
        self.queue.shared.change(|state, _now| state.park(self.slot, parked));
    }

    /// The priority with which it was handed out: what a requeue should ask for, unless it knows better.
    pub fn priority(&self) -> Priority {
        self.priority
    }
}

impl<K: Key> Drop for Item<K> {
    fn drop(&mut self) {
        let _left = self.queue.shared.change(|state, now| state.done(now, self.slot));
    }
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
            .field("name", &self.shared.name())
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
