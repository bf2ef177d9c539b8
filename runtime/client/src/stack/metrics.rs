//! Counts every request, whatever becomes of it.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode};
use kube::client::Body;
use tower::BoxError;
use windlass_env::{Env, Instant};
use windlass_metrics::RequestMetrics;
use windlass_object::request::RequestInfo;

use super::{Middleware, Next, RequestState, ResponseResult};
use crate::error::{
    DeadlineError, DrainingError, FencedError, IdentityError, KilledError, NotDeclaredError, TurnOverError,
};

/// One identity's metrics of requests to one server.
#[derive(Clone)]
pub(crate) struct RequestMeter {
    pub(crate) metrics: RequestMetrics,
    pub(crate) host: Arc<str>,
}

impl RequestMeter {
    pub(crate) fn throttled(&self, request: &Request<Body>, notes: &RequestState, waited: Duration) {
        self.metrics.limited(&verb_of(notes.info(), request.method()), &self.host, waited);
    }

    pub(crate) fn retried(&self, request: &Request<Body>, notes: &RequestState, met: StatusCode) {
        self.metrics.retried(&verb_of(notes.info(), request.method()), met.as_str(), &self.host);
    }
}

#[derive(Clone)]
pub(crate) struct MetricsMiddleware {
    pub(crate) env: Env,
    pub(crate) meter: RequestMeter,
}

impl Middleware for MetricsMiddleware {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        let mut tally = RequestRecorder {
            verb: verb_of(notes.info(), request.method()),
            resource: resource_of(notes.info()),
            started: self.env.now(),
            code: CANCELLED.into(),
            notes,
            count: self,
        };
        let answer = next.send(request).await;
        tally.code = code_of(&answer);
        answer
    }
}

/// A request on its way. Counted when dropped, so that those whose callers gave up are counted too.
struct RequestRecorder {
    verb: String,
    resource: String,
    started: Instant,
    code: String,
    notes: RequestState,
    count: MetricsMiddleware,
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        let elapsed = self.count.env.now().saturating_duration_since(self.started);
        // Waiting for a turn says nothing about how fast the server answers.
        let answered_in = elapsed.saturating_sub(self.notes.waited());
        let RequestMeter { metrics, host } = &self.count.meter;
        metrics.observe(&self.verb, &self.resource, &self.code, host, answered_in);
    }
}

const CANCELLED: &str = "<cancelled>";

/// The verb; for requests that are not about objects, the method.
fn verb_of(info: &RequestInfo, method: &http::Method) -> String {
    match info {
        RequestInfo::Resource(request) => request.verb.as_str().into(),
        RequestInfo::Other { .. } => method.as_str().to_ascii_lowercase(),
    }
}

/// `replicasets.apps`, `replicasets.apps/status`; empty for requests that are not about objects.
fn resource_of(info: &RequestInfo) -> String {
    let Some(request) = info.resource() else { return String::new() };
    let path = &request.path;
    match &path.subresource {
        Some(subresource) => format!("{}/{subresource}", path.group_resource()),
        None => path.group_resource().to_string(),
    }
}

/// The answer's code, or what kept it from having one.
fn code_of(answer: &ResponseResult) -> String {
    match answer {
        Ok(response) => response.status().as_str().into(),
        Err(error) => kept_from(error).into(),
    }
}

fn kept_from(error: &BoxError) -> &'static str {
    if error.is::<FencedError>() || error.is::<KilledError>() {
        "<fenced>"
    } else if error.is::<TurnOverError>() {
        "<turn-over>"
    } else if error.is::<NotDeclaredError>() {
        "<undeclared>"
    } else if error.is::<DrainingError>() {
        "<draining>"
    } else if error.is::<IdentityError>() {
        "<identity>"
    } else if error.is::<DeadlineError>() {
        "<timeout>"
    } else {
        "<error>"
    }
}
