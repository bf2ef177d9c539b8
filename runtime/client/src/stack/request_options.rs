//! Options of the requests of one client: a time limit of their own, and dry runs.
//!
//! A dry run is a parameter of the query, so the write log further inwards knows it. Deletions have it in their body as
//! well: the server reads their options from the body if there is one, and then ignores the query.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tower::BoxError;

use super::{Middleware, Next, RequestState, ResponseResult, with_parameter};

/// Options of the requests of one client. See [`ControllerClients::with`](crate::ControllerClients::with).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestOptions {
    /// How long a request can take once it is sent, to the last byte of its answer, and how long it is repeated while the
    /// server is busy. `None` is the time limit of the process
    /// ([`ClientOptions::request_timeout`](crate::ClientOptions::request_timeout)); `Duration::MAX` is no limit, for logs that
    /// are followed: such a request does not count as one in flight. Lists and watches whose answer has begun end as those of
    /// the process do.
    pub timeout: Option<Duration>,
    /// Whether writes are dry runs: the server checks them and answers as if it had written, and changes nothing. What it
    /// forwards to others, such as commands and the requests of a proxy, has an effect all the same.
    pub dry_run: bool,
}

impl RequestOptions {
    /// Requests that can take this long.
    pub fn within(timeout: Duration) -> Self {
        Self { timeout: Some(timeout), dry_run: false }
    }

    /// Writes that change nothing.
    pub fn dry_run() -> Self {
        Self { timeout: None, dry_run: true }
    }

    /// These options, and those of `others` that are not set here.
    pub(crate) fn over(self, others: Self) -> Self {
        Self { timeout: self.timeout.or(others.timeout), dry_run: self.dry_run || others.dry_run }
    }
}

impl Middleware for RequestOptions {
    async fn handle(self, mut request: Request<Body>, next: Next) -> ResponseResult {
        if let Some(timeout) = self.timeout {
            request.extensions_mut().insert(Within(timeout));
        }
        if self.dry_run && RequestState::of(&mut request).info().is_mutating() {
            request = dry_run(request).await?;
        }
        next.send(request).await
    }
}

/// A deletion whose options could not be made those of a dry run.
#[derive(Debug, thiserror::Error)]
#[error("not sent: a deletion in a dry run takes its options in JSON")]
struct OptionsError(#[source] serde_json::Error);

/// How long a request can take, instead of the time limit of its stack.
#[derive(Copy, Clone)]
struct Within(Duration);

/// How long a request can take: its own time limit, or else that of the stack.
pub(crate) fn time_limit(request: &Request<Body>, of_stack: Duration) -> Duration {
    request.extensions().get::<Within>().map_or(of_stack, |Within(limit)| *limit)
}

/// Whether a request has no time limit.
pub(crate) fn is_unlimited(request: &Request<Body>) -> bool {
    time_limit(request, Duration::ZERO) == Duration::MAX
}

async fn dry_run(request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let (mut parts, mut body) = request.into_parts();
    parts.uri = with_parameter(&parts.uri, "dryRun", "All")?;
    if parts.method == Method::DELETE {
        body = Body::from(deletion(&body.collect().await?.to_bytes())?);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Ok(Request::from_parts(parts, body))
}

/// The options of a deletion, as a dry run.
fn deletion(options: &Bytes) -> Result<Vec<u8>, BoxError> {
    if options.is_empty() {
        return Ok(Vec::new());
    }
    let mut options: Map<String, Value> = serde_json::from_slice(options).map_err(OptionsError)?;
    options.insert("dryRun".to_owned(), json!(["All"]));
    Ok(serde_json::to_vec(&options)?)
}
