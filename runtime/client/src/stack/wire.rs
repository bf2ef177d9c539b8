//! The end of the stack: a connection is acquired first, and the request is handed to it after that.
//!
//! Two steps, so that the gate can decide between them: DNS, TCP and TLS take seconds, and what the fence says before
//! them is not what it says after them.

use futures_util::future::{BoxFuture, FutureExt as _, TryFutureExt as _, ready};
use http::{Request, Response};
use kube::client::Body;
use tower::BoxError;

use super::{Next, ResponseBody};

/// Where requests go.
pub(crate) trait Wire: Send + Sync {
    /// Acquires a connection on which a request can leave at once.
    fn acquire(&self) -> BoxFuture<'static, Result<Box<dyn Line>, BoxError>>;
}

/// An acquired connection, for one request.
pub(crate) trait Line: Send {
    /// Sends the request. Dropping the future drops the connection and what it has not sent.
    fn send(
        self: Box<Self>,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, SendError>>;
}

/// Why a request has no answer.
pub(crate) enum SendError {
    /// The connection was closed before the first byte left.
    Unsent {
        /// The request, if the connection had been idle: it can be sent on another. A server that closes new
        /// connections is not asked again.
        request: Option<Box<Request<Body>>>,
        /// Why the connection was closed.
        error: BoxError,
    },
    /// The server may have seen the request.
    Failed(BoxError),
}

/// A service that stands in for the network. It has no connections, so acquiring one takes no time.
#[derive(Clone)]
pub(crate) struct ServiceWire(pub(crate) Next);

impl Wire for ServiceWire {
    fn acquire(&self) -> BoxFuture<'static, Result<Box<dyn Line>, BoxError>> {
        ready(Ok(Box::new(self.clone()) as Box<dyn Line>)).boxed()
    }
}

impl Line for ServiceWire {
    fn send(
        self: Box<Self>,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, SendError>> {
        self.0.send(request).map_err(SendError::Failed).boxed()
    }
}
