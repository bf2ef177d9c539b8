//! Lists and watches as bytes: what an informer reads, and nothing decoded.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use http::{Request, Response, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use tower::BoxError;
use windlass_env::Env;
use windlass_object::{Frame, FrameDecoder, Projection, RawList, ResourceKind, Status, wire};

use crate::{
    error::{MAX_REFUSAL, RequestError, advised_by_headers},
    progress::RequestProgress,
    reachability::Reachability,
    stack::{
        limit::Unthrottled,
        timeout::{BodyTimeout, SILENCE_GRACE, TimedBody},
    },
};

/// The frames of one watch. Ends when the server ends the watch, or with its first error; a watch that is silent for
/// its timeout and 30 s more ends with [`RequestError::Silent`].
pub type FrameStream = BoxStream<'static, Result<Frame, RequestError>>;

/// Sends lists and watches over a `kube::Client`, and hands out bytes.
///
/// Nothing is retried here: what to do after an error, and when, is the caller's decision.
#[derive(Clone)]
pub struct RawClient {
    client: kube::Client,
    env: Env,
    reachability: Option<Reachability>,
    progress: Option<RequestProgress>,
}

/// Which objects a list is to hold, and how fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
    /// Shard selector ([`shard::selector`](windlass_object::shard::selector)). A server that does not know of shards
    /// passes over it in silence, so whoever asks has to filter, too.
    pub shards: Option<String>,
    /// The longest page, in objects.
    pub limit: Option<u32>,
    /// Where the page begins, from the page before. Version and match are then left out, as the server demands.
    pub continue_token: Option<String>,
    /// How fresh: none or empty for the newest, `0` for whatever the server's cache holds, or a version.
    pub version: Option<String>,
    /// What a version means.
    pub version_match: Option<VersionMatch>,
    /// How much of each object is wanted. A server that cannot send less sends all.
    pub extent: Projection,
    /// How long the answer may be, in bytes, before it is read no further. None for no bound: a server sends what it has.
    pub most_bytes: Option<u64>,
    /// Whether the request skips the rate limit of its identity. The caller must bound such requests by other means. They
    /// are counted, and the bound on requests in flight holds for them.
    pub unthrottled: bool,
}

/// What the version of a list request means.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// That version or any later one.
    NotOlderThan,
    /// That very version.
    Exact,
}

/// Which objects a watch is to show, and from when on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchQuery {
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
    /// Shard selector, as that of a [list](ListQuery::shards).
    pub shards: Option<String>,
    /// Everything after this version is shown. Empty: everything there is first, and then what follows.
    pub version: String,
    /// When the server is to end the watch; sent in whole seconds, at least one.
    pub timeout: Duration,
    /// Whether the server is to say from time to time how far the watch has come.
    pub bookmarks: bool,
    /// Whether the server is to send everything there is first, in a state no older than `version` (empty: the
    /// newest), and to close that with a bookmark that says so. Bookmarks are then asked for in any case. Servers
    /// that do not know of this may ignore it.
    pub initial_events: bool,
    /// How much of each object is wanted. A server that cannot send less sends all.
    pub extent: Projection,
}

impl RawClient {
    /// Over any client. The environment times the silence of watches.
    pub fn new(client: kube::Client, env: Env) -> Self {
        Self { client, env, reachability: None, progress: None }
    }

    pub(crate) fn with_reachability(self, reachability: Reachability) -> Self {
        Self { reachability: Some(reachability), ..self }
    }

    /// Returns what is known about the process's way to the server; `None` unless the client is from
    /// [`Clients`](crate::Clients).
    pub fn reachability(&self) -> Option<&Reachability> {
        self.reachability.as_ref()
    }

    /// Returns the same client, which records the progress of its requests in `progress`. It must send one request at a time.
    #[must_use]
    pub fn with_progress(self, progress: RequestProgress) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Returns where this client records the progress of its requests, if it does.
    pub fn progress(&self) -> Option<&RequestProgress> {
        self.progress.as_ref()
    }

    /// The environment of this client.
    pub const fn env(&self) -> &Env {
        &self.env
    }

    /// One page of a list, over all namespaces or in one.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, refuses, or answers with something other than a list;
    /// [`RequestError::NoRoom`] if the answer is longer than the query allows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the request.
    pub async fn list(
        &self,
        kind: &ResourceKind,
        namespace: Option<&str>,
        query: &ListQuery,
    ) -> Result<RawList, RequestError> {
        let mut request = get(kind, namespace, &query.encode(), form_of_lists(query.extent))?;
        if query.unthrottled {
            request.extensions_mut().insert(Unthrottled);
        }
        let response = self.send(request).await?;
        let note = |bytes| {
            if let Some(progress) = &self.progress {
                progress.received(self.env.now(), bytes);
            }
        };
        let body = collect(response.into_body(), query.most_bytes, note).await?;
        if let Some(progress) = &self.progress {
            progress.page_arrived();
        }
        Ok(wire::list(body)?)
    }

