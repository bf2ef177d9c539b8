//! Where an informer gets its objects from.
//!
//! A [`ListerWatcher`] lists and watches one [`Selection`] of one kind. The API server is the usual one
//! ([`ApiServerSources`]); anything that can give a list at a version and the changes after that version may stand
//! in its place: etcd (with the feature `etcd`), a feed of one's own ([`ChannelSource`]), a file, another cluster.
//! Which source an informer uses is decided when it is started, not when it is made: [`SourceProvider`].
//!
//! What a source promises, and the reflector builds on:
//! - A list is one moment of its objects, at the version it names; all its pages are of that moment.
//! - A watch tells every change after a version, in order, each at its version, and none that is older.
//! - A version that is no longer kept is refused as the API does it, with code 410 or reason `Expired`
//!   ([`RequestError::is_expired`]): at once, or by a frame within the watch. Then everything is listed again.
//! - It waits for nothing without a bound.

mod api;
mod channel;
#[cfg(feature = "etcd")]
pub mod etcd;
mod refusals;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_client::{FrameStream, Reachability, RequestError, RequestProgress, VersionMatch};
use windlass_object::{Projection, RawList, ResourceKind};

pub use self::api::ApiServerSources;
pub(crate) use self::api::STREAMLESS;
pub use self::channel::{ChannelSource, FeedError};
use crate::shards::Shards;

/// Which objects of a kind. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    /// One namespace; `None` for all of them, and for kinds that live in none.
    pub namespace: Option<String>,
    /// A label selector, as the API spells it.
    pub labels: Option<String>,
    /// A field selector, as the API spells it.
    pub fields: Option<String>,
    /// Which shards. A source may pass over this: what is of no such shard is left out anyway.
    pub shards: Shards,
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
    /// How much of each object is needed. More does no harm.
    pub extent: Projection,
    /// A page of more bytes is of no use: a source need not read it to its end, and says [`RequestError::NoRoom`] then.
    /// It may pass over this: what does not fit is refused anyway.
    pub most_bytes: Option<u64>,
    /// Whether the source sends the request without waiting for its own rate limit. A source can ignore this.
    pub unthrottled: bool,
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
    /// How much of each object is needed. More does no harm.
    pub extent: Projection,
}

/// A list and the watch that follows it, as one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchListRequest {
    /// The list must be no older than this version; `None` for the newest, consistently read.
    pub not_older_than: Option<String>,
    /// After this long the source ends the stream.
    pub timeout: Duration,
    /// How much of each object is needed. More does no harm.
    pub extent: Projection,
}

/// A source of one selection of one kind.
///
/// A source must answer: an implementation bounds its own waiting, for the reflector does not guess how long
/// a list may take. A source that hangs holds up its own informer and no other.
///
/// # Examples
///
/// A source that has one object, forever:
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

    /// Everything there is, as additions, then a bookmark that marks the end of them and names their version, then
    /// the changes after it, until the stream ends. It spares the source to make whole pages, and the reader to hold
    /// them.
    ///
    /// A source need not offer this. What it offers it must keep: if no end comes in good time, the reflector lists
    /// in pages instead ([`watch_list_failed`](Self::watch_list_failed)).
    ///
    /// # Errors
    ///
    /// [`RequestError::Unsupported`] unless the source offers it; otherwise whatever kept it from answering.
    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        let _request = request;
        Err(RequestError::Unsupported("this source lists in pages only"))
    }

    /// A stream of [`watch_list`](Self::watch_list) did not keep its promise. The reflector that found out asks for
    /// none for a good while; a source that has siblings on the same server may remember it for them.
    fn watch_list_failed(&self) {}

    /// Returns what is known about the way to the source from other requests of the process. With it an informer that
    /// waits after a lost connection continues as soon as the source answers any request; without it, after its own pause.
    fn reachability(&self) -> Option<&Reachability> {
        None
    }

    /// Returns where the source records the progress of its requests. With it, liveness distinguishes a long list, and a list
    /// that waits for the rate limit of its own client, from a stuck list. Without it, a page that takes 400 s is stuck.
    fn progress(&self) -> Option<&RequestProgress> {
        None
    }
}

/// Finds the source for a kind and a selection. Functions are such finders.
pub trait SourceProvider: Send + Sync + 'static {
    /// The source. Called when an informer is started, and for each of its namespaces or shards if it follows a set of them. If
    /// two threads start one informer at the same moment, both may ask, and one answer is dropped.
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
    /// Everything in one namespace.
    pub fn in_namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// The same of every shard, whichever the process holds.
    #[must_use]
    pub fn of_every_shard(self) -> Self {
        Self { shards: Shards::Every, ..self }
    }

    /// Whether some objects of the kind may be left out, whichever shards the process holds.
    pub fn is_filtered(&self) -> bool {
        let Selection { namespace, labels, fields, shards } = self;
        namespace.is_some() || labels.is_some() || fields.is_some() || matches!(shards, Shards::One(_))
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { namespace, labels, fields, shards } = self;
        let namespace = namespace.as_ref().map(|it| format!("namespace {it}"));
        let labels = labels.as_ref().map(|it| format!("labels {it}"));
        let fields = fields.as_ref().map(|it| format!("fields {it}"));
        let shard = match shards {
            Shards::One(shard) => Some(shard.to_string()),
            Shards::Held | Shards::Every => None,
        };
        let parts: Vec<String> = [namespace, labels, fields, shard].into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "all" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}
