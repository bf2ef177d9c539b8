//! Keys that wait for something else than a worker.

use crate::Priority;

/// What a parked key waits for. Two reasons are the same if their text is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ParkReason(pub &'static str);

/// A key that waits for its release.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// What it waits for.
    pub reason: ParkReason,
    /// How urgent it is.
    pub priority: Priority,
}
