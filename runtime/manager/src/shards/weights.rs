//! What each namespace weighs: how many objects of the kinds that are watched are in it. An object without a namespace
//! weighs as if it were alone in one of its name, for that is where its key is.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use windlass_client::{ListQuery, RawClient, RequestError};
use windlass_env::Instant;
use windlass_object::{Extent, ResourceKind};

/// How many objects come in one page. Only their metadata does.
const PAGE: u32 = 500;

/// A count is made anew once the numbers of objects have moved by this part of all: less is no matter to a division.
const MOVED: u64 = 50;

/// A count is made anew after this time at the latest: what one namespace lost and another won shows in no number.
const LASTS: Duration = Duration::from_secs(3600);

/// What was counted, and when.
#[derive(Clone, Debug)]
pub(super) struct Count {
    /// How many objects are in each namespace.
    pub(super) weights: BTreeMap<String, u64>,
    by_kind: BTreeMap<ResourceKind, u64>,
    at: Instant,
}

#[derive(Deserialize)]
struct Headed {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl Count {
    /// The last count as long as it still tells, else a new one. It is looked at first how many objects there are of each
    /// kind, which one object and a number say; only where these have moved are all counted.
    ///
    /// # Errors
    /// The first list that failed.
    pub(super) async fn renewed(
        last: Option<Self>,
        reader: &RawClient,
        kinds: &[ResourceKind],
    ) -> Result<Self, RequestError> {
        let now = reader.env().now();
        match last {
            Some(last) if now < last.at + LASTS && last.still_tells(reader, kinds).await? => Ok(last),
            _ => Self::of(reader, kinds, now).await,
        }
    }

    async fn still_tells(&self, reader: &RawClient, kinds: &[ResourceKind]) -> Result<bool, RequestError> {
        if !kinds.iter().eq(self.by_kind.keys()) {
            return Ok(false);
        }
        let (mut moved, mut all) = (0, 0);
        for (kind, counted) in &self.by_kind {
            // A server that does not say how many follow leaves nothing but to count.
            let Some(there) = how_many(reader, kind).await? else { return Ok(false) };
            moved += there.abs_diff(*counted);
            all += counted;
        }
        Ok(moved <= all / MOVED)
    }

    /// Counts the objects of these kinds by namespace, page by page. What is not a whole one is an approximation, which is
    /// enough: other pages may be of another time, and a page that has expired is an error.
    async fn of(reader: &RawClient, kinds: &[ResourceKind], at: Instant) -> Result<Self, RequestError> {
        let (mut weights, mut by_kind) = (BTreeMap::new(), BTreeMap::new());
        for kind in kinds {
            let counted: &mut u64 = by_kind.entry(kind.clone()).or_default();
            let mut query = query(PAGE);
            loop {
                let page = reader.list(kind, None, &query).await?;
                *counted += u64::try_from(page.items.len()).unwrap_or(u64::MAX);
                for item in &page.items {
                    // One that cannot be read weighs nothing.
                    let Ok(Headed { metadata }) = serde_json::from_slice(item) else { continue };
                    let place = metadata.namespace.or(metadata.name).unwrap_or_default();
                    *weights.entry(place).or_default() += 1;
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

/// How many objects of a kind there are, if the server says so.
async fn how_many(reader: &RawClient, kind: &ResourceKind) -> Result<Option<u64>, RequestError> {
    let page = reader.list(kind, None, &query(1)).await?;
    let here = u64::try_from(page.items.len()).unwrap_or(u64::MAX);
    let is_last = page.continue_token.is_none_or(|token| token.is_empty());
    Ok(match page.remaining {
        Some(remaining) => Some(here + remaining),
        None => is_last.then_some(here),
    })
}

fn query(limit: u32) -> ListQuery {
    ListQuery { limit: Some(limit), extent: Extent::Metadata, ..ListQuery::default() }
}
