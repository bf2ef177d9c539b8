//! The limiters, compared with the numbers of client-go.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_env::Instant;

use super::ms;
use crate::{Exponential, RateLimiter, TokenBucket, default_limiter, per_key_limiter};

// parity: item-exponential-failure, test-item-exponential-failure-rate
#[test]
fn exponential_delay_doubles_per_key_and_stops_at_its_maximum() {
    let mut limiter = Exponential::new(ms(5), Duration::from_secs(1000));
    let mut delay = |key: &'static str| limiter.when(Instant::ORIGIN, &key);
    let delays: Vec<Duration> = (0..5).map(|_| delay("a")).collect();
    assert_eq!(delays, [ms(5), ms(10), ms(20), ms(40), ms(80)]);
    assert_eq!(delay("b"), ms(5), "another key backs off alone");
    let last = (0..100).map(|_| delay("a")).last();
    assert_eq!(last, Some(Duration::from_secs(1000)), "even if the power overflows");
}

#[test]
fn forget_resets_delay_and_frees_memory() {
    let mut limiter = Exponential::new(ms(5), ms(1000));
    for key in 0..100 {
        limiter.when(Instant::ORIGIN, &key);
    }
    assert_eq!(limiter.attempts(&7), 1);
    for key in 0..100 {
        limiter.forget(Instant::ORIGIN, &key);
    }
    assert!(limiter.failures.is_empty());
    assert_eq!((limiter.attempts(&7), limiter.when(Instant::ORIGIN, &7)), (0, ms(5)));
}

/// Returns a bucket whose per-key delay is zero.
fn bucket(qps: f64, burst: u32, max_wait: Duration) -> TokenBucket<u32> {
    TokenBucket::around(Box::new(Exponential::new(Duration::ZERO, Duration::ZERO)), qps, burst, max_wait)
}

// parity: bucket-rate-limiter
#[test]
fn bucket_admits_burst_and_then_reserves_future_slots() {
    let (mut bucket, mut key) = (bucket(10.0, 3, Duration::MAX), 0);
    let mut when = |at: u64| {
        key += 1;
        bucket.when(Instant::ORIGIN + ms(at), &key)
    };
    let delays: Vec<Duration> = (0..6).map(|_| when(1_000)).collect();
    assert_eq!(delays, [ms(0), ms(0), ms(0), ms(100), ms(200), ms(300)]);
    assert_eq!(when(1_250), ms(150), "reservations are kept");
    assert_eq!(when(11_000), ms(0));
    assert_eq!(
        [when(11_000), when(11_000), when(11_000)],
        [ms(0), ms(0), ms(100)],
        "the bucket refills up to its burst"
    );
}

#[test]
fn bucket_without_rate_or_burst_panics() {
    for (qps, burst) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1.0, 0)] {
        let refused = windlass_env::catch_panic_sync(|| bucket(qps, burst, Duration::MAX));
        assert!(refused.is_err(), "{qps} {burst}");
    }
}

// parity: max-of, test-max-of-rate-limiter
#[test]
fn default_limiter_returns_longer_delay_of_key_and_bucket() {
    let mut limiter: Box<dyn RateLimiter<u8>> = default_limiter();
    let delays: Vec<Duration> = (0..101).map(|key| limiter.when(Instant::ORIGIN, &key)).collect();
    assert_eq!((delays[0], delays[99]), (ms(5), ms(5)));
    assert_eq!(delays[100], ms(100), "the shared bucket is empty");
    assert_eq!((limiter.attempts(&0), limiter.attempts(&200)), (1, 0));
    limiter.forget(Instant::ORIGIN, &0);
    assert_eq!(limiter.attempts(&0), 0);
}

/// Returns the delays of `times` consecutive failures of a key.
fn delays_of(limiter: &mut dyn RateLimiter<&'static str>, key: &'static str, times: usize) -> Vec<Duration> {
    (0..times).map(|_| limiter.when(Instant::ORIGIN, &key)).collect()
}

// parity: item-exponential-failure, test-item-exponential-failure-rate
#[test]
fn overflowing_exponential_delay_is_the_maximum() {
    let (minute, hours) = (Duration::from_secs(60), Duration::from_secs(1000 * 3600));
    for (base, max) in [(ms(1), Duration::from_secs(1000)), (minute, hours), (Duration::from_nanos(1), hours)]
    {
        let mut limiter = Exponential::new(base, max);
        assert_eq!(delays_of(&mut limiter, "two", 3), [base, base * 2, base * 4]);
        let doubled = delays_of(&mut limiter, "overflow", 1_000);
        assert_eq!(doubled.last(), Some(&max));
        let not_yet = doubled.iter().position(|delay| *delay == max).unwrap_or_default();
        assert!(doubled[..not_yet].is_sorted_by(|a, b| a.saturating_mul(2) == *b), "{base:?}: {doubled:?}");
    }
}

