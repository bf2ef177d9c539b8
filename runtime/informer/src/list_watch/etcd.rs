//! etcd as a source, without an API server: the objects under a prefix and their changes.
//!
//! Guarantees:
//! - A list is one revision, read with a quorum, however many pages it has. A watch continues from that revision.
//! - The version of an object is the etcd revision of its last write.
//! - Compacted revisions fail with the `Expired` error of the API, so the reflector relists.
//! - All writes of one transaction have the same revision but are delivered key by key. For a moment, a cache can
//!   report that revision and contain only some of the writes. A caller that needs a whole transaction must wait for a
//!   later revision.
//! - A deletion carries the last state of the object while etcd keeps it.
//! - Progress is requested twice a minute by default and delivered as bookmarks. The watch of an unresponsive etcd is
//!   closed.
//! - A malformed value does not hide others: it is delivered as an undecodable object.
//!
//! Label and field selectors are not supported, because etcd has neither. The source writes nothing. It needs etcd
//! 3.5.8 or newer: older versions report progress too early. The module `wire` contains the etcd messages, because
//! `etcd-client` requires a protobuf compiler on every build machine.

mod wire;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::{Map, Value, json};
pub use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Streaming};
use windlass_client::{FrameStream, RequestError, VersionMatch};
use windlass_env::{Env, Instant};
use windlass_object::{Frame, ObjectKey, RawList, ResourceVersion};

use self::wire::{
    Event, EventType, KeyValue, RangeRequest, WatchCreateRequest, WatchProgressRequest, WatchResponse,
    WatchUnion,
};
use super::{ListRequest, ListerWatcher, Selection, WatchRequest, api_errors};

/// Timeout of one response, and of the silence after a progress request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Default interval of progress requests: cheap, and a reconnect replays at most this much.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// A decoder of the values in etcd.
pub trait EtcdDecoder: Send + Sync + 'static {
    /// Returns the object key for an etcd key without the source's prefix; `None` if the key is not an object's.
    fn key(&self, key: &str) -> Option<ObjectKey>;

    /// Returns the object as JSON. The source sets name, namespace and version in its metadata.
    ///
    /// # Errors
    ///
    /// The reason why the value is not an object. The source logs it.
    fn object(&self, key: &ObjectKey, value: &Bytes) -> Result<Value, String>;
}

/// The decoder for JSON objects under `<namespace>/<name>`, or under `<name>` for cluster-scoped kinds.
#[derive(Copy, Clone, Debug, Default)]
pub struct JsonObjects;

/// A source of the objects under an etcd prefix. Cheap to clone.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
///
/// use windlass_env::Env;
/// use windlass_informer::etcd::{Endpoint, EtcdSource, JsonObjects};
/// use windlass_informer::{InformerFactory, Selection};
/// use windlass_object::ResourceKind;
///
/// # fn start(env: Env, factory: &InformerFactory) {
/// let channel = Endpoint::from_static("http://127.0.0.1:2379").connect_lazy();
/// let recipes = EtcdSource::new(&env, channel, "/kitchen/recipes", JsonObjects);
/// factory.start(Arc::new(move |_: &ResourceKind, selection: &Selection| recipes.selecting(selection)));
/// # }
/// ```
#[derive(Clone)]
pub struct EtcdSource {
    env: Env,
    channel: Channel,
    /// Ends with a slash.
    prefix: Arc<str>,
    selection: Selection,
    decoder: Arc<dyn EtcdDecoder>,
    progress_every: Duration,
}

impl EtcdSource {
    /// Creates a source of the objects under `prefix`. It sends no request yet.
    pub fn new(env: &Env, channel: Channel, prefix: &str, decoder: impl EtcdDecoder) -> Self {
        let prefix = format!("{}/", prefix.trim_end_matches('/')).into();
        let decoder = Arc::new(decoder);
        let selection = Selection::default();
        Self { env: env.clone(), channel, prefix, selection, decoder, progress_every: PROGRESS_INTERVAL }
    }

