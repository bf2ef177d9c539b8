//! Many active replicas: each acts on a fair share of the shards, and no two act on the same key.
//!
//! If one replica is too small, keys are divided into shards by the hash of their namespace
//! ([`windlass_object::shard`]), and each shard is elected by its own Lease. This crate keeps each replica at its fair
//! share while replicas join and leave, and hands shards off without a gap. The rest of a process depends on one trait,
//! [`KeyOwnership`], which decides for each key whether this replica reconciles it, and behind which fence.
//!
//! ```text
//! Leases -> LeaseCache -> Engine (pure) -> ShardElector -> events -> the owner of the work
//!                                                                     |-> ShardTable -> KeyOwnership -> controllers
//!                                                                     `-> ShardSet -> caches
//! ```
//!
//! # Guarantees
//!
//! - **No key has two holders.** The ranges of two fences that are open at the same time never overlap, if the ratio of
//!   the clock rates of any two replicas is within `lease_duration / renew_deadline`, as in an election of one Lease.
//!   This includes replicas with different plans: ranges can move while replicas work.
//! - **A shard without a holder is taken over within one lease duration** after its holder crashed, by the clock of the
//!   next holder, plus the time of a few requests. If the assigned replica started later and so waits longer, the first
//!   replica that observes the expiry clears the holder in the Lease, one retry period later. No shard is reserved for
//!   a member that has not renewed for two retry periods.
//! - **A graceful handoff has no gap except its requests.** A holder that shuts down or has more than its share
//!   receives a handoff request, continues behind its open fence until its work has stopped, and releases the Lease.
//!   The next holder observes the release through its watch and takes the Lease immediately.
//! - **Shares are fair.** Once the members do not change, the numbers of shards of live members differ by one at most,
//!   and no shard moves.
//! - **A shard is acquired with its previous holders.** An [`Acquired`](ShardEvent::Acquired) event contains the
//!   versions that the previous holders recorded, also if the ranges were divided between several shards.
//! - **A lost response has no effect on ownership.** A Lease that names this replica although it does not hold the
//!   shard is found by the watch, and used or released.
//! - **A key of a pending shard is not lost**, and a key is [owned](Ownership::Owned) only between the start of the
//!   work on its shard and the request to stop it.
//!
//! # Why no key has two holders
//!
//! One Lease excludes two holders of the same shard, as in [`Elector`](windlass_election::Elector). Two shards of
//! *different plans* can share keys, and no Lease excludes that. Therefore the Lease of each shard states the ranges of
//! its holder. A holder opens its fence only after its cache contains every write to these Leases before its own claim,
//! and no other holder of overlapping ranges. Of two overlapping claims one was written first: the holder of the second
//! observes the first, and waits. It does not wait for a holder that has expired, but first clears the holder in its
//! Lease. That write only succeeds if the Lease was not renewed; from then on it cannot be renewed, and the fence of
//! the expired holder closed, by its clock, before the Lease expired by ours. A deleted Lease counts as held until it
//! would have expired. Neither the order of generations nor the plan itself matters for this; they only make all
//! replicas want the same shards.
//!
//! # The plan
//!
//! The Lease `<prefix>-shards` contains the plan: a generation, and a division into ranges. A replica that finds no
//! plan writes an even one. Later the holder of shard 0 writes the next plan when its owner
//! [proposes](ShardElector::propose) a division (equal ranges are badly balanced, so the [`Rebalancer`] chooses ranges
//! by the number of objects per namespace), or when all live members request another *number* of shards. Until they
//! agree, the number in the plan applies: a rolling update with another number changes nothing until the last replica
//! is updated. A replica that observes a new plan drains the shards whose ranges change, and keeps the others.
//!
//! # Limits
//!
//! The crate does not know controllers and stops no work: the owner of the work receives events. A replica that has
//! lost a shard does not acquire it again before its owner has released it. A replica that does not release a lost
//! shard within a lease duration ends its membership until it does, because it is stuck. A deleted membership or plan
//! is created again. A member that renews its membership but cannot write the Leases of shards keeps its share from
//! others.

mod config;
mod elector;
mod elector_task;
mod engine;
mod event;
mod fair_share;
mod lease_cache;
mod names;
mod namespace_counts;
mod overview;
mod ownership;
mod plan;
mod rebalancer;
mod report;
mod requests;
mod shard_lease;
mod shard_table;
#[cfg(test)]
mod threads;

pub use config::{ShardsConfig, ShardsConfigError};
pub use elector::ShardElector;
pub use elector_task::ShardElectorTask;
pub use engine::ProposalOutcome;
pub use event::ShardEvent;
pub use names::{
    DIVISION_ANNOTATION, GENERATION_ANNOTATION, HEAVY_ANNOTATION, RANGES_ANNOTATION, SHARDS_LABEL,
    WANTED_ANNOTATION,
};
pub use overview::ShardsOverview;
pub use ownership::{KeyOwnership, Ownership, OwnsAllKeys};
pub use rebalancer::{CountOutcome, Rebalancer};
pub use report::ShardsReport;
pub use shard_table::{HeldShard, KeyPosition, ShardStage, ShardTable};
