//! Keys by the clock, for work that no event announces: sweeps, reports, expiries.
//!
//! A [`Timer`] says when, a function says which keys. It runs while its controller does, so only on the replica that
//! leads. A turn that finds its keys still waiting adds nothing: turns never pile up.

use std::time::Duration;

use windlass_env::{Env, Rng, catch_panic_sync};
use windlass_object::ObjectKey;

use crate::enqueue::history::EnqueueReason;
use crate::enqueue::source::Means;

/// When a controller's timer goes off.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Timer {
    period: Duration,
    jitter: f64,
    at_start: bool,
}

impl Timer {
    /// After every `period`, the first of which begins when the controller starts.
    pub const fn every(period: Duration) -> Self {
        Self { period, jitter: 0.0, at_start: false }
    }

    /// Makes each period longer by a part drawn between zero and `factor`, so that many processes do not beat in time.
    #[must_use]
    pub const fn jitter(self, factor: f64) -> Self {
        Self { jitter: factor, ..self }
    }

    /// Goes off when the controller starts, too.
    #[must_use]
    pub const fn and_at_start(self) -> Self {
        Self { at_start: true, ..self }
    }

    /// How long a period is, without jitter.
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    /// Returns the waits of this timer. `stream` names its random numbers.
    pub(crate) fn periods(&self, env: &Env, stream: &str) -> Periods {
        Periods { timer: *self, random: (self.jitter > 0.0).then(|| env.rng(stream)) }
    }

    /// Whether it would go off without pause, or by an impossible jitter.
    pub(crate) fn is_impossible(&self) -> bool {
        self.period.is_zero() || !(self.jitter.is_finite() && self.jitter >= 0.0)
    }
}

/// The waits of one timer.
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

/// The keys that a timer brings, whenever it goes off.
pub(crate) type Keys = Box<dyn FnMut() -> Vec<ObjectKey> + Send>;

/// Goes off until it is dropped.
pub(crate) async fn run(timer: Timer, mut keys: Keys, means: Means) {
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