    /// Sets the interval of progress requests. The default is 30 s.
    #[must_use]
    pub fn with_progress_interval(self, progress_every: Duration) -> Self {
        Self { progress_every, ..self }
    }

    /// Returns a source of the selected objects. With a label or field selector, every request to the source fails.
    pub fn selecting(&self, selection: &Selection) -> Arc<dyn ListerWatcher> {
        Arc::new(Self { selection: selection.clone(), ..self.clone() })
    }

    /// Returns the revision of the quorum. The requested key is not an object's.
    async fn revision(&self) -> Result<i64, RequestError> {
        let key = Bytes::copy_from_slice(self.prefix.as_bytes());
        let range = RangeRequest { key, range_end: Bytes::new(), limit: 1, revision: 0 };
        let answer = self.with_timeout(wire::range(self.channel.clone(), range)).await?;
        Ok(answer.header.unwrap_or_default().revision)
    }

    fn admit(&self) -> Result<(), RequestError> {
        match (&self.selection.labels, &self.selection.fields) {
            (None, None) => Ok(()),
            _ => Err(RequestError::Unsupported("etcd does not support label and field selectors")),
        }
    }

    /// Returns the key range of the selection.
    fn range(&self) -> (Bytes, Bytes) {
        let from = match &self.selection.namespace {
            Some(namespace) => format!("{}{namespace}/", self.prefix),
            None => self.prefix.to_string(),
        };
        // `0` follows `/` in ASCII, so the range contains exactly the keys that begin with the prefix.
        let to = format!("{}0", &from[..from.len() - 1]);
        (from.into(), to.into())
    }

    async fn with_timeout<T>(
        &self,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Result<T, RequestError> {
        let answer = self.env.timeout(TIMEOUT, call).await.map_err(|_| RequestError::Deadline)?;
        answer.map_err(|status| refused(&status))
    }

    /// Returns the requests of one watch: its creation, then periodic progress requests.
    fn watch_requests(
        &self,
        create: WatchCreateRequest,
    ) -> impl Stream<Item = wire::WatchRequest> + Send + 'static {
        let (env, every) = (self.env.clone(), self.progress_every);
        let first = stream::iter([WatchUnion::Create(create)]);
        let later = stream::unfold(env, move |env| async move {
            env.sleep(every).await;
            Some((WatchUnion::Progress(WatchProgressRequest {}), env))
        });
        first.chain(later).map(|union| wire::WatchRequest { union: Some(union) })
    }

    fn key(&self, key: &[u8]) -> Option<ObjectKey> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)?;
        self.decoder.key(key)
    }

    /// Returns the object in `value` at `revision`; `None` if the key is not an object's.
    fn object(&self, key: &[u8], value: &Bytes, revision: i64) -> Option<Bytes> {
        let key = self.key(key)?;
        let object = self.decoder.object(&key, value).and_then(|object| match object {
            Value::Object(object) => Ok(object),
            _ => Err("the value is JSON, but not a JSON object".to_owned()),
        });
        let object = object.unwrap_or_else(|error| {
            tracing::warn!(%key, revision, %error, "etcd value is not an object");
            undecodable()
        });
        Some(with_key_and_revision(object, &key, revision))
    }

    fn frame(&self, event: &Event) -> Option<Frame> {
        let kv = event.kv.as_ref()?;
        if event.r#type == i32::from(EventType::Delete) {
            let last = event.prev_kv.as_ref().map(|last| &last.value);
            let object = match last {
                Some(value) => self.object(&kv.key, value, kv.mod_revision)?,
                None => with_key_and_revision(Map::new(), &self.key(&kv.key)?, kv.mod_revision),
            };
            return Some(Frame::Deleted(object));
        }
        let object = self.object(&kv.key, &kv.value, kv.mod_revision)?;
        let created = kv.create_revision == kv.mod_revision;
        Some(if created { Frame::Added(object) } else { Frame::Modified(object) })
    }

    fn item(&self, kv: &KeyValue) -> Option<Bytes> {
        self.object(&kv.key, &kv.value, kv.mod_revision)
    }
}

