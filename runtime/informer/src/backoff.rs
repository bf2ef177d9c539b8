//! Backoff of one reflector after a failure.
//!
//! Guarantees:
//! - Every reflector has its own backoff, so a failing watch delays no other watch.
//! - Waits double from [`Backoff::FIRST`] to [`Backoff::MAX`]. Each wait is extended by random jitter of up to its own
//!   length, so that clients that lost their connections together do not reconnect together.
//! - A long watch that loses its connection always costs the first step only. The backoff increases for sources that do
//!   not work.
//! - A reflector that received no response can resume early when the server answers other requests
//!   ([`Backoff::resume_early`]): [`Backoff::EARLY`] times without a further pause, then with increasing pauses. The
//!   count restarts after a full outage.
//! - The backoff resets only after [`Backoff::HEALTHY_AFTER`] of proven health. An attempt alone proves nothing:
//!   against a server that accepts every list and breaks every watch the waits continue to increase.

use std::time::Duration;

use windlass_env::{Instant, Rng};

/// The backoff state of one reflector.
#[derive(Debug)]
pub(crate) struct Backoff {
    rng: Rng,
    unreachable: Duration,
    rejected: Duration,
    /// Number of early resumes.
    early: u32,
    /// Start of the current healthy period; `None` from a failure to the next success.
    healthy_since: Option<Instant>,
}

/// The reason for a wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackoffReason {
    /// No response arrived.
    Unreachable,
    /// The server returned an error.
    Rejected,
    /// A long watch lost its connection. This does not count as a failure of the source.
    LongWatchLost,
}

impl Backoff {
    /// The first wait, before jitter: short enough for users, long enough for a server that restarts.
    pub(crate) const FIRST: Duration = Duration::from_millis(800);
    /// The longest wait before jitter. With jitter, a server that recovers is noticed within a minute.
    pub(crate) const MAX: Duration = Duration::from_secs(30);
    /// Duration of uninterrupted health after which the backoff resets.
    pub(crate) const HEALTHY_AFTER: Duration = Duration::from_secs(120);
    /// Number of early resumes without a further pause.
    const EARLY: u32 = 8;
    /// The largest jitter, as a fraction of the wait.
    const JITTER: f64 = 1.0;

    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, unreachable: Self::FIRST, rejected: Self::FIRST, early: 0, healthy_since: None }
    }

    /// Records that the source has been healthy since `since`. Call it only for a list that arrived or a watch that
    /// delivered data.
    pub(crate) fn healthy(&mut self, since: Instant) {
        self.healthy_since.get_or_insert(since);
    }

    /// Resets the backoff, because the cause of the failures was reportedly removed.
    pub(crate) fn reset(&mut self) {
        (self.unreachable, self.rejected) = (Self::FIRST, Self::FIRST);
    }

    /// Returns the extra pause before an early resume. The reflector can resume early because the server answered
    /// another request during the wait. The pause protects the server from a reflector that alone gets no response, for
    /// example because its lists are large. After an outage (`recovered`) there is no pause.
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

    /// Returns the wait after a failure at `now`: between one and two times the current step. A watch that was cut off
    /// always costs the first step; it neither ends the healthy period nor increases the backoff.
    pub(crate) fn after_failure(&mut self, reason: BackoffReason, now: Instant) -> Duration {
        let step = match reason {
            BackoffReason::LongWatchLost => Self::FIRST,
            BackoffReason::Unreachable => double(&mut self.after_health(now).unreachable),
            BackoffReason::Rejected => double(&mut self.after_health(now).rejected),
        };
        self.rng.jitter(step, Self::JITTER)
    }

    /// Ends the healthy period at `now` and resets the backoff if the period was long enough.
    fn after_health(&mut self, now: Instant) -> &mut Self {
        let healthy = self.healthy_since.take();
        if healthy.is_some_and(|since| now.saturating_duration_since(since) >= Self::HEALTHY_AFTER) {
            (self.unreachable, self.rejected, self.early) = (Self::FIRST, Self::FIRST, 0);
        }
        self
    }
}

