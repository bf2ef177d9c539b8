//! What a shard is: a part of all objects, told by a hash, so that replicas can share the work.
//!
//! Hashes are FNV-1a of 64 bits, of an object's namespace, or of its uid where the kind has no namespaces, because
//! that is what an API server can filter by ([`selector`]). A shard owns [`HashRanges`] of the ring of hashes, and a
//! [`ShardMap`] says which.
//!
//! Guarantees:
//! - A division covers the ring exactly once: every hash has one shard, whatever namespaces will come.
//! - What is written is read back as it was: ranges and divisions.
//! - The same namespaces with the same weights are divided in the same way, everywhere.
//!
//! It refuses to know who owns a shard, and for how long.

use std::fmt;

mod ranges;
mod selector;
mod shard_map;

pub use self::{
    ranges::{HashRange, HashRanges, ParseHashRangesError, parse_bound},
    selector::{ShardField, selector},
    shard_map::{HeavyNamespace, ParseShardMapError, ShardMap},
};

/// One shard of a [`ShardMap`]. The first is zero.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a namespace or a uid lies on the ring: FNV-1a of 64 bits, as API servers compute it.
pub const fn hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut hash, mut at) = (OFFSET_BASIS, 0);
    while at < bytes.len() {
        // A byte always fits.
        hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    hash
}

/// FNV's offset basis for 64 bits.
const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// FNV's prime for 64 bits.
const PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_fnv_specification() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
