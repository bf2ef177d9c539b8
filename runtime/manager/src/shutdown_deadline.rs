//! Time left for a shutdown.

use std::time::Duration;

use windlass_env::{Env, Instant};

/// Time for the last steps when no time is left.
pub(crate) const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The remaining shutdown timeout.
pub(crate) struct ShutdownDeadline {
    env: Env,
    until: Instant,
}

impl ShutdownDeadline {
    /// Starts the timeout now; zero means no limit.
    pub(crate) fn new(env: &Env, timeout: Duration) -> Self {
        let until = if timeout.is_zero() { Instant::NEVER } else { env.now() + timeout };
        Self { env: env.clone(), until }
    }

    /// Returns the time left, at least [`ABORT_TIMEOUT`]: a step that stops immediately must not fail because earlier
    /// steps used all the time.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(self.env.now()).max(ABORT_TIMEOUT)
    }
}
