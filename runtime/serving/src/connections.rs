//! Tracks the open connections of a server and enforces their limit.
//!
//! Guarantees:
//! - The server accepts a new connection immediately while at least one other connection has no request in progress.
//! - At the limit, the server closes the connection that has been idle for the longest time, chosen from the client
//!   address with the most idle connections. It never closes a connection with a request in progress.
//! - The server closes a connection if the client reads no response data for
//!   [`Limits::stalled`](crate::Limits::stalled).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use windlass_env::Env;
use windlass_metrics::ServingMetrics;

/// The connections of one server. Clones share them.
#[derive(Clone)]
pub(crate) struct Connections {
    env: Env,
    max: usize,
    permits: Arc<Semaphore>,
    open: Arc<Mutex<OpenConnections>>,
    metrics: ServingMetrics,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    by_number: BTreeMap<u64, Arc<Connection>>,
}

/// The state of one connection that determines whether it is closed at the limit.
pub(crate) struct Connection {
    env: Env,
    pub(crate) peer: IpAddr,
    /// Time of the last read or write, in nanoseconds since the environment's origin.
    last_traffic: AtomicU64,
    /// The number of requests in progress.
    answering: AtomicUsize,
    /// Closes the connection.
    pub(crate) shed: CancellationToken,
}

/// A permit for one connection, released on drop.
pub(crate) struct ConnectionPermit {
    number: u64,
    pub(crate) connection: Arc<Connection>,
    connections: Connections,
    _permit: OwnedSemaphorePermit,
}

/// A request in progress: its connection is not closed until this is dropped.
pub(crate) struct ActiveRequest(Arc<Connection>);

impl Connections {
    pub(crate) fn new(env: Env, max: usize, metrics: ServingMetrics) -> Self {
        Self { env, max, permits: Arc::new(Semaphore::new(max)), open: Arc::default(), metrics }
    }

    /// Returns a permit for a connection from `peer`, after closing another one at the limit. Returns `None` if all
    /// others have requests in progress.
    pub(crate) async fn acquire(&self, peer: IpAddr) -> Option<ConnectionPermit> {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) if self.close_one() => Arc::clone(&self.permits).acquire_owned().await.ok()?,
            Err(_) => return None,
        };
        let connection = Arc::new(Connection {
            env: self.env.clone(),
            peer,
            last_traffic: AtomicU64::new(now(&self.env)),
            answering: AtomicUsize::new(0),
            shed: CancellationToken::new(),
        });
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::clone(&connection));
        self.metrics.connections.set(i64::try_from(open.by_number.len()).unwrap_or(i64::MAX));
        drop(open);
        Some(ConnectionPermit { number, connection, connections: self.clone(), _permit: permit })
    }

    /// Closes one connection; returns `false` if all have requests in progress.
    pub(crate) fn close_one(&self) -> bool {
        let mut open = self.lock();
        let waiting = open.by_number.iter().filter(|(_, one)| one.answering.load(Ordering::Relaxed) == 0);
        let waiting =
            waiting.map(|(number, one)| (*number, one.peer, one.last_traffic.load(Ordering::Relaxed)));
        let Some(number) = choose_to_close(&waiting.collect::<Vec<_>>()) else { return false };
        // Removed immediately, so that the next call closes a different connection.
        if let Some(connection) = open.by_number.remove(&number) {
            connection.shed.cancel();
            self.metrics.shed.inc();
        }
        true
    }

    /// Waits until every connection has ended.
    pub(crate) async fn ended(&self) {
        // The semaphore is never closed, so this waits for all permits and cannot fail.
        let _all = self.permits.acquire_many(u32::try_from(self.max).unwrap_or(u32::MAX)).await;
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Selects the connection to close from number, address and time of the last traffic.
fn choose_to_close(waiting: &[(u64, IpAddr, u64)]) -> Option<u64> {
    let mut held: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (_, peer, _) in waiting {
        *held.entry(*peer).or_default() += 1;
    }
    let (busiest, _) = held.into_iter().max_by_key(|(_, held)| *held)?;
    let of_busiest = waiting.iter().filter(|(_, peer, _)| *peer == busiest);
    of_busiest.min_by_key(|(number, _, moved)| (*moved, *number)).map(|(number, _, _)| *number)
}

impl Connection {
    /// Marks a request as in progress. The connection is not closed until the guard is dropped.
    pub(crate) fn answering(self: &Arc<Self>) -> ActiveRequest {
        self.answering.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(Arc::clone(self))
    }

    fn record_traffic(&self) {
        self.last_traffic.store(now(&self.env), Ordering::Relaxed);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.by_number.remove(&self.number);
        self.connections.metrics.connections.set(i64::try_from(open.by_number.len()).unwrap_or(i64::MAX));
    }
}

fn now(env: &Env) -> u64 {
    u64::try_from(env.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}

/// A socket that records the time of traffic, and fails when the peer reads no data for too long.
pub(crate) struct TrackedSocket<S> {
    inner: S,
    connection: Arc<Connection>,
    read_timeout: Duration,
    stalled: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> TrackedSocket<S> {
    pub(crate) fn new(inner: S, connection: Arc<Connection>, read_timeout: Duration) -> Self {
        Self { inner, connection, read_timeout, stalled: None }
    }

    /// Processes the result of a write, and fails it if the peer has read no data for too long.
    fn wrote<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            self.connection.record_traffic();
            return polled;
        }
        let (env, read_timeout) = (&self.connection.env, self.read_timeout);
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(env.sleep(read_timeout)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads no data")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.connection.record_traffic();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.wrote(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, parts);
        self.wrote(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn from(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn limit_closes_longest_idle_connection_of_busiest_address() {
        let waiting = [(1, from(1), 5), (2, from(2), 30), (3, from(2), 20), (4, from(2), 40)];
        assert_eq!(
            choose_to_close(&waiting),
            Some(3),
            "not the longest idle of all, which is the only one of its address"
        );
        assert_eq!(choose_to_close(&waiting[..1]), Some(1));
        assert_eq!(choose_to_close(&[]), None);
        assert_eq!(choose_to_close(&[(7, from(1), 5), (6, from(1), 5)]), Some(6), "the oldest of equals");
    }
}