/// Returns the current step and advances to the next step.
fn double(backoff: &mut Duration) -> Duration {
    let step = *backoff;
    *backoff = (step * 2).min(Backoff::MAX);
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
    async fn backoff_doubles_up_to_maximum_with_bounded_jitter() {
        let (env, mut backoff) = backoff();
        for base_ms in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 30_000] {
            let base = Duration::from_millis(base_ms);
            let wait = backoff.after_failure(BackoffReason::Rejected, env.now());
            assert!(base <= wait && wait <= base * 2, "{wait:?} is not within {base:?} and twice that");
        }
    }

    // parity: reset-two-minutes-after, test-reflector-list-and-watch-init-conn
    #[tokio::test(start_paused = true)]
    async fn backoff_resets_after_two_minutes_of_health() {
        let (env, mut backoff) = backoff();
        for _ in 0..5 {
            backoff.after_failure(BackoffReason::Rejected, env.now());
        }
        backoff.healthy(env.now());
        env.sleep(Backoff::HEALTHY_AFTER).await;
        assert!(backoff.after_failure(BackoffReason::Rejected, env.now()) <= Backoff::FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn short_success_does_not_reset_backoff() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.healthy(env.now());
            env.sleep(Backoff::HEALTHY_AFTER / 2).await;
            backoff.after_failure(BackoffReason::Rejected, env.now());
        }
        assert!(backoff.after_failure(BackoffReason::Rejected, env.now()) >= Backoff::MAX);
    }

    // parity: reset-two-minutes-after
    #[tokio::test(start_paused = true)]
    async fn time_without_success_does_not_reset_backoff() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.after_failure(BackoffReason::Rejected, env.now());
            env.sleep(Backoff::HEALTHY_AFTER * 2).await;
        }
        assert!(backoff.after_failure(BackoffReason::Rejected, env.now()) >= Backoff::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn error_response_after_long_outage_starts_at_first_step() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.after_failure(BackoffReason::Unreachable, env.now());
        }
        assert!(backoff.after_failure(BackoffReason::Rejected, env.now()) <= Backoff::FIRST * 2);
        assert!(backoff.after_failure(BackoffReason::Unreachable, env.now()) >= Backoff::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn cut_off_watch_always_costs_first_backoff_step() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            let wait = backoff.after_failure(BackoffReason::LongWatchLost, env.now());
            assert!(Backoff::FIRST <= wait && wait <= Backoff::FIRST * 2, "{wait:?}");
        }
        assert!(backoff.after_failure(BackoffReason::Unreachable, env.now()) <= Backoff::FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn cut_off_watch_does_not_change_healthy_period() {
        let (env, mut backoff) = backoff();
        for _ in 0..10 {
            backoff.after_failure(BackoffReason::Rejected, env.now());
            env.sleep(Backoff::HEALTHY_AFTER).await;
            backoff.after_failure(BackoffReason::LongWatchLost, env.now());
        }
        backoff.healthy(env.now());
        assert!(
            backoff.after_failure(BackoffReason::Rejected, env.now()) >= Backoff::MAX,
            "nothing was forgotten"
        );
        backoff.healthy(env.now());
        env.sleep(Backoff::HEALTHY_AFTER / 2).await;
        backoff.after_failure(BackoffReason::LongWatchLost, env.now());
        env.sleep(Backoff::HEALTHY_AFTER / 2).await;
        assert!(backoff.after_failure(BackoffReason::Rejected, env.now()) <= Backoff::FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn early_resume_pauses_grow_when_only_this_reflector_fails() {
        let (_env, mut backoff) = backoff();
        for _ in 0..Backoff::EARLY {
            assert_eq!(backoff.resume_early(false), Duration::ZERO);
        }
        let pauses: Vec<_> = (0..7).map(|_| backoff.resume_early(false).as_millis()).collect();
        assert_eq!(pauses, [1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.resume_early(true), Duration::ZERO, "a full outage resets the count");
    }
}
