//! The switch of a process that shuts down: from then on nobody waits, and what is on the wire is answered.
//!
//! A request that can leave at once still does, so that a reconcile that is about to end comes to its end. One that
//! would have to wait, for the limiter, for a place on the wire or for a busy server, fails instead: a reconcile that
//! has queued hundreds of requests would hold up the hand-over for as long as the limiter lets them trickle.

use std::{future::poll_fn, pin::pin, task::Poll};

use futures_util::future::{FutureExt as _, pending};
use http::Request;
use kube::client::Body;
use windlass_env::watch_channel::Receiver;

use super::{Middleware, Next, RequestState, ResponseResult};
use crate::error::DrainingError;

#[derive(Clone)]
pub(crate) struct Drain(pub(crate) Receiver<bool>);

impl Middleware for Drain {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        let mut switched = pin!(self.switched().fuse());
        let mut answer = next.send(request);
        let mut draining = false;
        poll_fn(|cx| {
            // Asked first: whoever need not wait is let through.
            if let Poll::Ready(answer) = answer.poll_unpin(cx) {
                return Poll::Ready(answer);
            }
            draining = draining || switched.poll_unpin(cx).is_ready();
            if draining && !notes.was_sent() { Poll::Ready(Err(DrainingError.into())) } else { Poll::Pending }
        })
        .await
    }
}

impl Drain {
    /// Resolves once the process shuts down.
    async fn switched(self) {
        let mut switch = self.0;
        if switch.wait_for(|draining| *draining).await.is_err() {
            // Nobody is left who could throw the switch.
            pending::<()>().await;
        }
    }
}
