//! Lists and watches as bytes, for informers. Objects are not decoded.

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
use windlass_object::{Frame, FrameDecoder, Projection, RawList, ResourceKind, Status, WireError, wire};

use crate::{
    error::{MAX_ERROR_BODY, RequestError, advised_by_headers},
    formats::{Formats, WireFormat, accept_list, accept_watch},
    progress::RequestProgress,
    reachability::Reachability,
    stack::{
        limit::Unthrottled,
        timeout::{BodyTimeout, IDLE_GRACE, TimedBody},
    },
};

/// The frames of one watch. Ends when the server ends the watch, or with its first error. A watch without data for 30 s
/// longer than its timeout ends with [`RequestError::WatchIdle`].
pub type FrameStream = BoxStream<'static, Result<Frame, RequestError>>;

/// Sends lists and watches with a `kube::Client`, and returns bytes of JSON.
///
/// Nothing is retried here: the caller decides how and when to continue after an error. The exception is a server that
/// does not accept the requested format: the request is repeated in JSON, and so are all later requests for the kind.
#[derive(Clone)]
pub struct RawClient {
    client: kube::Client,
    env: Env,
    reachability: Option<Reachability>,
    progress: Option<RequestProgress>,
    formats: Formats,
}

/// The parameters of a list: the selected objects and the required version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
    /// Shard selector ([`shard::selector`](windlass_object::shard::selector)). A server without shard support ignores
    /// it silently, so the caller must filter as well.
    pub shards: Option<String>,
    /// Maximum number of objects per page.
    pub limit: Option<u32>,
    /// Token of the page, from the previous page. Version and match are then omitted, as the server requires.
    pub continue_token: Option<String>,
    /// Required version: `None` or empty for the newest, `0` for any version in the server's cache, or a version.
    pub version: Option<String>,
    /// Interpretation of the version.
    pub version_match: Option<VersionMatch>,
    /// Requested part of each object. A server that does not support it sends full objects.
    pub projection: Projection,
    /// Maximum size of the response in bytes; reading stops beyond it. `None` for no limit.
    pub max_bytes: Option<u64>,
    /// Whether the request skips the rate limit of its identity. The caller must limit such requests by other means.
    /// They are counted, and the limit of requests in flight applies to them.
    pub unthrottled: bool,
}

/// Interpretation of the version of a list request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// The given version or any later version.
    NotOlderThan,
    /// Exactly that version.
    Exact,
}

/// The parameters of a watch: the selected objects and the start version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchQuery {
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
    /// Shard selector, like that of a [list](ListQuery::shards).
    pub shards: Option<String>,
    /// Start version: changes after it are sent. If empty, all present objects are sent first.
    pub version: String,
    /// Time after which the server ends the watch; sent in whole seconds, at least one.
    pub timeout: Duration,
    /// Whether the server sends bookmarks with the version of the watch from time to time.
    pub bookmarks: bool,
    /// Whether the server first sends all present objects, in a state no older than `version` (empty: the newest), and
    /// then a bookmark that ends this initial list. This always requests bookmarks. Servers without support can ignore
    /// it.
    pub initial_events: bool,
    /// Requested part of each object. A server that does not support it sends full objects.
    pub projection: Projection,
}

impl RawClient {
    /// Creates a raw client from any client, which requests JSON. The environment measures the time without data.
    pub fn new(client: kube::Client, env: Env) -> Self {
        Self { client, env, reachability: None, progress: None, formats: Formats::new(WireFormat::Json) }
    }

    /// Returns this client with another format of lists and watches. Clones share the kinds that the server returned
    /// only in JSON.
    #[must_use]
    pub fn with_format(self, format: WireFormat) -> Self {
        Self { formats: Formats::new(format), ..self }
    }

    pub(crate) fn with_reachability(self, reachability: Reachability) -> Self {
        Self { reachability: Some(reachability), ..self }
    }

    /// Returns the reachability of the server from this process; `None` unless the client is from
    /// [`Clients`](crate::Clients).
    pub fn reachability(&self) -> Option<&Reachability> {
        self.reachability.as_ref()
    }

    /// Returns this client with `progress`, which records the progress of its requests. The client must send one
    /// request at a time.
    #[must_use]
    pub fn with_progress(self, progress: RequestProgress) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Returns the progress that this client records; `None` if it records none.
    pub fn progress(&self) -> Option<&RequestProgress> {
        self.progress.as_ref()
    }

    /// Returns the environment of this client.
    pub const fn env(&self) -> &Env {
        &self.env
    }

