//! Tells a worker what it wrote, so that it never again acts on a cache from before its own writes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde::de::IgnoredAny;
use windlass_object::request::{ResourceRequest, parameter};
use windlass_object::{GroupResource, ObjectHeader, ObjectKey, ResourceVersion, Uid, Verb, wire};

use super::{Middleware, Next, RequestState, ResponseBody, ResponseResult, full};

/// Told of every write of one worker, as its answer comes in.
pub trait WriteLog: Send + Sync + fmt::Debug + 'static {
    /// Returns what the worker's caches contain of the target, before the write is sent. The default knows of no caches.
    fn cached(&self, target: &WriteTarget) -> CacheState {
        let _target = target;
        CacheState::default()
    }

    /// The write took effect.
    fn wrote(&self, write: Write);

    /// The write may or may not have taken effect: it timed out, was cancelled under way, or failed in the server.
    /// Only a consistent read can tell.
    fn ambiguous(&self, target: WriteTarget);
}

/// What a write was about, known before it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTarget {
    /// What was to be done.
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
    /// What it was about.
    pub target: WriteTarget,
    /// The object's key: from the answer, or else from the request.
    pub key: Option<ObjectKey>,
    /// The object's identity.
    pub uid: Option<Uid>,
    /// The version it now has. `None` when the answer carries none, as for an object that is gone at once.
    pub version: Option<ResourceVersion>,
    /// Whether an update removed the last finalizer of an object that is being deleted, and so the object. The version is then
    /// the one that the object had before.
    pub is_removed: bool,
    /// The result of [`WriteLog::cached`] before the write was sent.
    pub cached: CacheState,
}

/// The caches of a write's target before the write is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Their newest version. The write gets a later version, unless the server was restored to an older state. `None` if
    /// there is no cache.
    pub version: Option<ResourceVersion>,
    /// The UID of the object that the target names, if all of them contain it.
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

/// The writes of some clients that are under way. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct OpenWrites {
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    targets: BTreeMap<u64, WriteTarget>,
}

/// One of them, until it is dropped.
struct Entry {
    writes: OpenWrites,
    number: u64,
}

impl OpenWrites {
    /// What they are about, in the order in which they began.
    pub fn targets(&self) -> Vec<WriteTarget> {
        self.lock().targets.values().cloned().collect()
    }

    fn enter(&self, target: WriteTarget) -> Entry {
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.targets.insert(number, target);
        Entry { writes: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.writes.lock().targets.remove(&self.number);
    }
}

#[derive(Clone)]
pub(crate) struct WriteLogMiddleware {
    pub(crate) log: Arc<dyn WriteLog>,
    pub(crate) open: OpenWrites,
}

impl Middleware for WriteLogMiddleware {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        let Some(about) = notes.info().resource().filter(|about| has_effect(about, request.uri().query()))
        else {
            return next.send(request).await;
        };
        let target = WriteTarget::of(about);
        let cached = self.log.cached(&target);
        let _entry = self.open.enter(target.clone());
        let mut open = PendingWrite { log: self.log, target: Some(target), cached, notes: notes.clone() };
        let response = next.send(request).await?;
        open.answered(response).await
    }
}

fn has_effect(about: &ResourceRequest, query: Option<&str>) -> bool {
    about.verb.is_mutating() && parameter(query, "dryRun").is_none()
}

/// A write whose outcome is not known. Dropped as such, it is ambiguous, unless it was never sent.
struct PendingWrite {
    log: Arc<dyn WriteLog>,
    /// Taken when the outcome is known.
    target: Option<WriteTarget>,
    cached: CacheState,
    notes: RequestState,
}

impl PendingWrite {
    async fn answered(&mut self, response: Response<ResponseBody>) -> ResponseResult {
        match WriteOutcome::of(response.status()) {
            WriteOutcome::Refused => {
                self.target = None;
                Ok(response)
            }
            WriteOutcome::Unknown => Ok(response),
            WriteOutcome::Done => self.done(response).await,
        }
    }

    /// Reads the answer, which is a single object and short, and passes on a copy. Collections are passed unread:
    /// their answer is long, and names no one version to wait for.
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
        if let Some(target) = self.target.take().filter(|_| self.notes.was_sent()) {
            self.log.ambiguous(target);
        }
    }
}

enum WriteOutcome {
    Done,
    Refused,
    Unknown,
}

impl WriteOutcome {
    fn of(status: StatusCode) -> Self {
        if status.is_success() {
            WriteOutcome::Done
        } else if status.is_server_error() {
            WriteOutcome::Unknown
        } else {
            WriteOutcome::Refused
        }
    }
}

#[derive(Default)]
struct WriteResponse {
    key: Option<ObjectKey>,
    uid: Option<Uid>,
    version: Option<ResourceVersion>,
}

/// What an answer says about the object written; `None` when it cannot be read.
fn written(body: &Bytes) -> Option<WriteResponse> {
    if let Ok(ObjectHeader { key, uid, version }) = wire::object_header(body) {
        return Some(WriteResponse { key: Some(key), uid, version });
    }
    // A Status stands for an object that is gone, or for one that was acted on through a subresource.
    let status: StatusBody = serde_json::from_slice(body).ok()?;
    (status.kind == "Status")
        .then(|| WriteResponse { uid: status.details.uid.map(Into::into), ..WriteResponse::default() })
}

/// Whether an update removed the object. The API server decides by the same fields, apart from the finalizers in the spec of
/// a Namespace.
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
