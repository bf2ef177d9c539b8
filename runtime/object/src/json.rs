//! Objects as JSON.

use serde::Serialize;
use serde_json::Value;

/// Returns the JSON value of an object by serializing it to bytes and parsing them. `serde_json::to_value` is a
/// separate serializer, so the serialization code of every kind would be compiled a second time.
///
/// # Errors
/// If the object cannot be serialized as JSON.
pub fn value(object: &impl Serialize) -> serde_json::Result<Value> {
    serde_json::from_slice(&serde_json::to_vec(object)?)
}
