//! Interface of the server behind a network.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use serde_json::Value;

use super::request_summary::RequestSummary;
use crate::body::Body;
use crate::rights::{DenialObserver, Grant};
use crate::server::RecordedAccess;
use crate::webhooks::WebhookHandler;

/// The server behind a network.
pub trait Server: Send + Sync + 'static {
    /// Answers a request. The request takes effect while the future is polled.
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Body>>;

    /// Returns another replica of this server. Its cache for watches and for lists at version 0 stops now.
    fn stale(&self) -> Arc<dyn Server>;

    /// Returns all objects.
    fn objects(&self) -> Vec<Value>;

    /// Returns whether the object that the request names exists; true if the server cannot report it.
    fn has_object(&self, request: &RequestSummary) -> bool {
        let _ = request;
        true
    }

    /// Returns the revision of the latest write. Objects are unchanged while it is. `None` if the server cannot
    /// report it; its objects are then read each time.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// Restricts `user` to these grants: see [`ApiServer::restrict`](crate::ApiServer::restrict). `observer` is
    /// called for each denied request of all restricted users.
    ///
    /// # Panics
    /// If the server cannot enforce the grants.
    fn restrict(&self, user: &str, grants: Vec<Grant>, observer: DenialObserver) {
        let _ = observer;
        panic!("cannot restrict {user} to {} grants: this server does not enforce permissions", grants.len());
    }

    /// Serves the webhooks at an address: see [`ApiServer::serve_webhooks`](crate::ApiServer::serve_webhooks).
    ///
    /// # Panics
    /// If the server does not call webhooks.
    fn serve_webhooks(&self, address: &str, handler: WebhookHandler) {
        drop(handler);
        panic!("cannot serve webhooks at {address}: this server does not call webhooks");
    }

    /// Returns the requests of all users: see [`ApiServer::recorded_accesses`](crate::ApiServer::recorded_accesses).
    /// Empty if the server does not record them.
    fn used(&self) -> BTreeSet<RecordedAccess> {
        BTreeSet::new()
    }
}
