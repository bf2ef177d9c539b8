//! The number of shards, and the names of their Leases.

use std::num::NonZeroU16;

use windlass_election::{Election, ElectionConfigError};

/// The maximum number of shards: each costs a Lease that is renewed every few seconds, and a watch per kind.
pub(crate) const MAX_SHARDS: u16 = 256;

/// The maximum length of a label value, because the prefix is the value of a label too.
const MAX_PREFIX_LENGTH: usize = 63;

/// Settings of an election of shards.
///
/// ```
/// use std::num::NonZeroU16;
/// use windlass_election::{Election, ElectionConfig};
/// use windlass_sharding::ShardsConfig;
///
/// let election = Election { namespace: "ops".to_owned(), config: ElectionConfig::new("pod-1") };
/// let shards = NonZeroU16::new(16).expect("not zero");
/// assert!(ShardsConfig { election, shards }.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardsConfig {
    /// Durations, identity and namespace, as for one Lease. Its `lease_name` is the prefix of all names:
    /// `<prefix>-shard-<number>`, `<prefix>-member-<hash of the identity>` and `<prefix>-shards`, which holds the plan.
    /// `release_on_exit` controls whether [`release_all`](super::ShardElector::release_all) releases the Leases; a
    /// shard that moves to another replica is always released. Coordinated election is not supported.
    pub election: Election,
    /// The number of shards that this replica requests. The plan changes to it once all live replicas request the same
    /// number.
    pub shards: NonZeroU16,
}

impl ShardsConfig {
    /// Validates the election, the number and the prefix.
    ///
    /// # Errors
    ///
    /// The first rule broken.
    pub fn validate(&self) -> Result<(), ShardsConfigError> {
        let election = &self.election.config;
        election.validate()?;
        if election.coordinated.is_some() {
            return Err(ShardsConfigError::Coordinated);
        }
        if self.shards.get() > MAX_SHARDS {
            return Err(ShardsConfigError::TooMany { shards: self.shards.get() });
        }
        let prefix = &election.lease_name;
        if prefix.len() > MAX_PREFIX_LENGTH {
            return Err(ShardsConfigError::PrefixTooLong { prefix: prefix.clone() });
        }
        Ok(())
    }
}

/// The rule that a [`ShardsConfig`] violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardsConfigError {
    /// A setting of the election is invalid.
    #[error(transparent)]
    Election(#[from] ElectionConfigError),
    /// The API server's coordinator chooses the holder of one Lease, and has no concept of shares.
    #[error(
        "shards cannot be elected by the API server's coordinator; disable coordinated election or sharding"
    )]
    Coordinated,
    /// There are too many shards.
    #[error("at most {MAX_SHARDS} shards are supported, but {shards} are configured")]
    TooMany {
        /// The configured number.
        shards: u16,
    },
    /// The prefix is too long for a label.
    #[error(
        "the lease name {prefix:?} is longer than {MAX_PREFIX_LENGTH} characters and cannot be the prefix of shards"
    )]
    PrefixTooLong {
        /// The configured prefix.
        prefix: String,
    },
}
