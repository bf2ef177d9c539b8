//! The listener and its connections: handshake, HTTP, deadlines, shutdown.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, Either};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Sleep, Timer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use windlass_env::Env;
use windlass_metrics::ServingMetrics;

use crate::connections::{Connection, ConnectionPermit, Connections, TrackedSocket};

/// Delay after the operating system failed to accept a connection, usually because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limit of the size of a request head: many times what tokens need. A larger head is answered with 431.
const HEAD: usize = 32 * 1024;

/// Limit of the number of header lines.
const LINES: usize = 64;

/// hyper's buffer of one connection in each direction, including pipelined requests.
const BUFFER: usize = 64 * 1024;

/// Responds to the requests of a server; the address is that of the client. Unread parts of a request body are dropped.
pub type Handler =
    Arc<dyn Fn(Request<Incoming>, IpAddr) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync>;

/// Limits of the connections.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Limit of open connections. Probes and scrapers need only a few. Each has buffers of about 200 KiB, which is 50
    /// MiB in the worst case.
    pub connections: usize,
    /// Time limit of a TLS handshake.
    pub handshake: Duration,
    /// Time limit for receiving a request head, also while a connection is idle between two requests:
    /// controller-runtime's deadline for heads.
    pub head: Duration,
    /// Time after which a connection is closed if the client reads no response data.
    pub stalled: Duration,
    /// Maximum lifetime of a connection. Scrapers reconnect.
    pub whole: Duration,
    /// Time for responses in progress when a connection closes.
    pub closing: Duration,
}

impl Default for Limits {
    /// Returns the limits of a server for probes and scrapers.
    fn default() -> Self {
        Self {
            connections: 256,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            stalled: Duration::from_secs(30),
            whole: Duration::from_secs(300),
            closing: Duration::from_secs(1),
        }
    }
}

/// A server on one listener.
pub struct HttpListener {
    shared: Arc<Shared>,
    connections: Connections,
}

/// State shared by all connections.
struct Shared {
    env: Env,
    handler: Handler,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
    limits: Limits,
}

impl HttpListener {
    /// Creates a server that has not started. `stop` stops it. Without `tls` it serves plain HTTP.
    pub fn new(
        env: &Env,
        handler: Handler,
        tls: Option<Arc<ServerConfig>>,
        stop: CancellationToken,
        limits: Limits,
        metrics: ServingMetrics,
    ) -> Self {
        let connections = Connections::new(env.clone(), limits.connections, metrics);
        let tls = tls.map(TlsAcceptor::from);
        Self { shared: Arc::new(Shared { env: env.clone(), handler, tls, stop, limits }), connections }
    }

    /// Accepts connections until the stop, then waits until all have ended, each within [`Limits::closing`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener; open connections end after the stop.
    pub async fn run(self, listener: TcpListener) {
        let Self { shared, connections } = self;
        // The listener is dropped with this future on stop.
        let accepting = accept(&shared, &connections, listener);
        shared.stop.run_until_cancelled(accepting).await;
        connections.ended().await;
    }
}

