//! How a controller stands.

use std::sync::Arc;

/// Says who holds a lease, whenever it is asked.
pub type LeaseStatusFn = Arc<dyn Fn() -> LeaseStatus + Send + Sync>;

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Nobody that is known here.
    Nowhere,
    /// Another replica, of this identity.
    Elsewhere(String),
    /// This replica: its controllers are about to start.
    Here,
    /// This replica held it, and has lost it.
    Lost,
}

/// How a controller stands: the one cell that its process fills in, for what it alone knows.
#[derive(Clone)]
pub enum ControllerPhase {
    /// It is set up.
    NotStarted,
    /// Another replica acts; this one waits for the lease.
    StandingBy {
        /// The Lease, as `namespace/name`.
        lease: String,
        /// Who holds it.
        held: LeaseStatusFn,
    },
    /// It starts, and waits for its caches.
    WaitingForCaches,
    /// Its workers take keys.
    Working,
    /// It takes no key any more.
    Draining,
}
