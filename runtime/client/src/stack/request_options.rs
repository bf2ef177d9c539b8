//! Options of the requests of one client: a separate time limit, and dry runs.
//!
//! A dry run is a query parameter, so that the write log observes it. Delete requests also contain it in their body: if
//! there is a body, the server reads the options from it and ignores the query.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tower::BoxError;

use super::{BoxedRequest, Middleware, Next, RequestState, ResponseResult, with_parameter};

/// Options of the requests of one client. See [`ControllerClients::with`](crate::ControllerClients::with).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestOptions {
    /// Time limit of a request, from sending it to the last byte of the response; also limits retries for a busy
    /// server. `None` selects the time limit of the process
    /// ([`ClientOptions::request_timeout`](crate::ClientOptions::request_timeout)). `Duration::MAX` disables the limit,
    /// for logs that are followed; such a request does not count as in flight. For lists and watches whose response has
    /// started, the limits of the process apply.
    pub timeout: Option<Duration>,
    /// Whether writes are dry runs: the server validates them and responds as if they took effect, but changes nothing.
    /// Requests that the server forwards, such as commands and proxy requests, still take effect.
    pub dry_run: bool,
}

impl RequestOptions {
    /// Returns options with this time limit.
    pub fn within(timeout: Duration) -> Self {
        Self { timeout: Some(timeout), dry_run: false }
    }

    /// Returns options for dry runs.
    pub fn dry_run() -> Self {
        Self { timeout: None, dry_run: true }
    }

    /// Returns these options; options that are not set are taken from `others`.
    pub(crate) fn over(self, others: Self) -> Self {
        Self { timeout: self.timeout.or(others.timeout), dry_run: self.dry_run || others.dry_run }
    }
}

impl Middleware for RequestOptions {
    async fn handle(self, mut request: BoxedRequest, next: Next) -> ResponseResult {
        if let Some(timeout) = self.timeout {
            request.extensions_mut().insert(Within(timeout));
        }
        if self.dry_run && RequestState::of(&mut request).info().is_mutating() {
            request = dry_run(request).await?;
        }
        next.send(request).await
    }
}

/// Error for a delete request whose options could not be changed to a dry run.
#[derive(Debug, thiserror::Error)]
#[error("not sent: cannot add dry run to the delete options; write them in JSON")]
struct OptionsError(#[source] serde_json::Error);

/// Time limit of a request, which replaces that of its stack.
#[derive(Copy, Clone)]
struct Within(Duration);

/// Returns the time limit of a request: its own, or that of the stack.
pub(crate) fn time_limit(request: &Request<Body>, of_stack: Duration) -> Duration {
    request.extensions().get::<Within>().map_or(of_stack, |Within(limit)| *limit)
}

/// Returns whether a request has no time limit.
pub(crate) fn is_unlimited(request: &Request<Body>) -> bool {
    time_limit(request, Duration::ZERO) == Duration::MAX
}

async fn dry_run(request: BoxedRequest) -> Result<BoxedRequest, BoxError> {
    let (mut parts, mut body) = request.into_parts();
    parts.uri = with_parameter(&parts.uri, "dryRun", "All")?;
    if parts.method == Method::DELETE {
        body = Body::from(deletion(&body.collect().await?.to_bytes())?);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Ok(Box::new(Request::from_parts(parts, body)))
}

/// Returns the delete options with dry run enabled.
fn deletion(options: &Bytes) -> Result<Vec<u8>, BoxError> {
    if options.is_empty() {
        return Ok(Vec::new());
    }
    let mut options: Map<String, Value> = serde_json::from_slice(options).map_err(OptionsError)?;
    options.insert("dryRun".to_owned(), json!(["All"]));
    Ok(serde_json::to_vec(&options)?)
}
