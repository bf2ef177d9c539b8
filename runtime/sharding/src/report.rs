//! A report about all shards, as JSON and as text: the plan, the members, and the shards with their holders.

use std::fmt;

use serde::Serialize;
use windlass_object::shard::{HeavyNamespace, ShardId};

use crate::shard_table::{ShardStage, ShardTable};

/// The members and the shards, as far as this replica knows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardsReport {
    generation: u64,
    members: Vec<String>,
    shards: Vec<Shard>,
    heavy: Vec<Heavy>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shard {
    shard: u16,
    ranges: String,
    holder: Option<String>,
    /// The stage, if this replica holds the shard.
    here: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Heavy {
    namespace: String,
    weight: u64,
    fair_share: u64,
}

impl ShardsReport {
    /// Returns the report about `table` as it is now.
    pub fn new(table: &ShardTable) -> Self {
        let (overview, stages) = (table.overview(), table.stages());
        let shards = overview.shard_map.iter().flat_map(|shard_map| shard_map.iter());
        let shards = shards.map(|(shard, ranges)| Shard {
            shard: shard.0,
            ranges: ranges.to_string(),
            holder: overview.holders.get(&shard).cloned().flatten(),
            here: stages.get(&shard).map(|stage| name(*stage)),
        });
        let heavy = |HeavyNamespace { name, weight, fair_share }: &HeavyNamespace| Heavy {
            namespace: name.clone(),
            weight: *weight,
            fair_share: *fair_share,
        };
        Self {
            generation: overview.generation,
            members: overview.members.iter().cloned().collect(),
            shards: shards.collect(),
            heavy: overview.heavy.iter().map(heavy).collect(),
        }
    }

    /// Returns the held shards of `table` and their stages in one line: `0 working, 2 joining`.
    pub fn summary(table: &ShardTable) -> String {
        let held: Vec<String> =
            table.stages().iter().map(|(shard, stage)| format!("{shard} {}", name(*stage))).collect();
        if held.is_empty() { "none".to_owned() } else { held.join(", ") }
    }
}

impl fmt::Display for ShardsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "shard map {}; members: {}", self.generation, self.members.join(", "))?;
        for Shard { shard, ranges, holder, here } in &self.shards {
            let holder = holder.as_deref().unwrap_or("no replica");
            let here = here.map(|stage| format!("; this replica: {stage}")).unwrap_or_default();
            writeln!(f, "shard {}: held by {holder}{here}; hash ranges {ranges}", ShardId(*shard))?;
        }
        for Heavy { namespace, weight, fair_share } in &self.heavy {
            writeln!(
                f,
                "namespace {namespace} has {weight} objects, more than a fair share ({fair_share}); no shard map can \
                 balance it"
            )?;
        }
        Ok(())
    }
}

fn name(stage: ShardStage) -> &'static str {
    match stage {
        ShardStage::Joining => "joining",
        ShardStage::Working => "working",
        ShardStage::Leaving => "leaving",
    }
}
