//! From a request to an answer: method, leave, page.
//!
//! Nothing of a request but its head is looked at, and no page runs before it is known that whoever asks may read it.
//! Paths that are always allowed wait for no review. What answers weigh until they are sent is bounded, all together.

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

/// What media type Prometheus expects of its text format.
pub(crate) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What answers may weigh together, in [`UNIT`]s, from being made until the last byte is handed to the kernel: 64 MiB,
/// some dozens of scrapes of a large process.
const BUDGET: usize = 4096;
const UNIT: usize = 16 * 1024;

/// Who may read.
#[derive(Debug)]
pub(crate) enum AccessPolicy {
    /// Everybody.
    Open,
    /// Everybody what is always allowed, and otherwise whom a review lets.
    Reviewed { always_allow: Vec<String>, reviews: Box<DelegatedAuth> },
}

/// The pages, and who may read them.
pub(crate) struct AdminService {
    pages: Pages,
    leave: AccessPolicy,
    metrics: AdminMetrics,
    budget: Arc<Semaphore>,
}

/// What was asked was let through.
struct Authorized {
    /// Whether a review said so.
    reviewed: bool,
}

impl AdminService {
    pub(crate) fn new(pages: Pages, leave: AccessPolicy, metrics: AdminMetrics) -> Self {
        Self { pages, leave, metrics, budget: Arc::new(Semaphore::new(BUDGET)) }
    }

    /// Answers a request from `peer`.
    ///
    /// # Cancel safety
    /// Dropping it is as if nobody had asked.
    pub(crate) async fn respond<B: Body>(&self, request: Request<B>, peer: IpAddr) -> Response<Full<Bytes>> {
        // The body is dropped unread, and with it the connection, if there is one.
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

    /// The page that was asked for, if there is one and whoever asks may read it, and the answer.
    async fn answer(
        &self,
        head: &http::request::Parts,
        unread: bool,
        peer: IpAddr,
    ) -> (Option<String>, PageResponse) {
        if unread {
            let why = "requests have no body here: send a GET without one";
            return (None, PageResponse::refusal(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let refused =
                PageResponse::refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served");
            return (None, refused.with(header::ALLOW, HeaderValue::from_static("GET, HEAD")));
        }
        let path = head.uri.path();
        let admitted = match self.admit(head, path, peer).await {
            Ok(admitted) => admitted,
            Err(refused) => return (None, refused),
        };
        let Some((at, page)) = self.pages.find(path) else {
            let refused = PageResponse::refusal(StatusCode::NOT_FOUND, "no such page: / lists what there is");
            return (None, refused);
        };
        let accept = head.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let request = PageRequest {
            path: path.to_owned(),
            query: query(head.uri.query().unwrap_or_default()),
            accept: accept.collect::<Vec<_>>().join(","),
            reviewed: admitted.reviewed,
        };
        let answer = catch_panic_sync(|| page(&request)).unwrap_or_else(|message| {
            tracing::error!(page = %at, %message, "a page panicked");
            PageResponse::refusal(StatusCode::INTERNAL_SERVER_ERROR, "the page failed; the log says why")
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
            Err(refusal) => Err(refused(refusal, path)),
        }
    }

    /// The answer as a response, whose body is weighed until its last byte has been handed on.
    fn weighed(&self, answer: PageResponse) -> Response<Full<Bytes>> {
        let PageResponse { status, media_type, body, headers } = answer;
        // One that is heavier than all may be waits for nobody else, and goes alone.
        let weight = u32::try_from((body.len() / UNIT).min(BUDGET)).unwrap_or(u32::MAX);
        let body = match weight {
            // What answers probes and refusals weighs nothing: it is sent however much is under way.
            0 => body,
            _ => match Arc::clone(&self.budget).try_acquire_many_owned(weight) {
                Ok(permit) => Bytes::from_owner(BudgetedBody { body, _permit: permit }),
                Err(_) => return response(busy("too many answers are still being read")),
            },
        };
        response(PageResponse { status, media_type, body, headers })
    }
}

/// Bytes that give back their weight when nobody holds them any more.
struct BudgetedBody {
    body: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for BudgetedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Whether a path that is always allowed is this one.
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

fn refused(refusal: AuthError, path: &str) -> PageResponse {
    match refusal {
        AuthError::UnknownToken => unauthorized("unauthorized: the API server does not know this token"),
        AuthError::Forbidden(user) => {
            let user = user.username.as_deref().unwrap_or_default();
            let remedy = "a ClusterRole with this path among its nonResourceURLs would let it";
            let why = format!("forbidden: user {user:?} cannot get path {path:?}: {remedy}");
            PageResponse::refusal(StatusCode::FORBIDDEN, why)
        }
        AuthError::Busy => busy("too many reviews are under way"),
        // The reason may tell of the cluster; it is in the log.
        AuthError::Unreachable => PageResponse::refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the API server could not be asked who may read this: try again later, the log says why",
        ),
    }
}

fn unauthorized(why: &str) -> PageResponse {
    let challenge = HeaderValue::from_static("Bearer");
    PageResponse::refusal(StatusCode::UNAUTHORIZED, why).with(header::WWW_AUTHENTICATE, challenge)
}

fn busy(why: &str) -> PageResponse {
    PageResponse::refusal(StatusCode::SERVICE_UNAVAILABLE, format!("{why}: try again in a second"))
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
    fn bearer_token_is_the_word_after_the_scheme() {
        let token = |value: &str| bearer_token(&HeaderValue::from_str(value).unwrap()).map(str::to_owned);
        assert_eq!(token("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(token("bearer abc def"), Some("abc".to_owned()));
        for none in ["", "abc", "Bearer", "Bearer ", "Basic YTpi", "Bearer  abc"] {
            assert_eq!(token(none), None, "{none:?}");
        }
    }

    // parity: authorization-always-allow-paths
    #[test]
    fn path_that_is_always_allowed_is_that_path_alone_unless_it_ends_with_a_star() {
        assert!(
            fits("/healthz", "/healthz") && fits("/healthz/*", "/healthz/ping") && fits("/*", "/metrics")
        );
        assert!(
            !fits("/healthz", "/healthz/ping") && !fits("/healthz", "/healthz2") && !fits("/healthz", "/")
        );
    }
}
