//! Where an informer gets its objects from.
//!
//! A [`ListerWatcher`] lists and watches one [`Selection`] of one kind. The API server is the usual one
//! ([`ApiSources`]); anything that can give a list at a version and the changes after that version may stand
//! in its place. Which source an informer uses is decided when it is started, not when it is made:
//! [`Sources`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_client::{FrameStream, ListQuery, RawClient, RequestError, VersionMatch, WatchQuery};
use windlass_object::{RawList, ResourceKind};

/// Which objects of a kind. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    /// One namespace; `None` for all of them, and for kinds that live in none.
    pub namespace: Option<String>,
    /// A label selector, as the API spells it.
    pub labels: Option<String>,
    /// A field selector, as the API spells it.
    pub fields: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// At most this many items; `None` for all of them on one page.
    pub limit: Option<u32>,
    /// Where the page begins, as the page before it said. `version` and `version_match` are then unset.
    pub continue_token: Option<String>,
    /// The version the list is to relate to; `None` for the newest, consistently read.
    pub version: Option<String>,
    /// How the list is to relate to `version`.
    pub version_match: Option<VersionMatch>,
}

/// A watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// Changes after this version.
    pub version: String,
    /// After this long the source ends the stream.
    pub timeout: Duration,
    /// Whether the source should tell, now and then, how far it has come.
    pub bookmarks: bool,
}

/// A source of one selection of one kind.
///
/// A source must answer: an implementation bounds its own waiting, for the reflector does not guess how long
/// a list may take. A source that hangs holds up its own informer and no other.
#[async_trait]
pub trait ListerWatcher: Send + Sync + 'static {
    /// One page of the objects there are.
    ///
    /// # Errors
    ///
    /// Whatever kept the source from answering; the reflector decides what follows from it.
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError>;

    /// The changes after a version, in order, until the stream ends. Dropping the stream ends the watch.
    ///
    /// # Errors
    ///
    /// Whatever kept the source from answering; the reflector decides what follows from it.
    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError>;
}

/// Finds the source for a kind and a selection.
pub trait Sources: Send + Sync + 'static {
    /// The source. Called once per informer, when it is started; it must not call back into that informer.
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher>;
}

/// The API server as the source of everything.
#[derive(Clone, Debug)]
pub struct ApiSources(RawClient);

/// One collection of an API server.
#[derive(Debug)]
struct ApiSource {
    client: RawClient,
    kind: ResourceKind,
    selection: Selection,
}

impl Selection {
    /// Everything in one namespace.
    pub fn in_namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Whether some objects of the kind may be left out.
    pub fn is_filtered(&self) -> bool {
        *self != Self::default()
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { namespace, labels, fields } = self;
        let namespace = namespace.as_ref().map(|it| format!("namespace {it}"));
        let labels = labels.as_ref().map(|it| format!("labels {it}"));
        let fields = fields.as_ref().map(|it| format!("fields {it}"));
        let parts: Vec<String> = [namespace, labels, fields].into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "all" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

impl ApiSources {
    /// The API server this client talks to.
    pub fn new(client: RawClient) -> Self {
        Self(client)
    }
}

impl Sources for ApiSources {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher> {
        Arc::new(ApiSource { client: self.0.clone(), kind: kind.clone(), selection: selection.clone() })
    }
}

#[async_trait]
impl ListerWatcher for ApiSource {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        let ListRequest { limit, continue_token, version, version_match } = request;
        let Selection { namespace, labels, fields } = self.selection.clone();
        let query = ListQuery { labels, fields, limit, continue_token, version, version_match };
        self.client.list(&self.kind, namespace.as_deref(), &query).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        let WatchRequest { version, timeout, bookmarks } = request;
        let Selection { namespace, labels, fields } = self.selection.clone();
        let query = WatchQuery { labels, fields, version, timeout, bookmarks };
        self.client.watch(&self.kind, namespace.as_deref(), &query).await
    }
}
