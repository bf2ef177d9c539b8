//! The last step before the wire: nothing leaves a killed environment, and no write leaves without the fence.
//!
//! Which fence that is may differ from client to client: a process can hold some shards and not others. A client with a
//! fence of its own notes it on each request ([`ControllerClients::behind`](crate::ControllerClients::behind)), and it is
//! asked here, at the end.
//! A client has a fence or none, whatever it writes: the clients of the election, of accounts' tokens and of reviews
//! have none.
//!
//! # When a fenced write can take effect
//!
//! Let the fence end at E and a standby write at E + A at the earliest, where A is the allowance: lease duration minus
//! renew deadline. A write takes effect by E + A, for these reasons:
//!
//! - The gate decides once a connection is established, so the time for DNS, TCP and TLS is spent before. A write
//!   that leaves at t with r left until E carries `timeout=r`. With less than a second left it does not leave.
//! - It arrives by t + A: the kernel closes a connection whose data is unacknowledged for longer
//!   ([`ClientOptions::unacknowledged_timeout`](crate::ClientOptions)). The server stops working on it r later, at
//!   t + r + A = E + A.
//! - At E the gate drops a write that is still in flight. Its connection is closed by a reset: the kernel discards the
//!   bytes that it has not delivered, and the server's own kernel reports the reset.
//!
//! What remains possible:
//!
//! - The process is stopped (SIGSTOP, a frozen cgroup) between the decision and the system call that writes, which are
//!   microseconds apart. The write then leaves when the process continues. One whose system call did not take all bytes
//!   is dropped instead: the gate checks the fence again before each step.
//! - A server that is paused as a whole while a complete request lies in its receive buffer counts `timeout=` from
//!   when it reads. kube-apiserver cancels a request when it detects the reset, usually before it writes; a server that
//!   does not look applies a write of a deposed leader.
//! - The same holds for bytes that a proxy or load balancer between has acknowledged, and for other systems than Linux,
//!   where no limit on unacknowledged data is set.
//! - While the machine is paused by its hypervisor nothing here runs. The election's fence detects the jump of the wall
//!   clock before the next write leaves; what the kernel sent before the pause it may retransmit after it.
//!
//! A write without a fence carries the time that is left until its caller stops waiting.

use std::{fmt, future::poll_fn, sync::Arc, task::Poll, time::Duration};

use futures_util::future::{BoxFuture, Either, FutureExt as _, pending, select};
use http::{Request, Uri};
use kube::client::Body;
use tower::BoxError;
use windlass_env::{Env, Instant};

use super::{
    Middleware, Next, RequestState, ResponseResult, Transport,
    wire::{SendError, Wire},
    with_parameter,
};
use crate::error::{FencedError, KilledError};

/// Whether writes may leave: held by whoever knows about leadership.
pub trait Fence: Send + Sync + fmt::Debug + 'static {
    /// Whether a write may leave now, and until when it must have been answered.
    fn state(&self) -> FenceState;

    /// Resolves when the fence is no longer open; writes under way are dropped then. Renewals move the deadline
    /// and do not resolve it. Never resolves for a fence that never closes.
    fn closed(&self) -> BoxFuture<'static, ()>;
}

/// What a [`Fence`] says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// There is no election: writes leave without a deadline of the fence's.
    Open,
    /// Writes may leave, and must not take effect after this point.
    Until(Instant),
    /// No write may leave.
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

/// Notes a fence on each request, for the gate to ask in place of the one of all clients.
#[derive(Clone)]
pub(crate) struct AttachFence(pub(crate) Arc<dyn Fence>);

/// The fence that a request set out with, on its way to the gate.
#[derive(Clone)]
struct AttachedFence(Arc<dyn Fence>);

impl Middleware for AttachFence {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        request.extensions_mut().insert(AttachedFence(self.0));
        next.send(request).await
    }
}

/// With less than this left before the fence closes, nothing is sent: the request could not be answered in time.
const MIN_REMAINING: Duration = Duration::from_secs(1);

/// No longer time is named to the server. Go's durations end after 292 years, and a server works for minutes at most.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// When the caller of a request stops waiting for its answer.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Due(pub(crate) Instant);

#[derive(Clone)]
pub(crate) struct FenceMiddleware {
    pub(crate) env: Env,
    /// For requests that set out with none of their own; `None` for clients that are not fenced at all.
    pub(crate) fence: Option<Arc<dyn Fence>>,
    pub(crate) wire: Arc<dyn Wire>,
}

impl Transport for FenceMiddleware {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, ResponseResult> {
        let gate = self.clone();
        async move { gate.handle(request).await }.boxed()
    }
}

