//! Limits the writes of a client to the reconcile of its key: no write is sent after the reconcile has returned, and a
//! write in flight is dropped. Writes of consecutive reconciles therefore do not overlap.

use std::pin::pin;

use futures_util::future::{Either, select};
use windlass_env::watch_channel::Receiver;

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseResult};
use crate::error::ReconcileEndedError;

/// Middleware for one reconcile, which ends when the channel is closed.
#[derive(Clone)]
pub(crate) struct ReconcileScopeMiddleware(pub(crate) Receiver<()>);

impl Middleware for ReconcileScopeMiddleware {
    async fn handle(mut self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        if !state.info().is_mutating() {
            return next.send(request).await;
        }
        let over = pin!(self.0.wait_for(|()| false));
        // The end of the reconcile is checked before each poll of the write.
        match select(over, next.send(request)).await {
            Either::Right((answer, _)) => answer,
            Either::Left(_) if state.was_sent() => Err(ReconcileEndedError::Interrupted.into()),
            Either::Left(_) => Err(ReconcileEndedError::NotSent.into()),
        }
    }
}
