//! The public handle of the queue, and the guard for a key in progress.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use windlass_env::Env;
use windlass_metrics::WorkqueueMetrics;

use crate::delays::DelayReason;
use crate::drain_future::DrainFuture;
use crate::getter::GetFuture;
use crate::limiter::RateLimiter;
use crate::shared::Shared;
use crate::state::{Delay, DequeuedKey};
use crate::{AddDelay, AddOptions, Key, KeyStatus, ParkReason, Parked, Priority};

/// Minimum delay of [`AddDelay::RetryAfter`], equal to the first step of the default limiter.
const MIN_RETRY: Duration = Duration::from_millis(5);

/// A queue of keys. Clones share the same queue.
pub struct Queue<K: Key> {
    pub(crate) shared: Arc<Shared<K>>,
}

/// Guard for a key that a worker processes. Dropping it marks the key as done. The key is then requeued if it was added
/// during processing, or waits for its release if it was [parked](Item::park).
pub struct Item<K: Key> {
    queue: Queue<K>,
    /// `None` once the key is marked as done.
    dequeued: Option<DequeuedKey<K>>,
}

impl<K: Key> Queue<K> {
    /// Returns an empty queue with the [default limiter](crate::default_limiter) and a single tenant. `name` appears
    /// only in [`fmt::Debug`]; `metrics` has its own label.
    pub fn new(env: Env, name: &str, metrics: impl Into<Option<WorkqueueMetrics>>) -> Self {
        Queue { shared: Shared::new(env, name, metrics.into()) }
    }

    /// Enqueues `key` with normal priority, unless it is already queued. A key in progress is enqueued when its worker
    /// is done, and a resting key at the end of its [rest](Item::rest). Replaces a pending retry of the same key.
    /// Ignored after [`Queue::shut_down`].
    pub fn add(&self, key: K) {
        self.add_with(key, AddOptions::now());
    }

    /// Enqueues `key` with normal priority after `delay`, or at the earlier time at which it is already due. A delay of
    /// zero is [`Queue::add`]. Ignored after [`Queue::shut_down`].
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with(key, AddOptions::after(delay));
    }

    /// Enqueues `key` with normal priority as soon as the limiter allows, and counts the attempt. Ignored after
    /// [`Queue::shut_down`].
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(key, AddOptions::rate_limited());
    }

    /// Enqueues `key` with these options. A queued key can only be raised, to the back of the higher priority. A key in
    /// progress is requeued with the highest priority of the adds during its processing. A delayed key keeps the
    /// earliest time and the highest priority. Ignored after [`Queue::shut_down`].
    pub fn add_with(&self, key: K, add: AddOptions) {
        let AddOptions { priority, when } = add;
        let (length, reason) = match when {
            AddDelay::Now => {
                let hashed = self.shared.hashed(key);
                return drop(self.shared.change(|state, now| state.add(now, hashed, priority)));
            }
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
                // Called to count the attempt; the server's delay replaces the result.
                let _back_off = self.shared.limiter().when_per_key(now, &key);
                (delay.max(MIN_RETRY), DelayReason::Retry)
            }
        };
        let (hashed, delay) = (self.shared.hashed(key), Delay { length, reason });
        drop(self.shared.change(|state, now| state.add_after(now, hashed, delay, priority)));
    }

    /// Enqueues many keys with one lock and one reading of the clock, as [`Queue::add_with`] for each key. `keys` is
    /// iterated under the lock, so it must not call the queue. If it panics, the keys that it returned before are
    /// enqueued.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>, priority: Priority) {
        self.shared.change(|state, now| {
            keys.into_iter().for_each(|key| drop(state.add(now, self.shared.hashed(key), priority)));
        });
    }

    /// Cancels the scheduled add or the retry of `key`, and returns whether there was one. A key whose delay has
    /// expired is queued and cannot be canceled.
    pub fn cancel_delayed(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        let (cancelled, _left) = self.shared.change(|state, _now| state.cancel_delayed(hash, key));
        cancelled
    }

    /// Ends the [rest](Item::rest) of `key`, for an add that must not wait for it. A key in progress does not rest
    /// after its processing.
    pub fn end_rest(&self, key: &K) {
        let hash = self.shared.hash(key);
        let _left = self.shared.change(|state, now| state.end_rest_of(now, hash, key));
    }

    /// Enqueues `key` with its priority if it is parked for `reason`.
    pub fn release(&self, key: &K, reason: ParkReason) {
        let hash = self.shared.hash(key);
        self.shared.change(|state, now| state.release(now, hash, key, reason));
    }

    /// Returns the keys that are parked for `reason`, sorted.
    pub fn parked(&self, reason: ParkReason) -> Vec<K> {
        self.shared.change(|state, _now| state.parked(reason))
    }

    /// Returns the number of keys that are parked for `reason`.
    pub fn count_parked(&self, reason: ParkReason) -> usize {
        self.shared.change(|state, _now| state.count_parked(reason))
    }

    /// Returns whether `key` is parked for `reason`.
    pub fn is_parked(&self, key: &K, reason: ParkReason) -> bool {
        self.key_status(key).parked.is_some_and(|parked| parked.reason == reason)
    }

    /// Removes the keys that are queued, delayed or parked and for which `is_removed` returns true, as if they had
    /// never been added. A key in progress stays with its worker. `is_removed` runs under the lock, so it must not call
    /// the queue. The limiter keeps its state for the keys: see [`Queue::forget`].
    pub fn remove_if(&self, is_removed: impl Fn(&K) -> bool) {
        let _left = self.shared.change(|state, _now| state.remove_if(is_removed));
    }

    /// Returns the current position of `key` in the queue.
    pub fn key_status(&self, key: &K) -> KeyStatus {
        let hash = self.shared.hash(key);
        self.shared.change(|state, _now| state.key_status(hash, key))
    }

    /// Clears the limiter's state for `key`. Call it when the key succeeds or is dropped.
    pub fn forget(&self, key: &K) {
        let now = self.shared.env.now();
        self.shared.limiter().forget(now, key);
    }

    /// Returns the number of rate-limited adds of `key` since [`Queue::forget`].
    pub fn attempts(&self, key: &K) -> u32 {
        self.shared.limiter().attempts(key)
    }

    /// Replaces the limiter. The state of the old limiter is discarded. Pending delays do not change.
    pub fn replace_limiter(&self, limiter: Box<dyn RateLimiter<K>>) {
        let _old = std::mem::replace(&mut *self.shared.limiter(), limiter);
    }

    /// Sets the function that returns the tenant of a key. Within a priority the queue serves tenants in turn, so a
    /// tenant with a hundred thousand keys does not delay another tenant. Keys that are already in the queue keep their
    /// tenant.
    ///
    /// The function runs under the queue's lock, once per key that enters: it must be fast and must not call the queue.
    pub fn fair_by(&self, tenant_of: impl for<'k> Fn(&'k K) -> &'k str + Send + 'static) {
        let _old = self.shared.change(|state, _now| state.fair_by(Box::new(tenant_of)));
    }

    /// Waits for the next key and returns it. Returns `None` when the queue is shut down and has no more keys to
    /// return.
    ///
    /// # Cancel safety
    /// A dropped call loses no key: the next waiting call receives the key that it was woken for.
    pub async fn get(&self) -> Option<Item<K>> {
        let mut dequeued = None;
        let mut getter = GetFuture::new(&self.shared, &mut dequeued);
        poll_fn(|cx| getter.poll(cx)).await;
        drop(getter);
        dequeued.is_some().then(|| Item { queue: self.clone(), dequeued })
    }

    /// Returns the number of keys that can be dequeued now: neither delayed nor in progress.
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty queue can have keys when the caller reads the result"
    )]
    pub fn len(&self) -> usize {
        self.shared.change(|state, _now| state.ready())
    }

    /// Returns whether no key is queued, delayed, parked or in progress.
    pub fn has_no_keys(&self) -> bool {
        self.shared.change(|state, _now| state.has_no_keys())
    }

    /// Ignores adds from now on, and drops delayed and parked keys. Queued keys are still dequeued, including keys that
    /// were added again while in progress. [`Queue::get`] then returns `None`. A second call has no effect.
    pub fn shut_down(&self) {
        self.shared.change(|state, now| state.shut_down(now));
    }

    /// Waits until the queue is shut down and no key is queued or in progress. Workers must dequeue the keys: without
    /// workers this call waits forever, so use it with a timeout.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait and has no other effect.
    pub async fn wait_drained(&self) {
        let mut drained = DrainFuture::new(&self.shared);
        poll_fn(|cx| drained.poll(cx)).await;
    }
}

