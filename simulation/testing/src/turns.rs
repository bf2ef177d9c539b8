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
struct Turn {
    /// Controller and key.
    key: String,
    over: AtomicBool,
}

impl Turn {
    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Ends a reconcile when it is dropped, unless the reconcile returned.
struct Running(Option<Arc<Turn>>);

impl Running {
    fn returned(mut self) {
        self.0 = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(turn) = self.0.take() {
            turn.end();
        }
    }
}

/// Layer around the reconciles of one controller in one process.
struct Turns {
    controller: &'static str,
    /// Last reconcile of each key.
    last: Mutex<BTreeMap<ObjectKey, Arc<Turn>>>,
}

/// Returns the same controller, with its tagged requests checked by a [`TurnLine`].
pub(crate) fn with_judged_turns(registration: Registration) -> Registration {
    registration
        .with_layer(|setup| Arc::new(Turns { controller: setup.descriptor().name, last: Mutex::default() }))
}

impl ReconcileLayer for Turns {
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
        let turn = Arc::new(Turn { key: name, over: AtomicBool::new(false) });
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(previous) = last.insert(key.clone(), Arc::clone(&turn)) {
            previous.end();
        }
        Some(clients.tagged(turn))
    }
}

/// Link of a process that checks tagged requests.
#[derive(Clone)]
pub(crate) struct TurnLine<S> {
    pub(crate) line: S,
    pub(crate) who: ProcessId,
    pub(crate) judge: Arc<Oracle>,
    /// Env of the world, whose clock shows true time.
    pub(crate) world: Env,
}

impl<S> TurnLine<S> {
    /// Returns the violation of a request that is being sent.
    fn flaw(&self, request: &Request<Body>) -> Option<Violation> {
        let turn = request.extensions().get::<Arc<Turn>>()?;
        let (method, uri) = (request.method(), request.uri());
        if !RequestInfo::classify(method, uri.path(), uri.query()).is_mutating() {
            return None;
        }
        let (who, key, at) = (self.who.to_string(), turn.key.clone(), self.world.now().since_origin());
        let is_wanted_dry = request.extensions().get::<DryRun>().is_some();
        if turn.is_over() {
            Some(Violation::WriteAfterReconcile { who, request: format!("{method} {uri}"), key, at })
        } else if is_wanted_dry && !is_dry(request) {
            Some(Violation::WriteInDryRun { who, request: format!("{method} {uri}"), key, at })
        } else {
            None
        }
    }
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for TurnLine<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.line.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        if let Some(flaw) = self.flaw(&request) {
            self.judge.object(flaw);
        }
        self.line.call(request)
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
