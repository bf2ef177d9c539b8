//! Writes the status of an owner, with one retry.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_controller::{Context, WriteError, Writer};
use windlass_object::ObjectKey;

use super::claims::NamespacedKind;

/// A kind whose status is written.
pub(crate) trait StatusOwner:
    NamespacedKind + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K: NamespacedKind + Serialize + DeserializeOwned + Send + Sync + 'static> StatusOwner for K {}

/// Replaces the status with the result of `change`, and returns the new owner.
///
/// A failed write is retried once on a fresh copy, with the generation for which the status was computed, because a
/// newer spec was not processed.
///
/// # Errors
/// The failure of the last request.
pub(crate) async fn write_status<K: StatusOwner>(
    cx: &Context,
    key: &ObjectKey,
    writer: &Writer<K>,
    owner: &K,
    change: impl Fn(&mut K),
) -> Result<Arc<K>, WriteError> {
    let refused = match writer.update_status(cx, owner, &change).await {
        Ok(written) => return Ok(written.object),
        Err(refused) => refused,
    };
    let fresh = cx.get_live::<K>(key).await.map_err(WriteError::Request)?;
    // Another owner with the same name has its own status.
    match fresh.filter(|fresh| fresh.meta().uid == owner.meta().uid) {
        Some(fresh) => Ok(writer.update_status(cx, &fresh, &change).await?.object),
        None => Err(refused),
    }
}
