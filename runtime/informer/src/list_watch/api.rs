//! The API server as the source of everything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use windlass_client::{
    FrameStream, ListQuery, RawClient, Reachability, RequestError, RequestProgress, WatchQuery,
};
use windlass_env::Instant;
use windlass_object::{GroupResource, RawList, ResourceKind};

use super::{ListRequest, ListerWatcher, Selection, SourceProvider, WatchListRequest, WatchRequest};
use crate::shards::Shards;

/// The API server as the source of everything.
///
/// Lists come as streams where the server can do that (WatchList) and keeps to it; where it does not, or refuses,
/// lists come in pages. A resource that disappointed once is listed in pages for some hours, by all informers.
#[derive(Clone, Debug)]
pub struct ApiServerSources {
    client: RawClient,
    streams: WatchListPolicy,
}

/// Which lists are asked for as streams.
#[derive(Clone, Debug)]
enum WatchListPolicy {
    /// None.
    Never,
    /// All but those of these resources, each until then.
    Unless(Arc<Mutex<BTreeMap<GroupResource, Instant>>>),
}

/// One collection of an API server.
#[derive(Debug)]
struct ApiSource {
    client: RawClient,
    streams: WatchListPolicy,
    kind: ResourceKind,
    selection: Selection,
}

/// For how long a resource whose stream disappointed is not asked for another. What stands between us and the API
/// server, or serves the resource in its stead, changes with deployments; and each disappointment delays one list.
pub(crate) const STREAMLESS: Duration = Duration::from_secs(6 * 60 * 60);

const DISAPPOINTED: RequestError =
    RequestError::Unsupported("the server's lists of this resource do not come as streams");
const PAGED: RequestError = RequestError::Unsupported("lists are asked for in pages only");

impl ApiServerSources {
    /// The API server this client talks to.
    pub fn new(client: RawClient) -> Self {
        Self { client, streams: WatchListPolicy::Unless(Arc::default()) }
    }

    /// The same, whose lists are never asked for as streams.
    #[must_use]
    pub fn paged(self) -> Self {
        Self { streams: WatchListPolicy::Never, ..self }
    }
}

impl SourceProvider for ApiServerSources {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher> {
        let ApiServerSources { client, streams } = self.clone();
        let client = client.with_progress(RequestProgress::default());
        Arc::new(ApiSource { client, streams, kind: kind.clone(), selection: selection.clone() })
    }
}

impl WatchListPolicy {
    fn offered(&self, resource: &GroupResource, now: Instant) -> Result<(), RequestError> {
        match self {
            WatchListPolicy::Never => Err(PAGED),
            WatchListPolicy::Unless(refused) => {
                let refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                let still = refused.get(resource).is_some_and(|until| now < *until);
                if still { Err(DISAPPOINTED) } else { Ok(()) }
            }
        }
    }

    fn disappointed(&self, resource: GroupResource, now: Instant) {
        if let WatchListPolicy::Unless(refused) = self {
            let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.insert(resource, now + STREAMLESS);
        }
    }
}

impl ApiSource {
    async fn open(&self, query: WatchQuery) -> Result<FrameStream, RequestError> {
        let Selection { namespace, labels, fields, shards } = self.selection.clone();
        let query = WatchQuery { labels, fields, shards: selector(&shards), ..query };
        self.client.watch(&self.kind, namespace.as_deref(), &query).await
    }
}

/// The shard that is asked for.
fn selector(shards: &Shards) -> Option<String> {
    match shards {
        Shards::One(shard) => shard.selector(),
        Shards::Held | Shards::Every => None,
    }
}

#[async_trait]
impl ListerWatcher for ApiSource {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        let ListRequest { limit, continue_token, version, version_match, extent, most_bytes, unthrottled } =
            request;
        let Selection { namespace, labels, fields, shards } = self.selection.clone();
        let shards = selector(&shards);
        let of = ListQuery { labels, fields, shards, unthrottled, ..ListQuery::default() };
        let query = ListQuery { limit, continue_token, version, version_match, extent, most_bytes, ..of };
        self.client.list(&self.kind, namespace.as_deref(), &query).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        let WatchRequest { version, timeout, bookmarks, extent } = request;
        self.open(WatchQuery { version, timeout, bookmarks, extent, ..WatchQuery::default() }).await
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        self.streams.offered(&self.kind.group_resource(), self.client.env().now())?;
        let WatchListRequest { not_older_than, timeout, extent } = request;
        let version = not_older_than.unwrap_or_default();
        let query = WatchQuery { version, timeout, extent, initial_events: true, ..WatchQuery::default() };
        self.open(query).await
    }

    fn watch_list_failed(&self) {
        self.streams.disappointed(self.kind.group_resource(), self.client.env().now());
    }

    fn reachability(&self) -> Option<&Reachability> {
        self.client.reachability()
    }

    fn progress(&self) -> Option<&RequestProgress> {
        self.client.progress()
    }
}

#[cfg(test)]
mod tests;
