//! What is left of the time that a stop may take.

use std::time::Duration;

use windlass_env::{Env, Instant};

/// How long the last parts may take when no time is left.
pub(crate) const HURRY: Duration = Duration::from_secs(1);

/// What is left of the shutdown timeout.
pub(crate) struct ShutdownDeadline {
    env: Env,
    until: Instant,
}

impl ShutdownDeadline {
    /// Counted from now; without end if `timeout` is zero.
    pub(crate) fn new(env: &Env, timeout: Duration) -> Self {
        let until = if timeout.is_zero() { Instant::NEVER } else { env.now() + timeout };
        Self { env: env.clone(), until }
    }

    /// At least a moment: what stops at once must not be blamed for what took all the time before.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(self.env.now()).max(HURRY)
    }
}
