//! The ownership of keys: the one trait through which controllers know shards.
//!
//! A controller calls its [`KeyOwnership`] before it enqueues a key and again before each reconcile, so a key that
//! moved to another replica meanwhile is not reconciled here. The owner of the shards changes the ownership first, and
//! then calls the controller: after [`Ownership::NotOwned`] to drain the keys, after [`Ownership::Owned`] to resume the
//! parked ones. A key that is enqueued while it is [`Ownership::Pending`] is not lost.

use std::fmt;
use std::sync::Arc;

use windlass_client::Fence;
use windlass_object::ObjectKey;
use windlass_object::shard::ShardId;

/// Decides which keys this replica reconciles.
pub trait KeyOwnership: Send + Sync + 'static {
    /// Returns the ownership of `key` now. Called for every key that is enqueued: it must be quick and must not block.
    fn ownership(&self, key: &ObjectKey) -> Ownership;
}

/// The ownership of a key.
#[derive(Clone)]
pub enum Ownership {
    /// This replica reconciles the key. The reconcile runs, and its writes are sent, only while this fence is open;
    /// `None` for the fence of the process.
    Owned(Option<Arc<dyn Fence>>),
    /// This replica is about to own the key: the key is enqueued, and parked by the worker that dequeues it.
    Pending {
        /// The shard of the key.
        shard: ShardId,
    },
    /// Another replica, or none, owns the key.
    NotOwned {
        /// The shard of the key.
        shard: ShardId,
        /// The holder of the shard, if it is known.
        holder: Option<String>,
    },
}

/// The ownership of a replica without shards: it owns all keys.
#[derive(Copy, Clone, Debug, Default)]
pub struct OwnsAllKeys;

impl KeyOwnership for OwnsAllKeys {
    fn ownership(&self, _: &ObjectKey) -> Ownership {
        Ownership::Owned(None)
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned(fence) => write!(f, "Owned(fenced: {})", fence.is_some()),
            Self::Pending { shard } => write!(f, "Pending({shard})"),
            Self::NotOwned { shard, holder } => write!(f, "NotOwned({shard}, {holder:?})"),
        }
    }
}
