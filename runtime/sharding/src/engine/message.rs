//! The inputs and outputs of the engine.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_election::lease::{LeaseError, LeaseWrite};
use windlass_election::{LossReason, PreviousHolder};
use windlass_env::Instant;
use windlass_object::ResourceVersion;
use windlass_object::shard::{HashRanges, ShardId};

/// The subject of a request. At most one request is in flight for each.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestTarget {
    List,
    Watch,
    Plan,
    Membership,
    Shard(ShardId),
    ExpiredMember,
}

/// A request to the API server.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    List,
    Watch(Option<ResourceVersion>),
    Get(String),
    Write(Box<LeaseWrite>),
    Delete(Box<Lease>),
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Listed(Option<ResourceVersion>, Vec<Lease>),
    Watching,
    Got(Option<Lease>),
    Written(Lease),
    Deleted,
    Failed(LeaseError),
}

/// An event of the watch.
#[derive(Clone, Debug)]
pub(crate) enum LeaseUpdate {
    Changed(Lease),
    Deleted(Lease),
    Progress(ResourceVersion),
    Ended,
}

/// An action of the caller.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Send the request, and pass in its response, or a timeout, within this time.
    Send { request_id: u64, target: RequestTarget, request: Request, within: Duration },
    /// Close the watch.
    StopWatch,
    /// Open a fence, and notify the owner.
    Acquired { shard: ShardId, ranges: HashRanges, deadline: Instant, previous_holder: PreviousHolder },
    /// Extend the deadline of the shard's fence.
    Extend { shard: ShardId, deadline: Instant },
    /// Request the owner to stop its work on the shard.
    RequestHandoff { shard: ShardId },
    /// Close the fence, and notify the owner.
    Lost { shard: ShardId, reason: LossReason },
}

/// The result of one step of the engine.
#[derive(Debug)]
pub(crate) struct EngineOutput {
    pub(crate) effects: Vec<Effect>,
    /// When to step again, if nothing happens before.
    pub(crate) wake: Instant,
}

impl EngineOutput {
    /// Wakes the engine at `until` at the latest.
    pub(super) fn wait(&mut self, until: Instant) {
        self.wake = self.wake.min(until);
    }
}
