//! etcd as a source, without an API server before it: the objects under a prefix, and what becomes of them.
//!
//! Guarantees:
//! - A list is one revision, read from the majority of the members, however many pages it has; a watch continues from
//!   it. What the objects' versions are is etcd's business: the revision in which each was written last.
//! - Revisions that were compacted away are refused in the API's words, so that everything is listed again.
//! - What one transaction wrote has one revision, and is told key by key: for a moment a cache may say that it has come
//!   to a revision and hold only some of what was written in it. Who needs all of a transaction waits for the next.
//! - A deletion carries the last state of the object, as long as etcd remembers it.
//! - Progress is asked for twice a minute, or as often as one likes, and told as bookmarks; an etcd that does not answer
//!   is left.
//! - A value that cannot be read hides no other: it is passed on as an object that cannot be decoded.
//!
//! It refuses label and field selectors, for etcd knows neither, and writes nothing. It needs etcd 3.5.8 or newer:
//! older ones tell of progress that they have not made.
//! What is said to etcd is written out in `wire`: `etcd-client` wants a protobuf compiler on every machine that builds it.

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
use super::{ListRequest, ListerWatcher, Selection, WatchRequest, refusals};

/// How long one answer may take, and how long etcd may be silent for beyond the next question about its progress.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often etcd is asked how far it has come: cheap, and what is lost by a reconnect is then half a minute's.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// Makes objects of what etcd stores.
pub trait EtcdDecoder: Send + Sync + 'static {
    /// Whose key this is, of what follows the source's prefix; `None` if it is no object's.
    fn key(&self, key: &str) -> Option<ObjectKey>;

    /// The object as JSON. Name, namespace and version are put into its metadata by the source.
    ///
    /// # Errors
    ///
    /// Why the value is no object. It is logged.
    fn object(&self, key: &ObjectKey, value: &Bytes) -> Result<Value, String>;
}

/// Objects that are stored as JSON, under `<namespace>/<name>` or, of a kind without namespaces, under `<name>`.
#[derive(Copy, Clone, Debug, Default)]
pub struct JsonObjects;

