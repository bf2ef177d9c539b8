//! Where one key is, for whoever asks why nothing happens to it.

use windlass_env::Instant;

use crate::{Parked, Priority};

/// Where a key is. A key that is nowhere has none of these; one can be in several places, as one that a worker holds
/// and that has an appointment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyStatus {
    /// It waits for a worker, or for its own to be done with it.
    pub waiting: Option<Queued>,
    /// A worker has held it since.
    pub processing: Option<Instant>,
    /// It is to be queued later.
    pub due: Option<Delayed>,
    /// It waits for its release, from now on or from when its worker is done with it.
    pub parked: Option<Parked>,
}

/// A key that waits for a worker.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Since when.
    pub since: Instant,
    /// How urgent it is.
    pub priority: Priority,
}

/// A key that is to be queued later.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    /// When.
    pub at: Instant,
    /// Whether that is a retry, and not an appointment.
    pub is_retry: bool,
}
