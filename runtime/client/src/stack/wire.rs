//! The end of the stack: first acquires a connection, then sends the request on it.
//!
//! These are two steps, so that the fence is checked between them: DNS, TCP and TLS can take seconds, and the state of
//! the fence can change in that time.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, TryFutureExt as _, ready};
use http::Response;
use tower::BoxError;

use super::{BoxedRequest, Next, ResponseBody};

/// The destination of requests.
pub(crate) trait Wire: Send + Sync {
    /// Acquires a connection on which a request can be sent immediately.
    fn acquire(&self) -> BoxFuture<'static, Result<Box<dyn Line>, BoxError>>;
}

/// An acquired connection, for one request.
pub(crate) trait Line: Send {
    /// Sends the request while its permit is valid. Dropping the future drops the connection and its unsent data.
    fn send(
        self: Box<Self>,
        request: BoxedRequest,
        permit: Option<SendPermit>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, SendError>>;
}

/// The permission to send a request, which can end while the request is encoded.
#[derive(Clone)]
pub(crate) struct SendPermit(Arc<dyn Fn() -> bool + Send + Sync>);

impl SendPermit {
    pub(crate) fn new(is_valid: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_valid))
    }

    pub(crate) fn is_valid(&self) -> bool {
        (self.0)()
    }
}

/// The reason why a request has no response.
pub(crate) enum SendError {
    /// The connection was closed before the first byte was sent.
    Unsent {
        /// The request, if the connection had been idle: it can be sent on another connection. If a server closes new
        /// connections, the request is not repeated.
        request: Option<BoxedRequest>,
        /// The reason why the connection was closed.
        error: BoxError,
    },
    /// The server might have received the request.
    Failed(BoxError),
}

/// A service that replaces the network. Acquiring a connection takes no time.
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
        request: BoxedRequest,
        _permit: Option<SendPermit>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, SendError>> {
        self.0.send(request).map_err(SendError::Failed).boxed()
    }
}
