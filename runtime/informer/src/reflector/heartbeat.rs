//! Liveness of a reflector: distinguishes a stuck reflector from a reflector whose source is idle or unreachable.
//!
//! Signs of life are progress and failures that a restart of the process would not fix:
//!
//! | attempt | sign of life |
//! |---|---|
//! | a list arrived, or got further than every failed list before it, in pages or bytes | yes |
//! | a request waits for the client's rate limiter | the wait does not count |
//! | a watch was opened, received a frame, or closed normally | yes |
//! | the server returned an error, including 429 with its `Retry-After` | yes |
//! | the source exceeds the byte budget | yes |
//! | no complete response arrived, and no other request of the process got one: the server is unreachable | yes |
//! | no complete response arrived although the server answers other requests, or began to answer this one | no |
//!
//! An informer is stuck if its lists never arrive completely while the server is reachable. The log and the
//! metrics report outages, broken conversion webhooks and overloaded servers; readiness reports them only until the
//! first list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_client::{RequestError, RequestProgress};
use windlass_env::Instant;

use crate::polls::{NO_TIME, millis};

/// The kind of failure of an attempt to read the source.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum FailedAttempt {
    /// The source returned an error.
    Answered,
    /// No complete response arrived.
    Unanswered {
        /// Whether the source is known to answer other requests of this process.
        server_reachable: bool,
    },
}

impl FailedAttempt {
    pub(super) fn of(error: &RequestError, server_reachable: bool) -> Self {
        match error.is_unanswered() {
            true => FailedAttempt::Unanswered { server_reachable },
            false => FailedAttempt::Answered,
        }
    }

    /// Returns whether a restart of the process would not help.
    pub(super) fn is_sign_of_life(self) -> bool {
        match self {
            FailedAttempt::Answered | FailedAttempt::Unanswered { server_reachable: false } => true,
            FailedAttempt::Unanswered { server_reachable: true } => false,
        }
    }
}

/// The last sign of life of a reflector. Clones share it. Every frame of a watch updates it, so an update costs two
/// stores and no lock. The resolution is one millisecond; the atomic publishes no other memory.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    last: Arc<AtomicU64>,
    progress: RequestProgress,
}

impl Heartbeat {
    /// Creates the heartbeat of a reflector whose source records its progress in `progress`.
    pub(crate) fn new(progress: RequestProgress) -> Self {
        Self { last: Arc::new(AtomicU64::new(NO_TIME)), progress }
    }

    /// Returns the progress of the source's requests.
    pub(crate) fn progress(&self) -> &RequestProgress {
        &self.progress
    }

    /// Records a sign of life.
    pub(crate) fn beat(&self, now: Instant) {
        self.last.store(millis(now), Ordering::Relaxed);
        self.progress.reset_wait();
    }

    /// Returns the time since the last sign of life, without waits for the rate limiter; zero before the reflector
    /// starts.
    pub(crate) fn time_since_beat(&self, now: Instant) -> Duration {
        let last = match self.last.load(Ordering::Relaxed) {
            NO_TIME => return Duration::ZERO,
            last => last.max(self.progress.last_growth_at().map_or(0, millis)),
        };
        Duration::from_millis(millis(now).saturating_sub(last))
            .saturating_sub(self.progress.rate_limit_wait(now))
    }
}

#[cfg(test)]
mod tests {
    use windlass_object::wire;

    use super::*;

    #[test]
    fn failure_is_sign_of_life_unless_server_answers_others() {
        let status = |code| RequestError::from_status(wire::status(code, b"{}"), None);
        let refused =
            [status(429), status(500), status(503), status(404), RequestError::BudgetExceeded("".into())];
        let unfinished = [
            RequestError::ConnectionRefused("".into()),
            RequestError::Transport("".into()),
            RequestError::Deadline,
            RequestError::WatchIdle,
        ];
        for server_reachable in [false, true] {
            assert!(
                refused.iter().all(|error| FailedAttempt::of(error, server_reachable).is_sign_of_life()),
                "{server_reachable}"
            );
            assert!(
                unfinished
                    .iter()
                    .all(|error| FailedAttempt::of(error, server_reachable).is_sign_of_life()
                        != server_reachable),
                "{server_reachable}"
            );
        }
    }

    #[test]
    fn silence_starts_at_last_beat_of_any_clone() {
        let (pulse, at) = (Heartbeat::new(RequestProgress::default()), |millis| {
            Instant::ORIGIN + Duration::from_millis(millis)
        });
        let other = pulse.clone();
        assert_eq!(pulse.time_since_beat(at(5)), Duration::ZERO);
        other.beat(at(5));
        assert_eq!(pulse.time_since_beat(at(12)), Duration::from_millis(7));
        assert_eq!(pulse.time_since_beat(at(4)), Duration::ZERO, "a check at a time before the beat");
        pulse.beat(Instant::NEVER);
        assert_eq!(pulse.time_since_beat(Instant::NEVER), Duration::ZERO);
    }
}
