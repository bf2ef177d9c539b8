//! Detects time that passed while the clock stood still.
//!
//! `CLOCK_BOOTTIME` does not run while a hypervisor has the machine paused; afterwards the wall clock is set forward. A
//! wall clock that runs ahead of the clock by more than a standby waits beyond the fence's end (lease duration minus
//! renew deadline) may thus stand for a lease that has expired. An operator who sets the wall clock forward looks the
//! same, and costs one renewal.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use windlass_env::{Env, Instant};

/// Compares the wall clock with the clock.
#[derive(Debug)]
pub struct Clocks {
    env: Env,
    allowance: SignedDuration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Wall time minus clock time: the least since the last jump, so that a step back hides no later jump.
    offset: SignedDuration,
    jumped_at: Option<Instant>,
}

impl Clocks {
    /// Clocks that may differ by `allowance` more than now.
    pub fn new(env: Env, allowance: Duration) -> Self {
        let state = State { offset: offset(&env, env.now()), jumped_at: None };
        let allowance = SignedDuration::try_from(allowance).unwrap_or(SignedDuration::MAX);
        Self { env, allowance, state: Mutex::new(state) }
    }

    /// Returns whether a jump was detected later than `sent`. A request that is sent at or after the detection proves
    /// by its answer what held after the jump.
    pub(crate) fn have_jumped_since(&self, sent: Instant) -> bool {
        self.compare().is_some_and(|jumped_at| jumped_at > sent)
    }

    /// Compares the clocks. Call it before a request is sent that is to count, lest a jump is detected after that.
    pub fn compare(&self) -> Option<Instant> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.env.now();
        let offset = offset(&self.env, now);
        let has_jumped = offset.saturating_sub(state.offset) > self.allowance;
        if has_jumped {
            *state = State { offset, jumped_at: Some(now) };
        }
        state.offset = state.offset.min(offset);
        state.jumped_at
    }
}

fn offset(env: &Env, now: Instant) -> SignedDuration {
    let elapsed = SignedDuration::try_from(now.since_origin()).unwrap_or(SignedDuration::MAX);
    env.wall().duration_since(Timestamp::UNIX_EPOCH).saturating_sub(elapsed)
}
