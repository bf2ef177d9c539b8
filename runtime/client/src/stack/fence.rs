//! The last layer before the wire: a killed environment sends nothing, and every write must pass the fence.
//!
//! Clients can have different fences: a process can hold some shards and not others. A client with its own fence
//! attaches it to each request ([`ControllerClients::with_fence`](crate::ControllerClients::with_fence)), and this
//! layer checks it. A client either has a fence for all its writes or none: the clients of the election, of
//! ServiceAccount tokens and of access reviews have none.
//!
//! # When a fenced write can take effect
//!
//! Let E be the end of the fence, and E + A the earliest write of a standby, where A is the lease duration minus the
//! renew deadline ([`ClientOptions::fence_allowance`](crate::ClientOptions)). Let U be
//! [`ClientOptions::unacknowledged_timeout`](crate::ClientOptions), which is at most A. Then E + A is also the latest
//! time at which a write takes effect, for these reasons:
//!
//! - The fence is checked after a connection is established, so the time for DNS, TCP and TLS has already passed. A
//!   write that is sent at t with r left until E carries `timeout=r+A-U`. With r below one second it is not sent.
//! - The write arrives by t + U: the kernel closes a connection whose data is unacknowledged for longer. The server
//!   stops processing it r + A - U later, at t + r + A = E + A.
//! - At E this layer drops a write that is still in flight. A reset closes its connection: the kernel discards the
//!   bytes that it has not delivered, and the server's kernel reports the reset.
//!
//! The time of the server includes its webhooks, which have 10 s by default. It is never shorter than A - U + 1 s, and
//! while renewals succeed it is at least the renew deadline, minus the retry period, plus A - U: 11 s by default, minus
//! the duration of a renewal.
//!
//! Remaining risks:
//!
//! - The process is stopped (SIGSTOP, a frozen cgroup) between the check and the system call that writes, which are a
//!   few instructions apart: the socket checks the fence again after the request is encoded and encrypted
//!   (`gated_stream`). The write is then sent when the process continues. If the system call did not accept all bytes,
//!   the write is dropped instead: the fence is checked again before each step.
//! - The process is stopped after the timeout of a write was computed and before its first byte is sent, while the
//!   fence is open: the timeout then ends as much later as the process was stopped.
//! - A server that is paused while a complete request is in its receive buffer counts `timeout=` from the time when it
//!   reads the request. kube-apiserver cancels a request when it detects the reset, usually before it writes. A server
//!   without this check applies a write of a former leader.
//! - The same applies to bytes that a proxy or load balancer in between has acknowledged, and to systems other than
//!   Linux, where unacknowledged data is not limited.
//! - While a hypervisor pauses the machine, no code runs here. The election's fence detects the jump of the wall clock
//!   before the next write is sent. The kernel can retransmit data from before the pause after it.
//!
//! A write without a fence carries the time until its caller stops waiting.

use std::{error::Error, fmt, future::poll_fn, io, iter::successors, sync::Arc, task::Poll, time::Duration};

use futures_util::future::{BoxFuture, Either, FutureExt as _, pending, select};
use http::Uri;
use tower::BoxError;
use windlass_env::{Env, Instant};

use super::{
    BoxedRequest, Middleware, Next, RequestState, ResponseResult, Transport,
    wire::{SendError, SendPermit, Wire},
    with_parameter,
};
use crate::error::{FencedError, KilledError};

/// Decides whether writes are permitted, according to leadership.
pub trait Fence: Send + Sync + fmt::Debug + 'static {
    /// Returns whether a write can be sent now, and the deadline of its response.
    fn state(&self) -> FenceState;

    /// Completes when the fence is no longer open; writes in flight are then dropped. Renewals move the deadline and do
    /// not complete the future. Never completes for a fence that never closes.
    fn closed(&self) -> BoxFuture<'static, ()>;
}

/// The state of a [`Fence`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// There is no election: writes are sent without a deadline of the fence.
    Open,
    /// Writes can be sent, and must not take effect after this point in time.
    Until(Instant),
    /// No write can be sent.
    Closed,
}

/// The fence of a process without leader election: open forever.
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

/// Attaches a fence to each request, which replaces the common fence of all clients.
#[derive(Clone)]
pub(crate) struct AttachFence(pub(crate) Arc<dyn Fence>);

/// The fence that is attached to a request.
#[derive(Clone)]
struct AttachedFence(Arc<dyn Fence>);

