//! Keys by the clock, for work that no event announces: sweeps, reports, expiries.
//!
//! A [`Timer`] says when, a function says which keys. It runs while its controller does, so only on the replica that
//! leads. A turn that finds its keys still waiting adds nothing: turns never pile up.

use std::time::Duration;

use windlass_env::{Env, caught_now};
use windlass_metrics::IntCounter;
use windlass_object::ObjectKey;

use crate::enqueue::enqueuer::Enqueuer;

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

    /// Whether it would go off without pause, or by an impossible jitter.
    pub(crate) fn is_impossible(&self) -> bool {
        self.period.is_zero() || !(self.jitter.is_finite() && self.jitter >= 0.0)
    }
}

type Keys = Box<dyn FnMut() -> Vec<ObjectKey> + Send>;

/// A timer and the keys it brings.
pub(crate) struct Clockwork {
    pub(crate) timer: Timer,
    pub(crate) keys: Keys,
}

impl Clockwork {
    /// Goes off until it is dropped. `stream` names its random numbers.
    pub(crate) async fn run(mut self, env: Env, stream: String, queue: Enqueuer, panics: IntCounter) {
        let Timer { period, jitter, at_start } = self.timer;
        let mut random = (jitter > 0.0).then(|| env.rng(&stream));
        if at_start {
            self.go_off(&stream, &queue, &panics);
        }
        loop {
            env.sleep(random.as_mut().map_or(period, |random| random.jitter(period, jitter))).await;
            self.go_off(&stream, &queue, &panics);
        }
    }

    fn go_off(&mut self, name: &str, queue: &Enqueuer, panics: &IntCounter) {
        match caught_now(|| (self.keys)()) {
            Ok(keys) => queue.add_all(keys),
            Err(message) => {
                panics.inc();
                tracing::error!(timer = name, %message, "the function that names a timer's keys panicked");
            }
        }
    }
}
