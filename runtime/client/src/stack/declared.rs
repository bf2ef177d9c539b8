//! Refuses what a controller has not declared.

use std::{fmt, sync::Arc};

use http::Request;
use kube::client::Body;
use windlass_object::Verb;

use super::{Answer, Next, Notes, Step};

/// What a controller has declared it does.
pub trait DeclaredVerbs: Send + Sync + fmt::Debug {
    /// Whether `verb` on `resource` of `group` was declared; subresources are written `pods/status`.
    fn permits(&self, verb: Verb, group: &str, resource: &str) -> bool;
}

/// A request that its controller has not declared, and so has no role for. It was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: {verb} on {resource:?} of API group {group:?} was not declared by this controller")]
pub struct NotDeclaredError {
    /// What was to be done.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with its subresource: `pods/status`.
    pub resource: String,
}

#[derive(Clone)]
pub(crate) struct Declared(pub(crate) Arc<dyn DeclaredVerbs>);

impl Step for Declared {
    async fn handle(self, mut request: Request<Body>, next: Next) -> Answer {
        let notes = Notes::of(&mut request);
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
