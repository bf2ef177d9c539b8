//! An end to every wait: a request is answered, to the last byte, within its deadline, and a watch is never silent
//! for longer than its own timeout and some grace.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::BoxError;
use windlass_env::{Env, Instant};
use windlass_object::request::parameter;

use super::{Answer, Next, Notes, Step, gate::Due};

/// The server did not answer in time. A write may have taken effect.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no complete answer within {within:?}")]
pub struct DeadlineError {
    /// How long the request had.
    pub within: Duration,
}

/// A watch said nothing for longer than the server would have kept it open: the connection is dead.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch was silent for {bound:?}")]
pub struct SilentError {
    /// The longest silence allowed.
    pub bound: Duration,
}

/// What a watch may be silent for beyond its own timeout: the way of the server's last words.
pub(crate) const SILENCE_GRACE: Duration = Duration::from_secs(30);

/// How long API servers keep a watch that names no timeout: twice their `--min-request-timeout`, at most.
const SERVER_WATCH_TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Clone)]
pub(crate) struct Deadline {
    pub(crate) env: Env,
    pub(crate) within: Duration,
}

impl Step for Deadline {
    async fn handle(self, mut request: Request<Body>, next: Next) -> Answer {
        let limit = if Notes::of(&mut request).info().is_watch() {
            Limit::Silence(watch_timeout(request.uri().query()) + SILENCE_GRACE)
        } else {
            Limit::Total { at: self.env.now() + self.within, within: self.within }
        };
        request.extensions_mut().insert(Due(self.env.now() + self.within));
        let answer = self.env.timeout(self.within, next.send(request)).await;
        let response = answer.map_err(|_| DeadlineError { within: self.within })??;
        Ok(response.map(|body| TimedBody::new(body, self.env, limit).boxed_unsync()))
    }
}

fn watch_timeout(query: Option<&str>) -> Duration {
    let seconds = parameter(query, "timeoutSeconds").and_then(|value| value.parse().ok());
    seconds.map_or(SERVER_WATCH_TIMEOUT, Duration::from_secs)
}

/// How long a body may take.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Limit {
    /// The whole of it must be here at this point, `within` after the request was sent.
    Total { at: Instant, within: Duration },
    /// No two chunks may be further apart than this.
    Silence(Duration),
}

/// A body that ends with an error instead of hanging. Its timer is armed only while somebody waits.
pub(crate) struct TimedBody<B> {
    inner: B,
    env: Env,
    limit: Limit,
    heard: Instant,
    state: State,
}

enum State {
    Reading,
    Waiting(BoxFuture<'static, ()>),
    Ended,
}

impl<B> TimedBody<B> {
    pub(crate) fn new(inner: B, env: Env, limit: Limit) -> Self {
        Self { heard: env.now(), inner, env, limit, state: State::Reading }
    }

    fn due(&self) -> Instant {
        match self.limit {
            Limit::Total { at, .. } => at,
            Limit::Silence(bound) => self.heard + bound,
        }
    }

    /// Whether the time is up; leaves the timer armed if not. Chunks do not touch the timer: it looks at the time of
    /// the last one when it fires.
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
            Limit::Total { within, .. } => DeadlineError { within }.into(),
            Limit::Silence(bound) => SilentError { bound }.into(),
        }
    }
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
            this.heard = this.env.now();
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