#[async_trait]
impl ListerWatcher for EtcdSource {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        self.admit()?;
        let (from, range_end) = self.range();
        let page = match &request.continue_token {
            Some(token) => Page::parse(token).ok_or_else(|| api_errors::error(api_errors::expired()))?,
            None => Page { revision: exact(&request).unwrap_or(0), from },
        };
        let limit = request.limit.map_or(0, i64::from);
        let range = RangeRequest { key: page.from, range_end, limit, revision: page.revision };
        let answer = self.with_timeout(wire::range(self.channel.clone(), range)).await?;
        let current = answer.header.unwrap_or_default().revision;
        check_not_older(request.version.as_deref(), current)?;
        let revision = if page.revision == 0 { current } else { page.revision };
        let last = answer.kvs.last().filter(|_| answer.more);
        Ok(RawList {
            version: Some(version(revision)),
            continue_token: last.map(|last| Page::after(revision, &last.key).to_string()),
            remaining: None,
            items: answer.kvs.iter().filter_map(|kv| self.item(kv)).collect(),
        })
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        self.admit()?;
        let after: i64 = request.version.parse().map_err(|_| api_errors::error(api_errors::expired()))?;
        let (key, range_end) = self.range();
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: after.saturating_add(1),
            progress_notify: request.bookmarks,
            prev_kv: true,
        };
        let responses =
            self.with_timeout(wire::watch(self.channel.clone(), self.watch_requests(create))).await?;
        let now = self.env.now();
        let watched = EtcdWatch {
            source: self.clone(),
            responses,
            after,
            bookmarks: request.bookmarks,
            buffered: VecDeque::new(),
            last_response_at: now,
            until: now + request.timeout,
            is_ended: false,
        };
        let next = |mut watched: EtcdWatch| async { watched.next().await.map(|next| (next, watched)) };
        Ok(stream::unfold(watched, next).boxed())
    }
}

/// The stream state of one watch.
struct EtcdWatch {
    source: EtcdSource,
    responses: Streaming<WatchResponse>,
    /// Only later revisions are delivered.
    after: i64,
    bookmarks: bool,
    buffered: VecDeque<Frame>,
    last_response_at: Instant,
    until: Instant,
    is_ended: bool,
}

impl EtcdWatch {
    async fn next(&mut self) -> Option<Result<Frame, RequestError>> {
        loop {
            if let Some(frame) = self.buffered.pop_front() {
                return Some(Ok(frame));
            }
            if self.is_ended {
                return None;
            }
            let env = self.source.env.clone();
            let silent = self.last_response_at + self.source.progress_every + TIMEOUT;
            let within = self.until.min(silent).saturating_duration_since(env.now());
            let answer = env.timeout(within, self.responses.message()).await;
            self.last_response_at = env.now();
            match answer {
                Ok(Ok(Some(answer))) if self.is_behind(&answer) => match self.source.revision().await {
                    Ok(revision) => self.compare(revision),
                    Err(error) => return self.end(error),
                },
                Ok(Ok(Some(answer))) => self.on_response(&answer),
                Ok(Ok(None)) => return None,
                Ok(Err(status)) => return self.end(refused(&status)),
                Err(_) if env.now() < self.until => return self.end(RequestError::WatchIdle),
                Err(_) => return None,
            }
        }
    }

    fn end(&mut self, error: RequestError) -> Option<Result<Frame, RequestError>> {
        self.is_ended = true;
        Some(Err(error))
    }

    /// Returns whether the watching member has not reached the start revision of the watch.
    fn is_behind(&self, answer: &WatchResponse) -> bool {
        answer.created && !answer.canceled && answer.header.unwrap_or_default().revision < self.after
    }

    /// Compares the requested version with the revision of the quorum. If the quorum is behind, etcd was restored from
    /// a backup and would wait for the revision silently. Otherwise only one member lags, and it continues after it has
    /// caught up.
    fn compare(&mut self, revision: i64) {
        if revision < self.after {
            self.is_ended = true;
            let status = api_errors::too_large(unsigned(self.after), unsigned(revision));
            self.buffered.push_back(Frame::Error(Box::new(status)));
        }
    }

