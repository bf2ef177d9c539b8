//! Runs controllers: from a dequeued key to its reconcile and the decision about its requeue.

pub(crate) mod cache_wait;
pub(crate) mod cleanup;
pub(crate) mod context;
pub(crate) mod outcome;
pub(crate) mod prepared;
pub(crate) mod reconcile;
pub(crate) mod reconcile_scope;
pub(crate) mod shard_handoff;
pub(crate) mod spans;
pub(crate) mod worker;
pub(crate) mod workers;