    /// Starts a watch, over all namespaces or in one.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or refuses. What goes wrong later comes as the stream's last item.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future or the stream ends the watch.
    pub async fn watch(
        &self,
        kind: &ResourceKind,
        namespace: Option<&str>,
        query: &WatchQuery,
    ) -> Result<FrameStream, RequestError> {
        let request = get(kind, namespace, &query.encode(), form_of_objects(query.extent))?;
        let response = self.send(request).await?;
        let silence = BodyTimeout::Silence(query.timeout_or_least() + SILENCE_GRACE);
        Ok(frames(TimedBody::new(response.into_body(), self.env.clone(), silence)))
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, RequestError> {
        // Only clients that know about reachability record when a request is sent.
        let _queued = self.progress.as_ref().filter(|_| self.reachability.is_some()).map(|progress| {
            request.extensions_mut().insert(progress.clone());
            progress.queue(self.env.now())
        });
        let response = self.client.send(request).await?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }
}

fn get(
    kind: &ResourceKind,
    namespace: Option<&str>,
    query: &str,
    form: &'static str,
) -> Result<Request<Body>, RequestError> {
    Request::get(format!("{}?{query}", kind.url_path(namespace)))
        .header(header::ACCEPT, form)
        // Servers compress watches as many streams in a row, which few readers understand.
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
        .map_err(|error| RequestError::Transport(error.to_string()))
}

impl std::fmt::Debug for RawClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawClient").finish_non_exhaustive()
    }
}

/// What a list may be answered with, the most wanted first: servers without the short form send whole objects.
const fn form_of_lists(extent: Projection) -> &'static str {
    match extent {
        Projection::Full => "application/json",
        Projection::Metadata => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        }
    }
}

/// What a watch may be answered with, the most wanted first.
const fn form_of_objects(extent: Projection) -> &'static str {
    match extent {
        Projection::Full => "application/json",
        Projection::Metadata => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        }
    }
}

impl ListQuery {
    fn encode(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        append(&mut query, "labelSelector", self.labels.as_deref());
        append(&mut query, "fieldSelector", self.fields.as_deref());
        append(&mut query, "shardSelector", self.shards.as_deref());
        append(&mut query, "limit", self.limit.map(|limit| limit.to_string()).as_deref());
        append(&mut query, "continue", self.continue_token.as_deref());
        if self.continue_token.is_none() {
            let version = self.version.as_deref().filter(|version| !version.is_empty());
            append(&mut query, "resourceVersion", version);
            let version_match = version.and(self.version_match).map(VersionMatch::as_str);
            append(&mut query, "resourceVersionMatch", version_match);
        }
        query.finish()
    }
}

impl VersionMatch {
    const fn as_str(self) -> &'static str {
        match self {
            VersionMatch::NotOlderThan => "NotOlderThan",
            VersionMatch::Exact => "Exact",
        }
    }
}

impl WatchQuery {
    fn encode(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        append(&mut query, "watch", Some("true"));
        append(&mut query, "labelSelector", self.labels.as_deref());
        append(&mut query, "fieldSelector", self.fields.as_deref());
        append(&mut query, "shardSelector", self.shards.as_deref());
        append(
            &mut query,
            "resourceVersion",
            Some(self.version.as_str()).filter(|version| !version.is_empty()),
        );
        append(&mut query, "timeoutSeconds", Some(&self.timeout_or_least().as_secs().to_string()));
        append(&mut query, "allowWatchBookmarks", (self.bookmarks || self.initial_events).then_some("true"));
        if self.initial_events {
            append(&mut query, "sendInitialEvents", Some("true"));
            append(&mut query, "resourceVersionMatch", Some(VersionMatch::NotOlderThan.as_str()));
        }
        query.finish()
    }

    /// A timeout of zero would mean the server's own, which may be an hour.
    fn timeout_or_least(&self) -> Duration {
        self.timeout.max(Duration::from_secs(1))
    }
}

fn append(query: &mut form_urlencoded::Serializer<'_, String>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        query.append_pair(name, value);
    }
}

/// Reads a body into one piece, holding no second copy of it; one of more than `most` bytes no further than that. Passes
/// the length of each chunk to `note`.
async fn collect(mut body: Body, most: Option<u64>, note: impl Fn(usize)) -> Result<Bytes, RequestError> {
    let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    if expected > most {
        return Err(too_long(most));
    }
    let mut whole = BytesMut::with_capacity(expected);
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame?.into_data() {
            if chunk.len() > most - whole.len() {
                return Err(too_long(most));
            }
            note(chunk.len());
            whole.extend_from_slice(&chunk);
        }
    }
    Ok(whole.freeze())
}

fn too_long(most: usize) -> RequestError {
    RequestError::NoRoom(format!("the answer has more than the {most} bytes that were allowed for it"))
}

async fn refusal(response: Response<Body>) -> RequestError {
    let (parts, body) = response.into_parts();
    match Limited::new(body, MAX_REFUSAL).collect().await {
        Ok(body) => {
            let status: Status = wire::status(parts.status.as_u16(), &body.to_bytes());
            RequestError::from_status(status, advised_by_headers(&parts.headers))
        }
        Err(error) => kube::Error::Service(error).into(),
    }
}

fn frames(body: TimedBody<Body>) -> FrameStream {
    let reader = FrameReader { body, decoder: FrameDecoder::default() };
    stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(frame)) => Some((Ok(frame), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

struct FrameReader {
    body: TimedBody<Body>,
    decoder: FrameDecoder,
}

impl FrameReader {
    async fn next(&mut self) -> Result<Option<Frame>, RequestError> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(Some(frame));
            }
            let Some(chunk) = self.body.frame().await else {
                return Ok(self.decoder.finish().map(|()| None)?);
            };
            if let Ok(chunk) = chunk.map_err(broken)?.into_data() {
                self.decoder.feed(chunk);
            }
        }
    }
}

fn broken(error: BoxError) -> RequestError {
    match error.downcast::<kube::Error>() {
        Ok(error) => (*error).into(),
        Err(error) => kube::Error::Service(error).into(),
    }
}
