//! The endpoints by path. An endpoint is a function of its request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;

/// An endpoint handler: fast and synchronous, called concurrently. A panic is answered with status 500.
pub type PageHandler = Arc<dyn Fn(&PageRequest) -> PageResponse + Send + Sync>;

/// The endpoints of one process, by path. Clones share them; endpoints can be added while the server runs.
///
/// A path that ends with `/` also serves all paths below it. The longest matching path serves a request.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<BTreeMap<String, PageHandler>>>);

/// A request to an endpoint: a GET, or a HEAD, whose response body is removed afterwards.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The path, percent-encoded as received.
    pub path: String,
    /// The names and values of the query, in their order, decoded.
    pub query: Vec<(String, String)>,
    /// The `Accept` header with all of its lines joined; empty if it is missing.
    pub accept: String,
    /// Whether the client is authenticated and authorized. `false` on a server without authentication and on paths that
    /// are always allowed; an endpoint can then withhold details.
    pub reviewed: bool,
}

impl PageRequest {
    /// Returns the first value of this query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters(name).next()
    }

    /// Returns every value of this query parameter.
    pub fn parameters(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A response of an endpoint.
#[derive(Clone, Debug)]
pub struct PageResponse {
    /// The status code.
    pub status: StatusCode,
    /// The value of the `Content-Type` header.
    pub media_type: &'static str,
    /// The body.
    pub body: Bytes,
    /// Additional headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The media type of plain text.
const TEXT: &str = "text/plain; charset=utf-8";

impl PageResponse {
    /// Returns a response with status 200 and plain text.
    pub fn text(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, TEXT, body)
    }

    /// Returns a response with status 200 and JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, "application/json", body)
    }

    /// Returns an error response with one line that contains the reason. A newline is appended.
    pub fn error(status: StatusCode, why: impl fmt::Display) -> Self {
        Self::of(status, TEXT, format!("{why}\n"))
    }

    /// Returns a response.
    pub fn of(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, media_type, body: body.into(), headers: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Pages {
    /// Returns an empty set of endpoints.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the endpoint at `path`, which must start with `/`, or replaces it.
    pub fn add(&self, path: impl Into<String>, page: PageHandler) {
        self.lock().insert(path.into(), page);
    }

    /// Returns the endpoint that serves `path`, and the path at which it was added.
    pub fn find(&self, path: &str) -> Option<(String, PageHandler)> {
        let pages = self.lock();
        let below = path.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| &path[..=at]);
        // The longest is last. The root serves only itself, so that an unknown path is not found.
        let candidates = below.filter(|prefix| prefix.len() > 1 || path == "/").chain([path]);
        candidates
            .filter_map(|at| pages.get_key_value(at))
            .next_back()
            .map(|(at, page)| (at.clone(), Arc::clone(page)))
    }

    /// Returns a weak reference, for an endpoint that must not keep itself alive.
    pub(crate) fn downgrade(&self) -> WeakPages {
        WeakPages(Arc::downgrade(&self.0))
    }

    /// Returns the paths of all endpoints, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the first segments of all paths, sorted and without duplicates, for `/statusz`.
    pub(crate) fn folders(&self) -> Vec<String> {
        let first = |path: &String| {
            let part = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            (!part.is_empty()).then(|| format!("/{part}"))
        };
        self.lock().keys().filter_map(first).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PageHandler>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A weak reference to the endpoints, held by one of them.
pub(crate) struct WeakPages(Weak<Mutex<BTreeMap<String, PageHandler>>>);

impl WeakPages {
    fn pages(&self) -> Pages {
        Pages(self.0.upgrade().unwrap_or_default())
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.pages().paths()
    }

    pub(crate) fn folders(&self) -> Vec<String> {
        self.pages().folders()
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pages").field(&self.paths()).finish()
    }
}

/// Returns names and values of a query, with `+` and `%` decoded.
pub(crate) fn query(text: &str) -> Vec<(String, String)> {
    let decoded = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    };
    pairs.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &Pages, path: &str) -> Option<String> {
        pages.find(path).map(|(at, _)| at)
    }

    // parity: extra-endpoints-extra-handlers
    #[test]
    fn longest_path_serves_and_only_trailing_slash_covers_subpaths() {
        let pages = Pages::new();
        for path in ["/", "/metrics", "/debug/controllers", "/debug/controllers/", "/debug/"] {
            pages.add(path, Arc::new(|_| PageResponse::text("")));
        }
        assert_eq!(found(&pages, "/").as_deref(), Some("/"));
        assert_eq!(found(&pages, "/metrics").as_deref(), Some("/metrics"));
        assert_eq!(found(&pages, "/metrics/"), None);
        assert_eq!(found(&pages, "/metricsx"), None);
        assert_eq!(found(&pages, "/debug/controllers").as_deref(), Some("/debug/controllers"));
        assert_eq!(found(&pages, "/debug/controllers/a").as_deref(), Some("/debug/controllers/"));
        assert_eq!(found(&pages, "/debug/other/a").as_deref(), Some("/debug/"));
        assert_eq!(found(&pages, ""), None);
        assert_eq!(pages.folders(), ["/debug", "/metrics"]);
    }

    #[test]
    fn query_is_decoded_and_keeps_its_order() {
        let pairs = query("key=shop%2Fweb&a=1+2&&verbose&a=%zz");
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("key", "shop/web"), ("a", "1 2"), ("verbose", ""), ("a", "%zz")]);
    }
}
