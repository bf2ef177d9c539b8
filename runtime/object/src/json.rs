//! Objects as JSON.

use serde::Serialize;
use serde_json::Value;

/// The JSON value of an object, by way of its bytes. `serde_json::to_value` is another serializer, which would compile the
/// code of every kind a second time.
///
/// # Errors
/// When the object is no JSON.
pub fn value(object: &impl Serialize) -> serde_json::Result<Value> {
    serde_json::from_slice(&serde_json::to_vec(object)?)
}
