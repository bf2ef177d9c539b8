//! The last step before the wire: nothing leaves a killed environment, and no write leaves without the fence.
//!
//! Which fence that is may differ from request to request: a process can lead in some things and not in others. Whoever
//! sends says so with a [`FenceSlot`], whose fence is noted on the request as it sets out and asked here, at the end.

use std::{
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use futures_util::future::{BoxFuture, Either, FutureExt as _, pending, select};
use http::{Request, Uri, uri::PathAndQuery};
use kube::client::Body;
use tower::BoxError;
use windlass_env::{Env, Instant};
use windlass_object::Verb;
use windlass_object::request::{RequestInfo, ResourceRequest};

use super::{Answer, Next, Notes, Step};

/// Whether writes may leave: held by whoever knows about leadership.
pub trait Fence: Send + Sync + fmt::Debug + 'static {
    /// Whether a write may leave now, and until when it must have been answered.
    fn state(&self) -> FenceState;

    /// Resolves when the fence is no longer open; writes under way are dropped then. Renewals move the deadline
    /// and do not resolve it. Never resolves for a fence that never closes.
    fn closed(&self) -> BoxFuture<'static, ()>;
}

/// What a [`Fence`] says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// There is no election: writes leave without a deadline of the fence's.
    Open,
    /// Writes may leave, and must not take effect after this point.
    Until(Instant),
    /// No write may leave.
    Closed,
}

/// The fence of a process without leader election: open for ever.
#[derive(Copy, Clone, Debug, Default)]
pub struct OpenFence;

impl Fence for OpenFence {
    fn state(&self) -> FenceState {
        FenceState::Open
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

/// The fence that requests set out with from now on. Clones are one slot.
///
/// A request keeps the fence that it set out with, however long it waits for its turn: a worker that turns to work under
/// another fence does not take with it what it has left behind.
#[derive(Clone, Debug)]
pub struct FenceSlot(Arc<Mutex<Arc<dyn Fence>>>);

impl FenceSlot {
    /// A slot that holds `fence`.
    pub fn new(fence: Arc<dyn Fence>) -> Self {
        Self(Arc::new(Mutex::new(fence)))
    }

    /// Puts another fence in its place, for requests that set out after this.
    pub fn set(&self, fence: Arc<dyn Fence>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fence;
    }

    /// The fence in it.
    pub fn get(&self) -> Arc<dyn Fence> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Has requests set out with the fence of a slot.
#[derive(Clone)]
pub(crate) struct Behind(pub(crate) FenceSlot);

/// The fence that a request set out with, on its way to the gate.
#[derive(Clone)]
struct Under(Arc<dyn Fence>);

impl Step for Behind {
    async fn handle(self, mut request: Request<Body>, next: Next) -> Answer {
        request.extensions_mut().insert(Under(self.0.get()));
        next.send(request).await
    }
}

/// A write that the fence held back.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FencedError {
    /// Leadership is not held, or about to end: the write was not sent.
    #[error("not sent: leadership is not held")]
    NotSent,
    /// Leadership ended while the write was under way: it may have taken effect.
    #[error("dropped while under way: leadership was lost")]
    Interrupted,
}

/// The environment was killed: a process that is no more sends nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the environment was killed")]
pub struct KilledError;

/// With less than this left before the fence closes, nothing is sent: the request could not be answered in time.
const LEAST_REMAINING: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) env: Env,
    /// For requests that set out with none of their own; `None` for clients that are not fenced at all.
    pub(crate) fence: Option<Arc<dyn Fence>>,
    pub(crate) request_timeout: Duration,
}

impl Step for Gate {
    async fn handle(self, mut request: Request<Body>, next: Next) -> Answer {
        if !self.env.alive() {
            return Err(KilledError.into());
        }
        let notes = Notes::of(&mut request);
        let under = request.extensions_mut().remove::<Under>().map(|Under(fence)| fence);
        let fence = self.fence.clone().map(|of_all| under.unwrap_or(of_all));
        match fence {
            Some(fence) if is_fenced(notes.info()) => self.fenced(&fence, request, notes, next).await,
            _ => pass(request, &notes, &next).await,
        }
    }
}

impl Gate {
    async fn fenced(
        &self,
        fence: &Arc<dyn Fence>,
        request: Request<Body>,
        notes: Notes,
        next: Next,
    ) -> Answer {
        let request = match fence.state() {
            FenceState::Open => return pass(request, &notes, &next).await,
            FenceState::Closed => return Err(FencedError::NotSent.into()),
            FenceState::Until(deadline) => self.bounded(request, deadline)?,
        };
        let mut answer = pass(request, &notes, &next).boxed();
        // Timers may not run while a machine sleeps, and the clock does: on waking, the answer may be there before the
        // fence's own timer fires. So the fence is asked again at every step of the way.
        let watched = poll_fn(|cx| {
            if self.is_over(fence.as_ref()) {
                return Poll::Ready(None);
            }
            answer.poll_unpin(cx).map(Some)
        });
        // The fence is asked first: once it has closed, an answer that arrives with it comes too late to be acted on.
        match select(fence.closed(), watched).await {
            Either::Right((Some(answer), _)) => answer,
            Either::Left(_) | Either::Right((None, _)) if notes.was_sent() => {
                Err(FencedError::Interrupted.into())
            }
            Either::Left(_) | Either::Right((None, _)) => Err(FencedError::NotSent.into()),
        }
    }

