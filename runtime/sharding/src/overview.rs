//! A summary of the election, for people.

use std::collections::{BTreeMap, BTreeSet};

use windlass_object::shard::{HeavyNamespace, ShardId, ShardMap};

/// The members and the holders of all shards, as far as this replica knows. For display only: no decision is based on
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardsOverview {
    /// The generation of the plan; 0 before there is one.
    pub generation: u64,
    /// The ranges of each shard; `None` before there is a plan.
    pub shard_map: Option<ShardMap>,
    /// Namespaces with more objects than one shard's fair share, which no division can balance.
    pub heavy: Vec<HeavyNamespace>,
    /// The identities of the live members.
    pub members: BTreeSet<String>,
    /// The holder in the Lease of each shard of the plan.
    pub holders: BTreeMap<ShardId, Option<String>>,
    /// The shards on which this replica works, or that it has not released yet.
    pub held: BTreeSet<ShardId>,
}
