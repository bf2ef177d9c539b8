//! Total steps of a machine's wall time, shared by all incarnations of the instance on it.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;

#[derive(Clone, Debug, Default)]
pub(crate) struct WallSteps(Arc<Mutex<SignedDuration>>);

impl WallSteps {
    pub(crate) fn step(&self, by: SignedDuration) {
        let mut total = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *total = total.saturating_add(by);
    }

    pub(crate) fn total(&self) -> SignedDuration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
