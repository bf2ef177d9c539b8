//! A proxy in front of the API server that denies some requests, as roles do.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use windlass_client::{FrameStream, RawClient, RequestError};
use windlass_informer::{
    ApiServerSources, ListRequest, ListerWatcher, Selection, SourceProvider, WatchListRequest, WatchRequest,
};
use windlass_object::{RawList, ResourceKind, Verb, wire};

/// A denied permission: verb, resource, and the namespace if it is limited to one.
type Right = (Verb, String, Option<String>);

/// Permissions of the process that runs the informers. Clones share state.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    missing: Arc<Mutex<BTreeSet<Right>>>,
}

/// Sources that check permissions first.
struct Guarded {
    sources: ApiServerSources,
    rights: Rights,
}

struct Source {
    source: Arc<dyn ListerWatcher>,
    rights: Rights,
    resource: String,
    namespace: Option<String>,
}

impl Rights {
    pub(super) fn take(&self, verb: Verb, resource: &str, namespace: Option<&str>) {
        self.lock().insert((verb, resource.to_owned(), namespace.map(str::to_owned)));
    }

    pub(super) fn give_all_back(&self) {
        self.lock().clear();
    }

    /// Returns the API server as a source with these permissions.
    pub(super) fn guard(&self, client: RawClient) -> Arc<dyn SourceProvider> {
        Arc::new(Guarded { sources: ApiServerSources::new(client), rights: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Right>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceProvider for Guarded {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher> {
        Arc::new(Source {
            source: self.sources.source(kind, selection),
            rights: self.rights.clone(),
            resource: kind.plural.to_string(),
            namespace: selection.namespace.clone(),
        })
    }
}

impl Source {
    async fn check(&self, verb: Verb) -> Result<(), RequestError> {
        let right = (verb, self.resource.clone(), self.namespace.clone());
        if !self.rights.lock().contains(&right) {
            return Ok(());
        }
        let status =
            r#"{"status":"Failure","code":403,"reason":"Forbidden","message":"no role permits this"}"#;
        Err(RequestError::from_status(wire::status(403, status.as_bytes()), None))
    }
}

#[async_trait]
impl ListerWatcher for Source {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        self.check(Verb::List).await?;
        self.source.list(request).await
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        self.check(Verb::List).await?;
        self.check(Verb::Watch).await?;
        self.source.watch_list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        self.check(Verb::Watch).await?;
        self.source.watch(request).await
    }
}
