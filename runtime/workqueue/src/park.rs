//! Keys that wait for a condition other than a free worker.

use crate::Priority;

/// The condition that a parked key waits for. Reasons are compared by their text.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ParkReason(pub &'static str);

/// A parked key, which waits for its release.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Condition that the key waits for.
    pub reason: ParkReason,
    /// Priority of the key after its release.
    pub priority: Priority,
}
