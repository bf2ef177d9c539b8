//! Delays before a key is retried.
//!
//! Limiters are pure: they receive the time, never wait, and use no randomness.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use windlass_env::Instant;

use crate::Key;

/// Computes the delay before a key is enqueued again.
pub trait RateLimiter<K>: Send + 'static {
    /// Returns the delay for `key` at `now`, and counts the attempt.
    fn when(&mut self, now: Instant, key: &K) -> Duration;

    /// Returns the delay for `key` from its own failures only, and counts the attempt. It uses no budget that keys
    /// share. A limiter with a shared budget, or with an inner limiter, must implement this method.
    fn when_per_key(&mut self, now: Instant, key: &K) -> Duration {
        self.when(now, key)
    }

    /// Clears the failures of `key`, and returns its reservation to the shared budget.
    fn forget(&mut self, now: Instant, key: &K);

    /// Returns the number of attempts of `key` since [`RateLimiter::forget`].
    fn attempts(&self, key: &K) -> u32;
}

/// Number of doublings after which any delay exceeds the maximum.
const MAX_DOUBLINGS: u32 = 128;

/// Exponential backoff per key: `base` for the first attempt, doubled with each further attempt, at most `max`. Stores
/// one number per failed key until the key is forgotten.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use windlass_env::Env;
/// use windlass_workqueue::{Exponential, RateLimiter};
///
/// let mut limiter = Exponential::new(Duration::from_millis(5), Duration::from_secs(1000));
/// let now = Env::virtual_time(1).now();
/// assert_eq!(limiter.when(now, &"web"), Duration::from_millis(5));
/// assert_eq!(limiter.when(now, &"web"), Duration::from_millis(10));
/// limiter.forget(now, &"web");
/// assert_eq!(limiter.attempts(&"web"), 0);
/// ```
#[derive(Debug)]
pub struct Exponential<K> {
    base: Duration,
    max: Duration,
    pub(crate) failures: Failures<K>,
}

impl<K: Key> Exponential<K> {
    /// Returns a limiter without failures.
    pub fn new(base: Duration, max: Duration) -> Self {
        Exponential { base, max, failures: Failures::default() }
    }
}

impl<K: Key> RateLimiter<K> for Exponential<K> {
    fn when(&mut self, _now: Instant, key: &K) -> Duration {
        let failures = self.failures.count(key);
        let doubled = (0..failures.min(MAX_DOUBLINGS)).try_fold(self.base, |delay, _| delay.checked_mul(2));
        doubled.unwrap_or(Duration::MAX).min(self.max)
    }

    fn forget(&mut self, _now: Instant, key: &K) {
        self.failures.forget(key);
    }

    fn attempts(&self, key: &K) -> u32 {
        self.failures.of(key)
    }
}

/// Token bucket that all keys share, in addition to the delay of another limiter: `burst` retries immediately, `qps`
/// per second in the long run. Each retry reserves a future slot, which spreads the retries of a thousand keys.
///
/// Guarantees:
/// - A key has at most one slot. A key that fails again before its retry, because a change started it earlier, keeps
///   its slot. A key that is forgotten before its retry returns its slot, and the next failure takes the returned slot.
/// - The bucket adds at most one slot per other key with a pending retry. With 10 per second, that is 200 s while 2,000
///   keys fail. Growing delays per key reduce this: the bucket adds nothing once each of the 2,000 keys has a delay of
///   more than 200 s.
/// - The bucket never adds more than `max_wait`. With more than `burst + qps * max_wait` pending retries it no longer
///   limits their rate, which is then at most one retry per key and `max_wait`.
pub struct TokenBucket<K> {
    per_key: Box<dyn RateLimiter<K>>,
    /// Time between two slots.
    interval: Duration,
    /// Reservations within this time from now cause no delay.
    tolerance: Duration,
    max_wait: Duration,
    /// The last reserved slot, as the time up to which the bucket is reserved.
    booked: Instant,
    /// Slots that were returned.
    free: BTreeSet<Instant>,
    reserved: BTreeMap<K, Reservation>,
}

/// Slot of a key's next retry.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    slot: Instant,
    /// Time of the retry. Later than the slot if the key's own delay is longer.
    due: Instant,
}

