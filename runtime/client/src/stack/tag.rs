//! Tags requests for observers of the connection, for example with the reconcile that a request belongs to.

use http::Extensions;

use super::{BoxedRequest, Middleware, Next, ResponseResult};

/// Marks a request of a context in dry-run mode, regardless of its query.
#[derive(Copy, Clone, Debug)]
pub struct DryRun;

/// Adds these extensions to each request.
#[derive(Clone)]
pub(crate) struct Tags(pub(crate) Extensions);

impl Middleware for Tags {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        request.extensions_mut().extend(self.0);
        next.send(request).await
    }
}