impl Middleware for AttachFence {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        request.extensions_mut().insert(AttachedFence(self.0));
        next.send(request).await
    }
}

/// Minimum time until the fence closes. With less time left, the server could not respond in time.
const MIN_REMAINING: Duration = Duration::from_secs(1);

/// Maximum timeout in a request. Go's durations end after 292 years, and servers work for minutes at most.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum time that kube-apiserver processes a write (`--request-timeout`, default 60 s); a longer `timeout` does not
/// extend it.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time at which the caller of a request stops waiting for its response.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Due(pub(crate) Instant);

#[derive(Clone)]
pub(crate) struct FenceMiddleware {
    pub(crate) env: Env,
    /// For requests without an attached fence; `None` for clients without a fence.
    pub(crate) fence: Option<Arc<dyn Fence>>,
    pub(crate) wire: Arc<dyn Wire>,
    /// [`ClientOptions::unacknowledged_timeout`](crate::ClientOptions).
    pub(crate) unacknowledged_timeout: Duration,
    /// Time after the end of the fence in which the server can process a write.
    pub(crate) server_allowance: Duration,
}

impl Transport for FenceMiddleware {
    fn send(&self, request: BoxedRequest) -> BoxFuture<'static, ResponseResult> {
        let this = self.clone();
        async move { this.handle(request).await }.boxed()
    }
}

impl FenceMiddleware {
    async fn handle(self, mut request: BoxedRequest) -> ResponseResult {
        let state = RequestState::of(&mut request);
        let under = request.extensions_mut().remove::<AttachedFence>().map(|AttachedFence(fence)| fence);
        let fence = self.fence.clone().map(|of_all| under.unwrap_or(of_all));
        match fence.filter(|_| state.info().is_mutating()) {
            Some(fence) => self.fenced(&fence, request, state).await,
            None => self.send_fenced(request, &state, None).await,
        }
    }

    async fn fenced(
        &self,
        fence: &Arc<dyn Fence>,
        request: BoxedRequest,
        state: RequestState,
    ) -> ResponseResult {
        // Do not connect for a write that cannot be sent.
        self.remaining(fence.as_ref())?;
        let mut answer = self.send_fenced(request, &state, Some(fence)).boxed();
        // Timers might not advance while the machine sleeps, but the clock does. After wakeup the response can arrive
        // before the timer of the fence fires, so the fence is checked at every poll.
        let watched = poll_fn(|cx| {
            if is_over(&self.env, fence.as_ref()) {
                return Poll::Ready(None);
            }
            answer.poll_unpin(cx).map(Some)
        });
        // The fence is polled first: a response that arrives when it has closed must not be used.
        match select(fence.closed(), watched).await {
            // The socket rejects bytes of a write whose fence has ended.
            Either::Right((Some(answer), _)) if answer.is_ok() || !is_over(&self.env, fence.as_ref()) => {
                answer
            }
            Either::Left(_) | Either::Right(_) if state.was_sent() => Err(FencedError::Interrupted.into()),
            Either::Left(_) | Either::Right(_) => Err(FencedError::NotSent.into()),
        }
    }

    /// Acquires a connection, then decides whether the request is sent and how long the server can take.
    ///
    /// If the server closed an idle connection, the request is returned unsent and sent on the next connection after a
    /// new check. Each such connection is removed, so the loop ends with a new connection.
    async fn send_fenced(
        &self,
        mut request: BoxedRequest,
        state: &RequestState,
        fence: Option<&Arc<dyn Fence>>,
    ) -> ResponseResult {
        let permit = fence.map(|fence| {
            let (env, fence) = (self.env.clone(), Arc::clone(fence));
            SendPermit::new(move || !is_over(&env, fence.as_ref()))
        });
        loop {
            self.check_alive()?;
            let line = self.wire.acquire().await?;
            self.check_alive()?;
            let mut within = None;
            if state.info().is_mutating() {
                within = self.bounded(&mut request, fence.map(AsRef::as_ref))?;
            }
            state.mark_sent(self.lingers_until(within));
            let answer = line.send(request, permit.clone()).await;
            if !matches!(&answer, Err(SendError::Failed(error)) if is_peer_silent(error.as_ref())) {
                state.mark_ended();
            }
            match answer {
                Ok(response) => return Ok(response),
                Err(SendError::Failed(error)) => return Err(error),
                Err(SendError::Unsent { request: returned, error }) => {
                    state.mark_rejected();
                    request = returned.ok_or(error)?;
                }
            }
        }
    }

