//! The steps every request passes, and how they are put together.
//!
//! From outer to inner: count, tags, request options, turn, fence slot, declared verbs, write log, drain, repeat, limiter,
//! in flight, reachability, deadline, base URI, credentials, extra headers, gate, wire. The gate acquires a connection from
//! the wire before it lets a request leave. The first eight belong to one user of the stack; everything from there inwards
//! is shared by all users of an identity. The election's stack has neither drain nor repeat, limiter or bound. The
//! informers' stack has no repeat: they obey a 429 themselves, so that their waits are known.
//!
//! Credentials are kube's layer for those of the process, or the tokens of a controller's account: outside of the gate,
//! since whoever had to wait for a token must meet the fence after that.
//!
//! No step waits or fails before its future is polled: kube keeps one service behind a queue, and a step that was
//! not ready there would hold up, and one that failed would end, every caller of that client.

pub(crate) mod declared;
pub(crate) mod drain;
pub(crate) mod fence;
pub(crate) mod in_flight;
pub(crate) mod limit;
pub(crate) mod metrics;
pub(crate) mod request_options;
pub(crate) mod retry_after;
pub(crate) mod tag;
pub(crate) mod timeout;
pub(crate) mod turn;
pub(crate) mod wire;
pub(crate) mod write_log;

use std::{
    convert::Infallible,
    sync::{
        Arc,
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
use windlass_object::request::RequestInfo;

use crate::error::MAX_REFUSAL;

pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type ResponseResult = Result<Response<ResponseBody>, BoxError>;

/// What carries a request further inwards.
pub(crate) trait Transport: Send + Sync {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, ResponseResult>;
}

/// The rest of the stack, as one step sees it.
pub(crate) type Next = Arc<dyn Transport>;

/// One step: sees every request on its way in and every answer on its way out.
pub(crate) trait Middleware: Clone + Send + Sync + 'static {
    fn handle(self, request: Request<Body>, next: Next) -> impl Future<Output = ResponseResult> + Send;
}

/// Puts a step before the rest of the stack.
pub(crate) fn before(step: impl Middleware, next: Next) -> Next {
    Arc::new(MiddlewareTransport { step, next })
}

struct MiddlewareTransport<S> {
    step: S,
    next: Next,
}

impl<S: Middleware> Transport for MiddlewareTransport<S> {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, ResponseResult> {
        let (step, next) = (self.step.clone(), Arc::clone(&self.next));
        // The step starts when polled, not here: what it does on starting belongs to the caller's task.
        async move { step.handle(request, next).await }.boxed()
    }
}

/// The innermost part: any tower service.
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
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, ResponseResult> {
        let service = self.0.clone();
        async move {
            let response = service.oneshot(request).await.map_err(Into::into)?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
        .boxed()
    }
}

/// The stack as a tower service, for kube's layers and for `kube::Client`. Always ready.
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
        self.0.send(request)
    }
}

/// What the steps tell one another about one request. Travels in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct RequestState(Arc<NotesInner>);

#[derive(Debug)]
struct NotesInner {
    info: RequestInfo,
    sent: AtomicBool,
    held_back_nanos: AtomicU64,
}

impl RequestState {
    /// The notes of a request; taken again from its line if no step has made any.
    pub(crate) fn of(request: &mut Request<Body>) -> RequestState {
        if let Some(notes) = request.extensions().get::<RequestState>() {
            return notes.clone();
        }
        let uri = request.uri();
        let info = RequestInfo::classify(request.method(), uri.path(), uri.query());
        let notes = RequestState(Arc::new(NotesInner {
            info,
            sent: AtomicBool::new(false),
            held_back_nanos: AtomicU64::new(0),
        }));
        request.extensions_mut().insert(notes.clone());
        notes
    }

    pub(crate) fn info(&self) -> &RequestInfo {
        &self.0.info
    }

    /// Says that from here on the server may have seen the request.
    pub(crate) fn mark_sent(&self) {
        self.0.sent.store(true, Ordering::Relaxed);
    }

    /// Says that the server has turned away what it saw: nothing of the request is under way any more.
    pub(crate) fn mark_refused(&self) {
        self.0.sent.store(false, Ordering::Relaxed);
    }

    /// Whether the server may have seen the request and has not turned it away.
    pub(crate) fn was_sent(&self) -> bool {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Says that the request waited for its turn.
    pub(crate) fn held_back(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.0.held_back_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How long the request waited for its turn, all in all: at the limiter, for a place, after a refusal.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.0.held_back_nanos.load(Ordering::Relaxed))
    }
}

/// A body that is already here.
pub(crate) fn full(body: Bytes) -> ResponseBody {
    http_body_util::Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// The same request once more, with the same notes; `None` if its body is a stream.
pub(crate) fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Sets a parameter of the query; replaces one of that name.
pub(crate) fn with_parameter(uri: &Uri, name: &str, value: &str) -> Result<Uri, BoxError> {
    let others = uri.query().into_iter().flat_map(|query| query.split('&'));
    let kept = others.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(name));
    let parameter = format!("{name}={value}");
    let query: Vec<&str> = kept.chain([parameter.as_str()]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{}", uri.path(), query.join("&")))?);
    Ok(Uri::from_parts(parts)?)
}

/// An answer that is short: of one that is not, no more is read than fits.
///
/// Boxed, since the compiler cannot tell by itself that reading may move between threads.
pub(crate) fn read(body: ResponseBody) -> BoxFuture<'static, Result<Bytes, BoxError>> {
    Limited::new(body, MAX_REFUSAL).collect().map_ok(Collected::to_bytes).boxed()
}
