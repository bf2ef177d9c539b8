//! What a network needs of the server at its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use serde_json::Value;

use crate::body::Body;
use crate::rights::{DenialObserver, Grant};
use crate::server::RecordedAccess;

/// What a network needs of the server at its end.
pub trait Server: Send + Sync + 'static {
    /// Answers a request. Its effect takes place while the future is polled.
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Body>>;

    /// Another replica of this server, whose cache for watches and for lists at version 0 stops at this moment.
    fn stale(&self) -> Arc<dyn Server>;

    /// Every object there is.
    fn objects(&self) -> Vec<Value>;

    /// The revision of the latest write: as long as it is the same, so is every object. A server that has none to tell
    /// is asked for its objects each time.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// Restricts `user` to these grants: see [`ApiServer::restrict`](crate::ApiServer::restrict). `observer` hears of the
    /// denied requests of all restricted users.
    ///
    /// # Panics
    /// Unless the server can enforce them.
    fn restrict(&self, user: &str, grants: Vec<Grant>, observer: DenialObserver) {
        let _ = observer;
        panic!("this server does not enforce the {} rights of {user}", grants.len());
    }

    /// What users did: see [`ApiServer::used`](crate::ApiServer::used). Empty if the server does not record it.
    fn used(&self) -> BTreeSet<RecordedAccess> {
        BTreeSet::new()
    }
}
