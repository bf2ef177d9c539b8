//! `/debug/shards`: who shares what, as far as this replica knows.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;
use windlass_admin::Pages;
use windlass_object::shard::{HeavyNamespace, ShardId};

use super::table::{Stage, Table};
use crate::explain::answer;

/// Where it is found.
const SHARDS: &str = "/debug/shards";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    generation: u64,
    members: Vec<String>,
    shards: Vec<Shard>,
    heavy: Vec<Heavy>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shard {
    shard: u16,
    ranges: String,
    holder: Option<String>,
    /// How far it has come, if it is held here.
    here: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Heavy {
    namespace: String,
    weight: u64,
    fair_share: u64,
}

/// Adds the page.
pub(crate) fn add_page(pages: &Pages, table: &Table) {
    let table = table.clone();
    pages.add(
        SHARDS,
        Arc::new(move |request| {
            let overview = Overview::of(&table);
            answer(request, &overview, || overview.text())
        }),
    );
}

impl Overview {
    fn of(table: &Table) -> Self {
        let (view, stages) = (table.view(), table.stages());
        let shards = view.division.iter().flat_map(|division| division.iter());
        let shards = shards.map(|(shard, ranges)| Shard {
            shard: shard.0,
            ranges: ranges.to_string(),
            holder: view.holders.get(&shard).cloned().flatten(),
            here: stages.get(&shard).map(|stage| name(*stage)),
        });
        let heavy = |HeavyNamespace { name, weight, fair_share }: &HeavyNamespace| Heavy {
            namespace: name.clone(),
            weight: *weight,
            fair_share: *fair_share,
        };
        Self {
            generation: view.generation,
            members: view.members.iter().cloned().collect(),
            shards: shards.collect(),
            heavy: view.heavy.iter().map(heavy).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("plan {}; members: {}\n", self.generation, self.members.join(", "));
        for Shard { shard, ranges, holder, here } in &self.shards {
            let holder = holder.as_deref().unwrap_or("nobody");
            let here = here.map(|stage| format!(", {stage} here")).unwrap_or_default();
            let _always = writeln!(text, "shard {}: held by {holder}{here}; {ranges}", ShardId(*shard));
        }
        for Heavy { namespace, weight, fair_share } in &self.heavy {
            let _always = writeln!(
                text,
                "heavy: namespace {namespace} weighs {weight}, and a fair share is {fair_share}: no division balances it"
            );
        }
        text
    }
}

/// The shards held here and how far each has come, on less than a line: `0 working, 2 joining`.
pub(crate) fn held(table: &Table) -> String {
    let held: Vec<String> =
        table.stages().iter().map(|(shard, stage)| format!("{shard} {}", name(*stage))).collect();
    if held.is_empty() { "none".to_owned() } else { held.join(", ") }
}

fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Joining => "joining",
        Stage::Working => "working",
        Stage::Leaving => "leaving",
    }
}