impl<K: Key> Item<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.dequeued().key
    }

    /// Marks the key as done, and waits for the next key like [`Queue::get`]. This is cheaper than two calls, and if
    /// the key was added again, no other worker is woken for a key that this worker can dequeue.
    ///
    /// # Cancel safety
    /// A dropped call marks the key as done, and loses no key.
    pub async fn get_next(mut self) -> Option<Item<K>> {
        let mut getter = GetFuture::new(&self.queue.shared, &mut self.dequeued);
        poll_fn(|cx| getter.poll(cx)).await;
        drop(getter);
        self.dequeued.is_some().then_some(self)
    }

    /// Parks the key when this item is dropped, unless the key is added or [released](Queue::release) before. It keeps
    /// its priority. After [`Queue::shut_down`] the call has no effect.
    ///
    /// The condition can end before this call. Check afterwards that the reason still holds, and release the key if it
    /// does not.
    pub fn park(&self, reason: ParkReason) {
        let DequeuedKey { slot, priority, .. } = *self.dequeued();
        self.queue.shared.change(|state, _now| state.park(slot, Parked { reason, priority }));
    }

    /// Sets the time for which the key rests after its processing. A resting key is not dequeued, and adds of it are
    /// merged. Without a rest, a key that changes all the time is processed all the time, once per few changes. A
    /// delayed add that becomes due during the rest ends it, and so do [`Queue::end_rest`] and [`Queue::shut_down`]. A
    /// parked key does not rest.
    pub fn rest(&mut self, length: Duration) {
        if let Some(dequeued) = &mut self.dequeued {
            dequeued.rest = length;
        }
    }

    /// Returns the priority with which the key was dequeued. Use it as the default for a requeue.
    pub fn priority(&self) -> Priority {
        self.dequeued().priority
    }

    fn dequeued(&self) -> &DequeuedKey<K> {
        let Some(dequeued) = &self.dequeued else { unreachable!("an item without a key is not returned") };
        dequeued
    }
}

impl<K: Key> Drop for Item<K> {
    fn drop(&mut self) {
        self.queue.shared.finish(self.dequeued.take());
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
            .field("key", self.key())
            .field("priority", &self.priority())
            .finish_non_exhaustive()
    }
}