    fn check_alive(&self) -> Result<(), KilledError> {
        if self.env.is_alive() { Ok(()) } else { Err(KilledError) }
    }

    /// Returns the time limit that the fence sets for a write; `None` for a fence without a deadline.
    fn remaining(&self, fence: &dyn Fence) -> Result<Option<Duration>, FencedError> {
        match fence.state() {
            FenceState::Open => Ok(None),
            FenceState::Closed => Err(FencedError::NotSent),
            FenceState::Until(deadline) => {
                let remaining = deadline.saturating_duration_since(self.env.now());
                if remaining < MIN_REMAINING { Err(FencedError::NotSent) } else { Ok(Some(remaining)) }
            }
        }
    }

    /// Returns the end of the time in which a request that is sent now can take effect, if the server does not observe
    /// that the client drops it: the connection can be half-open.
    fn lingers_until(&self, within: Option<Duration>) -> Instant {
        self.env.now() + self.unacknowledged_timeout + within.unwrap_or_default().min(SERVER_TIMEOUT)
    }

    /// Adds a timeout for the server, and returns it: until a standby could write, or the caller stops waiting.
    fn bounded(
        &self,
        request: &mut BoxedRequest,
        fence: Option<&dyn Fence>,
    ) -> Result<Option<Duration>, BoxError> {
        let fenced = fence.map(|fence| self.remaining(fence)).transpose()?.flatten();
        let fenced = fenced.map(|remaining| remaining + self.server_allowance);
        let due = request.extensions().get::<Due>();
        let awaited = due.map(|Due(at)| at.saturating_duration_since(self.env.now()));
        let within = fenced.into_iter().chain(awaited).min();
        if let Some(within) = within {
            *request.uri_mut() = with_timeout(request.uri(), within)?;
        }
        Ok(within)
    }
}

/// Returns whether the connection failed because the peer did not acknowledge data, or no route leads to it: the server
/// can still receive the request, and does not observe that the client has dropped it.
fn is_peer_silent(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    let causes = successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown))
}

fn is_over(env: &Env, fence: &dyn Fence) -> bool {
    match fence.state() {
        FenceState::Open => false,
        FenceState::Until(deadline) => env.now() >= deadline,
        FenceState::Closed => true,
    }
}

/// Replaces the `timeout` parameter, a Go duration. It is never zero, because the server treats zero as "no limit".
fn with_timeout(uri: &Uri, within: Duration) -> Result<Uri, BoxError> {
    with_parameter(uri, "timeout", &format!("{}ms", within.min(MAX_TIMEOUT).as_millis().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_parameter_is_added_or_replaced() {
        let rewrite =
            |uri: &str| with_timeout(&uri.parse().unwrap(), Duration::from_millis(1500)).unwrap().to_string();
        assert_eq!(rewrite("http://h/p"), "http://h/p?timeout=1500ms");
        assert_eq!(rewrite("http://h/p?"), "http://h/p?timeout=1500ms");
        assert_eq!(rewrite("http://h/p?dryRun=All"), "http://h/p?dryRun=All&timeout=1500ms");
        assert_eq!(rewrite("/p?timeout=300s&a=b&timeout"), "/p?a=b&timeout=1500ms");
        assert_eq!(rewrite("/p?timeoutSeconds=5"), "/p?timeoutSeconds=5&timeout=1500ms");
    }

    #[test]
    fn connection_timeout_leaves_the_server_unaware() {
        let failed = |kind: io::ErrorKind| BoxError::from(io::Error::from(kind));
        assert!(is_peer_silent(failed(io::ErrorKind::TimedOut).as_ref()));
        assert!(!is_peer_silent(failed(io::ErrorKind::ConnectionReset).as_ref()));
    }

    #[test]
    fn timeout_parameter_is_never_zero() {
        let uri = with_timeout(&"/p".parse().unwrap(), Duration::from_nanos(1)).unwrap();
        assert_eq!(uri, "/p?timeout=1ms");
    }

    #[test]
    fn timeout_of_request_without_limit_is_a_valid_go_duration() {
        let uri = with_timeout(&"/p".parse().unwrap(), Duration::MAX).unwrap();
        assert_eq!(uri, "/p?timeout=86400000ms");
    }
}