    fn on_response(&mut self, answer: &WatchResponse) {
        let current = answer.header.unwrap_or_default().revision;
        if answer.canceled {
            self.is_ended = true;
            return self.buffered.push_back(Frame::Error(Box::new(cancelled(answer))));
        }
        self.buffered.extend(answer.events.iter().filter_map(|event| self.source.frame(event)));
        if answer.events.is_empty() && !answer.created && self.bookmarks {
            self.buffered.push_back(Frame::Bookmark { version: version(current), initial_events_end: false });
        }
    }
}

/// The start of a page and its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    revision: i64,
    from: Bytes,
}

impl Page {
    /// Returns the page after a key.
    fn after(revision: i64, key: &[u8]) -> Self {
        Self { revision, from: [key, b"\0"].concat().into() }
    }

    fn parse(token: &str) -> Option<Self> {
        let (revision, from) = token.split_once('/')?;
        if !from.is_ascii() || !from.len().is_multiple_of(2) {
            return None;
        }
        let digits = from.as_bytes().chunks_exact(2);
        let from: Option<Vec<u8>> = digits
            .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect();
        Some(Self { revision: revision.parse().ok()?, from: from?.into() })
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.revision)?;
        self.from.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl EtcdDecoder for JsonObjects {
    fn key(&self, key: &str) -> Option<ObjectKey> {
        match key.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Some(ObjectKey::namespaced(namespace, name))
            }
            None if !key.is_empty() => Some(ObjectKey::cluster(key)),
            _ => None,
        }
    }

    fn object(&self, _key: &ObjectKey, value: &Bytes) -> Result<Value, String> {
        // The value can contain a secret, so the error names only the position.
        serde_json::from_slice(value).map_err(|error| {
            format!("the value is not JSON (line {}, column {})", error.line(), error.column())
        })
    }
}

fn version(revision: i64) -> ResourceVersion {
    ResourceVersion::new(&revision.to_string())
}

fn unsigned(revision: i64) -> u64 {
    revision.try_into().unwrap_or(0)
}

/// Returns the exact revision that a list requests.
fn exact(request: &ListRequest) -> Option<i64> {
    let exact = request.version_match == Some(VersionMatch::Exact);
    request.version.as_deref().filter(|_| exact).and_then(|version| version.parse().ok())
}

/// Rejects a state older than required: etcd was restored from a backup.
fn check_not_older(wanted: Option<&str>, current: i64) -> Result<(), RequestError> {
    match wanted.and_then(|wanted| wanted.parse::<i64>().ok()) {
        Some(wanted) if wanted > current => {
            Err(api_errors::error(api_errors::too_large(unsigned(wanted), unsigned(current))))
        }
        _ => Ok(()),
    }
}

/// Returns the object with the name and version that etcd has for it.
fn with_key_and_revision(mut object: Map<String, Value>, key: &ObjectKey, revision: i64) -> Bytes {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata["name"] = json!(key.name());
    metadata["resourceVersion"] = json!(revision.to_string());
    match (key.namespace(), metadata.as_object_mut()) {
        (Some(namespace), _) => metadata["namespace"] = json!(namespace),
        // A namespace in the value would change the object's key.
        (None, metadata) => {
            metadata.and_then(|metadata| metadata.remove("namespace"));
        }
    }
    Value::Object(object).to_string().into()
}

/// Returns an object with a name that no decoder accepts.
fn undecodable() -> Map<String, Value> {
    let metadata = json!({ "labels": "the value in etcd is not an object" });
    Map::from_iter([("metadata".to_owned(), metadata)])
}

fn cancelled(answer: &WatchResponse) -> windlass_object::Status {
    if answer.compact_revision > 0 {
        return api_errors::expired();
    }
    api_errors::status(500, "InternalError", &format!("etcd ended the watch: {}", answer.cancel_reason))
}

