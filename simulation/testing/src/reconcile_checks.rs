//! Checks requests of reconciles and of dry runs when they are sent.
//!
//! A layer around each reconcile tags the clients of the reconcile. A reconcile ends when it is dropped before it
//! returns, or when the next reconcile of its key begins. Tasks of a reconcile that returned can still write, so such a
//! reconcile counts as finished only when the next one begins. A context in dry-run mode tags its requests when they
//! are created.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tower::Service;
use windlass_api_server::faults::ProcessId;
use windlass_client::{ControllerClients, DryRun};
use windlass_controller::host::ReconcileLayer;
use windlass_controller::{Outcome, ReconcileError, Registration};
use windlass_env::Env;
use windlass_object::ObjectKey;
use windlass_object::request::{RequestInfo, parameter};

use crate::oracle::Oracle;
use crate::violation::Violation;

/// One reconcile of a key. The requests of its clients carry it.
#[derive(Debug)]
struct ReconcileTag {
    /// Controller and key.
    key: String,
    over: AtomicBool,
}

impl ReconcileTag {
    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Ends a reconcile when it is dropped, unless the reconcile returned.
struct Running(Option<Arc<ReconcileTag>>);

impl Running {
    fn returned(mut self) {
        self.0 = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(tag) = self.0.take() {
            tag.end();
        }
    }
}

/// Layer around the reconciles of one controller in one process.
struct ReconcileTagLayer {
    controller: &'static str,
    /// Last reconcile of each key.
    last: Mutex<BTreeMap<ObjectKey, Arc<ReconcileTag>>>,
}

/// Returns the same controller, with its tagged requests checked by a [`CheckedLink`].
pub(crate) fn with_reconcile_checks(registration: Registration) -> Registration {
    registration.with_layer(|setup| {
        Arc::new(ReconcileTagLayer { controller: setup.descriptor().name, last: Mutex::default() })
    })
}

impl ReconcileLayer for ReconcileTagLayer {
    fn around<'a>(
        &'a self,
        key: &'a ObjectKey,
        reconcile: BoxFuture<'a, Result<Outcome, ReconcileError>>,
    ) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let running = Running(last.get(key).cloned());
        Box::pin(async move {
            let returned = reconcile.await;
            running.returned();
            returned
        })
    }

    fn clients(&self, key: &ObjectKey, clients: &ControllerClients) -> Option<ControllerClients> {
        let name = format!("{} {key}", self.controller);
        let tag = Arc::new(ReconcileTag { key: name, over: AtomicBool::new(false) });
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(previous) = last.insert(key.clone(), Arc::clone(&tag)) {
            previous.end();
        }
        Some(clients.tagged(tag))
    }
}

/// Link of a process that checks tagged requests.
#[derive(Clone)]
pub(crate) struct CheckedLink<S> {
    pub(crate) link: S,
    pub(crate) process: ProcessId,
    pub(crate) oracle: Arc<Oracle>,
    /// Env of the world, whose clock shows true time.
    pub(crate) world: Env,
}

impl<S> CheckedLink<S> {
    /// Returns the violation of a request that is being sent.
    fn violation_of(&self, request: &Request<Body>) -> Option<Violation> {
        let tag = request.extensions().get::<Arc<ReconcileTag>>()?;
        let (method, uri) = (request.method(), request.uri());
        if !RequestInfo::classify(method, uri.path(), uri.query()).is_mutating() {
            return None;
        }
        let (process, key, at) = (self.process.to_string(), tag.key.clone(), self.world.now().since_origin());
        let is_wanted_dry = request.extensions().get::<DryRun>().is_some();
        if tag.is_over() {
            Some(Violation::WriteAfterReconcile { process, request: format!("{method} {uri}"), key, at })
        } else if is_wanted_dry && !is_dry(request) {
            Some(Violation::WriteInDryRun { process, request: format!("{method} {uri}"), key, at })
        } else {
            None
        }
    }
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for CheckedLink<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.link.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        if let Some(violation) = self.violation_of(&request) {
            self.oracle.report(violation);
        }
        self.link.call(request)
    }
}

/// Returns whether a server handles the request as a dry run. It reads the options of a deletion from the body, if
/// present.
fn is_dry(request: &Request<Body>) -> bool {
    let in_query = parameter(request.uri().query(), "dryRun").is_some_and(|value| value == "All");
    if request.method() != Method::DELETE {
        return in_query;
    }
    let body = request.body().try_clone().and_then(|body| body.collect().now_or_never());
    let Some(Ok(body)) = body else { return false };
    let body = body.to_bytes();
    let options: Value = serde_json::from_slice(&body).unwrap_or_default();
    if body.is_empty() { in_query } else { options["dryRun"] == json!(["All"]) }
}
