//! The lifecycle phase of a controller.

use std::sync::Arc;

/// Function that returns the current state of a lease.
pub type LeaseStatusFn = Arc<dyn Fn() -> LeaseStatus + Send + Sync>;

/// The state of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// The holder is unknown.
    Unknown,
    /// Held by another replica with this identity.
    HeldByOther(String),
    /// Held by this replica; its controllers are about to start.
    Held,
    /// This replica held the lease and lost it.
    Lost,
}

/// The lifecycle phase of a controller. Its process sets the phase.
#[derive(Clone)]
pub enum ControllerPhase {
    /// The controller is set up.
    NotStarted,
    /// The replica is on standby and waits for the lease.
    Standby {
        /// The Lease, as `namespace/name`.
        lease: String,
        /// The current state of the lease.
        lease_status: LeaseStatusFn,
    },
    /// The controller starts and waits for its caches.
    WaitingForCaches,
    /// The workers dequeue keys.
    Working,
    /// The workers dequeue no more keys.
    Draining,
}
