//! How long one reflector waits after a failure.
//!
//! Guarantees:
//! - Every reflector has its own ramp, so that a failing watch slows nobody but itself.
//! - Waits double from [`Backoff::FIRST`] to [`Backoff::MAX`], each prolonged by a random share of
//!   itself, so that clients cut off together do not return together.
//! - A watch that was cut off after a good while costs the first step and no more, every time: the ramp is for
//!   sources that do not work.
//! - A reflector that waits because it was not answered can continue early when others are answered
//!   ([`Backoff::resume_early`]): up to [`Backoff::EARLY`] times without a further pause, then with ever longer ones. After
//!   an outage of everything it starts over.
//! - The ramp starts again only after [`Backoff::HEALTHY_AFTER`] of proven health. An attempt proves nothing:
//!   a server that accepts a list and breaks every watch still sees ever longer waits.

use std::time::Duration;

use windlass_env::{Instant, Rng};

/// The ramp of one reflector.
#[derive(Debug)]
pub(crate) struct Backoff {
    rng: Rng,
    unreachable: Duration,
    refused: Duration,
    /// How many times it continued early.
    early: u32,
    /// Since when everything has gone well; `None` from a failure to the next success.
    healthy_since: Option<Instant>,
}

/// What a wait is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackoffReason {
    /// Nobody answered.
    Unreachable,
    /// Somebody answered, but not as hoped.
    Refused,
    /// Everything went well for a good while, and then the connection was lost. No failure of the source.
    CutOff,
}

impl Backoff {
    /// The first wait, before jitter: short enough not to be felt, long enough not to hammer a restarting
    /// server.
    pub(crate) const FIRST: Duration = Duration::from_millis(800);
    /// The longest wait, before jitter: a server that comes back is noticed within a minute.
    pub(crate) const MAX: Duration = Duration::from_secs(30);
    /// How long things must have gone well for the past to be forgotten.
    pub(crate) const HEALTHY_AFTER: Duration = Duration::from_secs(120);
    /// How many times a reflector continues early without a further pause.
    const EARLY: u32 = 8;
    /// The largest share of itself by which a wait is prolonged.
    const JITTER: f64 = 1.0;

    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, unreachable: Self::FIRST, refused: Self::FIRST, early: 0, healthy_since: None }
    }

    /// Notes that things have gone well since `since`. Only a list that arrived and a watch that delivered
    /// count.
    pub(crate) fn healthy(&mut self, since: Instant) {
        self.healthy_since.get_or_insert(since);
    }

    /// Starts every ramp again: what was in the way is said to be out of it.
    pub(crate) fn forget(&mut self) {
        (self.unreachable, self.refused) = (Self::FIRST, Self::FIRST);
    }

    /// Returns the further pause of a reflector that could continue early, because the server answered another request after
    /// it began to wait. A reflector that alone receives no answers, for example because its lists are large, must not
    /// overload the server. A reflector that waited for the end of an outage does not.
    pub(crate) fn resume_early(&mut self, recovered: bool) -> Duration {
        if recovered {
            self.early = 0;
        }
        self.early = self.early.saturating_add(1);
        match self.early.checked_sub(Self::EARLY + 1) {
            None => Duration::ZERO,
            Some(beyond) => Self::FIRST.saturating_mul(2_u32.saturating_pow(beyond + 1)).min(Self::MAX),
        }
    }

    /// The wait after trouble at `now`: between one and two steps of its ramp. For a watch that was cut off that
    /// is always the first step; it ends no health and climbs no ramp.
    pub(crate) fn after_failure(&mut self, trouble: BackoffReason, now: Instant) -> Duration {
        let step = match trouble {
            BackoffReason::CutOff => Self::FIRST,
            BackoffReason::Unreachable => climb(&mut self.after_health(now).unreachable),
            BackoffReason::Refused => climb(&mut self.after_health(now).refused),
        };
        self.rng.jitter(step, Self::JITTER)
    }

    /// Whatever went well has ended at `now`; if it went well for long enough, the past is forgotten.
    fn after_health(&mut self, now: Instant) -> &mut Self {
        let healthy = self.healthy_since.take();
        if healthy.is_some_and(|since| now.saturating_duration_since(since) >= Self::HEALTHY_AFTER) {
            (self.unreachable, self.refused, self.early) = (Self::FIRST, Self::FIRST, 0);
        }
        self
    }
}

