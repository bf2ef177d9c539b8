//! Sources of the objects of an informer.
//!
//! A [`ListerWatcher`] lists and watches one [`Selection`] of one kind. The usual source is the API server
//! ([`ApiServerSources`]). Any other system that provides a list at a version and the changes after that version can be
//! a source: etcd (with the feature `etcd`), a custom feed ([`ObjectFeed`]), a file, or another cluster. The source
//! of an informer is selected when the informer starts, not when it is created: [`SourceProvider`].
//!
//! The reflector relies on these properties of a source:
//! - A list is a consistent snapshot at the version that it names; all its pages belong to that snapshot.
//! - A watch delivers all changes after a version, in order, each with its version, and no older change.
//! - A request for a version that is no longer kept fails as in the API, with code 410 or reason `Expired`
//!   ([`RequestError::is_expired`]): immediately, or by a frame of the watch. The reflector then relists.
//! - Every wait is bounded.

mod api;
mod api_errors;
#[cfg(feature = "etcd")]
pub mod etcd;
mod object_feed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_client::{FrameStream, Reachability, RequestError, RequestProgress, VersionMatch};
use windlass_object::{Projection, RawList, ResourceKind};

pub use self::api::ApiServerSources;
pub(crate) use self::api::WATCH_LIST_PAUSE;
pub use self::object_feed::{FeedError, ObjectFeed};
use crate::shards::ShardSelection;

/// A selection of objects of one kind. The default selects all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    /// One namespace; `None` for all namespaces and for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// A label selector in API syntax.
    pub labels: Option<String>,
    /// A field selector in API syntax.
    pub fields: Option<String>,
    /// The selected shards. A source can ignore this field: objects of other shards are filtered out later.
    pub shards: ShardSelection,
}

/// A request for one page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Maximum number of items; `None` for all items on one page.
    pub limit: Option<u32>,
    /// The continue token of the previous page. `version` and `version_match` are then unset.
    pub continue_token: Option<String>,
    /// The version for `version_match`; `None` for a consistent read of the newest state.
    pub version: Option<String>,
    /// The relation of the list to `version`.
    pub version_match: Option<VersionMatch>,
    /// The required parts of each object. A source can return more.
    pub projection: Projection,
    /// Size limit of a page in bytes. A source can stop reading a larger page and return
    /// [`RequestError::BudgetExceeded`], or ignore the limit: objects over the budget are rejected later.
    pub max_bytes: Option<u64>,
    /// Whether the request bypasses the source's own rate limiter. A source can ignore this field.
    pub unthrottled: bool,
}

/// A request for a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The version after which changes are delivered.
    pub version: String,
    /// The time after which the source ends the stream.
    pub timeout: Duration,
    /// Whether the source sends periodic bookmarks.
    pub bookmarks: bool,
    /// The required parts of each object. A source can return more.
    pub projection: Projection,
}

/// A request for a list and the watch that follows it, as one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchListRequest {
    /// The minimum version of the list; `None` for a consistent read of the newest state.
    pub not_older_than: Option<String>,
    /// The time after which the source ends the stream.
    pub timeout: Duration,
    /// The required parts of each object. A source can return more.
    pub projection: Projection,
}

