//! Read-your-writes: what each key wrote, whether the caches show it, and how an unknown outcome is resolved.

pub(crate) mod caches;
pub(crate) mod doubts;
pub(crate) mod key_log;
pub(crate) mod read_your_writes;
pub(crate) mod stale_skips;
pub(crate) mod visible;
pub(crate) mod write_tracker;
