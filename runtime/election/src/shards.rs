//! Many active replicas: each acts on a fair share of the shards, and no two on the same keys.
//!
//! Where one replica is too small, keys are divided into shards by the hash of their namespace (see
//! [`windlass_object::shard`]), and each shard is elected by a Lease of its own. This module keeps every replica at its
//! fair share while replicas come and go, and hands shards over without a gap.
//!
//! # Guarantees
//!
//! - **No key is in two holders' hands**: of two fences that are open at one time, no ranges overlap, as long as the
//!   clocks of any two replicas run at rates whose ratio stays within `lease_duration / renew_deadline`, as in an
//!   election of one. That holds across plans too: ranges may be moved while replicas work.
//! - **No shard stays unowned** longer than one lease duration after its holder crashed, by the clock of whoever takes
//!   it, plus the time of a few requests. Where somebody else should take it who came later, and so waits longer, the
//!   first for whom that time is up writes so in the Lease, a retry period on. Nothing is kept for a member that has not
//!   renewed for two retry periods.
//! - **A clean hand-over leaves no gap** but these: a holder that leaves, or has more than its share, is told to give a
//!   shard up, works on behind its open fence until it says that it has ended, gives the Lease back, and the next takes
//!   it at once, told by its watch.
//! - **Shares are fair at rest**: among members that live, the numbers of shards held differ by one at most, and nothing
//!   moves.
//! - **A shard is taken only with knowledge of who was there before**: an [`Acquired`](ShardEvent::Acquired) shard
//!   brings what its predecessors wrote, also where it is made of parts of several.
//! - **What was won unawares is undone**: a Lease that names this replica because an answer was lost is found by the
//!   watch, and used or given back.
//!
//! # Why no key is in two hands
//!
//! One Lease excludes two holders of the same shard, as in [`Elector`](crate::Elector). Two shards of *different plans*
//! may share keys, and no Lease excludes that. So each Lease of a shard names the ranges that its holder acts on, and a
//! holder opens its fence only after it has seen every write of these Leases up to its own claim, and in them nobody
//! whose ranges overlap its own. Of two claims that overlap, one was written first: whoever wrote second sees it and
//! waits. A holder that looks dead is not waited for, but its Lease is first written over, which only succeeds if it
//! was not renewed: from then on it cannot be, and its fence has closed, by its own clock, before its Lease expired by
//! ours. A Lease that was deleted counts as held until it would have expired. Neither the order of generations nor the
//! plan itself matters for this; they only make everybody want the same.
//!
//! # The plan
//!
//! Which shard has which ranges stands in the Lease `<prefix>-shards`, as a generation and a division. Whoever finds none
//! writes an even one; later the holder of shard 0 writes the next, when its owner
//! [proposes](ShardElector::propose) one (ranges are chosen from the namespaces that there are and their weights, since
//! equal ranges are badly unbalanced), or when all live members want another *number* of shards. Until they do, the number
//! in the plan holds: a rolling update with another number changes nothing until its last replica is new. A replica
//! that sees a new plan gives up what it divides otherwise, and keeps shards whose ranges stay.
//!
//! # What it refuses
//!
//! It starts nothing by itself, ends no work, and does not choose divisions by weight: it is told. A replica that
//! has lost a shard does not take it again before its owner has said that the work on it has ended, and one that does
//! not come to that end within a lease duration ceases to be a member until it does, for something in it is stuck.
//! A deleted membership or plan is written anew. A member that renews its membership and cannot write the Leases of
//! shards keeps its share from others.

mod balance;
mod book;
mod config;
mod elector;
mod engine;
mod names;
mod plan;
mod shares;
#[cfg(test)]
mod tests;

pub use config::{ShardsConfig, ShardsConfigError};
pub use elector::{ShardElector, ShardEvent, ShardsOverview};
pub use engine::Proposal;
pub use names::{
    DIVISION_ANNOTATION, GENERATION_ANNOTATION, HEAVY_ANNOTATION, RANGES_ANNOTATION, SHARDS_LABEL,
    WANTED_ANNOTATION,
};
