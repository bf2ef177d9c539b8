//! What each namespace weighs: how many objects of the kinds that are watched are in it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use windlass_client::{ListQuery, RawClient, RequestError};
use windlass_object::{Extent, ResourceKind};

/// How many objects come in one page. Only their metadata does.
const PAGE: u32 = 500;

#[derive(Deserialize)]
struct Headed {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// Counts the objects of these kinds by namespace, page by page, from the server's cache: an approximation is enough.
///
/// # Errors
/// The first list that failed.
pub(super) async fn observed(
    reader: &RawClient,
    kinds: &[ResourceKind],
) -> Result<BTreeMap<String, u64>, RequestError> {
    let mut weights = BTreeMap::new();
    for kind in kinds {
        let mut query = ListQuery { limit: Some(PAGE), extent: Extent::Metadata, ..ListQuery::default() };
        loop {
            let page = reader.list(kind, None, &query).await?;
            for item in &page.items {
                // One that cannot be read weighs nothing.
                let Ok(Headed { metadata }) = serde_json::from_slice(item) else { continue };
                *weights.entry(metadata.namespace.unwrap_or_default()).or_default() += 1;
            }
            match page.continue_token.filter(|token| !token.is_empty()) {
                Some(token) => query.continue_token = Some(token),
                None => break,
            }
        }
    }
    Ok(weights)
}
