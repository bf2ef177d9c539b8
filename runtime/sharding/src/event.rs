//! The events of a shard elector.

use std::sync::Arc;

use windlass_election::{ElectionError, LeaderFence, LeaseLost, PreviousHolder};
use windlass_object::shard::{HashRanges, ShardId};

/// An event that the owner of the work must process.
#[derive(Clone, Debug)]
pub enum ShardEvent {
    /// Work on the shard can start. Its fence is open and belongs to this term alone.
    Acquired {
        /// The shard.
        shard: ShardId,
        /// The hash ranges of the shard.
        ranges: HashRanges,
        /// Checked before each write.
        fence: Arc<LeaderFence>,
        /// The previous holder of these ranges. Work starts once the caches reflect its writes.
        previous_holder: PreviousHolder,
    },
    /// Stop the work on the shard, then [release](crate::ShardElector::release) it. Its fence stays open until then.
    HandoffRequested {
        /// The shard.
        shard: ShardId,
    },
    /// The shard is lost and its fence closed: stop the work, then [release](crate::ShardElector::release) the shard.
    /// This replica does not acquire it again before that.
    Lost {
        /// The shard.
        shard: ShardId,
        /// The reason.
        lost: LeaseLost,
    },
    /// A [release](crate::ShardElector::begin_release) has completed.
    Released {
        /// The shard.
        shard: ShardId,
        /// Whether the Lease was released; if not, it expires.
        outcome: Result<(), ElectionError>,
    },
}
