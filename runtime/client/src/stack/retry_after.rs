//! Sends again what a busy server turned away.
//!
//! Retries belong to the caller, who alone knows whether doing a thing twice does harm; this is the one exception.
//! A 429 is given before the request takes effect, so that no verb can be done twice, and a server that names a time
//! asks for the same request again, not for another reconcile: every client of the API is expected to comply, and
//! few callers would. Errors of the server (5xx) may have taken effect and are never repeated. Nor are refusals that
//! name no time, as an eviction's that a disruption budget forbids: they stand until something changes.
//!
//! All of it is over soon enough for a caller to remain alive: a try that would begin later than the request's own
//! deadline after the first is left to the caller, who gets the server's words and the time that it asks for.
//!
//! Each try passes limiter, deadline and fence again. Watches and the lists of informers are exempt: their readers have a
//! pace of their own.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use tower::BoxError;
use windlass_env::Env;
use windlass_object::wire;

use super::{
    Middleware, Next, RequestState, ResponseBody, ResponseResult, copy, full, metrics::RequestMeter, read,
    request_options::time_limit,
};
use crate::error::{advised_by_headers, advised_by_status};

/// How often a request is sent at most, as other clients of the API do.
const MAX_TRIES: usize = 10;
/// A server that says "at once" is busy all the same.
const MIN_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct RetryAfter {
    pub(crate) env: Env,
    pub(crate) meter: RequestMeter,
    /// How long after the first try the last can begin.
    pub(crate) within: Duration,
}

impl Middleware for RetryAfter {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        let notes = RequestState::of(&mut request);
        if notes.info().is_watch() {
            return next.send(request).await;
        }
        let until = self.env.now() + time_limit(&request, self.within);
        for _ in 1..MAX_TRIES {
            // A body that is a stream can be sent once only.
            let Some(again) = copy(&request) else { break };
            let response = next.send(request).await?;
            if response.status() != StatusCode::TOO_MANY_REQUESTS {
                return Ok(response);
            }
            notes.mark_refused();
            match advice(response).await? {
                (Some(wait), response) if self.env.now() + wait > until => return Ok(response),
                (Some(wait), _) => self.wait(wait, &notes).await,
                (None, response) => return Ok(response),
            }
            self.meter.retried(&again, &notes, StatusCode::TOO_MANY_REQUESTS);
            request = again;
        }
        next.send(request).await
    }
}

impl RetryAfter {
    async fn wait(&self, wait: Duration, notes: &RequestState) {
        self.env.sleep(wait).await;
        notes.held_back(wait);
    }
}

/// Returns how long a busy server wants the client to wait, if it says so, and its answer.
///
/// Reads the body only where the headers do not tell, as behind a proxy that drops them.
async fn advice(
    response: Response<ResponseBody>,
) -> Result<(Option<Duration>, Response<ResponseBody>), BoxError> {
    if let Some(wait) = advised_by_headers(response.headers()) {
        return Ok((Some(wait.max(MIN_WAIT)), response));
    }
    let (parts, body) = response.into_parts();
    let body = read(body).await?;
    let wait = advised_by_status(&wire::status(parts.status.as_u16(), &body));
    Ok((wait.map(|wait| wait.max(MIN_WAIT)), Response::from_parts(parts, full(body))))
}
