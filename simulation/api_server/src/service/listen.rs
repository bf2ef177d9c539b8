//! Connections: accepted on loopback, served by hyper, closed gracefully.

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

/// Maximum number of connections: more than the tools of one machine open, and fewer than its file descriptors.
const CONNECTIONS: usize = 4096;

/// Time limit of a request's header, and idle timeout of a connection.
const HEADER_DEADLINE: Duration = Duration::from_secs(120);

/// Time for responses in flight to complete when the server stops.
const CLOSING: Duration = Duration::from_secs(1);

/// Delay after a failed accept, usually because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The error that prevents the server from listening.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is reachable from other machines.
    #[error("cannot listen on {0}: the server has no authentication; use a loopback address")]
    NotLoopback(SocketAddr),
    /// The address is unknown.
    #[error("cannot read the address of the listener")]
    NoAddress(#[source] std::io::Error),
}

pub(super) async fn serve(server: ApiServer, listener: TcpListener) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::NoAddress)?;
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    tracing::info!(%address, "API server listening");
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some((connection, place)) = next_connection(&server, &listener, &places).await {
        let serving = serve_connection(server.clone(), connection);
        // The permit shows when the connection has ended, so the task handle is not needed.
        drop(server.env().spawn("api server connection", async move {
            let _place = place;
            serving.await;
        }));
    }
    drop(listener);
    // The semaphore is never closed, so this waits for all permits and cannot fail.
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
                    tracing::debug!(%error, "accepting a connection failed; retrying");
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
    // Watch frames are small and must not be delayed.
    if let Err(error) = connection.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
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
        tracing::debug!(%error, "connection failed");
    }
}
