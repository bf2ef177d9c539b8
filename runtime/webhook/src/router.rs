//! Requests by path: bytes in, bytes out, without sockets.
//!
//! Guarantees:
//! - The response precedes the time limit of the API server (`?timeout=`) by 10 %.
//! - A panic of a function is counted and becomes status 500, so that the failure policy decides.
//! - A body is at most 7 MiB, and all bodies together are bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use windlass_controller::BoxError;
use windlass_env::{Env, catch_panic};
use windlass_metrics::{Counted, HookMetrics};

use crate::admission::{self, Function, Verdict};
use crate::conversion::Conversion;
use crate::review::ReviewClients;

/// Limit of a body: an object of at most 3 MiB before and after, with the rest of the review.
pub(crate) const LARGEST_BODY: usize = 7 * 1024 * 1024;

/// Limit of all bodies that are in memory, in [`UNIT`]s: 64 MiB.
const BUDGET: usize = 64 * 1024;

/// The unit of the budget.
const UNIT: usize = 1024;

/// Time limit of a request without `timeout` in its query: the API server's limit for conversions.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The webhooks of a process.
pub(crate) struct Router {
    env: Env,
    routes: BTreeMap<String, Route>,
    clients: ReviewClients,
    caches: CacheCheck,
    budget: Semaphore,
    is_draining: AtomicBool,
}

/// Returns an error while caches are not complete.
pub(crate) type CacheCheck = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A webhook at its path.
pub(crate) struct Route {
    pub(crate) metrics: HookMetrics,
    pub(crate) target: Target,
}

/// The kind of a webhook.
pub(crate) enum Target {
    Admission {
        function: Function,
        /// Whether its setup declares caches.
        reads_caches: bool,
    },
    Conversion(Arc<Conversion>),
}

/// The result of a request.
#[derive(Debug)]
struct Answer {
    result: &'static str,
    status: StatusCode,
    body: Value,
}

impl Answer {
    fn ok(result: &'static str, body: Value) -> Self {
        Self { result, status: StatusCode::OK, body }
    }

    /// Returns a response that is not a review. The API server then applies the failure policy.
    fn error(result: &'static str, status: StatusCode, message: impl fmt::Display) -> Self {
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": message.to_string(), "code": status.as_u16(),
        });
        Self { result, status, body }
    }

    fn rejected(status: StatusCode, message: impl fmt::Display) -> Self {
        Self::error("rejected", status, message)
    }
}

impl Router {
    pub(crate) fn new(
        env: Env,
        routes: BTreeMap<String, Route>,
        clients: ReviewClients,
        caches: CacheCheck,
    ) -> Self {
        let (budget, is_draining) = (Semaphore::new(BUDGET), AtomicBool::new(false));
        Self { env, routes, clients, caches, budget, is_draining }
    }

    /// Closes every connection after its next response, so that clients connect to other replicas.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Responds to a request.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub(crate) async fn respond<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send,
    {
        let begun = self.env.now();
        let (head, body) = request.into_parts();
        let route = self.routes.get(head.uri.path());
        let _in_flight = route.map(|route| Counted::new(&route.metrics.in_flight));
        let limit = time_limit(head.uri.query());
        let answer = match self.env.timeout(limit, self.answer(route, &head, body)).await {
            Ok(answer) => answer,
            Err(_) => {
                let message = format!("the webhook did not respond within {limit:?}");
                Answer::error("timeout", StatusCode::GATEWAY_TIMEOUT, message)
            }
        };
        if let Some(Route { metrics, .. }) = route {
            metrics.requests(answer.result).inc();
            metrics.duration.observe(self.env.now().saturating_duration_since(begun).as_secs_f64());
        }
        if !answer.status.is_success() {
            let message = answer.body["message"].as_str().unwrap_or_default();
            tracing::warn!(
                path = head.uri.path(),
                status = answer.status.as_u16(),
                message,
                "webhook failed"
            );
        }
        self.encoded(answer)
    }

