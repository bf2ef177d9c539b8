//! When a reflector last got anywhere: what tells one that is stuck from one whose source is quiet, or away.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_env::Instant;

/// The last time that a reflector took a step: began or ended a request, heard of something, waited for its turn. Clones
/// share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<Mutex<Option<Instant>>>);

impl Pulse {
    /// A step was taken.
    pub(crate) fn beat(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// For how long none was taken; zero for a reflector that has not begun.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last))
    }
}