/// A source of one selection of one kind.
///
/// A source must bound its own waits, because the reflector does not know how long a list can take. A source that hangs
/// blocks only its own informer.
///
/// # Examples
///
/// A source that always contains one object:
///
/// ```
/// use std::sync::Arc;
///
/// use futures_util::{StreamExt as _, stream};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_client::{FrameStream, RequestError};
/// use windlass_env::Env;
/// use windlass_informer::{
///     FactoryOptions, InformerFactory, ListRequest, ListerWatcher, Selection, WatchRequest,
/// };
/// use windlass_metrics::Metrics;
/// use windlass_object::{RawList, ResourceKind, ResourceVersion};
///
/// struct Constant;
///
/// #[async_trait::async_trait]
/// impl ListerWatcher for Constant {
///     async fn list(&self, _: ListRequest) -> Result<RawList, RequestError> {
///         let object = r#"{"metadata":{"namespace":"default","name":"greeting","resourceVersion":"1"}}"#;
///         let version = Some(ResourceVersion::new("1"));
///         Ok(RawList { version, items: vec![object.into()], ..RawList::default() })
///     }
///
///     async fn watch(&self, _: WatchRequest) -> Result<FrameStream, RequestError> {
///         Ok(stream::pending().boxed())
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let factory = InformerFactory::new(Env::virtual_time(1), Metrics::new(), FactoryOptions::default());
/// let greetings = factory.typed::<ConfigMap>();
/// factory.start(Arc::new(|_: &ResourceKind, _: &Selection| Arc::new(Constant) as Arc<dyn ListerWatcher>));
/// assert!(greetings.synced().await);
/// assert_eq!(greetings.lister().list().len(), 1);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[async_trait]
pub trait ListerWatcher: Send + Sync + 'static {
    /// Returns one page of the objects.
    ///
    /// # Errors
    ///
    /// Any error of the source; the reflector selects the next action.
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError>;

    /// Opens a stream of the changes after a version, in order. Dropping the stream ends the watch.
    ///
    /// # Errors
    ///
    /// Any error of the source; the reflector selects the next action.
    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError>;

    /// Opens a stream of all objects as additions, followed by a bookmark with their version and by later changes. This
    /// saves the source from building pages and the client from buffering them.
    ///
    /// The method is optional. If an offered stream does not send the end bookmark in time, the reflector lists in
    /// pages instead ([`watch_list_failed`](Self::watch_list_failed)).
    ///
    /// # Errors
    ///
    /// [`RequestError::Unsupported`] if the source does not offer such streams; otherwise any error of the source.
    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        let _request = request;
        Err(RequestError::Unsupported("this source lists in pages only"))
    }

    /// Reports that a stream of [`watch_list`](Self::watch_list) broke the protocol. The reflector that reports it
    /// requests no stream for six hours; a source can share the information with other sources of the same server.
    fn watch_list_failed(&self) {}

    /// Returns what other requests of the process reveal about the connection to the source. With it, an informer that
    /// waits after a lost connection resumes as soon as the source answers any request. Without it, the informer waits
    /// for its backoff.
    fn reachability(&self) -> Option<&Reachability> {
        None
    }

    /// Returns the record of the progress of the source's requests. With it, liveness distinguishes a long list, or a
    /// list that waits for the client's rate limiter, from a stuck list. Without it, a page that takes 400 s counts as
    /// stuck.
    fn progress(&self) -> Option<&RequestProgress> {
        None
    }
}

/// A lookup of the source for a kind and a selection. Functions implement it.
pub trait SourceProvider: Send + Sync + 'static {
    /// Returns the source. It is called when an informer starts, and for each namespace or shard that the informer
    /// follows. If two threads start one informer concurrently, both can call it, and one result is dropped.
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher>;
}

impl<F> SourceProvider for F
where
    F: Fn(&ResourceKind, &Selection) -> Arc<dyn ListerWatcher> + Send + Sync + 'static,
{
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn ListerWatcher> {
        self(kind, selection)
    }
}

impl Selection {
    /// Selects all objects of one namespace.
    pub fn in_namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Selects the objects that match a label selector, such as `app=web`, in all namespaces.
    pub fn by_labels(selector: impl Into<String>) -> Selection {
        Selection { labels: Some(selector.into()), ..Selection::default() }
    }

    /// Selects the objects that match a field selector, such as `metadata.name=web`, in all namespaces.
    pub fn by_fields(selector: impl Into<String>) -> Selection {
        Selection { fields: Some(selector.into()), ..Selection::default() }
    }

    /// Selects the objects of every shard, whichever shards the process holds.
    #[must_use]
    pub fn with_every_shard(self) -> Self {
        Self { shards: ShardSelection::Every, ..self }
    }

    /// Returns whether the selection can exclude objects, whichever shards the process holds.
    pub fn is_filtered(&self) -> bool {
        let Selection { namespace, labels, fields, shards } = self;
        namespace.is_some()
            || labels.is_some()
            || fields.is_some()
            || matches!(shards, ShardSelection::One(_))
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { namespace, labels, fields, shards } = self;
        let namespace = namespace.as_ref().map(|it| format!("namespace {it}"));
        let labels = labels.as_ref().map(|it| format!("labels {it}"));
        let fields = fields.as_ref().map(|it| format!("fields {it}"));
        let shard = match shards {
            ShardSelection::One(shard) => Some(shard.to_string()),
            ShardSelection::Held | ShardSelection::Every => None,
        };
        let parts: Vec<String> = [namespace, labels, fields, shard].into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "all" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}
