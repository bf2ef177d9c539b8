//! How many shards there are, and under what names they are elected. What passes
//! [`validate`](ShardsConfig::validate) can be elected with.

use std::num::NonZeroU16;

use crate::config::{ElectionConfig, ElectionConfigError};

/// The most shards one election may have: each is a Lease that is renewed every few seconds, and a watch per kind.
pub(crate) const MOST_SHARDS: u16 = 256;

/// The prefix is the value of a label too, which may be no longer.
const LONGEST_PREFIX: usize = 63;

/// Settings of an election of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardsConfig {
    /// Durations, identity and namespace as in an election of one. Its `lease_name` is the prefix of all names:
    /// `<prefix>-shard-<number>`, `<prefix>-member-<hash of the identity>` and `<prefix>-shards`, which holds the plan.
    /// `release_on_exit` says whether [`leave`](super::ShardElector::leave) gives back what is still held; a shard that
    /// is handed over is always given back. It cannot be coordinated.
    pub election: ElectionConfig,
    /// How many shards this replica wants there to be. What counts is the number in the plan: it becomes this one when
    /// all live replicas want the same.
    pub shards: NonZeroU16,
}

impl ShardsConfig {
    /// Checks the election, the number and the prefix.
    ///
    /// # Errors
    ///
    /// The first rule broken.
    pub fn validate(&self) -> Result<(), ShardsConfigError> {
        self.election.validate()?;
        if self.election.coordinated.is_some() {
            return Err(ShardsConfigError::Coordinated);
        }
        if self.shards.get() > MOST_SHARDS {
            return Err(ShardsConfigError::TooMany { shards: self.shards.get() });
        }
        let prefix = &self.election.lease_name;
        if prefix.len() > LONGEST_PREFIX {
            return Err(ShardsConfigError::PrefixTooLong { prefix: prefix.clone() });
        }
        Ok(())
    }
}

/// Why a [`ShardsConfig`] cannot be elected with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardsConfigError {
    /// A setting of the election.
    #[error(transparent)]
    Election(#[from] ElectionConfigError),
    /// The API server's coordinator chooses holders one Lease at a time, and knows nothing of shares.
    #[error(
        "shards cannot be elected by the API server's coordinator: turn coordinated election off, or shards"
    )]
    Coordinated,
    /// More shards than Leases can be renewed for.
    #[error("there may be at most {MOST_SHARDS} shards, but {shards} are asked for")]
    TooMany {
        /// How many were asked for.
        shards: u16,
    },
    /// The prefix does not fit in a label.
    #[error(
        "the lease name {prefix:?} is longer than {LONGEST_PREFIX} characters and cannot be the prefix of shards"
    )]
    PrefixTooLong {
        /// The prefix given.
        prefix: String,
    },
}
