//! Ends the writes of a client with the turn of its key: none is sent after the reconcile has ended, and one that is
//! under way at that moment is dropped. So no write of an earlier reconcile arrives next to those of the next.

use std::pin::pin;

use futures_util::future::{Either, select};
use http::Request;
use kube::client::Body;
use windlass_env::watch_channel::Receiver;

use super::{Middleware, Next, RequestState, ResponseResult};
use crate::error::TurnOverError;

/// A turn, which is over when the cell is closed.
#[derive(Clone)]
pub(crate) struct During(pub(crate) Receiver<()>);

impl Middleware for During {
    async fn handle(mut self, mut request: Request<Body>, next: Next) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        if !notes.info().is_mutating() {
            return next.send(request).await;
        }
        let over = pin!(self.0.wait_for(|()| false));
        // The turn is asked first, before each step of the write.
        match select(over, next.send(request)).await {
            Either::Right((answer, _)) => answer,
            Either::Left(_) if notes.was_sent() => Err(TurnOverError::Interrupted.into()),
            Either::Left(_) => Err(TurnOverError::NotSent.into()),
        }
    }
}
