//! Connections: accepted on loopback, served by hyper, closed in good order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http as requests;
use crate::server::ApiServer;

/// How many connections are served at once: far more than a machine's tools open, and fewer than its file descriptors.
const CONNECTIONS: usize = 4096;

/// How long a client may take to send a request's head once it has begun, and how long a connection may idle.
const HEADER_DEADLINE: Duration = Duration::from_secs(120);

/// How long answers that are under way may take when the server stops.
const CLOSING: Duration = Duration::from_secs(1);

/// How long to wait after the operating system refused to accept a connection, which mostly means it has no file
/// descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can be reached from other machines.
    #[error(
        "{0} is no loopback address, and whoever reaches this server may do anything: listen on 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    /// The address is not known.
    #[error("the listener does not tell its address")]
    NoAddress(#[source] std::io::Error),
}

pub(super) async fn serve(server: ApiServer, listener: TcpListener) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::NoAddress)?;
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    tracing::info!(%address, "the API server listens");
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some((connection, place)) = next_connection(&server, &listener, &places).await {
        let serving = serve_connection(server.clone(), connection);
        // The handle is not needed: the place tells when the connection has ended.
        drop(server.env().spawn("api server connection", async move {
            let _place = place;
            serving.await;
        }));
    }
    drop(listener);
    // Closed only by dropping it, so this waits for all places and cannot fail.
    let _all = places.acquire_many(u32::try_from(CONNECTIONS).unwrap_or(u32::MAX)).await;
    Ok(())
}

async fn next_connection(
    server: &ApiServer,
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let stopped = pin!(server.stopped());
    let accepted = pin!(async {
        let place = Arc::clone(places).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((connection, _)) => return Some((connection, place)),
                Err(error) => {
                    tracing::debug!(%error, "no connection could be accepted");
                    server.env().sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    match future::select(stopped, accepted).await {
        Either::Left(_) => None,
        Either::Right((accepted, _)) => accepted,
    }
}

async fn serve_connection(server: ApiServer, connection: TcpStream) {
    // Frames of watches are small and must not wait for one another.
    if let Err(error) = connection.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps small packets back");
    }
    let (env, stopped) = (server.env().clone(), server.stopped());
    let answer = service_fn(move |request| {
        let answered = requests::answer(server.clone(), request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
    let mut serving = pin!(http.serve_connection(TokioIo::new(connection), answer));
    let ended = match future::select(pin!(stopped), serving.as_mut()).await {
        Either::Right((ended, _)) => ended,
        Either::Left(_) => {
            serving.as_mut().graceful_shutdown();
            env.timeout(CLOSING, serving.as_mut()).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}
