//! From a key on the queue to its reconcile, and what becomes of the key then.

pub(crate) mod cache_wait;
pub(crate) mod cleanup;
pub(crate) mod context;
pub(crate) mod outcome;
pub(crate) mod prepared;
pub(crate) mod reconcile;
pub(crate) mod shard_handoff;
pub(crate) mod turn;
pub(crate) mod worker;
pub(crate) mod workers;