/// Converts an etcd error to an API error.
fn refused(status: &tonic::Status) -> RequestError {
    let message = status.message();
    let answer = |code, reason| api_errors::error(api_errors::status(code, reason, message));
    match status.code() {
        Code::OutOfRange if message.contains("future revision") => {
            let message = format!("Too large resource version: {message}");
            api_errors::error(api_errors::status(504, "Timeout", &message))
        }
        Code::OutOfRange => api_errors::error(api_errors::expired()),
        Code::Unavailable => RequestError::Transport(format!("etcd is unreachable: {message}")),
        Code::DeadlineExceeded | Code::Cancelled => RequestError::Deadline,
        Code::ResourceExhausted => answer(429, "TooManyRequests"),
        Code::Unauthenticated => answer(401, "Unauthorized"),
        Code::PermissionDenied => answer(403, "Forbidden"),
        _ => answer(500, "InternalError"),
    }
}

impl fmt::Debug for EtcdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSource")
            .field("prefix", &self.prefix)
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(selection: &Selection) -> EtcdSource {
        let channel = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let source = EtcdSource::new(&Env::virtual_time(1), channel, "/things", JsonObjects);
        EtcdSource { selection: selection.clone(), ..source }
    }

    fn kv(key: &str, value: &str, created: i64, modified: i64) -> KeyValue {
        let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
        KeyValue { key, create_revision: created, mod_revision: modified, value }
    }

    #[tokio::test]
    async fn selection_is_key_range_of_one_prefix() {
        let (from, to) = source(&Selection::default()).range();
        assert!(from == "/things/" && to == "/things0");
        let (from, to) = source(&Selection::in_namespace("a")).range();
        assert!(from == "/things/a/" && to == "/things/a0");
        assert!(!(from..to).contains(&Bytes::from("/things/ab/x")));
    }

    #[test]
    fn continue_token_round_trips_arbitrary_keys() {
        let page = Page::after(7, &[0, 255, b'/', b'k']);
        assert_eq!(Page::parse(&page.to_string()), Some(page));
        for broken in ["", "7", "x/00", "7/zz", "7/000", "7/\u{e9}\u{e9}"] {
            assert_eq!(Page::parse(broken), None, "{broken}");
        }
    }

    // parity: etcd-client-source-projects
    #[tokio::test]
    async fn object_has_name_of_key_and_revision_of_last_write() {
        let source = source(&Selection::default());
        let item = source.item(&kv("/things/ns/a", r#"{"metadata":{"name":"x","labels":{"l":"v"}}}"#, 3, 9));
        let item: Value = serde_json::from_slice(&item.unwrap()).unwrap();
        assert_eq!(
            item["metadata"],
            json!({"name": "a", "namespace": "ns", "resourceVersion": "9", "labels": {"l": "v"}})
        );
        let cluster = source.item(&kv("/things/a", r#"{"metadata":{"name":"x","namespace":"y"}}"#, 3, 9));
        let cluster: Value = serde_json::from_slice(&cluster.unwrap()).unwrap();
        assert_eq!(cluster["metadata"], json!({"name": "a", "resourceVersion": "9"}));
        for unmapped in ["/things/", "/things/ns/a/b", "/other/a"] {
            assert_eq!(source.item(&kv(unmapped, "{}", 1, 1)), None, "{unmapped}");
        }
    }

    #[tokio::test]
    async fn malformed_value_has_readable_header_and_is_undecodable() {
        use windlass_object::{Decoder as _, DynamicObjects, Representation as _, ResourceKind};
        let source = source(&Selection::default());
        let kind = ResourceKind::of::<k8s_openapi::api::core::v1::ConfigMap>();
        for value in ["7", "no JSON", "", "k8s\0\n"] {
            let raw = source.item(&kv("/things/ns/a", value, 3, 9)).unwrap();
            assert_eq!(windlass_object::wire::object_header(&raw).unwrap().key.to_string(), "ns/a");
            assert!(DynamicObjects::new(kind.clone()).decoder().decode(&raw).is_err(), "{value}");
        }
    }

    // parity: etcd-client-source-projects
    #[tokio::test]
    async fn etcd_events_become_frames_with_last_state_on_deletion() {
        let source = source(&Selection::default());
        let event = |of_type: EventType, kv, prev_kv| Event { r#type: of_type.into(), kv: Some(kv), prev_kv };
        let added = event(EventType::Put, kv("/things/a", "{}", 5, 5), None);
        let modified = event(EventType::Put, kv("/things/a", "{}", 5, 6), None);
        assert!(matches!(source.frame(&added), Some(Frame::Added(_))));
        assert!(matches!(source.frame(&modified), Some(Frame::Modified(_))));
        for (last, data) in [(Some(kv("/things/a", r#"{"data":1}"#, 5, 6)), json!(1)), (None, Value::Null)] {
            let deleted = event(EventType::Delete, kv("/things/a", "", 0, 7), last);
            let Some(Frame::Deleted(raw)) = source.frame(&deleted) else { panic!("no deletion") };
            let object: Value = serde_json::from_slice(&raw).unwrap();
            assert_eq!((&object["metadata"]["resourceVersion"], &object["data"]), (&json!("7"), &data));
        }
    }

    // parity: etcd-client-source-projects
    #[test]
    fn etcd_errors_become_api_errors() {
        let compacted = tonic::Status::out_of_range("etcdserver: mvcc: required revision has been compacted");
        assert!(refused(&compacted).is_expired());
        let future = tonic::Status::out_of_range("etcdserver: mvcc: required revision is a future revision");
        assert!(!refused(&future).is_expired() && refused(&future).is_too_large_version());
        assert!(refused(&tonic::Status::permission_denied("no")).is_forbidden());
        assert!(refused(&tonic::Status::resource_exhausted("busy")).is_too_many_requests());
        assert!(matches!(refused(&tonic::Status::unavailable("gone")), RequestError::Transport(_)));
        assert!(check_not_older(Some("9"), 8).is_err_and(|error| error.is_too_large_version()));
        assert!(check_not_older(Some("9"), 9).is_ok() && check_not_older(None, 0).is_ok());
    }

    fn watched(answers: Streaming<WatchResponse>, after: i64) -> EtcdWatch {
        let (source, env) = (source(&Selection::default()), Env::virtual_time(1));
        let (heard, until) = (env.now(), env.now() + TIMEOUT);
        let (bookmarks, over) = (true, false);
        EtcdWatch {
            source,
            responses: answers,
            after,
            bookmarks,
            buffered: VecDeque::new(),
            last_response_at: heard,
            until,
            is_ended: over,
        }
    }

    fn no_answers() -> Streaming<WatchResponse> {
        use tonic::codec::Codec as _;
        let mut codec = tonic_prost::ProstCodec::<super::wire::WatchRequest, WatchResponse>::default();
        Streaming::new_empty(codec.decoder(), tonic::body::Body::empty())
    }

    #[tokio::test]
    async fn lagging_member_is_not_mistaken_for_restored_backup() {
        let mut watched = watched(no_answers(), 9);
        let created = |revision| {
            let header = Some(super::wire::ResponseHeader { revision });
            WatchResponse { header, created: true, ..WatchResponse::default() }
        };
        assert!(watched.is_behind(&created(8)) && !watched.is_behind(&created(9)));
        watched.compare(9);
        assert!(!watched.is_ended && watched.buffered.is_empty(), "the quorum has reached it");
        watched.compare(8);
        assert!(watched.is_ended);
        let Some(Frame::Error(status)) = watched.buffered.pop_front() else { panic!("no error frame") };
        assert!(RequestError::from_status(*status, None).is_too_large_version());
    }

    #[tokio::test]
    async fn etcd_source_rejects_label_and_field_selectors() {
        let selection = Selection { labels: Some("a=b".to_owned()), ..Selection::default() };
        let refused = source(&selection).list(ListRequest::default()).await;
        assert_eq!(
            refused,
            Err(RequestError::Unsupported("etcd does not support label and field selectors"))
        );
    }
}
