//! How long a key waits before it is tried again.
//!
//! Limiters are pure: they are told the time and never wait. None of them draws on chance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use windlass_env::Instant;

use crate::Key;

/// Says how long a key is to wait before it is queued again.
pub trait RateLimiter<K>: Send + 'static {
    /// The delay for `key`, asked at `now`. Asking counts as an attempt.
    fn when(&mut self, now: Instant, key: &K) -> Duration;

    /// Returns the delay for `key` by its own failures, and counts the attempt. It draws on nothing that keys share. A
    /// limiter that shares something between keys, or that contains another limiter, must implement this method.
    fn when_per_key(&mut self, now: Instant, key: &K) -> Duration {
        self.when(now, key)
    }

    /// Clears what is held against `key`, and returns what was reserved for a retry that does not come.
    fn forget(&mut self, now: Instant, key: &K);

    /// How often `key` has been asked for since it was last forgotten.
    fn attempts(&self, key: &K) -> u32;
}

/// So many doublings make any delay longer than a duration can be.
const MAX_DOUBLINGS: u32 = 128;

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

/// Another limiter's delay, and a token bucket that all keys share: `burst` retries at once, `qps` per second in the long
/// run. Each retry reserves a future slot, so that the retries of a thousand keys are spread out.
///
/// Guarantees:
/// - A key has one slot at most. A key that fails again before its retry, because a change brought it earlier, keeps its
///   slot. A key that is forgotten before its retry returns its slot, and the next failure takes the returned slot.
/// - The bucket adds at most one slot per other key whose retry is pending: with 10 per second, 200 s while 2,000 keys
///   fail. Delays that grow per key relieve it: no key waits once each of the 2,000 waits for longer than 200 s.
/// - The bucket never adds more than `max_wait`. So beyond `burst + qps * max_wait` pending retries it no longer limits
///   their rate, which is then at most one retry per key and `max_wait`.
pub struct TokenBucket<K> {
    per_key: Box<dyn RateLimiter<K>>,
    /// One retry's share of time.
    interval: Duration,
    /// How far ahead of now the bucket may be booked without any wait.
    tolerance: Duration,
    max_wait: Duration,
    /// The last slot. A slot is the time up to which the bucket is booked with it.
    booked: Instant,
    /// Slots that were returned.
    free: BTreeSet<Instant>,
    reserved: BTreeMap<K, Reservation>,
}

/// The slot of a key's next retry.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    slot: Instant,
    /// When the retry comes, which is later than the slot if the key's own delay is longer.
    due: Instant,
}

impl<K: Key> TokenBucket<K> {
    /// A full bucket around `per_key`.
    ///
    /// # Panics
    /// If `qps` is not a positive number, or if `burst` is zero: nothing would ever be let through.
    pub fn new(per_key: Box<dyn RateLimiter<K>>, qps: f64, burst: u32, max_wait: Duration) -> Self {
        assert!(qps.is_finite() && qps > 0.0, "a bucket of {qps} per second lets nothing through");
        assert!(burst > 0, "a bucket that holds nothing lets nothing through");
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

    /// Takes the first returned slot that is not over, or books a new one.
    fn draw(&mut self, now: Instant) -> Instant {
        while let Some(slot) = self.free.pop_first() {
            if slot > now {
                return slot;
            }
        }
        // Booked time instead of fractional tokens: the same bucket, in whole nanoseconds, without drift.
        let last = now + self.tolerance + self.max_wait;
        self.booked = (self.booked.max(now) + self.interval).min(last);
        self.booked
    }

    fn release(&mut self, now: Instant, key: &K) {
        let reserved = self.reserved.remove(key);
        // A slot whose retry has come is used, and a slot that is over has flowed back by itself.
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
        f.debug_struct("Bucket")
            .field("interval", &self.interval)
            .field("max_wait", &self.max_wait)
            .field("booked", &self.booked)
            .field("reserved", &self.reserved.len())
            .finish_non_exhaustive()
    }
}

/// The longest delay of a failing key.
const MAX_DELAY: Duration = Duration::from_secs(1000);

/// What controllers use unless told otherwise, with upstream's numbers: a key backs off alone, from 5 ms doubling to
/// 1000 s, and all keys of the queue together retry at most 10 times per second after a burst of 100. The bucket adds
/// at most 1000 s: see [`TokenBucket`] for what failing keys cost each other.
pub fn default_limiter<K: Key>() -> Box<dyn RateLimiter<K>> {
    Box::new(TokenBucket::new(per_key_limiter(), 10.0, 100, MAX_DELAY))
}

/// A key backs off alone, from 5 ms doubling to 1000 s, whatever the others do: what controller-runtime uses next to its
/// priority queue.
pub fn per_key_limiter<K: Key>() -> Box<dyn RateLimiter<K>> {
    Box::new(Exponential::new(Duration::from_millis(5), MAX_DELAY))
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