    fn is_over(&self, fence: &dyn Fence) -> bool {
        match fence.state() {
            FenceState::Open => false,
            FenceState::Until(deadline) => self.env.now() >= deadline,
            FenceState::Closed => true,
        }
    }

    /// Tells the server to give up when the fence will have closed.
    fn bounded(&self, mut request: Request<Body>, deadline: Instant) -> Result<Request<Body>, BoxError> {
        let remaining = deadline.saturating_duration_since(self.env.now());
        if remaining < LEAST_REMAINING {
            return Err(FencedError::NotSent.into());
        }
        *request.uri_mut() = with_timeout(request.uri(), remaining.min(self.request_timeout))?;
        Ok(request)
    }
}

async fn pass(request: Request<Body>, notes: &Notes, next: &Next) -> Answer {
    notes.mark_sent();
    next.send(request).await
}

/// Reads pass, and so do writes that must work without leadership.
fn is_fenced(info: &RequestInfo) -> bool {
    info.is_mutating() && !info.resource().is_some_and(is_exempt)
}

/// Writes that gain, prove or ask for something without changing what controllers control.
fn is_exempt(request: &ResourceRequest) -> bool {
    let ResourceRequest { verb, path } = request;
    match (path.group.as_str(), path.resource.as_str()) {
        ("coordination.k8s.io", "leases" | "leasecandidates") => true,
        ("", "serviceaccounts") => path.subresource.as_deref() == Some("token"),
        ("authentication.k8s.io", "tokenreviews" | "selfsubjectreviews") => *verb == Verb::Create,
        (
            "authorization.k8s.io",
            "subjectaccessreviews"
            | "localsubjectaccessreviews"
            | "selfsubjectaccessreviews"
            | "selfsubjectrulesreviews",
        ) => *verb == Verb::Create,
        _ => false,
    }
}

/// Replaces the `timeout` parameter. The server reads a Go duration, and takes zero for "no limit": never that.
fn with_timeout(uri: &Uri, within: Duration) -> Result<Uri, BoxError> {
    let others = uri.query().into_iter().flat_map(|query| query.split('&'));
    let kept = others.filter(|pair| !pair.is_empty() && *pair != "timeout" && !pair.starts_with("timeout="));
    let timeout = format!("timeout={}ms", within.as_millis().max(1));
    let query: Vec<&str> = kept.chain([timeout.as_str()]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{}", uri.path(), query.join("&")))?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn fenced(method: Method, path: &str) -> bool {
        is_fenced(&RequestInfo::classify(&method, path, None))
    }

    #[test]
    fn writes_are_fenced_and_reads_are_not() {
        assert!(!fenced(Method::GET, "/api/v1/pods"));
        assert!(!fenced(Method::GET, "/healthz"));
        assert!(fenced(Method::POST, "/api/v1/namespaces/web/pods"));
        assert!(fenced(Method::PATCH, "/apis/apps/v1/namespaces/web/replicasets/a/status"));
        assert!(fenced(Method::DELETE, "/api/v1/namespaces/web/pods"));
        assert!(fenced(Method::POST, "/unheard/of"));
    }

    #[test]
    fn what_must_work_without_leadership_is_exempt_by_type() {
        assert!(!fenced(Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass"));
        assert!(!fenced(
            Method::POST,
            "/apis/coordination.k8s.io/v1beta1/namespaces/kube-system/leasecandidates"
        ));
        assert!(!fenced(Method::POST, "/api/v1/namespaces/web/serviceaccounts/a/token"));
        assert!(fenced(Method::POST, "/api/v1/namespaces/web/serviceaccounts"));
        assert!(!fenced(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews"));
        assert!(!fenced(Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews"));
        assert!(
            fenced(Method::POST, "/apis/example.com/v1/namespaces/web/leases"),
            "only the API's own Lease"
        );
    }

    #[test]
    fn the_timeout_joins_or_replaces_what_is_in_the_query() {
        let rewrite =
            |uri: &str| with_timeout(&uri.parse().unwrap(), Duration::from_millis(1500)).unwrap().to_string();
        assert_eq!(rewrite("http://h/p"), "http://h/p?timeout=1500ms");
        assert_eq!(rewrite("http://h/p?"), "http://h/p?timeout=1500ms");
        assert_eq!(rewrite("http://h/p?dryRun=All"), "http://h/p?dryRun=All&timeout=1500ms");
        assert_eq!(rewrite("/p?timeout=300s&a=b&timeout"), "/p?a=b&timeout=1500ms");
        assert_eq!(rewrite("/p?timeoutSeconds=5"), "/p?timeoutSeconds=5&timeout=1500ms");
    }

    #[test]
    fn the_timeout_is_never_zero() {
        let uri = with_timeout(&"/p".parse().unwrap(), Duration::from_nanos(1)).unwrap();
        assert_eq!(uri, "/p?timeout=1ms");
    }
}
