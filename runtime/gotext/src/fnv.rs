//! The FNV hashes of 32 bits.

const OFFSET: u32 = 2_166_136_261;
const PRIME: u32 = 16_777_619;

/// Returns the FNV-1 hash: multiplies, then adds the byte. Upstream names the revisions of StatefulSets with it.
pub fn fnv1_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(OFFSET, |hash, byte| hash.wrapping_mul(PRIME) ^ u32::from(*byte))
}

/// Returns the FNV-1a hash: adds the byte, then multiplies.
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}
