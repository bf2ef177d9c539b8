//! Leader election with a Lease, a monotonic clock and a fence.
//!
//! Of several replicas of a process one acts. They agree on the replica through one `Lease` object. This crate
//! maintains the agreement and reports at any time whether *this* replica can write.
//!
//! # Guarantees
//!
//! - **At most one replica acts**, while the ratio of the clock rates of any two replicas stays within `lease_duration
//!   / renew_deadline` (1.5 by default: 20 % fast on one machine and 20 % slow on the other). The clock *readings* do
//!   not matter: each deadline uses this replica's monotonic clock, and the times in the Lease are never compared with
//!   it.
//! - **The holder counts from the time of sending**, a standby from the time of receipt. Whatever the network delay,
//!   the holder's [fence](LeaderFence) closes before a standby can take over, because the renew deadline is shorter
//!   than the lease duration.
//! - **A paused machine does not write.** If the wall clock runs ahead of the monotonic clock by more than lease
//!   duration minus renew deadline, the fence closes until the next renewal succeeds, because the machine might have
//!   been paused for longer than its lease. If an operator set the clock instead, the cost is one renewal.
//! - **Each renewal changes the record**, and counts only if the server returns a new resource version. Standbys cannot
//!   observe a renewal without a change, so it must not extend the deadline.
//! - **Takeover is immediate after a release and on time after an expiry.** Standbys watch the Lease, and sleep until
//!   it expires. If the watch fails, they poll.
//! - **A release never overwrites another holder**: it replaces only a record that it has just fetched and that names
//!   this replica.
//! - **A release reports the writes.** It annotates the Lease with the highest version of each resource, so that a
//!   successor that takes over within milliseconds can wait until its caches contain these versions
//!   ([`Elector::previous_holder`]).
//! - A Lease that is deleted while held is not free: standbys that observed it wait until it would have expired.
//! - If the API server's coordinator decides ([`ElectionConfig::coordinated`]), the elector uses the Lease only if the
//!   coordinator assigned it, and stops renewing when the coordinator prefers another replica. The coordinator checks
//!   expiry by wall clocks. If it takes the Lease from a holder that did not release it, this replica also waits until
//!   that holder's lease has expired by the local clock. This covers only observed holders: a replica relies on the
//!   coordinator if its *first* observation of the Lease names itself, or if it missed a holder between two others.
//!
//! # Limits
//!
//! The crate starts no tasks, has no destructor that writes, and does not block writes itself: it implements
//! [`windlass_client::Fence`], which the client checks before each write. It records no events; observe
//! [`Elector::leadership`] to report changes.
//!
//! # Use
//!
//! ```text
//! let fence = LeaderFence::new(env.clone());            // closed
//! let mut elector = Elector::new(env, config, client, watch, fence, &metrics)?;
//! elector.acquire().await?;                             // the fence is now open
//! let lost = elector.hold().await;                      // concurrent with the work, until the lease is lost
//! elector.release(Some(&written)).await?;               // or, after the work has stopped
//! ```

mod clocks;
mod config;
mod coordinated;
mod elector;
mod error;
mod fence;
mod leadership;
mod lease_api;
mod lease_state;
mod lease_watch;
mod observed_lease;
mod record;
#[cfg(test)]
mod tests;
mod written_versions;

/// Building blocks of an election: the state of one Lease, the next action of a candidate, and the requests. For crates
/// with elections over many Leases; a program uses [`Elector`].
pub mod lease {
    pub use crate::clocks::Clocks;
    pub use crate::error::{CANDIDATE_VERBS, LEASE_VERBS, LeaseError};
    pub use crate::leadership::LastRenewal;
    pub use crate::lease_api::{LeaseApi, WatchScope, decode};
    pub use crate::lease_state::{
        LeaseParams, LeaseState, LeaseWrite, RenewAction, TimePoint, WriteContext, WritePurpose,
    };
    pub use crate::observed_lease::{ElectionAction, LeaseObservation, ObservedLease};
    pub use crate::record::LeaseRecord;
}

pub use config::{CoordinatedConfig, CoordinatedStrategy, Election, ElectionConfig, ElectionConfigError};
pub use elector::Elector;
pub use error::{ElectionError, LeaseLost, LossReason};
pub use fence::LeaderFence;
pub use leadership::{HealthCheck, Leadership};
pub use written_versions::{PreviousHolder, WRITTEN_ANNOTATION, WrittenVersions, merge_written};