/// Accepts connections; never returns.
async fn accept(shared: &Arc<Shared>, connections: &Connections, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => admit(shared, connections, socket, peer).await,
            Err(error) => {
                tracing::debug!(%error, "accepting a connection failed");
                // The process might be out of file descriptors.
                connections.close_one();
                shared.env.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn admit(shared: &Arc<Shared>, connections: &Connections, socket: TcpStream, peer: SocketAddr) {
    // Without a permit the socket is closed: all connections have requests in progress.
    let Some(permit) = connections.acquire(peer.ip().to_canonical()).await else { return };
    let shared = Arc::clone(shared);
    let env = shared.env.clone();
    // The handle is not needed: the permit reports when the connection has ended.
    drop(env.spawn("server connection", async move {
        if let Err(error) = keep(&shared, socket, &permit).await {
            tracing::debug!(%error, "connection failed");
        }
    }));
}

/// Serves one connection from its handshake until its end, or until it is closed because of the limit.
async fn keep(shared: &Arc<Shared>, socket: TcpStream, permit: &ConnectionPermit) -> Result<(), BoxError> {
    let shed = pin!(permit.connection.shed.cancelled());
    let served = pin!(served(shared, socket, &permit.connection));
    match future::select(shed, served).await {
        Either::Left(_) => Ok(()),
        Either::Right((ended, _)) => ended,
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn served(
    shared: &Arc<Shared>,
    socket: TcpStream,
    connection: &Arc<Connection>,
) -> Result<(), BoxError> {
    // A response is one write, or the last of several writes would be delayed.
    socket.set_nodelay(true)?;
    let Some(tls) = &shared.tls else {
        let socket = TrackedSocket::new(socket, Arc::clone(connection), shared.limits.stalled);
        return serve(shared, socket, connection).await;
    };
    let handshaken = shared.env.timeout(shared.limits.handshake, handshake(shared, tls, socket, connection));
    let stopped = pin!(shared.stop.cancelled());
    let secured = match future::select(stopped, pin!(handshaken)).await {
        Either::Left(_) => return Ok(()),
        Either::Right((handshaken, _)) => handshaken??,
    };
    match secured {
        Some(secured) => serve(shared, secured, connection).await,
        None => Ok(()),
    }
}

type Secure = tokio_rustls::server::TlsStream<TrackedSocket<TcpStream>>;

/// Returns `None` for a client that speaks plain HTTP, after an error response.
async fn handshake(
    shared: &Shared,
    tls: &TlsAcceptor,
    mut socket: TcpStream,
    connection: &Arc<Connection>,
) -> io::Result<Option<Secure>> {
    let mut first = [0];
    if socket.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        let line = "this server requires HTTPS; use https://\n";
        let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close";
        socket
            .write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{line}", line.len()).as_bytes())
            .await?;
        socket.shutdown().await?;
        return Ok(None);
    }
    let watched = TrackedSocket::new(socket, Arc::clone(connection), shared.limits.stalled);
    tls.accept(watched).await.map(Some)
}

async fn serve<S>(shared: &Arc<Shared>, socket: S, connection: &Arc<Connection>) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut http = http1::Builder::new();
    http.timer(EnvTimer(shared.env.clone())).header_read_timeout(shared.limits.head);
    http.max_header_size(HEAD).max_headers(LINES).max_buf_size(BUFFER);
    let (to, over) = (Arc::clone(shared), Arc::clone(connection));
    let answer = service_fn(move |request| answer(Arc::clone(&to), Arc::clone(&over), request));
    let mut serving = pin!(http.serve_connection(TokioIo::new(socket), answer));
    match future::select(pin!(time_to_leave(shared)), serving.as_mut()).await {
        Either::Right((ended, _)) => Ok(ended?),
        Either::Left(_) => {
            serving.as_mut().graceful_shutdown();
            Ok(shared.env.timeout(shared.limits.closing, serving.as_mut()).await.unwrap_or(Ok(()))?)
        }
    }
}

/// Waits until the server stops or the connection has reached its maximum lifetime.
async fn time_to_leave(shared: &Shared) {
    let _either = shared.env.timeout(shared.limits.whole, shared.stop.cancelled()).await;
}

async fn answer(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let _answering = connection.answering();
    Ok((shared.handler)(request, connection.peer).await)
}

impl fmt::Debug for HttpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpListener").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

/// A timer for hyper, based on the environment's clock.
#[derive(Clone, Debug)]
struct EnvTimer(Env);

/// A sleep on the environment's clock. The mutex only provides `Sync`: it is accessed without locking.
struct EnvSleep(Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Timer for EnvTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(EnvSleep(Mutex::new(Box::pin(self.0.sleep(duration)))))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}

impl Future for EnvSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx)
    }
}

impl Sleep for EnvSleep {}
