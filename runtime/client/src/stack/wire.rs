//! The end of the stack: a connection is acquired first, and the request is handed to it after that.
//!
//! Two steps, so that the gate can decide between them: DNS, TCP and TLS take seconds, and what the fence says before
//! them is not what it says after them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt as _};

use super::ResponseBody;

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

/// A service that stands in for the network.
pub(crate) fn service<S, B>(service: S) -> Arc<dyn Wire>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Arc::new(ServiceWire(service))
}

#[derive(Clone)]
struct ServiceWire<S>(S);

impl<S, B> Wire for ServiceWire<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn acquire(&self) -> BoxFuture<'static, Result<Box<dyn Line>, BoxError>> {
        ready(Ok(Box::new(self.clone()) as Box<dyn Line>)).boxed()
    }
}

impl<S, B> Line for ServiceWire<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn send(
        self: Box<Self>,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, SendError>> {
        async move {
            let response = self.0.oneshot(request).await.map_err(|error| SendError::Failed(error.into()))?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
        .boxed()
    }
}
