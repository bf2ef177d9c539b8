//! The listener and its connections: handshake, HTTP, deadlines, the end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{self, Either};
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
use windlass_metrics::AdminMetrics;

use crate::connections::{Connection, ConnectionPermit, Connections, TrackedSocket};
use crate::service::AdminService;

/// How long to wait after the operating system refused to accept a connection, which mostly means that it has no file
/// descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long answers that are under way may take when a connection is to close.
const CLOSING: Duration = Duration::from_secs(1);

/// How large the head of a request may be: many times what tokens need. More is answered with 431.
const HEAD: usize = 32 * 1024;

/// How many header lines it may have.
const LINES: usize = 64;

/// What hyper holds of one connection in each direction, pipelined requests included.
const BUFFER: usize = 64 * 1024;

/// What one connection costs at most.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// How many connections are open at once. Probes and scrapers need a handful; with the buffers of one, about 200 KiB,
    /// these come to 50 MiB at worst.
    pub(crate) connections: usize,
    /// How long a TLS handshake may take.
    pub(crate) handshake: Duration,
    /// How long a client may take to send its request's head, and how long it may be silent between two:
    /// controller-runtime's deadline for heads.
    pub(crate) head: Duration,
    /// How long a reader may take nothing of its answer.
    pub(crate) stalled: Duration,
    /// How long one connection is kept. Scrapers come back.
    pub(crate) whole: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            stalled: Duration::from_secs(30),
            whole: Duration::from_secs(300),
        }
    }
}

/// What listens.
pub(crate) struct HttpListener {
    shared: Arc<Shared>,
    connections: Connections,
}

/// What every connection needs.
struct Shared {
    env: Env,
    site: Arc<AdminService>,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
    limits: Limits,
}

impl HttpListener {
    pub(crate) fn new(
        env: &Env,
        site: Arc<AdminService>,
        tls: Option<Arc<ServerConfig>>,
        stop: CancellationToken,
        limits: Limits,
        metrics: AdminMetrics,
    ) -> Self {
        let connections = Connections::new(env.clone(), limits.connections, metrics);
        let tls = tls.map(TlsAcceptor::from);
        Self { shared: Arc::new(Shared { env: env.clone(), site, tls, stop, limits }), connections }
    }

    /// Accepts until the stop, then waits until every connection has ended, which each does within [`CLOSING`].
    pub(crate) async fn run(self, listener: TcpListener) {
        let Self { shared, connections } = self;
        // Ends with the stop, and the listener with it.
        let accepting = accept(&shared, &connections, listener);
        shared.stop.run_until_cancelled(accepting).await;
        connections.ended().await;
    }
}

/// Lets in whoever comes; never ends.
async fn accept(shared: &Arc<Shared>, connections: &Connections, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => let_in(shared, connections, socket, peer).await,
            Err(error) => {
                tracing::debug!(%error, "no connection could be accepted");
                // A file descriptor may be what is lacking.
                connections.shed_one();
                shared.env.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn let_in(shared: &Arc<Shared>, connections: &Connections, socket: TcpStream, peer: SocketAddr) {
    // With none to be had the socket is closed: every place is being answered.
    let Some(place) = connections.place(peer.ip().to_canonical()).await else { return };
    let shared = Arc::clone(shared);
    let env = shared.env.clone();
    // The handle is not needed: the place tells when the connection has ended.
    drop(env.spawn("admin connection", async move {
        if let Err(error) = keep(&shared, socket, &place).await {
            tracing::debug!(%error, "an admin connection ended badly");
        }
    }));
}

/// One connection from its handshake to its end, or until it is to make room.
async fn keep(shared: &Arc<Shared>, socket: TcpStream, place: &ConnectionPermit) -> Result<(), BoxError> {
    let shed = pin!(place.connection.shed.cancelled());
    let served = pin!(served(shared, socket, &place.connection));
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
    // An answer is one write, or the last of several waits for nothing.
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

/// None for a client that speaks plain HTTP, which is told so.
async fn handshake(
    shared: &Shared,
    tls: &TlsAcceptor,
    mut socket: TcpStream,
    connection: &Arc<Connection>,
) -> io::Result<Option<Secure>> {
    let mut first = [0];
    if socket.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        let line = "this server speaks HTTPS: ask for https://\n";
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
            Ok(shared.env.timeout(CLOSING, serving.as_mut()).await.unwrap_or(Ok(()))?)
        }
    }
}

/// When the server stops, or the connection has been kept for long enough.
async fn time_to_leave(shared: &Shared) {
    let _either = shared.env.timeout(shared.limits.whole, shared.stop.cancelled()).await;
}

async fn answer(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    request: http::Request<Incoming>,
) -> Result<http::Response<http_body_util::Full<bytes::Bytes>>, Infallible> {
    let _answering = connection.answering();
    Ok(shared.site.respond(request, connection.peer).await)
}

/// hyper's timers, on the environment's.
#[derive(Clone, Debug)]
struct EnvTimer(Env);

/// A sleep of the environment's. The lock is never taken: it makes shareable what is only ever polled by one.
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
