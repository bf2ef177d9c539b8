//! Notifies a worker of its writes, so that it does not act on a cache older than its last write.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use windlass_env::{Env, Instant};
use windlass_object::request::{ResourceRequest, parameter};
use windlass_object::{GroupResource, ObjectHeader, ObjectKey, ResourceVersion, Uid, Verb, wire};

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseBody, ResponseResult, full};

/// Receives every write of one worker when its response arrives.
pub trait WriteLog: Send + Sync + fmt::Debug + 'static {
    /// Returns the state of the worker's caches for the target, before the write is sent. The default implementation
    /// has no caches.
    fn cached(&self, target: &WriteTarget) -> CacheState {
        let _target = target;
        CacheState::default()
    }

    /// Records a write that took effect.
    fn wrote(&self, write: Write);

    /// Records a write with an unknown outcome: it timed out, was canceled in flight, or failed in the server. From
    /// `settled_at` on it has taken effect or never will: a consistent read that begins then shows the outcome.
    fn ambiguous(&self, target: WriteTarget, settled_at: Instant);
}

/// The target of a write, known before the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTarget {
    /// The verb.
    pub verb: Verb,
    /// Group and resource.
    pub resource: GroupResource,
    /// The subresource.
    pub subresource: Option<String>,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name; `None` for creates and for collections.
    pub name: Option<String>,
}

/// A write that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The target.
    pub target: WriteTarget,
    /// The object's key, from the response or else from the request.
    pub key: Option<ObjectKey>,
    /// The object's UID.
    pub uid: Option<Uid>,
    /// The object's new version. `None` if the response contains none, for example if the object was deleted
    /// immediately.
    pub version: Option<ResourceVersion>,
    /// Whether an update removed the last finalizer of a terminating object, so that the object was deleted. The
    /// version is then the object's previous version.
    pub is_removed: bool,
    /// The result of [`WriteLog::cached`] before the write was sent.
    pub cached: CacheState,
}

/// The state of the caches of a write's target before the write is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// The newest version of these caches. The write gets a later version, unless the server was restored to an older
    /// state. `None` if there is no cache.
    pub version: Option<ResourceVersion>,
    /// The UID of the target object, if all caches contain it.
    pub uid: Option<Uid>,
}

impl WriteTarget {
    fn of(ResourceRequest { verb, path }: &ResourceRequest) -> Self {
        Self {
            verb: *verb,
            resource: path.group_resource(),
            subresource: path.subresource.clone(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
        }
    }

    fn key(&self) -> Option<ObjectKey> {
        self.name.as_deref().map(|name| ObjectKey::new(self.namespace.as_deref(), name))
    }
}

/// The writes in flight of some clients. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenWrites {
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    writes: BTreeMap<u64, (WriteTarget, RequestState)>,
}

/// One write in flight, registered until it is dropped.
struct Entry {
    writes: OpenWrites,
    number: u64,
}

impl OpenWrites {
    /// Returns the targets, in the order in which the writes started, each with the time from which on the write has
    /// taken effect or never will, if it is dropped `now`.
    pub fn dropped(&self, now: Instant) -> Vec<(WriteTarget, Instant)> {
        let open = self.lock();
        open.writes.values().map(|(target, state)| (target.clone(), state.settled_at(now))).collect()
    }

    fn enter(&self, target: WriteTarget, state: RequestState) -> Entry {
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.writes.insert(number, (target, state));
        Entry { writes: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.writes.lock().writes.remove(&self.number);
    }
}

#[derive(Clone)]
pub(crate) struct WriteLogMiddleware {
    pub(crate) env: Env,
    pub(crate) log: Arc<dyn WriteLog>,
    pub(crate) open: OpenWrites,
}

impl Middleware for WriteLogMiddleware {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        let Some(about) = state.info().resource().filter(|about| has_effect(about, request.uri().query()))
        else {
            return next.send(request).await;
        };
        let target = WriteTarget::of(about);
        let cached = self.log.cached(&target);
        let _entry = self.open.enter(target.clone(), state.clone());
        let mut open =
            PendingWrite { env: self.env, log: self.log, target: Some(target), cached, state: state.clone() };
        let response = next.send(request).await?;
        open.answered(response).await
    }
}