impl FenceMiddleware {
    async fn handle(self, mut request: Request<Body>) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        let under = request.extensions_mut().remove::<AttachedFence>().map(|AttachedFence(fence)| fence);
        let fence = self.fence.clone().map(|of_all| under.unwrap_or(of_all));
        match fence.filter(|_| notes.info().is_mutating()) {
            Some(fence) => self.fenced(fence.as_ref(), request, notes).await,
            None => self.depart(request, &notes, None).await,
        }
    }

    async fn fenced(&self, fence: &dyn Fence, request: Request<Body>, notes: RequestState) -> ResponseResult {
        // No connection is made for a write that cannot leave.
        self.remaining(fence)?;
        let mut answer = self.depart(request, &notes, Some(fence)).boxed();
        // Timers may not run while a machine sleeps, and the clock does: on waking, the answer may be there before the
        // fence's own timer fires. So the fence is asked again at every step of the way.
        let watched = poll_fn(|cx| {
            if self.is_over(fence) {
                return Poll::Ready(None);
            }
            answer.poll_unpin(cx).map(Some)
        });
        // The fence is asked first: once it has closed, an answer that arrives with it comes too late to be acted on.
        match select(fence.closed(), watched).await {
            Either::Right((Some(answer), _)) => answer,
            Either::Left(_) | Either::Right((None, _)) if notes.was_sent() => {
                Err(FencedError::Interrupted.into())
            }
            Either::Left(_) | Either::Right((None, _)) => Err(FencedError::NotSent.into()),
        }
    }

    /// Acquires a connection, then decides whether the request leaves on it and how long the server may take.
    ///
    /// A connection that the server closed while it was idle gives the request back unsent; the next is tried with a
    /// new decision. Each such connection is gone after that, so the loop ends with a new one.
    async fn depart(
        &self,
        mut request: Request<Body>,
        notes: &RequestState,
        fence: Option<&dyn Fence>,
    ) -> ResponseResult {
        loop {
            self.check_alive()?;
            let line = self.wire.acquire().await?;
            self.check_alive()?;
            if notes.info().is_mutating() {
                request = self.bounded(request, fence)?;
            }
            notes.mark_sent();
            match line.send(request).await {
                Ok(response) => return Ok(response),
                Err(SendError::Failed(error)) => return Err(error),
                Err(SendError::Unsent { request: returned, error }) => {
                    notes.mark_refused();
                    request = *returned.ok_or(error)?;
                }
            }
        }
    }

    fn check_alive(&self) -> Result<(), KilledError> {
        if self.env.alive() { Ok(()) } else { Err(KilledError) }
    }

    fn is_over(&self, fence: &dyn Fence) -> bool {
        match fence.state() {
            FenceState::Open => false,
            FenceState::Until(deadline) => self.env.now() >= deadline,
            FenceState::Closed => true,
        }
    }

    /// Returns how long a write may take by the fence; `None` for a fence without a deadline.
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

    /// Tells the server to give up when the fence will have closed, or when the caller will have given up.
    fn bounded(
        &self,
        mut request: Request<Body>,
        fence: Option<&dyn Fence>,
    ) -> Result<Request<Body>, BoxError> {
        let fenced = fence.map(|fence| self.remaining(fence)).transpose()?.flatten();
        let due = request.extensions().get::<Due>();
        let awaited = due.map(|Due(at)| at.saturating_duration_since(self.env.now()));
        if let Some(within) = fenced.into_iter().chain(awaited).min() {
            *request.uri_mut() = with_timeout(request.uri(), within)?;
        }
        Ok(request)
    }
}

/// Replaces the `timeout` parameter. The server reads a Go duration, and takes zero for "no limit": never that.
fn with_timeout(uri: &Uri, within: Duration) -> Result<Uri, BoxError> {
    with_parameter(uri, "timeout", &format!("{}ms", within.min(MAX_TIMEOUT).as_millis().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_joins_or_replaces_what_is_in_the_query() {
        let rewrite =
            |uri: &str| with_timeout(&uri.parse().unwrap(), Duration::from_millis(1500)).unwrap().to_string();
        assert_eq!(rewrite("http://h/p"), "http://h/p?timeout=1500ms");
        assert_eq!(rewrite("http://h/p?"), "http://h/p?timeout=1500ms");
        assert_eq!(rewrite("http://h/p?dryRun=All"), "http://h/p?dryRun=All&timeout=1500ms");
        assert_eq!(rewrite("/p?timeout=300s&a=b&timeout"), "/p?a=b&timeout=1500ms");
        assert_eq!(rewrite("/p?timeoutSeconds=5"), "/p?timeoutSeconds=5&timeout=1500ms");
    }

    #[test]
    fn timeout_is_never_zero() {
        let uri = with_timeout(&"/p".parse().unwrap(), Duration::from_nanos(1)).unwrap();
        assert_eq!(uri, "/p?timeout=1ms");
    }

    #[test]
    fn timeout_of_a_request_without_limit_is_a_go_duration() {
        let uri = with_timeout(&"/p".parse().unwrap(), Duration::MAX).unwrap();
        assert_eq!(uri, "/p?timeout=86400000ms");
    }
}
