//! Reconciles never act on caches older than their own key's last write: what was written, what the caches show, and how
//! doubt is resolved.

pub(crate) mod caches;
pub(crate) mod doubts;
pub(crate) mod freshness;
pub(crate) mod key_log;
pub(crate) mod stale_skips;
pub(crate) mod visible;
pub(crate) mod writes;
