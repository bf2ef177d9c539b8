//! Time limits of requests and bodies.
//!
//! A request completes, to the last byte of its response, within its time limit. A watch fails if it receives no data
//! for longer than its own timeout plus [`IDLE_GRACE`]. For a list the time limit covers only the response header: a
//! large collection takes longer than any fixed time, and a repetition takes as long again. The body of a list fails if
//! no chunk arrives for [`MAX_STALL`], or if it is slower than [`MIN_BYTES_PER_SECOND`] on average.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tower::BoxError;
use windlass_env::{Env, Instant};
use windlass_object::{
    Verb,
    request::{RequestInfo, parameter},
};

use super::{
    BoxedRequest, Middleware, Next, RequestState, ResponseResult, fence::Due, request_options::time_limit,
};
use crate::error::{DeadlineError, WatchIdleError};

/// Time without data that is allowed beyond the timeout of a watch, for the delivery of its last events.
pub(crate) const IDLE_GRACE: Duration = Duration::from_secs(30);

/// Maximum time that API servers keep a watch without a timeout open: twice their `--min-request-timeout`.
const SERVER_WATCH_TIMEOUT: Duration = Duration::from_secs(3600);

/// Maximum time between two chunks of a list.
const MAX_STALL: Duration = Duration::from_secs(30);

/// Minimum average rate of a list after its time limit, in bytes per second. A slower server cannot keep a request
/// open, and a control plane cannot work over a slower link.
const MIN_BYTES_PER_SECOND: u64 = 16 * 1024;

#[derive(Clone)]
pub(crate) struct Timeout {
    pub(crate) env: Env,
    pub(crate) within: Duration,
}

impl Middleware for Timeout {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let (state, sent) = (RequestState::of(&mut request), self.env.now());
        let within = time_limit(&request, self.within);
        let limit = if state.info().is_watch() {
            BodyTimeout::Idle(watch_timeout(request.uri().query()) + IDLE_GRACE)
        } else if is_list(state.info()) {
            BodyTimeout::Progress { sent, within }
        } else {
            BodyTimeout::Total { sent, within }
        };
        request.extensions_mut().insert(Due(sent + within));
        let answer = self.env.timeout(within, next.send(request)).await;
        let response = answer.map_err(|_| DeadlineError { within })??;
        Ok(response.map(|body| TimedBody::new(body, self.env, limit).boxed_unsync()))
    }
}

fn is_list(info: &RequestInfo) -> bool {
    info.resource().is_some_and(|resource| resource.verb == Verb::List)
}

fn watch_timeout(query: Option<&str>) -> Duration {
    let seconds = parameter(query, "timeoutSeconds").and_then(|value| value.parse().ok());
    seconds.map_or(SERVER_WATCH_TIMEOUT, Duration::from_secs)
}

/// Time limit of a body.
#[derive(Copy, Clone, Debug)]
pub(crate) enum BodyTimeout {
    /// The body must be complete `within` after the request was sent.
    Total { sent: Instant, within: Duration },
    /// The body must be complete `within` after the request was sent, plus the time for its bytes at the minimum rate.
    /// The time between two chunks must not exceed [`MAX_STALL`].
    Progress { sent: Instant, within: Duration },
    /// The time between two chunks must not exceed this.
    Idle(Duration),
}

/// A body that fails instead of hanging. Its timer is armed only while a reader waits.
pub(crate) struct TimedBody<B> {
    inner: B,
    env: Env,
    limit: BodyTimeout,
    last_data_at: Instant,
    bytes: u64,
    state: State,
}

enum State {
    Reading,
    Waiting(BoxFuture<'static, ()>),
    Ended,
}

impl<B> TimedBody<B> {
    pub(crate) fn new(inner: B, env: Env, limit: BodyTimeout) -> Self {
        Self { last_data_at: env.now(), bytes: 0, inner, env, limit, state: State::Reading }
    }

    fn due(&self) -> Instant {
        match self.limit {
            BodyTimeout::Total { sent, within } => sent + within,
            BodyTimeout::Progress { sent, within } => {
                let earned = Duration::from_secs(self.bytes / MIN_BYTES_PER_SECOND);
                (self.last_data_at + MAX_STALL).min(sent + within + earned)
            }
            BodyTimeout::Idle(bound) => self.last_data_at + bound,
        }
    }

    /// Returns whether the time limit has passed; otherwise the timer stays armed. Chunks do not reset the timer: it
    /// checks the time of the last chunk when it fires.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let timer = match &mut self.state {
                State::Waiting(timer) => timer,
                State::Reading | State::Ended => {
                    self.state = State::Waiting(self.env.sleep_until(self.due()).boxed());
                    continue;
                }
            };
            std::task::ready!(timer.poll_unpin(cx));
            if self.env.now() >= self.due() {
                self.state = State::Ended;
                return Poll::Ready(());
            }
            self.state = State::Reading;
        }
    }

    fn expiry(&self) -> BoxError {
        match self.limit {
            BodyTimeout::Total { within, .. } => DeadlineError { within }.into(),
            BodyTimeout::Progress { sent, .. } => {
                DeadlineError { within: self.env.now().saturating_duration_since(sent) }.into()
            }
            BodyTimeout::Idle(bound) => WatchIdleError { bound }.into(),
        }
    }
}

fn length<E>(frame: &Option<Result<Frame<Bytes>, E>>) -> u64 {
    let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
    data.map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX))
}

impl<B> HttpBody for TimedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if matches!(this.state, State::Ended) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.last_data_at = this.env.now();
            this.bytes += length(&frame);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        this.poll_expired(cx).map(|()| Some(Err(this.expiry())))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended) || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