    /// Sends a list request for one page, across all namespaces or in one namespace.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, rejects the request, or returns something other than a list;
    /// [`RequestError::BudgetExceeded`] if the response is larger than the query allows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the request.
    pub async fn list(
        &self,
        kind: &ResourceKind,
        namespace: Option<&str>,
        query: &ListQuery,
    ) -> Result<RawList, RequestError> {
        let (url, projection) = (url(kind, namespace, &query.encode()), query.projection);
        let request = |format| {
            let mut request = get(&url, accept_list(format, projection))?;
            if query.unthrottled {
                request.extensions_mut().insert(Unthrottled);
            }
            Ok(request)
        };
        let response = self.negotiate(kind, projection, request).await?;
        let note = |bytes| {
            if let Some(progress) = &self.progress {
                progress.received(self.env.now(), bytes);
            }
        };
        let body = collect(response.into_body(), query.max_bytes, note).await?;
        if let Some(progress) = &self.progress {
            progress.page_arrived();
        }
        wire::list(body).map_err(|error| unreadable(&self.formats, kind, error))
    }

    /// Starts a watch, across all namespaces or in one namespace.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or rejects the request. Later errors are the last item of the stream.
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
        let (url, projection) = (url(kind, namespace, &query.encode()), query.projection);
        let request = |format| get(&url, accept_watch(format, projection));
        let response = self.negotiate(kind, projection, request).await?;
        let idle = BodyTimeout::Idle(query.timeout_or_least() + IDLE_GRACE);
        Ok(frames(FrameReader {
            body: TimedBody::new(response.into_body(), self.env.clone(), idle),
            decoder: FrameDecoder::default(),
            formats: self.formats.clone(),
            kind: kind.clone(),
        }))
    }

    /// Sends a request in the format of the kind, and again in JSON if the server does not accept it.
    async fn negotiate(
        &self,
        kind: &ResourceKind,
        projection: Projection,
        request: impl Fn(WireFormat) -> Result<Request<Body>, RequestError>,
    ) -> Result<Response<Body>, RequestError> {
        let format = self.formats.of(kind, projection);
        match self.send(request(format)?).await {
            Err(error) if format == WireFormat::Protobuf && is_not_acceptable(&error) => {
                self.formats.fall_back(kind, &error);
                self.send(request(WireFormat::Json)?).await
            }
            answered => answered,
        }
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, RequestError> {
        // Only clients with reachability record when a request is sent.
        let _queued = self.progress.as_ref().filter(|_| self.reachability.is_some()).map(|progress| {
            request.extensions_mut().insert(progress.clone());
            progress.queue(self.env.now())
        });
        let response = self.client.send(request).await?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }
}

fn url(kind: &ResourceKind, namespace: Option<&str>, query: &str) -> String {
    format!("{}?{query}", kind.url_path(namespace))
}

fn get(url: &str, accept: &'static str) -> Result<Request<Body>, RequestError> {
    Request::get(url)
        .header(header::ACCEPT, accept)
        // Servers compress each event of a watch as a separate stream, which few readers support.
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
        .map_err(|error| RequestError::Transport(error.to_string()))
}

impl std::fmt::Debug for RawClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawClient").finish_non_exhaustive()
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

    /// Returns the timeout, at least one second: zero would select the server's default, which can be an hour.
    fn timeout_or_least(&self) -> Duration {
        self.timeout.max(Duration::from_secs(1))
    }
}

fn append(query: &mut form_urlencoded::Serializer<'_, String>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        query.append_pair(name, value);
    }
}

/// Reads a body into one buffer without a second copy. Fails if the body is larger than `most` bytes. Passes the length
/// of each chunk to `note`.
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
    RequestError::BudgetExceeded(format!("the response exceeds the limit of {most} bytes"))
}

async fn refusal(response: Response<Body>) -> RequestError {
    let (parts, body) = response.into_parts();
    match Limited::new(body, MAX_ERROR_BODY).collect().await {
        Ok(body) => {
            let status: Status = wire::status(parts.status.as_u16(), &body.to_bytes());
            RequestError::from_status(status, advised_by_headers(&parts.headers))
        }
        Err(error) => kube::Error::Service(error).into(),
    }
}

fn is_not_acceptable(error: &RequestError) -> bool {
    error.status().is_some_and(|status| status.code == 406)
}

/// Returns the error of a response. A kind that is readable only in JSON is requested in JSON from now on.
fn unreadable(formats: &Formats, kind: &ResourceKind, error: WireError) -> RequestError {
    if error.is_unknown_kind() {
        formats.fall_back(kind, &error);
    }
    error.into()
}

fn frames(reader: FrameReader) -> FrameStream {
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
    formats: Formats,
    kind: ResourceKind,
}

impl FrameReader {
    async fn next(&mut self) -> Result<Option<Frame>, RequestError> {
        loop {
            let next = self.decoder.next().map_err(|error| unreadable(&self.formats, &self.kind, error))?;
            if let Some(frame) = next {
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
