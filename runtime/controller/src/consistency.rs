//! Read-your-writes: records the writes of each key, checks whether the caches reflect them, and resolves unknown
//! outcomes.

pub(crate) mod caches;
pub(crate) mod key_log;
pub(crate) mod read_your_writes;
pub(crate) mod stale_skips;
pub(crate) mod unknown_outcomes;
pub(crate) mod visible;
pub(crate) mod write_tracker;