fn has_effect(about: &ResourceRequest, query: Option<&str>) -> bool {
    about.verb.is_mutating() && parameter(query, "dryRun").is_none()
}

/// A write with an unknown outcome. If it is dropped, it is ambiguous, unless it was never sent.
struct PendingWrite {
    env: Env,
    log: Arc<dyn WriteLog>,
    /// `None` after the outcome is known.
    target: Option<WriteTarget>,
    cached: CacheState,
    state: RequestState,
}

impl PendingWrite {
    async fn answered(&mut self, response: Response<ResponseBody>) -> ResponseResult {
        match WriteOutcome::of(response.status()) {
            WriteOutcome::Rejected => {
                self.target = None;
                Ok(response)
            }
            WriteOutcome::Unknown => Ok(response),
            WriteOutcome::Done => self.done(response).await,
        }
    }

    /// Reads the response, which is a single short object, and returns a copy. Responses for collections are not read:
    /// they are long and contain no single version to wait for.
    async fn done(&mut self, response: Response<ResponseBody>) -> ResponseResult {
        if self.target.as_ref().is_some_and(|target| target.verb == Verb::DeleteCollection) {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        if let Some(written) = written(&body) {
            let is_removed = self.target.as_ref().is_some_and(|target| is_removed(target, &body));
            self.record(written, is_removed);
        }
        Ok(Response::from_parts(parts, full(body)))
    }

    fn record(&mut self, written: WriteResponse, is_removed: bool) {
        let Some(target) = self.target.take() else { return };
        let WriteResponse { key, uid, version } = written;
        let cached = std::mem::take(&mut self.cached);
        let key = key.or_else(|| target.key());
        self.log.wrote(Write { key, uid, version, is_removed, cached, target });
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        if let Some(target) = self.target.take().filter(|_| self.state.was_sent()) {
            self.log.ambiguous(target, self.state.settled_at(self.env.now()));
        }
    }
}

enum WriteOutcome {
    Done,
    Rejected,
    Unknown,
}

impl WriteOutcome {
    fn of(status: StatusCode) -> Self {
        if status.is_success() {
            WriteOutcome::Done
        } else if status.is_server_error() {
            WriteOutcome::Unknown
        } else {
            WriteOutcome::Rejected
        }
    }
}

#[derive(Default)]
struct WriteResponse {
    key: Option<ObjectKey>,
    uid: Option<Uid>,
    version: Option<ResourceVersion>,
}

/// Parses the response of a write; `None` if it cannot be parsed.
fn written(body: &Bytes) -> Option<WriteResponse> {
    if let Ok(ObjectHeader { key, uid, version }) = wire::object_header(body) {
        return Some(WriteResponse { key: Some(key), uid, version });
    }
    // A `Status` is returned for a deleted object, or for an action through a subresource.
    let status: StatusBody = serde_json::from_slice(body).ok()?;
    (status.kind == "Status")
        .then(|| WriteResponse { uid: status.details.uid.map(Into::into), ..WriteResponse::default() })
}

/// Returns whether an update removed the object. The API server uses the same fields for this, apart from the
/// finalizers in the spec of a Namespace.
fn is_removed(target: &WriteTarget, body: &[u8]) -> bool {
    let is_update = matches!(target.verb, Verb::Update | Verb::Patch);
    is_update
        && target.resource != GroupResource::new("", "namespaces")
        && serde_json::from_slice(body).is_ok_and(|Deleted { metadata }| {
            metadata.deletion_grace_period_seconds == Some(0) && metadata.finalizers.is_empty()
        })
}

#[derive(Deserialize)]
struct Deleted {
    metadata: DeletedMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletedMeta {
    deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    finalizers: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct StatusBody {
    kind: String,
    #[serde(default)]
    details: StatusDetails,
}

#[derive(Default, Deserialize)]
struct StatusDetails {
    uid: Option<String>,
}
