//! The middleware stack that every request passes.
//!
//! From outer to inner: metrics, tags, request options, turn, attached fence, declared verbs, write log, drain, retry
//! after, rate limit, concurrency limit, reachability, timeout, base URI, credentials, extra headers, fence, wire. The
//! fence acquires a connection from the wire before it lets a request pass. The first eight layers belong to one user
//! of the stack; all users of an identity share the other layers. The election's stack has no drain, retry, rate limit
//! or concurrency limit. The informers' stack has no retry: they handle a 429 themselves and report their delay.
//!
//! Credentials are kube's layer for those of the process, or the tokens of a ServiceAccount. They are outside of the
//! fence, because a request that waited for a token must be checked by the fence afterwards.
//!
//! No middleware waits or fails before its future is polled. kube keeps one service behind a queue: a service that is
//! not ready there would block all callers of that client, and one that fails would break it.

pub(crate) mod declared;
pub(crate) mod drain;
pub(crate) mod fence;
pub(crate) mod in_flight;
pub(crate) mod limit;
pub(crate) mod metrics;
pub(crate) mod reconcile_scope;
pub(crate) mod request_options;
pub(crate) mod retry_after;
pub(crate) mod tag;
pub(crate) mod timeout;
pub(crate) mod wire;
pub(crate) mod write_log;

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use http::{Request, Response, Uri, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Collected, Limited, combinators::UnsyncBoxBody};
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt as _};
use windlass_env::Instant;
use windlass_object::request::RequestInfo;

use crate::error::MAX_ERROR_BODY;

/// A request on its way through the layers. Boxed, because each layer stores it in its future: a request by value made
/// the futures of a stack 20 KB large, and the allocator slow.
pub(crate) type BoxedRequest = Box<Request<Body>>;
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type ResponseResult = Result<Response<ResponseBody>, BoxError>;

/// Sends a request to the next layer.
pub(crate) trait Transport: Send + Sync {
    fn send(&self, request: BoxedRequest) -> BoxFuture<'static, ResponseResult>;
}

/// The rest of the stack, as a middleware receives it.
pub(crate) type Next = Arc<dyn Transport>;

/// A layer that handles every request and its response.
pub(crate) trait Middleware: Clone + Send + Sync + 'static {
    fn handle(self, request: BoxedRequest, next: Next) -> impl Future<Output = ResponseResult> + Send;
}

/// Adds a middleware in front of a stack.
pub(crate) fn layer(step: impl Middleware, next: Next) -> Next {
    Arc::new(MiddlewareTransport { step, next })
}

struct MiddlewareTransport<S> {
    step: S,
    next: Next,
}

impl<S: Middleware> Transport for MiddlewareTransport<S> {
    fn send(&self, request: BoxedRequest) -> BoxFuture<'static, ResponseResult> {
        let (step, next) = (self.step.clone(), Arc::clone(&self.next));
        // The middleware starts when polled, not here: its first actions belong to the caller's task.
        async move { step.handle(request, next).await }.boxed()
    }
}

/// Returns the innermost transport for any tower service.
pub(crate) fn over<S, B>(service: S) -> Next
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Arc::new(ServiceTransport(service))
}

struct ServiceTransport<S>(S);

impl<S, B> Transport for ServiceTransport<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn send(&self, request: BoxedRequest) -> BoxFuture<'static, ResponseResult> {
        let service = self.0.clone();
        async move {
            let response = service.oneshot(*request).await.map_err(Into::into)?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
        .boxed()
    }
}

/// Adapts a stack to a tower service, for kube's layers and for `kube::Client`. Always ready.
#[derive(Clone)]
pub(crate) struct StackService(pub(crate) Next);

impl Service<Request<Body>> for StackService {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, ResponseResult>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.send(Box::new(request))
    }
}

/// Time that a server needs to apply a request that it has received, or to stop it when its connection is closed.
/// kube-apiserver cancels such a request immediately; what it has already sent to etcd is applied within milliseconds.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// The state of one request that middlewares share. Stored in the extensions of the request.
#[derive(Clone, Debug)]
pub(crate) struct RequestState(Arc<RequestStateInner>);

#[derive(Debug)]
struct RequestStateInner {
    info: RequestInfo,
    sent: AtomicBool,
    /// The end of the time in which a copy of the request can still arrive and be processed; `None` if the server or
    /// the network has ended the request.
    lingers_until: Mutex<Option<Instant>>,
    wait_nanos: AtomicU64,
}

impl RequestState {
    /// Returns the state of a request. Creates it from the request line if it does not exist yet.
    pub(crate) fn of(request: &mut Request<Body>) -> RequestState {
        if let Some(state) = request.extensions().get::<RequestState>() {
            return state.clone();
        }
        let uri = request.uri();
        let info = RequestInfo::classify(request.method(), uri.path(), uri.query());
        let state = RequestState(Arc::new(RequestStateInner {
            info,
            sent: AtomicBool::new(false),
            lingers_until: Mutex::new(None),
            wait_nanos: AtomicU64::new(0),
        }));
        request.extensions_mut().insert(state.clone());
        state
    }

    pub(crate) fn info(&self) -> &RequestInfo {
        &self.0.info
    }

    /// Records that from now on the server might have received the request. If the client drops it, it can take effect
    /// until `lingers_until`.
    pub(crate) fn mark_sent(&self, lingers_until: Instant) {
        *self.lingers_until() = Some(lingers_until);
        self.0.sent.store(true, Ordering::Relaxed);
    }

    /// Records that the response has arrived or the connection has failed.
    pub(crate) fn mark_ended(&self) {
        *self.lingers_until() = None;
    }

    /// Returns the time from which on the request has taken effect or never will, if it is dropped `now`.
    pub(crate) fn settled_at(&self, now: Instant) -> Instant {
        self.lingers_until().map_or(now, |until| until.max(now)) + SETTLING_TIME
    }

    fn lingers_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lingers_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the server rejected the request, so that it is no longer in flight.
    pub(crate) fn mark_rejected(&self) {
        self.0.sent.store(false, Ordering::Relaxed);
    }

    /// Returns whether the server might have received the request and has not rejected it.
    pub(crate) fn was_sent(&self) -> bool {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Adds to the time that the request waited before it was sent.
    pub(crate) fn add_wait(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.0.wait_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the total time that the request waited: for the rate limiter, for a permit, and after a rejection.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.0.wait_nanos.load(Ordering::Relaxed))
    }
}

/// Returns a body that is complete.
pub(crate) fn full(body: Bytes) -> ResponseBody {
    http_body_util::Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Returns a copy of the request with the same state; `None` if its body is a stream.
pub(crate) fn copy(request: &Request<Body>) -> Option<BoxedRequest> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(Box::new(copy))
}

/// Sets a parameter of the query and replaces an existing one.
pub(crate) fn with_parameter(uri: &Uri, name: &str, value: &str) -> Result<Uri, BoxError> {
    let others = uri.query().into_iter().flat_map(|query| query.split('&'));
    let kept = others.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(name));
    let parameter = format!("{name}={value}");
    let query: Vec<&str> = kept.chain([parameter.as_str()]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{}", uri.path(), query.join("&")))?);
    Ok(Uri::from_parts(parts)?)
}

/// Reads a short response. Fails if the body exceeds the size limit.
///
/// Boxed, because the compiler cannot infer that the future is `Send`.
pub(crate) fn read(body: ResponseBody) -> BoxFuture<'static, Result<Bytes, BoxError>> {
    Limited::new(body, MAX_ERROR_BODY).collect().map_ok(Collected::to_bytes).boxed()
}
