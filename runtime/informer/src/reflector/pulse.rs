//! When a reflector last got anywhere: what tells one that is stuck from one whose source is quiet, or away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_env::Instant;

/// The last time that a reflector took a step: began or ended a request, heard of something, waited for its turn. Clones
/// share it. It is beaten with every frame of a watch, so it costs a store and no lock; it is told by the millisecond, and
/// publishes nothing but itself.
#[derive(Clone, Debug)]
pub(crate) struct Pulse(Arc<AtomicU64>);

/// Of a reflector that has not begun.
const NEVER: u64 = u64::MAX;

impl Pulse {
    /// A step was taken.
    pub(crate) fn beat(&self, now: Instant) {
        self.0.store(millis(now), Ordering::Relaxed);
    }

    /// For how long none was taken, to the millisecond; zero for a reflector that has not begun.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            NEVER => Duration::ZERO,
            last => Duration::from_millis(millis(now).saturating_sub(last)),
        }
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(NEVER)))
    }
}

/// A time as what is timed here stores it: never the largest number, which stands for none.
pub(crate) fn millis(at: Instant) -> u64 {
    u64::try_from(at.since_origin().as_millis()).unwrap_or(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_with_the_last_beat_of_any_clone_and_not_before_the_first() {
        let (pulse, at) = (Pulse::default(), |millis| Instant::ORIGIN + Duration::from_millis(millis));
        let other = pulse.clone();
        assert_eq!(pulse.silence(at(5)), Duration::ZERO);
        other.beat(at(5));
        assert_eq!(pulse.silence(at(12)), Duration::from_millis(7));
        assert_eq!(pulse.silence(at(4)), Duration::ZERO, "a look from before the beat");
        pulse.beat(Instant::NEVER);
        assert_eq!(pulse.silence(Instant::NEVER), Duration::ZERO);
    }
}
