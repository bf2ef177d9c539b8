//! Reports the leases and shards that this replica holds, one line each.

use std::fmt;
use std::num::NonZeroU16;

use windlass_admin::OwnershipReport;
use windlass_election::Leadership;
use windlass_env::watch_channel::Receiver;
use windlass_sharding::{ShardTable, ShardsReport};

/// The source of the report. It is read at every request.
#[derive(Clone)]
pub(crate) enum OwnershipSource {
    /// A single Lease, with the state of its election.
    Lease(String, Receiver<Leadership>),
    /// The held shards, with the number of all shards.
    Shards(ShardTable, NonZeroU16),
}

/// Returns the report for `/statusz`.
pub(crate) fn shown(holding: Option<OwnershipSource>) -> OwnershipReport {
    OwnershipReport::from_fn(move || holding.iter().map(ToString::to_string).collect())
}

impl fmt::Display for OwnershipSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(lease, leadership) => match leadership.get() {
                Leadership::Leading => write!(f, "Lease {lease}: held here"),
                Leadership::Lost => write!(f, "Lease {lease}: lost"),
                Leadership::Following { holder: Some(holder) } => {
                    write!(f, "Lease {lease}: held by {holder}")
                }
                Leadership::Following { holder: None } => {
                    write!(f, "Lease {lease}: holder unknown")
                }
            },
            Self::Shards(table, all) => write!(f, "Shards: {}, of {all}", ShardsReport::summary(table)),
        }
    }
}
