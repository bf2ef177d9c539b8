//! When a reflector last gave a sign of life: what distinguishes one that is stuck from one whose source is quiet or away.
//!
//! Signs of life are progress, and failures that a new process would not mend:
//!
//! | attempt | sign of life |
//! |---|---|
//! | a list arrived, or got further than every failed one before it, by pages or bytes | yes |
//! | a request waits for its client's rate limit | that time does not count |
//! | a watch was opened, sent a frame, or closed as watches do | yes |
//! | the server answered with an error, 429 with its wait included | yes |
//! | the source has more than fits | yes |
//! | no complete answer arrived, and nobody else in the process got one either: the server is away | yes |
//! | no complete answer arrived although the server answers others, or began to answer this one | no |
//!
//! So an informer is stuck whose lists never arrive completely while the server is there; an outage, a broken conversion
//! webhook and an overloaded server are for readiness to tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_client::{RequestError, RequestProgress};
use windlass_env::Instant;
use windlass_object::WireError;

/// How an attempt to read the source failed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The source refused.
    Refused,
    /// No complete answer arrived.
    Unfinished {
        /// Whether the source answers the requests of this process, as far as is known.
        answers: bool,
    },
}

impl Attempt {
    pub(super) fn of(error: &RequestError, answers: bool) -> Self {
        match error {
            RequestError::ConnectionRefused(_)
            | RequestError::Transport(_)
            | RequestError::Deadline
            | RequestError::Silent
            | RequestError::Wire(WireError::Truncated { .. }) => Attempt::Unfinished { answers },
            RequestError::Api(_)
            | RequestError::TooManyRequests { .. }
            | RequestError::Wire(_)
            | RequestError::Unsupported(_)
            | RequestError::NoRoom(_)
            | RequestError::Fenced(_)
            | RequestError::NotDeclared(_) => Attempt::Refused,
        }
    }

    /// Whether a new process would fare no better.
    pub(super) fn is_life(self) -> bool {
        match self {
            Attempt::Refused | Attempt::Unfinished { answers: false } => true,
            Attempt::Unfinished { answers: true } => false,
        }
    }
}

/// The last time that a reflector gave a sign of life. Clones share it. It is beaten with every frame of a watch, so it costs
/// two stores and no lock. It has a resolution of one millisecond and publishes no other memory.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    last: Arc<AtomicU64>,
    progress: RequestProgress,
}

/// Of a reflector that has not begun.
const NEVER: u64 = u64::MAX;

impl Heartbeat {
    /// Creates the pulse of a reflector whose source records its progress in `progress`.
    pub(crate) fn new(progress: RequestProgress) -> Self {
        Self { last: Arc::new(AtomicU64::new(NEVER)), progress }
    }

    /// Returns where the source records the progress of its requests.
    pub(crate) fn progress(&self) -> &RequestProgress {
        &self.progress
    }

    /// Notes a sign of life.
    pub(crate) fn beat(&self, now: Instant) {
        self.last.store(millis(now), Ordering::Relaxed);
        self.progress.reset_wait();
    }

    /// For how long none was taken, to the millisecond; zero for a reflector that has not begun.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let last = match self.last.load(Ordering::Relaxed) {
            NEVER => return Duration::ZERO,
            last => last.max(self.progress.grew().map_or(0, millis)),
        };
        Duration::from_millis(millis(now).saturating_sub(last)).saturating_sub(self.progress.waited(now))
    }
}

/// A time as what is timed here stores it: never the largest number, which stands for none.
pub(crate) fn millis(at: Instant) -> u64 {
    u64::try_from(at.since_origin().as_millis()).unwrap_or(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use windlass_object::wire;

    use super::*;

    #[test]
    fn failure_is_a_sign_of_life_unless_the_server_answers_others() {
        let status = |code| RequestError::from_status(wire::status(code, b"{}"), None);
        let refused = [status(429), status(500), status(503), status(404), RequestError::NoRoom("".into())];
        let unfinished = [
            RequestError::ConnectionRefused("".into()),
            RequestError::Transport("".into()),
            RequestError::Deadline,
            RequestError::Silent,
        ];
        for answers in [false, true] {
            assert!(refused.iter().all(|error| Attempt::of(error, answers).is_life()), "{answers}");
            assert!(
                unfinished.iter().all(|error| Attempt::of(error, answers).is_life() != answers),
                "{answers}"
            );
        }
    }

    #[test]
    fn silence_begins_with_the_last_beat_of_any_clone_and_not_before_the_first() {
        let (pulse, at) = (Heartbeat::new(RequestProgress::default()), |millis| {
            Instant::ORIGIN + Duration::from_millis(millis)
        });
        let other = pulse.clone();
        assert_eq!(pulse.silence(at(5)), Duration::ZERO);
        other.beat(at(5));
        assert_eq!(pulse.silence(at(12)), Duration::from_millis(7));
        assert_eq!(pulse.silence(at(4)), Duration::ZERO, "a look from before the beat");
        pulse.beat(Instant::NEVER);
        assert_eq!(pulse.silence(Instant::NEVER), Duration::ZERO);
    }
}
