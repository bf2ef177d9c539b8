//! The limiters against upstream's numbers.

use std::time::Duration;

use windlass_env::Instant;

use super::ms;
use crate::{Bucket, Exponential, FastSlow, MaxOf, MaxWait, RateLimiter, default_limiter, per_key_limiter};

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
    assert!(limiter.failures.is_empty());
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

/// What a limiter says to a key asked for `times` times in a row.
fn asked(limiter: &mut dyn RateLimiter<&'static str>, key: &'static str, times: usize) -> Vec<Duration> {
    (0..times).map(|_| limiter.when(Instant::ORIGIN, &key)).collect()
}

#[test]
fn an_exponential_delay_that_no_number_holds_is_the_maximum_whatever_its_base() {
    let (minute, hours) = (Duration::from_secs(60), Duration::from_secs(1000 * 3600));
    for (base, max) in [(ms(1), Duration::from_secs(1000)), (minute, hours), (Duration::from_nanos(1), hours)]
    {
        let mut limiter = Exponential::new(base, max);
        assert_eq!(asked(&mut limiter, "two", 3), [base, base * 2, base * 4]);
        let doubled = asked(&mut limiter, "overflow", 1_000);
        assert_eq!(doubled.last(), Some(&max));
        let not_yet = doubled.iter().position(|delay| *delay == max).unwrap_or_default();
        assert!(doubled[..not_yet].is_sorted_by(|a, b| a.saturating_mul(2) == *b), "{base:?}: {doubled:?}");
    }
}

#[test]
fn an_exponential_delay_without_a_base_never_waits() {
    let mut limiter = Exponential::new(Duration::ZERO, Duration::from_secs(1));
    assert_eq!(asked(&mut limiter, "a", 200).last(), Some(&Duration::ZERO));
    assert_eq!(limiter.attempts(&"a"), 200);
}

#[test]
fn the_longest_of_fast_slow_and_exponential_follows_upstreams_steps() {
    let mut limiter = MaxOf(vec![
        Box::new(FastSlow::new(ms(5), Duration::from_secs(3), 3)),
        Box::new(Exponential::new(ms(1), Duration::from_secs(1))) as Box<dyn RateLimiter<&'static str>>,
    ]);
    let slow = Duration::from_secs(3);
    assert_eq!(asked(&mut limiter, "one", 5), [ms(5), ms(5), ms(5), slow, slow]);
    assert_eq!(limiter.attempts(&"one"), 5);
    assert_eq!((asked(&mut limiter, "two", 2), limiter.attempts(&"two")), (vec![ms(5), ms(5)], 2));
    limiter.forget(&"one");
    assert_eq!((limiter.attempts(&"one"), asked(&mut limiter, "one", 1)), (0, vec![ms(5)]));
}

#[test]
fn the_longest_of_no_limiters_does_not_wait() {
    let mut limiter = MaxOf(Vec::new());
    assert_eq!((asked(&mut limiter, "a", 1), limiter.attempts(&"a")), (vec![Duration::ZERO], 0));
}

#[test]
fn a_limiter_per_key_knows_no_budget_of_all_keys() {
    let mut limiter = per_key_limiter::<u32>();
    let delays = (0..1_000).map(|key| limiter.when(Instant::ORIGIN, &key));
    assert!(delays.into_iter().all(|delay| delay == ms(5)));
}