    fn encoded(&self, answer: Answer) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(answer.body.to_string())));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // The rest of a rejected body is not read.
        if self.is_draining.load(Ordering::Relaxed) || answer.result == "rejected" {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn answer<B>(&self, route: Option<&Route>, head: &Parts, body: B) -> Answer
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send,
    {
        let Some(route) = route else {
            return Answer::rejected(StatusCode::NOT_FOUND, "no webhook has this path");
        };
        if head.method != Method::POST {
            return Answer::rejected(StatusCode::METHOD_NOT_ALLOWED, "only POST is served");
        }
        let media_type = head.headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if media_type.is_none_or(|it| it.split(';').next().map(str::trim) != Some("application/json")) {
            let message = "the media type of the body must be application/json";
            return Answer::rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        }
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let length = length.unwrap_or(LARGEST_BODY);
        if length > LARGEST_BODY {
            return too_large();
        }
        let units = u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // The semaphore is never closed, so this waits and cannot fail.
        let _budget = self.budget.acquire_many(units).await;
        let body = match Limited::new(std::pin::pin!(body), LARGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => return too_large(),
            Err(error) => return Answer::rejected(StatusCode::BAD_REQUEST, error),
        };
        self.call(route, body).await
    }

    /// Calls the function of a webhook.
    async fn call(&self, route: &Route, body: Bytes) -> Answer {
        let called = match &route.target {
            Target::Admission { function, reads_caches } => {
                if let (true, Err(why)) = (reads_caches, (self.caches)()) {
                    let message = format!("the caches of the webhooks are not complete: {why}");
                    return Answer::error("failed", StatusCode::INTERNAL_SERVER_ERROR, message);
                }
                catch_panic(self.review(function, &body)).await
            }
            Target::Conversion(conversion) => catch_panic(async { convert(conversion, &body) }).await,
        };
        called.unwrap_or_else(|message| {
            route.metrics.panics.inc();
            let message = format!("the webhook panicked: {message}");
            Answer::error("panicked", StatusCode::INTERNAL_SERVER_ERROR, message)
        })
    }

    async fn review(&self, function: &Function, body: &[u8]) -> Answer {
        let core = match admission::decode(body, self.clients.clone()) {
            Ok(core) => core,
            Err(message) => return Answer::rejected(StatusCode::BAD_REQUEST, message),
        };
        match admission::respond(function, &core).await {
            Ok(Verdict::Allowed(review)) => Answer::ok("allowed", review),
            Ok(Verdict::Denied(review)) => Answer::ok("denied", review),
            Err(message) => Answer::error("failed", StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

fn convert(conversion: &Conversion, body: &[u8]) -> Answer {
    match conversion.respond(body) {
        Ok((review, true)) => Answer::ok("converted", review),
        Ok((review, false)) => Answer::ok("failed", review),
        Err(message) => Answer::rejected(StatusCode::BAD_REQUEST, message),
    }
}

fn too_large() -> Answer {
    let message = format!("the body is longer than {LARGEST_BODY} bytes");
    Answer::rejected(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// Returns the time for a response: nine tenths of `timeout` in the query, a Go duration of seconds or milliseconds.
fn time_limit(query: Option<&str>) -> Duration {
    let parameter = query.unwrap_or_default().split('&').find_map(|it| it.strip_prefix("timeout="));
    let stated = parameter.and_then(|value| {
        let parsed = |digits: &str| digits.parse::<f64>().ok();
        let seconds = match value.strip_suffix("ms") {
            Some(digits) => parsed(digits)? / 1000.0,
            None => parsed(value.strip_suffix('s')?)?,
        };
        Duration::try_from_secs_f64(seconds).ok()
    });
    stated.filter(|it| *it <= DEFAULT_TIMEOUT).unwrap_or(DEFAULT_TIMEOUT).mul_f64(0.9)
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("paths", &self.routes.keys()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_is_nine_tenths_of_timeout_in_query() {
        for (query, milliseconds) in [
            (Some("timeout=10s"), 9_000),
            (Some("a=b&timeout=500ms"), 450),
            (Some("timeout=1.5s"), 1_350),
            (Some("timeout=soon"), 27_000),
            (Some("timeout=1h"), 27_000),
            (Some("timeout=900s"), 27_000),
            (None, 27_000),
        ] {
            assert_eq!(time_limit(query), Duration::from_millis(milliseconds), "{query:?}");
        }
    }
}
