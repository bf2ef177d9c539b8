//! What this replica holds of what replicas share: leases and shards, in a line each.

use std::fmt;
use std::num::NonZeroU16;

use windlass_admin::OwnershipReport;
use windlass_election::Leadership;
use windlass_env::watch_channel::Receiver;
use windlass_sharding::{ShardTable, ShardsReport};

/// What a replica holds. It is looked at whenever it is asked for.
#[derive(Clone)]
pub(crate) enum OwnershipSource {
    /// One Lease, or not.
    Lease(String, Receiver<Leadership>),
    /// Some of so many shards.
    Shards(ShardTable, NonZeroU16),
}

/// What `/statusz` shows of it.
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
                    write!(f, "Lease {lease}: nobody is known to hold it")
                }
            },
            Self::Shards(table, all) => write!(f, "Shards: {}, of {all}", ShardsReport::summary(table)),
        }
    }
}