/// The objects under a prefix of etcd. Cheap to clone.
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
    /// The objects under `prefix`, as `decoder` reads them. Nothing is asked yet.
    pub fn new(env: &Env, channel: Channel, prefix: &str, decoder: impl EtcdDecoder) -> Self {
        let prefix = format!("{}/", prefix.trim_end_matches('/')).into();
        let decoder = Arc::new(decoder);
        let selection = Selection::default();
        Self { env: env.clone(), channel, prefix, selection, decoder, progress_every: PROGRESS_INTERVAL }
    }

    /// The same, which asks etcd this often how far it has come: by default twice a minute.
    #[must_use]
    pub fn with_progress_interval(self, progress_every: Duration) -> Self {
        Self { progress_every, ..self }
    }

    /// A source of what is selected of these objects. One that is asked for labels or fields refuses every request.
    pub fn selecting(&self, selection: &Selection) -> Arc<dyn ListerWatcher> {
        Arc::new(Self { selection: selection.clone(), ..self.clone() })
    }

    /// The revision of the majority. No object has the key that is asked for.
    async fn revision(&self) -> Result<i64, RequestError> {
        let key = Bytes::copy_from_slice(self.prefix.as_bytes());
        let range = RangeRequest { key, range_end: Bytes::new(), limit: 1, revision: 0 };
        let answer = self.in_time(wire::range(self.channel.clone(), range)).await?;
        Ok(answer.header.unwrap_or_default().revision)
    }

    fn admit(&self) -> Result<(), RequestError> {
        match (&self.selection.labels, &self.selection.fields) {
            (None, None) => Ok(()),
            _ => Err(RequestError::Unsupported("etcd cannot select by labels or fields")),
        }
    }

    /// The keys of everything that is selected: from here to there.
    fn range(&self) -> (Bytes, Bytes) {
        let from = match &self.selection.namespace {
            Some(namespace) => format!("{}{namespace}/", self.prefix),
            None => self.prefix.to_string(),
        };
        // The byte after the slash that ends it: what lies between the two begins with the prefix.
        let to = format!("{}0", &from[..from.len() - 1]);
        (from.into(), to.into())
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Result<T, RequestError> {
        let answer = self.env.timeout(TIMEOUT, call).await.map_err(|_| RequestError::Deadline)?;
        answer.map_err(|status| refused(&status))
    }

    /// What is asked on the stream of one watch: for the watch, and then for its progress, as long as it lasts.
    fn questions(
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

    /// The object stored in `value`, as of `revision`; nothing if the key is no object's.
    fn object(&self, key: &[u8], value: &Bytes, revision: i64) -> Option<Bytes> {
        let key = self.key(key)?;
        let object = self.decoder.object(&key, value).and_then(|object| match object {
            Value::Object(object) => Ok(object),
            _ => Err("it is JSON, but no object".to_owned()),
        });
        let object = object.unwrap_or_else(|error| {
            tracing::warn!(%key, revision, %error, "what etcd holds under a key is no object");
            undecodable()
        });
        Some(stamped(object, &key, revision))
    }

    fn frame(&self, event: &Event) -> Option<Frame> {
        let kv = event.kv.as_ref()?;
        if event.r#type == i32::from(EventType::Delete) {
            let last = event.prev_kv.as_ref().map(|last| &last.value);
            let object = match last {
                Some(value) => self.object(&kv.key, value, kv.mod_revision)?,
                None => stamped(Map::new(), &self.key(&kv.key)?, kv.mod_revision),
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
            Some(token) => Page::parse(token).ok_or_else(|| refusals::error(refusals::expired()))?,
            None => Page { revision: exact(&request).unwrap_or(0), from },
        };
        let limit = request.limit.map_or(0, i64::from);
        let range = RangeRequest { key: page.from, range_end, limit, revision: page.revision };
        let answer = self.in_time(wire::range(self.channel.clone(), range)).await?;
        let current = answer.header.unwrap_or_default().revision;
        not_before(request.version.as_deref(), current)?;
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
        let after: i64 = request.version.parse().map_err(|_| refusals::error(refusals::expired()))?;
        let (key, range_end) = self.range();
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: after.saturating_add(1),
            progress_notify: request.bookmarks,
            prev_kv: true,
        };
        let answers = self.in_time(wire::watch(self.channel.clone(), self.questions(create))).await?;
        let now = self.env.now();
        let watched = EtcdWatch {
            source: self.clone(),
            answers,
            after,
            bookmarks: request.bookmarks,
            told: VecDeque::new(),
            heard: now,
            until: now + request.timeout,
            over: false,
        };
        let next = |mut watched: EtcdWatch| async { watched.next().await.map(|next| (next, watched)) };
        Ok(stream::unfold(watched, next).boxed())
    }
}

/// One watch, as its stream sees it.
struct EtcdWatch {
    source: EtcdSource,
    answers: Streaming<WatchResponse>,
    /// What is told is later than this.
    after: i64,
    bookmarks: bool,
    told: VecDeque<Frame>,
    heard: Instant,
    until: Instant,
    over: bool,
}

impl EtcdWatch {
    async fn next(&mut self) -> Option<Result<Frame, RequestError>> {
        loop {
            if let Some(frame) = self.told.pop_front() {
                return Some(Ok(frame));
            }
            if self.over {
                return None;
            }
            let env = self.source.env.clone();
            let silent = self.heard + self.source.progress_every + TIMEOUT;
            let within = self.until.min(silent).saturating_duration_since(env.now());
            let answer = env.timeout(within, self.answers.message()).await;
            self.heard = env.now();
            match answer {
                Ok(Ok(Some(answer))) if self.is_behind(&answer) => match self.source.revision().await {
                    Ok(revision) => self.compare(revision),
                    Err(error) => return self.end(error),
                },
                Ok(Ok(Some(answer))) => self.hear(&answer),
                Ok(Ok(None)) => return None,
                Ok(Err(status)) => return self.end(refused(&status)),
                Err(_) if env.now() < self.until => return self.end(RequestError::Silent),
                Err(_) => return None,
            }
        }
    }

    fn end(&mut self, error: RequestError) -> Option<Result<Frame, RequestError>> {
        self.over = true;
        Some(Err(error))
    }

    /// Whether the member that watches has not come to where the watch is to begin.
    fn is_behind(&self, answer: &WatchResponse) -> bool {
        answer.created && !answer.canceled && answer.header.unwrap_or_default().revision < self.after
    }

