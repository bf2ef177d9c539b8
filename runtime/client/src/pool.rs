//! A pool of connections to one server.
//!
//! This replaces hyper-util's client for three reasons. A connection is acquired before the request is passed to it
//! ([`Wire`]). Nothing is retried below the fence. The future that waits for the response also drives the connection:
//! no task owns a connection, so dropping that future, or the body of the response, closes the socket immediately.
//!
//! Guarantees:
//! - A connection carries one request at a time, and is reused only after its response has been read to the end.
//! - An idle connection is reused for at most [`IDLE_TIMEOUT`], and only if it is still open and was opened with the
//!   current client certificate.
//! - No byte of a request is written to the socket after its permit has become invalid.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::{
    body::Incoming,
    client::conn::http1::{Connection, SendRequest, handshake},
};
use kube::client::Body;
use tower::BoxError;
use windlass_env::{Env, Instant};

use crate::gated_stream::{Stream, WriteGate};
use crate::stack::{
    BoxedRequest, ResponseBody,
    in_flight::MAX_IN_FLIGHT,
    wire::{Line, SendError, SendPermit, Wire},
};

/// Time that an idle connection is kept: less than the 3 minutes after which servers and load balancers close theirs.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum number of idle connections: as many as the requests of one identity use at the same time. With fewer, each
/// burst of writes opens the others again, at the cost of a TLS handshake.
const MAX_IDLE: usize = MAX_IN_FLIGHT;

/// Establishes byte streams to the server.
pub(crate) trait Dial: Send + Sync {
    fn dial(&self, server: Uri) -> BoxFuture<'static, Result<Box<dyn Stream>, BoxError>>;

    /// Returns the number of the client certificate that the next stream presents.
    fn identity(&self) -> u64 {
        0
    }
}

/// A pool of connections. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Pool {
    env: Env,
    server: Uri,
    dial: Arc<dyn Dial>,
    idle: Arc<Mutex<Vec<IdleConnection>>>,
}

struct IdleConnection {
    connection: PooledConnection,
    since: Instant,
}

/// A connection and the handle that sends requests on it.
struct PooledConnection {
    /// `None` after the connection is closed; waiting futures have been woken.
    driver: Option<Connection<Box<dyn Stream>, Body>>,
    sender: SendRequest<Body>,
    gate: WriteGate,
    identity: u64,
}

impl PooledConnection {
    async fn establish(stream: Box<dyn Stream>, identity: u64) -> Result<Self, BoxError> {
        let gate = stream.gate();
        let (sender, driver) = handshake(stream).await?;
        Ok(Self { driver: Some(driver), sender, gate, identity })
    }

    /// Drives the connection. If the connection closes, a waiting response receives an error.
    fn drive(&mut self, cx: &mut Context<'_>) {
        let ended = self.driver.as_mut().is_some_and(|driver| driver.poll_unpin(cx).is_ready());
        if ended {
            self.driver = None;
        }
    }

    /// Returns whether the connection is open and the previous request is complete.
    fn is_reusable(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        self.driver.is_some() && self.sender.is_ready()
    }
}

impl Pool {
    pub(crate) fn new(env: Env, server: Uri, dial: Arc<dyn Dial>) -> Self {
        Self { env, server, dial, idle: Arc::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the most recently used idle connection.
    fn take(&self, identity: u64) -> Option<PooledConnection> {
        let expired = self.env.now().checked_sub(IDLE_TIMEOUT);
        let mut idle = self.lock();
        idle.retain(|idle| Some(idle.since) > expired && idle.connection.identity == identity);
        idle.pop().map(|idle| idle.connection)
    }

    fn put(&self, connection: PooledConnection) {
        let mut idle = self.lock();
        if idle.len() == MAX_IDLE {
            idle.remove(0);
        }
        idle.push(IdleConnection { connection, since: self.env.now() });
    }

    async fn checkout(self) -> Result<Box<dyn Line>, BoxError> {
        let identity = self.dial.identity();
        while let Some(mut connection) = self.take(identity) {
            if poll_fn(|cx| Poll::Ready(connection.is_reusable(cx))).await {
                return Ok(Box::new(Checkout { connection, pool: self, is_reused: true }));
            }
        }
        let stream = self.dial.dial(self.server.clone()).await?;
        let connection = PooledConnection::establish(stream, identity).await?;
        Ok(Box::new(Checkout { connection, pool: self, is_reused: false }))
    }
}

impl Wire for Pool {
    fn acquire(&self) -> BoxFuture<'static, Result<Box<dyn Line>, BoxError>> {
        self.clone().checkout().boxed()
    }
}

/// A connection that is reserved for one request.
struct Checkout {
    connection: PooledConnection,
    pool: Pool,
    is_reused: bool,
}

impl Line for Checkout {
    fn send(
        self: Box<Self>,
        request: BoxedRequest,
        permit: Option<SendPermit>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, SendError>> {
        self.connection.gate.set(permit);
        self.exchange(request).boxed()
    }
}

impl Checkout {
    async fn exchange(mut self, request: BoxedRequest) -> Result<Response<ResponseBody>, SendError> {
        let request = addressed(*request).map_err(SendError::Failed)?;
        let mut answer = Box::pin(self.connection.sender.try_send_request(request));
        let answer = poll_fn(|cx| {
            self.connection.drive(cx);
            answer.poll_unpin(cx)
        })
        .await;
        match answer {
            Ok(response) => Ok(response.map(|body| PooledBody { body, line: Some(self) }.boxed_unsync())),
            Err(mut error) => Err(match error.take_message() {
                Some(request) => SendError::Unsent {
                    request: self.is_reused.then(|| Box::new(request)),
                    error: error.into_error().into(),
                },
                None => SendError::Failed(error.into_error().into()),
            }),
        }
    }

    /// Returns the connection to the pool, or closes it if it cannot be reused.
    fn release(mut self, cx: &mut Context<'_>) {
        if self.connection.is_reusable(cx) {
            self.pool.put(self.connection);
        }
    }
}

/// Converts a request to its form on the connection: the host is a header, and the URI has no host.
fn addressed(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let uri = std::mem::take(request.uri_mut());
    let host = uri.host().unwrap_or_default();
    let is_default_port =
        matches!((uri.scheme_str(), uri.port_u16()), (Some("https"), Some(443)) | (Some("http"), Some(80)));
    let host = match uri.port_u16().filter(|_| !is_default_port) {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}"))?,
        None => HeaderValue::from_str(host)?,
    };
    request.headers_mut().entry(header::HOST).or_insert(host);
    *request.uri_mut() = uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
    Ok(request)
}

/// The body of a response. Reading it drives the connection.
struct PooledBody {
    body: Incoming,
    line: Option<Checkout>,
}

impl PooledBody {
    fn release(&mut self, cx: &mut Context<'_>) {
        if let Some(line) = self.line.take() {
            line.release(cx);
        }
    }
}

impl HttpBody for PooledBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.body).poll_frame(cx);
        if let (Poll::Pending, Some(line)) = (&frame, &mut this.line) {
            line.connection.drive(cx);
            frame = Pin::new(&mut this.body).poll_frame(cx);
        }
        match &frame {
            Poll::Ready(None) => this.release(cx),
            Poll::Ready(Some(Err(_))) => this.line = None,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Some readers stop after the last frame: a body that was read to the end leaves a reusable connection.
impl Drop for PooledBody {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.release(&mut Context::from_waker(Waker::noop()));
        }
    }
}
