//! Rejects requests that a controller did not declare.

use std::{fmt, sync::Arc};

use windlass_object::Verb;

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseResult};
use crate::error::NotDeclaredError;

/// The verbs that a controller declares.
pub trait DeclaredVerbs: Send + Sync + fmt::Debug {
    /// Returns whether `verb` on `resource` of `group` is declared; subresources have the form `pods/status`.
    fn permits(&self, verb: Verb, group: &str, resource: &str) -> bool;
}

#[derive(Clone)]
pub(crate) struct Declared(pub(crate) Arc<dyn DeclaredVerbs>);

impl Middleware for Declared {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        if let Some(about) = state.info().resource() {
            let resource = about.path.resource_in_roles();
            if !self.0.permits(about.verb, &about.path.group, &resource) {
                let (verb, group) = (about.verb, about.path.group.clone());
                return Err(NotDeclaredError { verb, group, resource }.into());
            }
        }
        next.send(request).await
    }
}
