//! Repeats requests that a busy server, or one that shuts down, rejected.
//!
//! In general the caller decides about retries, because only the caller knows whether repeating a request is safe. This
//! is the only exception. The server sends a 429, and a 503 with the header `Retry-After` while it shuts down, before
//! the request takes effect, so repeating is safe for every verb. A server that sends a retry delay expects the same
//! request again, not another reconcile. Other server errors (5xx) might have taken effect and are never repeated. A
//! 429 without a delay is not repeated either, for example an eviction that a PodDisruptionBudget forbids: it fails
//! until something changes.
//!
//! The total time is limited: an attempt that would start later than the request's time limit after the first attempt
//! is not made, and the caller receives the server's error with the requested delay.
//!
//! Each attempt passes rate limiter, timeout and fence again. Watches and the lists of informers are exempt: informers
//! use their own backoff.

use std::time::Duration;

use http::{Response, StatusCode};
use tower::BoxError;
use windlass_env::Env;
use windlass_object::wire;

use super::{
    BoxedRequest, Middleware, Next, RequestState, ResponseBody, ResponseResult, copy, full,
    metrics::RequestMeter, read, request_options::time_limit,
};
use crate::error::{advised_by_headers, advised_by_status};

/// Maximum number of attempts, as in other API clients.
const MAX_TRIES: usize = 10;
/// Reason of the `Status` that kube-apiserver sends with a 503 while it shuts down, before it handles the request.
const SHUTS_DOWN: &str = "ServiceUnavailable";
/// Minimum delay, even if the server sends zero.
const MIN_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct RetryAfter {
    pub(crate) env: Env,
    pub(crate) meter: RequestMeter,
    /// Maximum time between the first and the last attempt.
    pub(crate) within: Duration,
}

impl Middleware for RetryAfter {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        let state = RequestState::of(&mut request);
        if state.info().is_watch() {
            return next.send(request).await;
        }
        let until = self.env.now() + time_limit(&request, self.within);
        for resend in 1..MAX_TRIES {
            // A streaming body can be sent only once.
            let Some(again) = copy(&request) else { break };
            let response = next.send(request).await?;
            let status = response.status();
            let (wait, response) = advice(response).await?;
            if wait.is_some() || status == StatusCode::TOO_MANY_REQUESTS {
                state.mark_rejected();
            }
            match wait {
                Some(wait) if self.env.now() + wait <= until => self.wait(wait, &state).await,
                Some(_) | None => return Ok(response),
            }
            self.meter.retried(&again, &state, status);
            tracing::Span::current().record("http.request.resend_count", resend);
            request = again;
        }
        next.send(request).await
    }
}

impl RetryAfter {
    async fn wait(&self, wait: Duration, state: &RequestState) {
        self.env.sleep(wait).await;
        state.add_wait(wait);
    }
}

/// Returns the delay that a server requests without processing the request, if any, and the response.
///
/// Reads the body of a 429 only if the headers contain no delay, for example behind a proxy that drops them. A 503 must
/// have the body of an API server: a proxy can send one after it has forwarded the request.
async fn advice(
    response: Response<ResponseBody>,
) -> Result<(Option<Duration>, Response<ResponseBody>), BoxError> {
    let by_headers = advised_by_headers(response.headers()).map(|wait| wait.max(MIN_WAIT));
    let needs_body = match response.status() {
        StatusCode::TOO_MANY_REQUESTS => by_headers.is_none(),
        StatusCode::SERVICE_UNAVAILABLE => by_headers.is_some(),
        _ => return Ok((None, response)),
    };
    if !needs_body {
        return Ok((by_headers, response));
    }
    let (parts, body) = response.into_parts();
    let body = read(body).await?;
    let status = wire::status(parts.status.as_u16(), &body);
    let wait = match by_headers {
        // The text of a proxy is read as a status without metadata.
        Some(wait) => Some(wait).filter(|_| status.reason == SHUTS_DOWN && status.metadata.is_some()),
        None => advised_by_status(&status).map(|wait| wait.max(MIN_WAIT)),
    };
    Ok((wait, Response::from_parts(parts, full(body))))
}
