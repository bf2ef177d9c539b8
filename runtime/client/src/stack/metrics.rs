//! Counts every request, regardless of its outcome.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode};
use kube::client::Body;
use tower::BoxError;
use windlass_env::{Env, Instant};
use windlass_metrics::RequestMetrics;
use windlass_object::request::RequestInfo;

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseResult};
use crate::error::{
    DeadlineError, DrainingError, FencedError, IdentityError, KilledError, NotDeclaredError,
    ReconcileEndedError,
};

/// Request metrics of one identity for one server.
#[derive(Clone)]
pub(crate) struct RequestMeter {
    pub(crate) metrics: RequestMetrics,
    pub(crate) host: Arc<str>,
}

impl RequestMeter {
    pub(crate) fn throttled(&self, request: &Request<Body>, state: &RequestState, waited: Duration) {
        self.metrics.limited(&verb_of(state.info(), request.method()), &self.host, waited);
    }

    pub(crate) fn retried(&self, request: &Request<Body>, state: &RequestState, met: StatusCode) {
        self.metrics.retried(&verb_of(state.info(), request.method()), met.as_str(), &self.host);
    }
}

#[derive(Clone)]
pub(crate) struct MetricsMiddleware {
    pub(crate) env: Env,
    pub(crate) meter: RequestMeter,
}

impl Middleware for MetricsMiddleware {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        let mut recorder = RequestRecorder {
            verb: verb_of(state.info(), request.method()),
            resource: resource_of(state.info()),
            started: self.env.now(),
            code: CANCELLED.into(),
            state,
            count: self,
        };
        let answer = next.send(request).await;
        recorder.code = code_of(&answer);
        answer
    }
}

/// A request in progress. Recorded when dropped, so that requests that the caller dropped are counted too.
struct RequestRecorder {
    verb: String,
    resource: String,
    started: Instant,
    code: String,
    state: RequestState,
    count: MetricsMiddleware,
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        let elapsed = self.count.env.now().saturating_duration_since(self.started);
        // The time before the request was sent does not show how fast the server responds.
        let answered_in = elapsed.saturating_sub(self.state.waited());
        let RequestMeter { metrics, host } = &self.count.meter;
        metrics.observe(&self.verb, &self.resource, &self.code, host, answered_in);
    }
}

const CANCELLED: &str = "<cancelled>";

/// Returns the verb, or the method for non-resource requests.
fn verb_of(info: &RequestInfo, method: &http::Method) -> String {
    match info {
        RequestInfo::Resource(request) => request.verb.as_str().into(),
        RequestInfo::Other { .. } => method.as_str().to_ascii_lowercase(),
    }
}

/// Returns `replicasets.apps` or `replicasets.apps/status`; an empty string for non-resource requests.
fn resource_of(info: &RequestInfo) -> String {
    let Some(request) = info.resource() else { return String::new() };
    let path = &request.path;
    match &path.subresource {
        Some(subresource) => format!("{}/{subresource}", path.group_resource()),
        None => path.group_resource().to_string(),
    }
}

/// Returns the status code of the response, or the reason why there is none.
fn code_of(answer: &ResponseResult) -> String {
    match answer {
        Ok(response) => response.status().as_str().into(),
        Err(error) => kept_from(error).into(),
    }
}

fn kept_from(error: &BoxError) -> &'static str {
    if error.is::<FencedError>() || error.is::<KilledError>() {
        "<fenced>"
    } else if error.is::<ReconcileEndedError>() {
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
