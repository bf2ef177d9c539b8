//! How long a key waits before it is tried again.
//!
//! Limiters are pure: they are told the time and never wait. None of them draws on chance.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_env::Instant;

use crate::Key;

/// Says how long a key is to wait before it is queued again.
pub trait RateLimiter<K>: Send + 'static {
    /// The delay for `key`, asked at `now`. Asking counts as an attempt.
    fn when(&mut self, now: Instant, key: &K) -> Duration;

    /// Clears what is held against `key`.
    fn forget(&mut self, key: &K);

    /// How often `key` has been asked for since it was last forgotten.
    fn attempts(&self, key: &K) -> u32;
}

/// So many doublings make any delay longer than a duration can be.
const MOST_DOUBLINGS: u32 = 128;

/// `base` for a key's first attempt, doubled with each further one, never more than `max`. Holds one number per key
/// that has failed, until the key is forgotten.
#[derive(Debug)]
pub struct Exponential<K> {
    base: Duration,
    max: Duration,
    pub(crate) failures: Failures<K>,
}

impl<K: Key> Exponential<K> {
    /// No key has failed yet.
    pub fn new(base: Duration, max: Duration) -> Self {
        Exponential { base, max, failures: Failures::default() }
    }
}

impl<K: Key> RateLimiter<K> for Exponential<K> {
    fn when(&mut self, _now: Instant, key: &K) -> Duration {
        let failures = self.failures.count(key);
        let doubled = (0..failures.min(MOST_DOUBLINGS)).try_fold(self.base, |delay, _| delay.checked_mul(2));
        doubled.unwrap_or(Duration::MAX).min(self.max)
    }

    fn forget(&mut self, key: &K) {
        self.failures.forget(key);
    }

    fn attempts(&self, key: &K) -> u32 {
        self.failures.of(key)
    }
}

/// `fast` for a key's first `attempts_at_fast` attempts, `slow` from then on.
#[derive(Debug)]
pub struct FastSlow<K> {
    fast: Duration,
    slow: Duration,
    attempts_at_fast: u32,
    failures: Failures<K>,
}

impl<K: Key> FastSlow<K> {
    /// No key has failed yet.
    pub fn new(fast: Duration, slow: Duration, attempts_at_fast: u32) -> Self {
        FastSlow { fast, slow, attempts_at_fast, failures: Failures::default() }
    }
}

impl<K: Key> RateLimiter<K> for FastSlow<K> {
    fn when(&mut self, _now: Instant, key: &K) -> Duration {
        if self.failures.count(key) < self.attempts_at_fast { self.fast } else { self.slow }
    }

    fn forget(&mut self, key: &K) {
        self.failures.forget(key);
    }

    fn attempts(&self, key: &K) -> u32 {
        self.failures.of(key)
    }
}

/// A token bucket shared by all keys: `burst` attempts at once, `qps` per second in the long run. Each attempt
/// reserves its own future slot, so that a thousand keys asked for at once come back spread out, not all together.
#[derive(Debug)]
pub struct Bucket {
    /// One attempt's share of time.
    interval: Duration,
    /// How far ahead of now the bucket may be booked without anybody waiting.
    tolerance: Duration,
    /// The time up to which the bucket is booked.
    booked: Instant,
}

impl Bucket {
    /// A full bucket.
    ///
    /// # Panics
    /// If `qps` is not a positive number, or if `burst` is zero: nothing would ever be let through.
    pub fn new(qps: f64, burst: u32) -> Self {
        assert!(qps.is_finite() && qps > 0.0, "a bucket of {qps} per second lets nothing through");
        assert!(burst > 0, "a bucket that holds nothing lets nothing through");
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(Duration::MAX);
        Bucket { interval, tolerance: interval.saturating_mul(burst), booked: Instant::ORIGIN }
    }
}

impl<K> RateLimiter<K> for Bucket {
    fn when(&mut self, now: Instant, _key: &K) -> Duration {
        // Booked time instead of fractional tokens: the same bucket, in whole nanoseconds, without drift.
        self.booked = self.booked.max(now) + self.interval;
        (self.booked - now).saturating_sub(self.tolerance)
    }

    fn forget(&mut self, _key: &K) {}

    fn attempts(&self, _key: &K) -> u32 {
        0
    }
}

/// The longest delay any of several limiters asks for. Every one of them counts the attempt.
pub struct MaxOf<K>(pub Vec<Box<dyn RateLimiter<K>>>);

impl<K: 'static> RateLimiter<K> for MaxOf<K> {
    fn when(&mut self, now: Instant, key: &K) -> Duration {
        self.0.iter_mut().map(|limiter| limiter.when(now, key)).max().unwrap_or(Duration::ZERO)
    }

    fn forget(&mut self, key: &K) {
        self.0.iter_mut().for_each(|limiter| limiter.forget(key));
    }

    fn attempts(&self, key: &K) -> u32 {
        self.0.iter().map(|limiter| limiter.attempts(key)).max().unwrap_or(0)
    }
}

impl<K> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf").field("limiters", &self.0.len()).finish()
    }
}

/// Another limiter's delay, cut off at `max`.
pub struct MaxWait<K> {
    limiter: Box<dyn RateLimiter<K>>,
    max: Duration,
}

impl<K: 'static> MaxWait<K> {
    /// `limiter`, but never more than `max`.
    pub fn new(limiter: Box<dyn RateLimiter<K>>, max: Duration) -> Self {
        MaxWait { limiter, max }
    }
}

impl<K: 'static> RateLimiter<K> for MaxWait<K> {
    fn when(&mut self, now: Instant, key: &K) -> Duration {
        self.limiter.when(now, key).min(self.max)
    }

    fn forget(&mut self, key: &K) {
        self.limiter.forget(key);
    }

    fn attempts(&self, key: &K) -> u32 {
        self.limiter.attempts(key)
    }
}

impl<K> fmt::Debug for MaxWait<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxWait").field("max", &self.max).finish_non_exhaustive()
    }
}

/// What controllers use unless told otherwise, with upstream's numbers: a key backs off alone, from 5 ms doubling to
/// 1000 s, and all keys of the queue together retry at most 10 times per second after a burst of 100.
pub fn default_limiter<K: Key>() -> Box<dyn RateLimiter<K>> {
    Box::new(MaxOf(vec![per_key_limiter(), Box::new(Bucket::new(10.0, 100))]))
}

/// A key backs off alone, from 5 ms doubling to 1000 s, whatever the others do: what controller-runtime uses beside its
/// priority queue.
pub fn per_key_limiter<K: Key>() -> Box<dyn RateLimiter<K>> {
    Box::new(Exponential::new(Duration::from_millis(5), Duration::from_secs(1000)))
}

/// How often each key has failed. Keys that have not take no room.
#[derive(Debug)]
pub(crate) struct Failures<K>(BTreeMap<K, u32>);

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Failures(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Failures<K> {
    /// Counts one more failure, and says how many there were before.
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