/// The step a ramp stands at, which then goes up by one.
fn climb(ramp: &mut Duration) -> Duration {
    let step = *ramp;
    *ramp = (step * 2).min(Backoff::MAX);
    step
}

#[cfg(test)]
mod tests {
    use windlass_env::Env;

    use super::*;

    fn backoff() -> (Env, Backoff) {
        let env = Env::virtual_time(7);
        let backoff = Backoff::new(env.rng("backoff"));
        (env, backoff)
    }

    // parity: reflector-run, back-off-800-ms, every-exit-list-and, test-reflector-list-and-watch-init-conn
    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_a_bound_and_are_prolonged_at_most_by_themselves() {
        let (env, mut backoff) = backoff();
        for base_ms in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 30_000] {
            let base = Duration::from_millis(base_ms);
            let wait = backoff.after_failure(BackoffReason::Refused, env.now());
            assert!(base <= wait && wait <= base * 2, "{wait:?} is not within {base:?} and twice that");
        }
    }

    // parity: reset-two-minutes-after, test-reflector-list-and-watch-init-conn
    #[tokio::test(start_paused = true)]
    async fn two_minutes_of_health_start_the_ramp_anew() {
        let (env, mut backoff) = backoff();
        for _ in 0..5 {
            backoff.after_failure(BackoffReason::Refused, env.now());
        }
        backoff.healthy(env.now());
        env.sleep(Backoff::HEALTHY_AFTER).await;
        assert!(backoff.after_failure(BackoffReason::Refused, env.now()) <= Backoff::FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn success_followed_soon_by_a_failure_resets_nothing() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.healthy(env.now());
            env.sleep(Backoff::HEALTHY_AFTER / 2).await;
            backoff.after_failure(BackoffReason::Refused, env.now());
        }
        assert!(backoff.after_failure(BackoffReason::Refused, env.now()) >= Backoff::MAX);
    }

    // parity: reset-two-minutes-after
    #[tokio::test(start_paused = true)]
    async fn time_that_passes_without_success_resets_nothing() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.after_failure(BackoffReason::Refused, env.now());
            env.sleep(Backoff::HEALTHY_AFTER * 2).await;
        }
        assert!(backoff.after_failure(BackoffReason::Refused, env.now()) >= Backoff::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_was_long_away_is_asked_again_soon_once_it_answers() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.after_failure(BackoffReason::Unreachable, env.now());
        }
        assert!(backoff.after_failure(BackoffReason::Refused, env.now()) <= Backoff::FIRST * 2);
        assert!(backoff.after_failure(BackoffReason::Unreachable, env.now()) >= Backoff::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn being_cut_off_costs_the_first_step_every_time_and_climbs_no_ramp() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            let wait = backoff.after_failure(BackoffReason::CutOff, env.now());
            assert!(Backoff::FIRST <= wait && wait <= Backoff::FIRST * 2, "{wait:?}");
        }
        assert!(backoff.after_failure(BackoffReason::Unreachable, env.now()) <= Backoff::FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn being_cut_off_neither_proves_health_nor_ends_it() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.after_failure(BackoffReason::Refused, env.now());
            env.sleep(Backoff::HEALTHY_AFTER).await;
            backoff.after_failure(BackoffReason::CutOff, env.now());
        }
        backoff.healthy(env.now());
        assert!(
            backoff.after_failure(BackoffReason::Refused, env.now()) >= Backoff::MAX,
            "nothing was forgotten"
        );
        backoff.healthy(env.now());
        env.sleep(Backoff::HEALTHY_AFTER / 2).await;
        backoff.after_failure(BackoffReason::CutOff, env.now());
        env.sleep(Backoff::HEALTHY_AFTER / 2).await;
        assert!(backoff.after_failure(BackoffReason::Refused, env.now()) <= Backoff::FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn reflector_that_alone_fails_resumes_early_with_ever_longer_pauses() {
        let (_env, mut backoff) = backoff();
        for _ in 0..Backoff::EARLY {
            assert_eq!(backoff.resume_early(false), Duration::ZERO);
        }
        let pauses: Vec<_> = (0..7).map(|_| backoff.resume_early(false).as_millis()).collect();
        assert_eq!(pauses, [1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.resume_early(true), Duration::ZERO, "no request was answered");
    }
}
