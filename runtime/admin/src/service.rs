//! Request processing: method, authorization, endpoint, response.
//!
//! The server reads only the head of a request, and calls an endpoint only after authorization. Paths that are always
//! allowed wait for no review. The memory of all responses that are being sent is bounded.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_env::catch_panic_sync;
use windlass_metrics::AdminMetrics;

use crate::delegated_auth::{AuthError, DelegatedAuth};
use crate::pages::{PageRequest, PageResponse, Pages, query};

/// The media type that Prometheus expects for its text format.
pub(crate) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Memory limit of all responses in [`UNIT`]s, from creation until the last byte is written to the socket: 64 MiB,
/// which is several dozen scrapes of a large process.
const BUDGET: usize = 4096;
const UNIT: usize = 16 * 1024;

/// The access policy.
#[derive(Debug)]
pub(crate) enum AccessPolicy {
    /// All clients can read all paths.
    Open,
    /// All clients can read paths that are always allowed. Other paths need a review.
    Reviewed { always_allow: Vec<String>, reviews: Box<DelegatedAuth> },
}

/// The endpoints, with their access policy.
pub(crate) struct AdminService {
    pages: Pages,
    leave: AccessPolicy,
    metrics: AdminMetrics,
    budget: Arc<Semaphore>,
}

/// The result of a successful authorization.
struct Authorized {
    /// Whether a review allowed the request.
    reviewed: bool,
}

impl AdminService {
    pub(crate) fn new(pages: Pages, leave: AccessPolicy, metrics: AdminMetrics) -> Self {
        Self { pages, leave, metrics, budget: Arc::new(Semaphore::new(BUDGET)) }
    }

    /// Responds to a request from `peer`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub(crate) async fn respond<B: Body>(&self, request: Request<B>, peer: IpAddr) -> Response<Full<Bytes>> {
        // The body is dropped without reading it, and the connection is closed afterwards.
        let unread = !request.body().is_end_stream();
        let (head, _) = request.into_parts();
        let (page, answer) = self.answer(&head, unread, peer).await;
        let mut response = self.weighed(answer);
        if unread {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.requests(page.as_deref().unwrap_or("none"), response.status().as_str()).inc();
        response
    }

    /// Returns the response, and the endpoint if it exists and the client is authorized to read it.
    async fn answer(
        &self,
        head: &http::request::Parts,
        unread: bool,
        peer: IpAddr,
    ) -> (Option<String>, PageResponse) {
        if unread {
            let why = "request bodies are not supported; send a GET without a body";
            return (None, PageResponse::error(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let rejection =
                PageResponse::error(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served");
            return (None, rejection.with(header::ALLOW, HeaderValue::from_static("GET, HEAD")));
        }
        let path = head.uri.path();
        let admitted = match self.admit(head, path, peer).await {
            Ok(admitted) => admitted,
            Err(rejection) => return (None, rejection),
        };
        let Some((at, page)) = self.pages.find(path) else {
            let rejection = PageResponse::error(StatusCode::NOT_FOUND, "no such path; / lists all paths");
            return (None, rejection);
        };
        let accept = head.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let request = PageRequest {
            path: path.to_owned(),
            query: query(head.uri.query().unwrap_or_default()),
            accept: accept.collect::<Vec<_>>().join(","),
            reviewed: admitted.reviewed,
        };
        let answer = catch_panic_sync(|| page(&request)).unwrap_or_else(|message| {
            tracing::error!(endpoint = %at, %message, "endpoint panicked");
            PageResponse::error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the endpoint failed; see the log for the reason",
            )
        });
        (Some(at), answer)
    }

    async fn admit(
        &self,
        head: &http::request::Parts,
        path: &str,
        peer: IpAddr,
    ) -> Result<Authorized, PageResponse> {
        let AccessPolicy::Reviewed { always_allow, reviews } = &self.leave else {
            return Ok(Authorized { reviewed: false });
        };
        if always_allow.iter().any(|pattern| fits(pattern, path)) {
            return Ok(Authorized { reviewed: false });
        }
        let token = head.headers.get(header::AUTHORIZATION).and_then(bearer_token);
        let Some(token) = token else {
            return Err(unauthorized("unauthorized: send the bearer token of a user or ServiceAccount"));
        };
        match reviews.admit(token, path, peer).await {
            Ok(()) => Ok(Authorized { reviewed: true }),
            Err(refusal) => Err(error_response(refusal, path)),
        }
    }

    /// Converts a response. Its body counts against the memory limit until the last byte is written.
    fn weighed(&self, answer: PageResponse) -> Response<Full<Bytes>> {
        let PageResponse { status, media_type, body, headers } = answer;
        // A response above the limit takes the whole limit, so it is sent only while no other response is counted.
        let weight = u32::try_from((body.len() / UNIT).min(BUDGET)).unwrap_or(u32::MAX);
        let body = match weight {
            // Small responses such as probes and errors are not counted: they are always sent.
            0 => body,
            _ => match Arc::clone(&self.budget).try_acquire_many_owned(weight) {
                Ok(permit) => Bytes::from_owner(BudgetedBody { body, _permit: permit }),
                Err(_) => return response(busy("too many responses are in progress")),
            },
        };
        response(PageResponse { status, media_type, body, headers })
    }
}

/// Bytes that release their share of the limit on drop.
struct BudgetedBody {
    body: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for BudgetedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Returns whether a pattern of `always_allow` matches a path.
fn fits(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    }
}

fn bearer_token(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn error_response(refusal: AuthError, path: &str) -> PageResponse {
    match refusal {
        AuthError::UnknownToken => unauthorized("unauthorized: the API server does not know this token"),
        AuthError::Forbidden(user) => {
            let user = user.username.as_deref().unwrap_or_default();
            let remedy = "grant a ClusterRole with this path in nonResourceURLs";
            let why = format!("forbidden: user {user:?} cannot get path {path:?}; {remedy}");
            PageResponse::error(StatusCode::FORBIDDEN, why)
        }
        AuthError::Busy => busy("too many reviews are in flight"),
        // The reason can contain details of the cluster, so it is only logged.
        AuthError::Unreachable => PageResponse::error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "authorization failed: the API server is unavailable; try again later, see the log for the reason",
        ),
    }
}

fn unauthorized(why: &str) -> PageResponse {
    let challenge = HeaderValue::from_static("Bearer");
    PageResponse::error(StatusCode::UNAUTHORIZED, why).with(header::WWW_AUTHENTICATE, challenge)
}

fn busy(why: &str) -> PageResponse {
    PageResponse::error(StatusCode::SERVICE_UNAVAILABLE, format!("{why}; try again in a second"))
        .with(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

fn response(answer: PageResponse) -> Response<Full<Bytes>> {
    let PageResponse { status, media_type, body, headers } = answer;
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.extend(headers);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_token_follows_the_scheme() {
        let token = |value: &str| bearer_token(&HeaderValue::from_str(value).unwrap()).map(str::to_owned);
        assert_eq!(token("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(token("bearer abc def"), Some("abc".to_owned()));
        for none in ["", "abc", "Bearer", "Bearer ", "Basic YTpi", "Bearer  abc"] {
            assert_eq!(token(none), None, "{none:?}");
        }
    }

    // parity: authorization-always-allow-paths
    #[test]
    fn always_allowed_path_is_exact_unless_it_ends_with_star() {
        assert!(
            fits("/healthz", "/healthz") && fits("/healthz/*", "/healthz/ping") && fits("/*", "/metrics")
        );
        assert!(
            !fits("/healthz", "/healthz/ping") && !fits("/healthz", "/healthz2") && !fits("/healthz", "/")
        );
    }
}
