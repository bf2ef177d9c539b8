//! One active replica: a Lease, a monotonic clock and a fence.
//!
//! Several replicas of a process run; one of them acts. They agree on which through one `Lease` object. This crate
//! keeps that agreement and says, at any moment, whether *this* replica may write.
//!
//! # Guarantees
//!
//! - **At most one replica acts**, as long as the clocks of any two replicas run at rates whose ratio stays within
//!   `lease_duration / renew_deadline` (1.5 by default: twenty per cent fast here and twenty per cent slow there).
//!   Where the clocks *stand* does not matter: every deadline is counted on this replica's monotonic clock, and the
//!   times written in the Lease are never compared with it.
//! - **The holder counts from when it sent**, a standby from when it received. Whatever the wire delays, the holder's
//!   [fence](LeaderFence) is closed before a standby may take over, because the renew deadline is the shorter one.
//! - **A paused machine does not write**: a wall clock that runs ahead of the monotonic clock by more than lease duration
//!   minus renew deadline closes the fence until the next renewal succeeds. The machine may have been paused for longer
//!   than its lease; if somebody set the clock instead, that costs one renewal.
//! - **Every renewal changes the record**, and counts only if the server gave the object a new resource version. A
//!   renewal that changes nothing is invisible to standbys, and so must not prolong anything.
//! - **A release is taken over at once and an expiry on time**: standbys watch the Lease, and sleep until the very
//!   moment at which it expires. Where the watch fails they poll.
//! - **A release never takes the Lease from another**: it writes only over a record, just fetched, that names this
//!   replica.
//! - **A release tells what was written**: it annotates the Lease with the highest version of each resource, so that a
//!   successor which takes over within milliseconds can wait for caches that show it ([`Elector::predecessor`]).
//! - A Lease that is deleted while held is not up for grabs: standbys that saw it wait until it would have expired.
//!
//! - Where the API server's coordinator decides ([`ElectionConfig::coordinated`]), nothing is taken that it did not give,
//!   and nothing is renewed once it prefers another. The coordinator judges by wall clocks whether a holder's time is up;
//!   what it took from another is used here only once that one's lease has run out by the local clock, unless it was
//!   given back. This covers the holders that were seen: a replica whose *first* sight of the Lease names itself, or
//!   which saw nothing of a holder between two others, believes the coordinator.
//!
//! # What it refuses
//!
//! It starts nothing by itself, has no destructor that writes, and does not fence anything: it only answers
//! [`windlass_client::Fence`], which the client asks before each write. It does not record events either; whoever
//! wants to tell of a change of leadership observes [`Elector::leadership`].
//!
//! # Use
//!
//! ```text
//! let fence = LeaderFence::new(env.clone());            // closed
//! let mut elector = Elector::new(env, config, client, watch, fence, &metrics)?;
//! elector.acquire().await?;                             // the fence is open from here on
//! let lost = elector.hold().await;                      // beside the work, until the lease is lost
//! elector.release(Some(&written)).await?;               // or, after the work has ended: give it back
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

/// The parts of an election: the state of one Lease, the next action of a candidate, and the requests. For crates that elect
/// over many Leases; a program uses [`Elector`].
pub mod lease {
    pub use crate::clocks::Clocks;
    pub use crate::error::LeaseError;
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
pub use written_versions::{PreviousHolder, WRITTEN_ANNOTATION, WrittenVersions};
