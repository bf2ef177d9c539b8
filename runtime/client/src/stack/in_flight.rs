//! Bounds how many requests of an identity are on the wire at once.
//!
//! HTTP/1 gives each its own connection: a server that slows down must not cost the process, and itself, ever more
//! of them. Whoever comes first is sent first. Watches are exempt, since each of them stays for minutes,
//! and so are requests without a time limit.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::BoxError;
use windlass_env::Env;

use super::{Middleware, Next, RequestState, ResponseBody, ResponseResult, request_options::is_unlimited};

/// How many requests of one identity may be on the wire: three seconds' worth of the default budget, and far more
/// than a server that answers in time ever sees.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

#[derive(Clone)]
pub(crate) struct ConcurrencyLimit {
    env: Env,
    /// Fair: tokio's semaphore hands over in the order of arrival.
    places: Arc<Semaphore>,
}

impl ConcurrencyLimit {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, places: Arc::new(Semaphore::new(MAX_IN_FLIGHT)) }
    }
}

impl Middleware for ConcurrencyLimit {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        // Without an end, either: such a request would keep its place forever.
        if notes.info().is_watch() || is_unlimited(&request) {
            return next.send(request).await;
        }
        let came = self.env.now();
        let place = self.places.acquire_owned().await?;
        notes.held_back(self.env.now().saturating_duration_since(came));
        let response = next.send(request).await?;
        Ok(response.map(|inner| PermitBody { inner, _place: place }.boxed_unsync()))
    }
}

/// A body that occupies its connection, and so its place, until it is dropped.
struct PermitBody {
    inner: ResponseBody,
    _place: OwnedSemaphorePermit,
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
