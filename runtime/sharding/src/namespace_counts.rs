//! The number of objects in each namespace, of all watched kinds. An object without a namespace counts for the
//! namespace of its name, because its key is in that shard.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_client::{ListQuery, RawClient, RequestError};
use windlass_env::Instant;
use windlass_object::{Projection, ResourceKind, metadata};

/// The number of objects in one page. Only their metadata is listed.
const PAGE: u32 = 500;

/// Objects are counted again once one in this many was added or removed: less hardly changes a division.
const CHANGED_PART: u64 = 50;

/// The time after which objects are counted again: totals do not show that objects moved between namespaces.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The number of objects in each namespace at one time.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceCounts {
    /// The number of objects in each namespace.
    pub(crate) weights: BTreeMap<String, u64>,
    by_kind: BTreeMap<ResourceKind, u64>,
    at: Instant,
}

impl NamespaceCounts {
    /// Returns `last` if it is still valid, otherwise new counts. Whether it is valid follows from the total of each
    /// kind, which a list of one object contains.
    ///
    /// # Errors
    /// The error of the first list that failed.
    pub(crate) async fn refresh(
        last: Option<Self>,
        reader: &RawClient,
        kinds: &[ResourceKind],
    ) -> Result<Self, RequestError> {
        let now = reader.env().now();
        match last {
            Some(last) if now < last.at + MAX_AGE && last.is_valid(reader, kinds).await? => Ok(last),
            _ => Self::count(reader, kinds, now).await,
        }
    }

    async fn is_valid(&self, reader: &RawClient, kinds: &[ResourceKind]) -> Result<bool, RequestError> {
        if !kinds.iter().eq(self.by_kind.keys()) {
            return Ok(false);
        }
        let (mut changed, mut all) = (0, 0);
        for (kind, counted) in &self.by_kind {
            // Without a total from the server, the objects must be counted.
            let Some(total) = total(reader, kind).await? else { return Ok(false) };
            changed += total.abs_diff(*counted);
            all += counted;
        }
        Ok(changed <= all / CHANGED_PART)
    }

    /// Counts the objects of these kinds by namespace, page by page. The result is an approximation, because the pages
    /// can be of different times. An expired page is an error.
    async fn count(reader: &RawClient, kinds: &[ResourceKind], at: Instant) -> Result<Self, RequestError> {
        let (mut weights, mut by_kind) = (BTreeMap::new(), BTreeMap::new());
        for kind in kinds {
            let counted: &mut u64 = by_kind.entry(kind.clone()).or_default();
            let mut query = query(PAGE);
            loop {
                let page = reader.list(kind, None, &query).await?;
                *counted += u64::try_from(page.items.len()).unwrap_or(u64::MAX);
                for item in &page.items {
                    // Undecodable objects are not counted.
                    let Some(metadata) = metadata(item) else { continue };
                    let namespace = metadata.namespace.or(metadata.name).unwrap_or_default();
                    *weights.entry(namespace).or_default() += 1;
                }
                match page.continue_token.filter(|token| !token.is_empty()) {
                    Some(token) => query.continue_token = Some(token),
                    None => break,
                }
            }
        }
        Ok(Self { weights, by_kind, at })
    }
}

/// Returns the number of objects of a kind, if the server reports it.
async fn total(reader: &RawClient, kind: &ResourceKind) -> Result<Option<u64>, RequestError> {
    let page = reader.list(kind, None, &query(1)).await?;
    let here = u64::try_from(page.items.len()).unwrap_or(u64::MAX);
    let is_last = page.continue_token.is_none_or(|token| token.is_empty());
    Ok(match page.remaining {
        Some(remaining) => Some(here + remaining),
        None => is_last.then_some(here),
    })
}

fn query(limit: u32) -> ListQuery {
    ListQuery { limit: Some(limit), projection: Projection::Metadata, ..ListQuery::default() }
}
