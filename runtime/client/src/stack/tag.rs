//! Tags requests for observers of the wire: the turn that a request belongs to, for instance.

use http::{Extensions, Request};
use kube::client::Body;

use super::{Middleware, Next, ResponseResult};

/// Notes on a request that it is of a context in dry-run mode, whatever its query contains.
#[derive(Copy, Clone, Debug)]
pub struct DryRun;

/// Adds these extensions to each request.
#[derive(Clone)]
pub(crate) struct Tags(pub(crate) Extensions);

impl Middleware for Tags {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        request.extensions_mut().extend(self.0);
        next.send(request).await
    }
}
