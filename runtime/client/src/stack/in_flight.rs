//! Limits the number of concurrent requests of an identity.
//!
//! With HTTP/1 each request uses its own connection: a slow server must not cause an unlimited number of connections.
//! Requests are sent in arrival order (FIFO). Watches are exempt because each watch stays open for minutes. Requests
//! without a time limit are exempt as well.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::BoxError;
use windlass_env::Env;

use super::{
    BoxedRequest, Middleware, Next, RequestState, ResponseBody, ResponseResult, request_options::is_unlimited,
};

/// Maximum number of requests in flight per identity: far more than needed while the server responds in time.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

#[derive(Clone)]
pub(crate) struct ConcurrencyLimit {
    env: Env,
    /// Fair: tokio's semaphore is first in, first out.
    permits: Arc<Semaphore>,
}

impl ConcurrencyLimit {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, permits: Arc::new(Semaphore::new(MAX_IN_FLIGHT)) }
    }
}

impl Middleware for ConcurrencyLimit {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        // A request without a time limit is exempt as well: it could keep its permit forever.
        if state.info().is_watch() || is_unlimited(&request) {
            return next.send(request).await;
        }
        let arrived = self.env.now();
        let permit = self.permits.acquire_owned().await?;
        state.add_wait(self.env.now().saturating_duration_since(arrived));
        let response = next.send(request).await?;
        Ok(response.map(|inner| PermitBody { inner, _permit: permit }.boxed_unsync()))
    }
}

/// A body that keeps its permit until it is dropped, because it occupies a connection.
struct PermitBody {
    inner: ResponseBody,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for PermitBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