impl<K: Key> TokenBucket<K> {
    /// Returns a full bucket around `per_key`.
    ///
    /// # Panics
    /// If `qps` is not a positive number, or if `burst` is zero: the bucket would never admit a retry.
    pub fn around(per_key: Box<dyn RateLimiter<K>>, qps: f64, burst: u32, max_wait: Duration) -> Self {
        assert!(qps.is_finite() && qps > 0.0, "qps must be positive: {qps}");
        assert!(burst > 0, "burst must be positive");
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(Duration::MAX);
        TokenBucket {
            per_key,
            interval,
            tolerance: interval.saturating_mul(burst),
            max_wait,
            booked: Instant::ORIGIN,
            free: BTreeSet::new(),
            reserved: BTreeMap::new(),
        }
    }

    /// Reserves the first returned slot in the future, or a new slot.
    fn draw(&mut self, now: Instant) -> Instant {
        while let Some(slot) = self.free.pop_first() {
            if slot > now {
                return slot;
            }
        }
        // Reserved time instead of fractional tokens: the same bucket in whole nanoseconds, without drift.
        let last = now + self.tolerance + self.max_wait;
        self.booked = (self.booked.max(now) + self.interval).min(last);
        self.booked
    }

    fn release(&mut self, now: Instant, key: &K) {
        let reserved = self.reserved.remove(key);
        // A slot whose retry has started is used, and a slot in the past has no value.
        let unused = reserved.filter(|reservation| reservation.due > now && reservation.slot > now);
        self.free.extend(unused.map(|reservation| reservation.slot));
    }
}

impl<K: Key> RateLimiter<K> for TokenBucket<K> {
    fn when(&mut self, now: Instant, key: &K) -> Duration {
        let own = self.per_key.when(now, key);
        let pending = self.reserved.get(key).filter(|reservation| reservation.due > now);
        let slot = match pending {
            Some(reservation) => reservation.slot,
            None => self.draw(now),
        };
        let delay = own.max((slot - now).saturating_sub(self.tolerance));
        self.reserved.insert(key.clone(), Reservation { slot, due: now + delay });
        delay
    }

    fn when_per_key(&mut self, now: Instant, key: &K) -> Duration {
        self.release(now, key);
        self.per_key.when_per_key(now, key)
    }

    fn forget(&mut self, now: Instant, key: &K) {
        self.release(now, key);
        self.per_key.forget(now, key);
    }

    fn attempts(&self, key: &K) -> u32 {
        self.per_key.attempts(key)
    }
}

impl<K> fmt::Debug for TokenBucket<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBucket")
            .field("interval", &self.interval)
            .field("max_wait", &self.max_wait)
            .field("booked", &self.booked)
            .field("reserved", &self.reserved.len())
            .finish_non_exhaustive()
    }
}

/// Maximum delay of a failing key.
const MAX_DELAY: Duration = Duration::from_secs(1000);

/// Returns the default limiter of controllers, with the numbers of client-go. Each key has its own backoff from 5 ms to
/// 1000 s. All keys of the queue together retry at most 10 times per second after a burst of 100. The bucket adds at
/// most 1000 s: see [`TokenBucket`] for the effect of failing keys on each other.
pub fn default_limiter<K: Key>() -> Box<dyn RateLimiter<K>> {
    Box::new(TokenBucket::around(per_key_limiter(), 10.0, 100, MAX_DELAY))
}

/// Returns a limiter with a separate backoff per key, from 5 ms doubling to 1000 s. controller-runtime uses it with its
/// priority queue.
pub fn per_key_limiter<K: Key>() -> Box<dyn RateLimiter<K>> {
    Box::new(Exponential::new(Duration::from_millis(5), MAX_DELAY))
}

/// Number of failures by key. Keys without failures use no memory.
#[derive(Debug)]
pub(crate) struct Failures<K>(BTreeMap<K, u32>);

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Failures(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Failures<K> {
    /// Counts one more failure and returns the previous count.
    fn count(&mut self, key: &K) -> u32 {
        match self.0.get_mut(key) {
            Some(failures) => std::mem::replace(failures, failures.saturating_add(1)),
            None => {
                self.0.insert(key.clone(), 1);
                0
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, key: &K) -> u32 {
        self.0.get(key).copied().unwrap_or(0)
    }

    fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}
