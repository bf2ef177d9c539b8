//! The plan that all replicas share: a generation and a division, in annotations of one Lease. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use windlass_object::shard::{HashRanges, HeavyNamespace, ShardMap};

use crate::names::{DIVISION_ANNOTATION, GENERATION_ANNOTATION, HEAVY_ANNOTATION, RANGES_ANNOTATION};

/// The ranges of all shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Increases by one with each plan that changes the division.
    pub(crate) generation: u64,
    pub(crate) shard_map: ShardMap,
    /// Namespaces that no division can balance.
    pub(crate) heavy: Vec<HeavyNamespace>,
}

impl Plan {
    /// Parses the plan in its Lease.
    ///
    /// # Errors
    /// The annotation that is not valid.
    pub(crate) fn from_lease(lease: &Lease) -> Result<Self, String> {
        let generation = generation(&lease.metadata)
            .ok_or_else(|| format!("its annotation {GENERATION_ANNOTATION} is not a number"))?;
        let text = annotation(&lease.metadata, DIVISION_ANNOTATION).unwrap_or_default();
        let shard_map =
            text.parse().map_err(|error| format!("its annotation {DIVISION_ANNOTATION}: {error}"))?;
        let heavy = annotation(&lease.metadata, HEAVY_ANNOTATION).map(parse_heavy).unwrap_or_default();
        Ok(Self { generation, shard_map, heavy })
    }

    /// Returns the plan as a Lease with this metadata. The writer and the time are for display only.
    pub(crate) fn into_lease(self, metadata: ObjectMeta, writer: &str, now: MicroTime) -> Lease {
        let mut metadata = metadata;
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(GENERATION_ANNOTATION.to_owned(), self.generation.to_string());
        annotations.insert(DIVISION_ANNOTATION.to_owned(), self.shard_map.to_string());
        match self.heavy.is_empty() {
            true => annotations.remove(HEAVY_ANNOTATION),
            false => annotations.insert(HEAVY_ANNOTATION.to_owned(), format_heavy(&self.heavy)),
        };
        let spec = LeaseSpec {
            holder_identity: Some(writer.to_owned()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }
}

/// Returns the generation of the plan under which a Lease was written.
pub(crate) fn generation(metadata: &ObjectMeta) -> Option<u64> {
    annotation(metadata, GENERATION_ANNOTATION)?.parse().ok()
}

/// Returns the ranges of the holder of a shard: all ranges if the Lease states none.
pub(crate) fn ranges(metadata: &ObjectMeta) -> HashRanges {
    let stated = annotation(metadata, RANGES_ANNOTATION).and_then(|text| text.parse().ok());
    stated.unwrap_or_else(HashRanges::whole)
}

pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn format_heavy(heavy: &[HeavyNamespace]) -> String {
    let entries: BTreeMap<&str, [u64; 2]> =
        heavy.iter().map(|heavy| (heavy.name.as_str(), [heavy.weight, heavy.fair_share])).collect();
    serde_json::json!(entries).to_string()
}

/// An invalid annotation is ignored: it is for display only.
fn parse_heavy(text: &str) -> Vec<HeavyNamespace> {
    let entries: BTreeMap<String, [u64; 2]> = serde_json::from_str(text).unwrap_or_default();
    let entry =
        |(name, [weight, fair_share]): (String, [u64; 2])| HeavyNamespace { name, weight, fair_share };
    entries.into_iter().map(entry).collect()
}
