//! Enqueues keys periodically, for work without an event: sweeps, reports, expirations.
//!
//! A [`Timer`] defines the times, and a function returns the keys. A timer runs while its controller runs, and so only
//! on the leader. Keys that are still queued from an earlier tick are not added twice, so ticks do not accumulate.

use std::time::Duration;

use windlass_env::{Env, Rng, catch_panic_sync};
use windlass_object::ObjectKey;

use crate::enqueue::history::EnqueueReason;
use crate::enqueue::source::SourceContext;

/// The schedule of a controller's timer.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use windlass_controller::{Setup, Timer};
/// # use windlass_object::ObjectKey;
/// # fn declare(setup: &mut Setup) {
/// let hourly = Timer::every(Duration::from_secs(3600)).jitter(0.1).and_at_start();
/// setup.every(hourly, || [ObjectKey::cluster("report")]);
/// # }
/// ```
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Timer {
    period: Duration,
    jitter: f64,
    at_start: bool,
}

impl Timer {
    /// Creates a timer that fires after each `period`. The first period begins when the controller starts.
    pub const fn every(period: Duration) -> Self {
        Self { period, jitter: 0.0, at_start: false }
    }

    /// Extends each period by a random delay of 0 to `factor` times the period, so that many processes do not fire
    /// together: 0.1 adds up to 10 %.
    #[must_use]
    pub const fn jitter(self, factor: f64) -> Self {
        Self { jitter: factor, ..self }
    }

    /// Makes the timer also fire when the controller starts. It has no effect on [`Setup::poll`](crate::Setup::poll),
    /// which always fetches at the start.
    #[must_use]
    pub const fn and_at_start(self) -> Self {
        Self { at_start: true, ..self }
    }

    /// Returns the period without jitter.
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    /// Returns the delays of this timer. `stream` is the name of the random-number stream.
    pub(crate) fn periods(&self, env: &Env, stream: &str) -> Periods {
        Periods { timer: *self, random: (self.jitter > 0.0).then(|| env.rng(stream)) }
    }

    /// Returns whether the period is zero or the jitter is invalid.
    pub(crate) fn is_impossible(&self) -> bool {
        self.period.is_zero() || !(self.jitter.is_finite() && self.jitter >= 0.0)
    }
}

/// The delays of one timer.
pub(crate) struct Periods {
    timer: Timer,
    random: Option<Rng>,
}

impl Periods {
    pub(crate) fn next(&mut self) -> Duration {
        let Timer { period, jitter, .. } = self.timer;
        self.random.as_mut().map_or(period, |random| random.jitter(period, jitter))
    }
}

/// A function that returns the keys of one tick.
pub(crate) type Keys = Box<dyn FnMut() -> Vec<ObjectKey> + Send>;

/// Fires until it is dropped.
pub(crate) async fn run(timer: Timer, mut keys: Keys, means: SourceContext) {
    let queue = means.queue.for_background().of(EnqueueReason::Timer);
    let mut go_off = || match catch_panic_sync(&mut keys) {
        Ok(keys) => queue.add_all(keys),
        Err(message) => means.panicked(&message),
    };
    let env = means.cx.env();
    let mut periods = timer.periods(env, &means.name);
    if timer.at_start {
        go_off();
    }
    loop {
        env.sleep(periods.next()).await;
        go_off();
    }
}
