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

/// `base` for a key's first attempt, doubled with each further one, never more than `max`. Holds one number per key
/// that has failed, until the key is forgotten.
#[derive(Debug)]
pub struct Exponential<K> {
    base: Duration,
    max: Duration,
    failures: Failures<K>,
}

impl<K: Key> Exponential<K> {
    /// No key has failed yet.
    pub fn new(base: Duration, max: Duration) -> Self {
        Exponential { base, max, failures: Failures::default() }
    }
}

impl<K: Key> RateLimiter<K> for Exponential<K> {
    fn when(&mut self, _now: Instant, key: &K) -> Duration {
        let factor = 1u32.checked_shl(self.failures.count(key)).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
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
    let alone: Box<dyn RateLimiter<K>> =
        Box::new(Exponential::new(Duration::from_millis(5), Duration::from_secs(1000)));
    Box::new(MaxOf(vec![alone, Box::new(Bucket::new(10.0, 100))]))
}

/// How often each key has failed. Keys that have not take no room.
#[derive(Debug)]
struct Failures<K>(BTreeMap<K, u32>);

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

    fn of(&self, key: &K) -> u32 {
        self.0.get(key).copied().unwrap_or(0)
    }

    fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn an_exponential_delay_doubles_per_key_and_stops_at_its_maximum() {
        let mut limiter = Exponential::new(ms(5), Duration::from_secs(1000));
        let mut delay = |key: &'static str| limiter.when(Instant::ORIGIN, &key);
        let delays: Vec<Duration> = (0..5).map(|_| delay("a")).collect();
        assert_eq!(delays, [ms(5), ms(10), ms(20), ms(40), ms(80)]);
        assert_eq!(delay("b"), ms(5), "another key backs off alone");
        let last = (0..100).map(|_| delay("a")).last();
        assert_eq!(last, Some(Duration::from_secs(1000)), "also where the power no longer fits");
    }

    #[test]
    fn forgetting_starts_over_and_frees_the_room() {
        let mut limiter = Exponential::new(ms(5), ms(1000));
        for key in 0..100 {
            limiter.when(Instant::ORIGIN, &key);
        }
        assert_eq!(limiter.attempts(&7), 1);
        for key in 0..100 {
            limiter.forget(&key);
        }
        assert!(limiter.failures.0.is_empty());
        assert_eq!((limiter.attempts(&7), limiter.when(Instant::ORIGIN, &7)), (0, ms(5)));
    }

    #[test]
    fn a_bucket_lets_its_burst_through_and_then_books_future_slots() {
        let mut bucket = Bucket::new(10.0, 3);
        let mut when = |at: u64| RateLimiter::<u8>::when(&mut bucket, Instant::ORIGIN + ms(at), &0);
        let delays: Vec<Duration> = (0..6).map(|_| when(1_000)).collect();
        assert_eq!(delays, [ms(0), ms(0), ms(0), ms(100), ms(200), ms(300)]);
        assert_eq!(when(1_250), ms(150), "what is booked stays booked");
        assert_eq!(when(11_000), ms(0));
        assert_eq!(
            [when(11_000), when(11_000), when(11_000)],
            [ms(0), ms(0), ms(100)],
            "and it fills up again, not over"
        );
    }

    #[test]
    fn a_bucket_that_could_let_nothing_through_is_refused() {
        for (qps, burst) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1.0, 0)] {
            assert!(windlass_env::caught_now(|| Bucket::new(qps, burst)).is_err(), "{qps} {burst}");
        }
    }

    #[test]
    fn the_longest_of_several_delays_counts_and_all_of_them_count_the_attempt() {
        let mut limiter: Box<dyn RateLimiter<u8>> = default_limiter();
        let delays: Vec<Duration> = (0..101).map(|key| limiter.when(Instant::ORIGIN, &key)).collect();
        assert_eq!((delays[0], delays[99]), (ms(5), ms(5)));
        assert_eq!(delays[100], ms(100), "the shared bucket is empty");
        assert_eq!((limiter.attempts(&0), limiter.attempts(&200)), (1, 0));
        limiter.forget(&0);
        assert_eq!(limiter.attempts(&0), 0);
    }

    #[test]
    fn fast_attempts_come_before_slow_ones_and_a_maximum_cuts_off() {
        let fast_slow = FastSlow::new(ms(1), ms(50), 2);
        let mut limiter = MaxWait::new(Box::new(fast_slow), ms(20));
        let delays: Vec<Duration> = (0..4).map(|_| limiter.when(Instant::ORIGIN, &'k')).collect();
        assert_eq!(delays, [ms(1), ms(1), ms(20), ms(20)]);
        assert_eq!(limiter.attempts(&'k'), 4);
        limiter.forget(&'k');
        assert_eq!(limiter.when(Instant::ORIGIN, &'k'), ms(1));
    }
}
