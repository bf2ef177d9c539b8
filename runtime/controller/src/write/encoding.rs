//! Objects as documents, and from bytes.

use std::sync::Arc;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_object::json;

use crate::error::WriteError;

/// A Rust type whose objects can be written: k8s-openapi's, those that derive `CustomResource`, and kube's
/// [`DynamicObject`](kube::core::DynamicObject).
pub trait Writable: Resource + Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<K> Writable for K where K: Resource + Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

/// Returns the object as a document.
pub(super) fn encoded(object: &impl Serialize) -> Result<Value, WriteError> {
    json::value(object).map_err(WriteError::Encoding)
}

/// Returns the object of these bytes. Caches decode from bytes too, so each kind has one decoder.
pub(super) fn decoded<K: DeserializeOwned>(body: &[u8]) -> Result<Arc<K>, WriteError> {
    serde_json::from_slice(body)
        .map(Arc::new)
        .map_err(|error| WriteError::Request(kube::Error::SerdeError(error)))
}