    /// Compares what was asked for with the revision of the majority. If that is behind, too, etcd came back from a
    /// backup, and would wait for the revision without a word. Otherwise it was one member that lags, which continues
    /// when it has caught up.
    fn compare(&mut self, revision: i64) {
        if revision < self.after {
            self.over = true;
            let status = refusals::too_large(unsigned(self.after), unsigned(revision));
            self.told.push_back(Frame::Error(Box::new(status)));
        }
    }

    fn hear(&mut self, answer: &WatchResponse) {
        let current = answer.header.unwrap_or_default().revision;
        if answer.canceled {
            self.over = true;
            return self.told.push_back(Frame::Error(Box::new(cancelled(answer))));
        }
        self.told.extend(answer.events.iter().filter_map(|event| self.source.frame(event)));
        if answer.events.is_empty() && !answer.created && self.bookmarks {
            self.told.push_back(Frame::Bookmark { version: version(current), initial_events_end: false });
        }
    }
}

/// Where a page begins, and of which revision it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    revision: i64,
    from: Bytes,
}

impl Page {
    /// What follows a key.
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
        // What the value holds may be a secret, so only the place of the fault is told.
        serde_json::from_slice(value)
            .map_err(|error| format!("it is no JSON (line {}, column {})", error.line(), error.column()))
    }
}

fn version(revision: i64) -> ResourceVersion {
    ResourceVersion::new(&revision.to_string())
}

fn unsigned(revision: i64) -> u64 {
    revision.try_into().unwrap_or(0)
}

/// The very revision a list is asked for.
fn exact(request: &ListRequest) -> Option<i64> {
    let exact = request.version_match == Some(VersionMatch::Exact);
    request.version.as_deref().filter(|_| exact).and_then(|version| version.parse().ok())
}

/// Refuses what is older than it may be: etcd came back from a backup.
fn not_before(wanted: Option<&str>, current: i64) -> Result<(), RequestError> {
    match wanted.and_then(|wanted| wanted.parse::<i64>().ok()) {
        Some(wanted) if wanted > current => {
            Err(refusals::error(refusals::too_large(unsigned(wanted), unsigned(current))))
        }
        _ => Ok(()),
    }
}

/// An object with the name and the version that etcd knows it by.
fn stamped(mut object: Map<String, Value>, key: &ObjectKey, revision: i64) -> Bytes {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata["name"] = json!(key.name());
    metadata["resourceVersion"] = json!(revision.to_string());
    match (key.namespace(), metadata.as_object_mut()) {
        (Some(namespace), _) => metadata["namespace"] = json!(namespace),
        // What the value says of a namespace would make it another object than its key does.
        (None, metadata) => {
            metadata.and_then(|metadata| metadata.remove("namespace"));
        }
    }
    Value::Object(object).to_string().into()
}

/// What no decoder of objects takes for one, although it has a name.
fn undecodable() -> Map<String, Value> {
    let metadata = json!({ "labels": "the value in etcd is no object" });
    Map::from_iter([("metadata".to_owned(), metadata)])
}

fn cancelled(answer: &WatchResponse) -> windlass_object::Status {
    if answer.compact_revision > 0 {
        return refusals::expired();
    }
    refusals::status(500, "InternalError", &format!("etcd ended the watch: {}", answer.cancel_reason))
}

