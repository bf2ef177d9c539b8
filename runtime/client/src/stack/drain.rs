//! Stops waiting requests when the process shuts down; requests in flight complete.
//!
//! A request that can be sent immediately is still sent, so that a reconcile that is almost complete can finish. A
//! request that would wait for the rate limiter, for a permit or for a busy server fails instead: a reconcile with
//! hundreds of queued requests would delay the handoff.

use std::{future::poll_fn, pin::pin, task::Poll};

use futures_util::future::{FutureExt as _, pending};
use windlass_env::watch_channel::Receiver;

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseResult};
use crate::error::DrainingError;

#[derive(Clone)]
pub(crate) struct Drain(pub(crate) Receiver<bool>);

impl Middleware for Drain {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        let mut switched = pin!(self.switched().fuse());
        let mut answer = next.send(request);
        let mut draining = false;
        poll_fn(|cx| {
            // Polled first, so that a request that does not wait still completes.
            if let Poll::Ready(answer) = answer.poll_unpin(cx) {
                return Poll::Ready(answer);
            }
            draining = draining || switched.poll_unpin(cx).is_ready();
            if draining && !state.was_sent() { Poll::Ready(Err(DrainingError.into())) } else { Poll::Pending }
        })
        .await
    }
}

impl Drain {
    /// Waits until the process shuts down.
    async fn switched(self) {
        let mut switch = self.0;
        if switch.wait_for(|draining| *draining).await.is_err() {
            // All senders were dropped, so the process never drains.
            pending::<()>().await;
        }
    }
}
