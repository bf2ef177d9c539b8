//! Detects time during which the monotonic clock did not advance.
//!
//! `CLOCK_BOOTTIME` does not advance while a hypervisor pauses the machine; afterwards the wall clock is set forward.
//! If the wall clock runs ahead by more than the margin of a standby (lease duration minus renew deadline), the lease
//! might have expired. If an operator sets the wall clock forward, the effect is the same and costs one renewal.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use windlass_env::{Env, Instant};

/// Compares the wall clock with the monotonic clock.
#[derive(Debug)]
pub struct Clocks {
    env: Env,
    allowance: SignedDuration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Wall time minus monotonic time: the minimum since the last jump, so that a step back cannot hide a later jump.
    offset: SignedDuration,
    jumped_at: Option<Instant>,
}

impl Clocks {
    /// Returns clocks whose difference can change by `allowance`.
    pub fn new(env: Env, allowance: Duration) -> Self {
        let state = State { offset: offset(&env, env.now()), jumped_at: None };
        let allowance = SignedDuration::try_from(allowance).unwrap_or(SignedDuration::MAX);
        Self { env, allowance, state: Mutex::new(state) }
    }

    /// Returns whether a jump was detected after `sent`. The response to a request that was sent at or after the
    /// detection reflects the state after the jump.
    pub(crate) fn have_jumped_since(&self, sent: Instant) -> bool {
        self.compare().is_some_and(|jumped_at| jumped_at > sent)
    }

    /// Compares the clocks. Call it before a request that renews the lease, so that its jump is detected before the
    /// request.
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
