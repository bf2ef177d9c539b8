//! The API server as a source.

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
use crate::shards::ShardSelection;

/// The API server as the source of all kinds.
///
/// Lists are streamed if the server supports WatchList and follows its protocol; otherwise they are paged. If a
/// stream breaks the protocol, all informers list the resource in pages for six hours.
#[derive(Clone, Debug)]
pub struct ApiServerSources {
    client: RawClient,
    watch_list: WatchListPolicy,
}

/// The resources whose lists are requested as streams.
#[derive(Clone, Debug)]
enum WatchListPolicy {
    /// No resource.
    Never,
    /// All resources except these, each until this time.
    Unless(Arc<Mutex<BTreeMap<GroupResource, Instant>>>),
}

/// One collection of an API server.
#[derive(Debug)]
struct ApiSource {
    client: RawClient,
    watch_list: WatchListPolicy,
    kind: ResourceKind,
    selection: Selection,
}

/// Time for which no stream is requested for a resource whose stream failed. Proxies and aggregated API servers change
/// with deployments, and each failed attempt delays one list.
pub(crate) const WATCH_LIST_PAUSE: Duration = Duration::from_secs(6 * 60 * 60);

const STREAMS_FAILED: RequestError =
    RequestError::Unsupported("streams of this resource failed recently; listing in pages");
const PAGED: RequestError = RequestError::Unsupported("streams are disabled; listing in pages");

impl ApiServerSources {
    /// Creates sources for the API server of this client.
    pub fn new(client: RawClient) -> Self {
        Self { client, watch_list: WatchListPolicy::Unless(Arc::default()) }
    }

    /// Disables streams: all lists are paged.
    #[must_use]
    pub fn without_watch_list(self) -> Self {
        Self { watch_list: WatchListPolicy::Never, ..self }
    }
}

impl SourceProvider for ApiServerSources {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher> {
        let ApiServerSources { client, watch_list: streams } = self.clone();
        let client = client.with_progress(RequestProgress::default());
        Arc::new(ApiSource { client, watch_list: streams, kind: kind.clone(), selection: selection.clone() })
    }
}

impl WatchListPolicy {
    fn offered(&self, resource: &GroupResource, now: Instant) -> Result<(), RequestError> {
        match self {
            WatchListPolicy::Never => Err(PAGED),
            WatchListPolicy::Unless(refused) => {
                let refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                let still = refused.get(resource).is_some_and(|until| now < *until);
                if still { Err(STREAMS_FAILED) } else { Ok(()) }
            }
        }
    }

    fn record_failure(&self, resource: GroupResource, now: Instant) {
        if let WatchListPolicy::Unless(refused) = self {
            let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.insert(resource, now + WATCH_LIST_PAUSE);
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

/// Returns the shard selector of the request.
fn selector(shards: &ShardSelection) -> Option<String> {
    match shards {
        ShardSelection::One(shard) => shard.selector(),
        ShardSelection::Held | ShardSelection::Every => None,
    }
}

#[async_trait]
impl ListerWatcher for ApiSource {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        let ListRequest { limit, continue_token, version, version_match, projection, max_bytes, unthrottled } =
            request;
        let Selection { namespace, labels, fields, shards } = self.selection.clone();
        let shards = selector(&shards);
        let of = ListQuery { labels, fields, shards, unthrottled, ..ListQuery::default() };
        let query = ListQuery { limit, continue_token, version, version_match, projection, max_bytes, ..of };
        self.client.list(&self.kind, namespace.as_deref(), &query).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        let WatchRequest { version, timeout, bookmarks, projection } = request;
        let of = WatchQuery::default();
        self.open(WatchQuery { version, timeout, bookmarks, projection, ..of }).await
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        self.watch_list.offered(&self.kind.group_resource(), self.client.env().now())?;
        let WatchListRequest { not_older_than, timeout, projection } = request;
        let version = not_older_than.unwrap_or_default();
        let of = WatchQuery { initial_events: true, ..WatchQuery::default() };
        self.open(WatchQuery { version, timeout, projection, ..of }).await
    }

    fn watch_list_failed(&self) {
        self.watch_list.record_failure(self.kind.group_resource(), self.client.env().now());
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
