//! Health and metrics over HTTP, for probes and scrapers.
//!
//! Plain HTTP/1.1 on an address that the operator chooses. A slow or silent client costs one of a bounded number of
//! connections, and only until its header deadline; it never delays another answer.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, Either};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use windlass_env::{Env, Task};
use windlass_metrics::Metrics;

use crate::error::ManagerError;
use crate::health::{Health, Probe, Report};

/// How many connections are served at once. Probes and scrapers need a handful.
const CONNECTIONS: usize = 64;

/// How long a client may take to send its request's head, on a new connection and between two requests.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);

/// How long one connection is kept. Scrapers come back; whoever never reads its answer does not stay.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(300);

/// How long answers that are under way may take when a connection is to close.
const CLOSING: Duration = Duration::from_secs(1);

/// How long to wait after the operating system refused to accept a connection, which mostly means it has no file
/// descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What media type Prometheus expects of its text format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A server of health and metrics that listens.
pub struct AdminServer {
    address: SocketAddr,
    stop: CancellationToken,
    task: Task<()>,
}

/// What is served.
#[derive(Clone)]
struct Site {
    env: Env,
    metrics: Metrics,
    health: Health,
    stop: CancellationToken,
}

impl AdminServer {
    /// Listens on `address` and serves from now on.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(
        env: &Env,
        address: SocketAddr,
        metrics: Metrics,
        health: Health,
    ) -> Result<Self, ManagerError> {
        let bound = |source| ManagerError::AdminBind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        let stop = CancellationToken::new();
        let site = Site { env: env.clone(), metrics, health, stop: stop.clone() };
        let task = env.spawn("admin server", accept(listener, site));
        tracing::info!(%address, "serving health and metrics");
        Ok(Self { address, stop, task })
    }

    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening; answers under way get a second to end.
    pub async fn stop(self) {
        self.stop.cancel();
        // How it ended is no matter here: a panic has been logged under the task's name.
        let _ended = self.task.await;
    }
}

impl fmt::Debug for AdminServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Accepts until the stop, then waits until every connection has ended, which each does within [`CLOSING`].
async fn accept(listener: TcpListener, site: Site) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some((connection, place)) = next_connection(&listener, &places, &site).await {
        let serving = serve(connection, site.clone());
        // The handle is not needed: the place tells when the connection has ended.
        drop(site.env.spawn("admin connection", async move {
            let _place = place;
            serving.await;
        }));
    }
    drop(listener);
    // Closed only by dropping it, so this waits for all places and cannot fail.
    let _all = places.acquire_many(u32::try_from(CONNECTIONS).unwrap_or(u32::MAX)).await;
}

type Place = tokio::sync::OwnedSemaphorePermit;

async fn next_connection(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    site: &Site,
) -> Option<(TcpStream, Place)> {
    let stopped = pin!(site.stop.cancelled());
    let accepted = pin!(async {
        let place = Arc::clone(places).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((connection, _)) => return Some((connection, place)),
                Err(error) => {
                    tracing::debug!(%error, "no connection could be accepted");
                    site.env.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    match future::select(stopped, accepted).await {
        Either::Left(_) => None,
        Either::Right((accepted, _)) => accepted,
    }
}

async fn serve(connection: TcpStream, site: Site) {
    let (env, stop) = (site.env.clone(), site.stop.clone());
    let answer = service_fn(move |request| {
        let response = site.respond(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
    let mut serving = pin!(http.serve_connection(TokioIo::new(connection), answer));
    // Whether the server stops or the deadline passes, it is time to leave.
    let leave = pin!(env.timeout(CONNECTION_DEADLINE, stop.cancelled()));
    let ended = match future::select(leave, serving.as_mut()).await {
        Either::Right((ended, _)) => ended,
        Either::Left(_) => {
            serving.as_mut().graceful_shutdown();
            env.timeout(CLOSING, serving.as_mut()).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection ended badly");
    }
}

impl Site {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused =
                text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served\n".to_owned());
            refused.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let path = request.uri().path();
        if path == "/metrics" {
            return respond(StatusCode::OK, PROMETHEUS_TEXT, self.metrics.encode());
        }
        self.probe(path, request.uri().query().unwrap_or_default())
            .unwrap_or_else(|| text(StatusCode::NOT_FOUND, "no such page\n".to_owned()))
    }

    /// Answers `/<probe>` and `/<probe>/<check>`.
    fn probe(&self, path: &str, query: &str) -> Option<Response<Full<Bytes>>> {
        let path = path.strip_prefix('/')?;
        let (name, check) = path.split_once('/').map_or((path, None), |(name, check)| (name, Some(check)));
        let probe = Probe::ALL.into_iter().find(|probe| probe.as_str() == name)?;
        let report = excluding(self.health.report(probe), query);
        match check {
            Some(check) => Some(verdict(&report.only(check)?, false)),
            None => Some(verdict(&report, parameters(query).any(|(name, _)| name == "verbose"))),
        }
    }
}

fn verdict(report: &Report, verbose: bool) -> Response<Full<Bytes>> {
    match (report.passed(), verbose) {
        (true, false) => text(StatusCode::OK, "ok".to_owned()),
        (true, true) => text(StatusCode::OK, report.details()),
        (false, _) => text(StatusCode::INTERNAL_SERVER_ERROR, report.details()),
    }
}

fn excluding(report: Report, query: &str) -> Report {
    let excluded = parameters(query).filter(|(name, _)| *name == "exclude");
    excluded.fold(report, |report, (_, check)| report.without(check))
}

/// Names and values of a query. Names of checks need no escapes, so none are undone.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body)
}

fn respond(status: StatusCode, media_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}
