//! Whose keys are whose, where several replicas share the keys of one controller.
//!
//! A controller asks its [`Scope`] before it queues a key and again right before each reconcile, so a key that moved to
//! another replica meanwhile is not reconciled here. Who moves keys away says so in the scope first and then calls
//! [`Workers::retire`](crate::Workers::retire), which resolves once none of them is in flight. Who takes keys over says
//! [`Verdict::Soon`] while caches fill, then [`Verdict::Mine`], and then calls [`Steward::let_in`](crate::Steward::let_in):
//! no key that came in between is lost.

use std::fmt;
use std::sync::Arc;

use windlass_client::Fence;
use windlass_object::ObjectKey;
use windlass_object::shard::ShardId;

/// Says whose a key is.
pub trait Scope: Send + Sync + 'static {
    /// Whose `key` is now. Asked for every key that is queued: it must be quick and must not block.
    fn verdict(&self, key: &ObjectKey) -> Verdict;
}

/// Whose a key is.
#[derive(Clone)]
pub enum Verdict {
    /// This replica's. Its reconcile runs, and what it writes leaves, only while this fence is open; none for the
    /// process's own.
    Mine(Option<Arc<dyn Fence>>),
    /// It is about to be this replica's: it is queued, and put aside by the worker that takes it until it is let in.
    Soon {
        /// In which shard.
        shard: ShardId,
    },
    /// It is in a shard that another replica holds, or that none does.
    Elsewhere {
        /// Which shard.
        shard: ShardId,
        /// Who holds it, if that is known.
        holder: Option<String>,
    },
}

/// The scope of a replica that shares its keys with nobody: every key is its own.
#[derive(Copy, Clone, Debug, Default)]
pub struct Everything;

impl Scope for Everything {
    fn verdict(&self, _: &ObjectKey) -> Verdict {
        Verdict::Mine(None)
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mine(fence) => write!(f, "Mine(fenced: {})", fence.is_some()),
            Self::Soon { shard } => write!(f, "Soon({shard})"),
            Self::Elsewhere { shard, holder } => write!(f, "Elsewhere({shard}, {holder:?})"),
        }
    }
}
