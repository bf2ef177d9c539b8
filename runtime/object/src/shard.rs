//! Shards: parts of all objects, assigned by a hash, so that replicas can share the work.
//!
//! The hash is 64-bit FNV-1a of the namespace, or of the UID for cluster-scoped kinds, because API servers can filter
//! by it ([`selector`]). A shard owns [`HashRanges`] of the hash ring; a [`ShardMap`] assigns them.
//!
//! Guarantees:
//! - A shard map covers the ring exactly once: every hash has one shard, including hashes of future namespaces.
//! - Ranges and shard maps survive formatting and parsing unchanged.
//! - The same namespaces with the same weights produce the same shard map on every replica.
//!
//! This module does not track which replica owns a shard.

use std::fmt;

mod ranges;
mod selector;
mod shard_map;

pub use self::{
    ranges::{HashRange, HashRanges, ParseHashRangesError, parse_bound},
    selector::{ShardField, selector},
    shard_map::{HeavyNamespace, ParseShardMapError, ShardMap},
};

/// Number of a shard in a [`ShardMap`], starting at zero.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the position of a namespace or UID on the ring: 64-bit FNV-1a, as API servers compute it.
pub const fn hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut hash, mut at) = (OFFSET_BASIS, 0);
    while at < bytes.len() {
        // A cast of `u8` to `u64` is lossless; `From` is not const.
        hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    hash
}

/// The 64-bit FNV offset basis.
const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// The 64-bit FNV prime.
const PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_fnv_specification() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
