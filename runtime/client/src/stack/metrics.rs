//! Counts every request, regardless of its outcome, and opens a span for a request of a traced reconcile.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode};
use kube::client::Body;
use tower::BoxError;
use tracing::{Instrument as _, Span, field::Empty};
use windlass_env::{Env, Instant};
use windlass_metrics::RequestMetrics;
use windlass_object::request::RequestInfo;

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseResult};
use crate::error::{
    DeadlineError, DrainingError, FencedError, IdentityError, KilledError, NotDeclaredError,
    ReconcileEndedError,
};

/// The target of spans for traces. Only a subscriber that exports traces enables it; without one, these spans have no
/// cost.
pub const TRACE_TARGET: &str = "windlass::trace";

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
        let (verb, resource) = (verb_of(state.info(), request.method()), resource_of(state.info()));
        let span = span_of(&request, &state, &verb, &resource, &self.meter.host);
        let mut recorder = RequestRecorder {
            verb,
            resource,
            span: span.clone(),
            started: self.env.now(),
            code: CANCELLED.into(),
            state,
            count: self,
        };
        let answer = next.send(request).instrument(span).await;
        recorder.code = code_of(&answer);
        answer
    }
}

/// A request in progress. Recorded when dropped, so that requests that the caller dropped are counted too.
struct RequestRecorder {
    verb: String,
    resource: String,
    span: Span,
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
        if !self.span.is_disabled() {
            record_code(&self.span, &self.code);
        }
    }
}

/// Opens a span for traces, with the attributes that OpenTelemetry defines for HTTP clients.
///
/// A request outside of a span belongs to no reconcile, such as a watch or a renewal of a Lease, and has no span.
fn span_of(request: &Request<Body>, state: &RequestState, verb: &str, resource: &str, host: &str) -> Span {
    if !tracing::span_enabled!(target: TRACE_TARGET, tracing::Level::TRACE) || Span::current().is_disabled() {
        return Span::none();
    }
    let namespace = state.info().resource().and_then(|request| request.path.namespace.as_deref());
    tracing::trace_span!(
        target: TRACE_TARGET,
        "request",
        otel.name = format!("{verb} {resource}").trim_end(),
        otel.kind = "client",
        http.request.method = request.method().as_str(),
        http.request.resend_count = Empty,
        http.response.status_code = Empty,
        server.address = host,
        url.path = request.uri().path(),
        k8s.namespace.name = namespace,
        verb,
        resource,
        error.r#type = Empty,
        otel.status_code = Empty,
    )
}

/// Records the status code, or the reason why there is none.
fn record_code(span: &Span, code: &str) {
    // OpenTelemetry has no unsigned integers.
    let status = code.parse::<i64>().ok();
    if let Some(status) = status {
        span.record("http.response.status_code", status);
    }
    if status.is_none_or(|status| status >= 400) {
        span.record("error.type", code);
        span.record("otel.status_code", "ERROR");
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
