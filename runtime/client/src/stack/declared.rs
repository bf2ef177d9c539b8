//! Refuses what a controller has not declared.

use std::{fmt, sync::Arc};

use http::Request;
use kube::client::Body;
use windlass_object::Verb;

use super::{Middleware, Next, RequestState, ResponseResult};
use crate::error::NotDeclaredError;

/// What a controller has declared it does.
pub trait DeclaredVerbs: Send + Sync + fmt::Debug {
    /// Whether `verb` on `resource` of `group` was declared; subresources are written `pods/status`.
    fn permits(&self, verb: Verb, group: &str, resource: &str) -> bool;
}

#[derive(Clone)]
pub(crate) struct Declared(pub(crate) Arc<dyn DeclaredVerbs>);

impl Middleware for Declared {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        if let Some(about) = notes.info().resource() {
            let resource = about.path.resource_in_roles();
            if !self.0.permits(about.verb, &about.path.group, &resource) {
                let (verb, group) = (about.verb, about.path.group.clone());
                return Err(NotDeclaredError { verb, group, resource }.into());
            }
        }
        next.send(request).await
    }
}