/// etcd's refusal in the API's words.
fn refused(status: &tonic::Status) -> RequestError {
    let message = status.message();
    let answer = |code, reason| refusals::error(refusals::status(code, reason, message));
    match status.code() {
        Code::OutOfRange if message.contains("future revision") => {
            let message = format!("Too large resource version: {message}");
            refusals::error(refusals::status(504, "Timeout", &message))
        }
        Code::OutOfRange => refusals::error(refusals::expired()),
        Code::Unavailable => RequestError::Transport(format!("etcd cannot be reached: {message}")),
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
    async fn what_is_selected_is_a_range_of_keys_that_no_other_prefix_shares() {
        let (from, to) = source(&Selection::default()).range();
        assert!(from == "/things/" && to == "/things0");
        let (from, to) = source(&Selection::in_namespace("a")).range();
        assert!(from == "/things/a/" && to == "/things/a0");
        assert!(!(from..to).contains(&Bytes::from("/things/ab/x")));
    }

    #[test]
    fn page_is_told_by_its_token_whatever_its_key_holds() {
        let page = Page::after(7, &[0, 255, b'/', b'k']);
        assert_eq!(Page::parse(&page.to_string()), Some(page));
        for broken in ["", "7", "x/00", "7/zz", "7/000", "7/\u{e9}\u{e9}"] {
            assert_eq!(Page::parse(broken), None, "{broken}");
        }
    }

    // parity: etcd-client-source-projects
    #[tokio::test]
    async fn objects_bear_the_names_of_their_keys_and_the_revisions_of_their_last_writes() {
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
        for nobody in ["/things/", "/things/ns/a/b", "/other/a"] {
            assert_eq!(source.item(&kv(nobody, "{}", 1, 1)), None, "{nobody}");
        }
    }

    #[tokio::test]
    async fn value_that_is_no_object_has_a_head_and_no_decoder_takes_it() {
        use windlass_object::{Decoder as _, Dynamic, Representation as _, ResourceKind};
        let source = source(&Selection::default());
        let kind = ResourceKind::of::<k8s_openapi::api::core::v1::ConfigMap>();
        for value in ["7", "no JSON", "", "k8s\0\n"] {
            let raw = source.item(&kv("/things/ns/a", value, 3, 9)).unwrap();
            assert_eq!(windlass_object::wire::object_header(&raw).unwrap().key.to_string(), "ns/a");
            assert!(Dynamic::new(kind.clone()).decoder().decode(&raw).is_err(), "{value}");
        }
    }

    // parity: etcd-client-source-projects
    #[tokio::test]
    async fn events_are_additions_modifications_and_deletions_with_the_last_state() {
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
    fn refusals_are_told_in_the_words_of_the_api() {
        let compacted = tonic::Status::out_of_range("etcdserver: mvcc: required revision has been compacted");
        assert!(refused(&compacted).is_expired());
        let future = tonic::Status::out_of_range("etcdserver: mvcc: required revision is a future revision");
        assert!(!refused(&future).is_expired() && refused(&future).is_too_large_version());
        assert!(refused(&tonic::Status::permission_denied("no")).is_forbidden());
        assert!(refused(&tonic::Status::resource_exhausted("busy")).is_too_many_requests());
        assert!(matches!(refused(&tonic::Status::unavailable("gone")), RequestError::Transport(_)));
        assert!(not_before(Some("9"), 8).is_err_and(|error| error.is_too_large_version()));
        assert!(not_before(Some("9"), 9).is_ok() && not_before(None, 0).is_ok());
    }

    fn watched(answers: Streaming<WatchResponse>, after: i64) -> EtcdWatch {
        let (source, env) = (source(&Selection::default()), Env::virtual_time(1));
        let (heard, until) = (env.now(), env.now() + TIMEOUT);
        let (bookmarks, over) = (true, false);
        EtcdWatch { source, answers, after, bookmarks, told: VecDeque::new(), heard, until, over }
    }

    fn no_answers() -> Streaming<WatchResponse> {
        use tonic::codec::Codec as _;
        let mut codec = tonic_prost::ProstCodec::<super::wire::WatchRequest, WatchResponse>::default();
        Streaming::new_empty(codec.decoder(), tonic::body::Body::empty())
    }

    #[tokio::test]
    async fn member_that_lags_is_no_backup_that_came_back() {
        let mut watched = watched(no_answers(), 9);
        let created = |revision| {
            let header = Some(super::wire::ResponseHeader { revision });
            WatchResponse { header, created: true, ..WatchResponse::default() }
        };
        assert!(watched.is_behind(&created(8)) && !watched.is_behind(&created(9)));
        watched.compare(9);
        assert!(!watched.over && watched.told.is_empty(), "the majority has it");
        watched.compare(8);
        assert!(watched.over);
        let Some(Frame::Error(status)) = watched.told.pop_front() else { panic!("nothing was told") };
        assert!(RequestError::from_status(*status, None).is_too_large_version());
    }

    #[tokio::test]
    async fn labels_and_fields_are_refused_in_so_many_words() {
        let selection = Selection { labels: Some("a=b".to_owned()), ..Selection::default() };
        let refused = source(&selection).list(ListRequest::default()).await;
        assert_eq!(refused, Err(RequestError::Unsupported("etcd cannot select by labels or fields")));
    }
}