#[test]
fn exponential_delay_without_a_base_never_waits() {
    let mut limiter = Exponential::new(Duration::ZERO, Duration::from_secs(1));
    assert_eq!(delays_of(&mut limiter, "a", 200).last(), Some(&Duration::ZERO));
    assert_eq!(limiter.attempts(&"a"), 200);
}

#[test]
fn per_key_limiter_has_no_shared_budget() {
    let mut limiter = per_key_limiter::<u32>();
    let delays = (0..1_000).map(|key| limiter.when(Instant::ORIGIN, &key));
    assert!(delays.into_iter().all(|delay| delay == ms(5)));
}

/// Lets `keys` fail at each attempt: when the retry is due or, if that is earlier, after `changed_every`. Returns the
/// longest delay of a key without earlier failures, checked once a minute.
fn longest_delay_of_new_failure(keys: u32, changed_every: Option<Duration>) -> Duration {
    let (mut limiter, mut longest) = (default_limiter(), Duration::ZERO);
    let mut next: BTreeSet<(Instant, u32)> = (0..keys).map(|key| (Instant::ORIGIN, key)).collect();
    for minute in 1..=20 {
        let end = Instant::ORIGIN + Duration::from_secs(60 * minute);
        while let Some((now, key)) = next.pop_first().filter(|(now, _)| *now < end) {
            let delay = limiter.when(now, &key);
            next.insert((now + changed_every.map_or(delay, |every| every.min(delay)), key));
        }
        longest = longest.max(limiter.when(end, &u32::MAX));
        limiter.forget(end, &u32::MAX);
    }
    longest
}

// parity: bucket-rate-limiter
#[test]
fn new_failure_waits_at_most_one_slot_per_failing_key() {
    let (soon, often) = (Some(Duration::from_secs(10)), Some(ms(10)));
    for (keys, changed_every) in [(1, often), (90, None), (2_000, None), (2_000, soon)] {
        let longest = longest_delay_of_new_failure(keys, changed_every);
        let one_slot_each = ms(100) * keys;
        assert!(longest <= one_slot_each, "{keys} keys changed every {changed_every:?}: {longest:?}");
    }
}

#[test]
fn key_keeps_its_slot_when_it_fails_before_its_retry() {
    let mut bucket = bucket(10.0, 1, Duration::MAX);
    let at = |millis: u64| Instant::ORIGIN + ms(millis);
    assert_eq!([0, 1, 2].map(|key| bucket.when(at(0), &key)), [ms(0), ms(100), ms(200)]);
    assert_eq!([10, 50, 199].map(|now| bucket.when(at(now), &2)), [ms(190), ms(150), ms(1)]);
    assert_eq!(bucket.when(at(199), &3), ms(101), "the next slot was not reserved");
    assert_eq!(bucket.when(at(200), &2), ms(200), "the retry has started, so the slot is used");
}

#[test]
fn next_failure_takes_slot_of_key_forgotten_before_its_retry() {
    let mut bucket = bucket(10.0, 1, Duration::MAX);
    let at = |millis: u64| Instant::ORIGIN + ms(millis);
    assert_eq!([0, 1, 2, 3].map(|key| bucket.when(at(0), &key)), [ms(0), ms(100), ms(200), ms(300)]);
    bucket.forget(at(10), &1);
    bucket.when_per_key(at(10), &2);
    assert_eq!([4, 5, 6].map(|key| bucket.when(at(10), &key)), [ms(90), ms(190), ms(390)]);
    bucket.forget(at(100), &4);
    assert_eq!(bucket.when(at(100), &7), ms(400), "a retry that has started returns no slot");
    bucket.forget(at(150), &5);
    assert_eq!(bucket.when(at(400), &8), ms(200), "a slot in the past is not returned");
}

#[test]
fn bucket_adds_no_more_than_its_maximum() {
    let mut bucket = bucket(10.0, 5, ms(1_000));
    let longest = (0..1_000).map(|key| bucket.when(Instant::ORIGIN, &key)).max();
    assert_eq!(longest, Some(ms(1_000)));
    (0..1_000).for_each(|key| bucket.forget(Instant::ORIGIN, &key));
    assert_eq!(bucket.when(Instant::ORIGIN, &1_000), ms(100), "only the burst is used");
}

#[test]
fn per_key_retry_uses_no_shared_slot() {
    let mut limiter = default_limiter();
    for round in 0..120 {
        let now = Instant::ORIGIN + Duration::from_secs(30) * round;
        (0..2_000).for_each(|key| assert!(limiter.when_per_key(now, &key) >= ms(5)));
    }
    assert_eq!(
        (limiter.attempts(&0), limiter.when(Instant::ORIGIN + Duration::from_secs(3600), &u32::MAX)),
        (120, ms(5))
    );
}

// parity: bucket-rate-limiter
#[test]
fn default_limiter_delay_does_not_exceed_maximum_per_key() {
    let mut limiter = default_limiter();
    let longest = (0..50_000).map(|key| limiter.when(Instant::ORIGIN, &key)).max();
    assert_eq!(longest, Some(Duration::from_secs(1000)));
}
