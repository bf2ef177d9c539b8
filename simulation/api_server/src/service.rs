//! Access to the server: in process, over a simulated network, and over a socket.
//!
//! Guarantees:
//! - In-process requests and requests over a socket are answered by the same code.
//! - After a stop, watches end and connections close; then [`ApiServer::serve`] returns.

mod listen;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod webhook_tests;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::Value;
use tokio::net::TcpListener;

pub use self::listen::ServeError;

use crate::body::Body;
use crate::faults::{RequestSummary, Server};
use crate::http as requests;
use crate::registry::convert;
use crate::rights::{DenialObserver, Grant};
use crate::server::{ApiServer, RecordedAccess};
use crate::storage::Key;
use crate::webhooks::WebhookHandler;

impl ApiServer {
    /// Serves plain HTTP/1.1 until [`ApiServer::stop`], and returns when all connections have closed.
    ///
    /// # Errors
    /// If the listener is not on a loopback address: the server has no authentication.
    ///
    /// # Cancel safety
    /// Dropping the future stops listening; connections stay open until [`ApiServer::stop`].
    pub fn serve(
        &self,
        listener: TcpListener,
    ) -> impl Future<Output = Result<(), ServeError>> + Send + use<> {
        listen::serve(self.clone(), listener)
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answered = requests::answer(self.clone(), request);
        Box::pin(async move { Ok(answered.await) })
    }
}

impl Server for ApiServer {
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(requests::answer(self.clone(), request.map(Full::new)))
    }

    fn stale(&self) -> Arc<dyn Server> {
        let replica = self.replica();
        replica.view().freeze();
        Arc::new(replica)
    }

    fn objects(&self) -> Vec<Value> {
        let collections: BTreeSet<_> = self.catalog().iter().map(|it| convert::collection(it)).collect();
        let read = |collection| self.view().storage().read(&collection, None).ok();
        let snapshots: Vec<_> = collections.into_iter().filter_map(read).collect();
        snapshots
            .iter()
            .flat_map(|it| it.objects.values())
            .map(|stored| stored.value.read().into_owned())
            .collect()
    }

    fn has_object(&self, request: &RequestSummary) -> bool {
        let collection = convert::collection_of(&request.group, &request.resource);
        let key = Key::new(request.namespace.as_str(), request.name.as_str());
        self.view().storage().get(&collection, &key).is_some()
    }

    fn revision(&self) -> Option<u64> {
        Some(self.view().storage().revision())
    }

    fn restrict(&self, user: &str, grants: Vec<Grant>, observer: DenialObserver) {
        ApiServer::restrict(self, user, grants);
        self.observe_denials(observer);
    }

    fn serve_webhooks(&self, address: &str, handler: WebhookHandler) {
        ApiServer::serve_webhooks(self, address, Some(handler));
    }

    fn used(&self) -> BTreeSet<RecordedAccess> {
        ApiServer::recorded_accesses(self)
    }
}
