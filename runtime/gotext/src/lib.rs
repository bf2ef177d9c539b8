//! Text and hashes as upstream's Go code computes them.
//!
//! kube-controller-manager derives names from hashes of objects: the name of a ReplicaSet ends with a hash of its pod
//! template. Two programs that manage the same objects must compute the same names. This crate contains the text form
//! that upstream hashes, the hashes, the encoding of a hash in a name, and the data of a ControllerRevision.
//!
//! Guarantees:
//! - [`template_hash`] equals upstream's `ComputeHash` for every template that an API server of the version in
//!   `fields.txt` stores, except for a template with a time, whose hash depends on the process upstream.
//! - [`revision_data`] equals the data bytes of upstream's ControllerRevisions for the same templates.
//! - [`equal_templates`] equals upstream's semantic equality.
//! - All functions are pure.
//!
//! It does not decode objects: the caller passes JSON in API form with canonical quantities, as API servers return
//! them.

mod defaults;
mod dump;
mod equality;
mod fields;
mod fnv;
mod json;
pub mod quantity;
mod revision;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use crate::defaults::set_template_defaults;
pub use crate::dump::{DumpError, dump_template};
pub use crate::equality::equal_templates;
pub use crate::fnv::{fnv1_32, fnv1a_32};
pub use crate::json::Numbers;
pub use crate::revision::{revision_data, revision_hash};

/// Characters of [`safe_encode`], by code modulo 27. They form no words.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns upstream's hash of a pod template, as in the label `pod-template-hash`.
///
/// A collision count of zero is part of the hash, a missing count is not.
///
/// # Errors
/// [`DumpError`] if the value is not a pod template.
pub fn template_hash(template: &Value, collision_count: Option<i32>) -> Result<String, DumpError> {
    let mut hashed = dump_template(template)?.into_bytes();
    if let Some(count) = collision_count {
        hashed.extend(count.to_le_bytes());
        hashed.extend([0; 4]);
    }
    Ok(safe_encode(&fnv1a_32(&hashed).to_string()))
}

/// Returns `text` with each byte replaced by a character that is valid in names.
pub fn safe_encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(SAFE[usize::from(byte) % SAFE.len()])).collect()
}
