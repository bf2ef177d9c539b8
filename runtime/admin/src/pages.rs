//! The pages there are, by path; a page is a function of its request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;

/// One page: quick and synchronous, asked by any number of readers at once. One that panics answers 500.
pub type PageHandler = Arc<dyn Fn(&PageRequest) -> PageResponse + Send + Sync>;

/// The pages of one process, by path. Clones share them; they may come while the server runs.
///
/// A path that ends with `/` answers for every path below it too, and the longest that fits answers.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<BTreeMap<String, PageHandler>>>);

/// What is asked of a page: a GET, or a HEAD, for which the body is left out afterwards.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The path, without escapes undone.
    pub path: String,
    /// The names and values of the query, in their order, with escapes undone.
    pub query: Vec<(String, String)>,
    /// The header `Accept`, all of its lines joined; empty when there is none.
    pub accept: String,
    /// Whether it is known who asks, and that they may. False on a server that is open, and on paths that are always
    /// allowed: a page may then keep to itself what not everybody should see.
    pub reviewed: bool,
}

impl PageRequest {
    /// The first value of this name in the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters(name).next()
    }

    /// Every value of this name in the query.
    pub fn parameters(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What a page answers.
#[derive(Clone, Debug)]
pub struct PageResponse {
    /// The status.
    pub status: StatusCode,
    /// The media type, as the header `Content-Type` has it.
    pub media_type: &'static str,
    /// The body.
    pub body: Bytes,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The media type of plain text.
const TEXT: &str = "text/plain; charset=utf-8";

impl PageResponse {
    /// 200 with plain text.
    pub fn text(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, TEXT, body)
    }

    /// 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, "application/json", body)
    }

    /// Another status, with one line that says why. The end of the line is added.
    pub fn refusal(status: StatusCode, why: impl fmt::Display) -> Self {
        Self::of(status, TEXT, format!("{why}\n"))
    }

    /// An answer of any kind.
    pub fn of(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, media_type, body: body.into(), headers: Vec::new() }
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Pages {
    /// No pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a page, or replaces the one at `path`, which begins with `/`.
    pub fn add(&self, path: impl Into<String>, page: PageHandler) {
        self.lock().insert(path.into(), page);
    }

    /// The page that answers for `path`, and the path it was added at.
    pub fn find(&self, path: &str) -> Option<(String, PageHandler)> {
        let pages = self.lock();
        let below = path.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| &path[..=at]);
        // The longest comes last. The root answers for itself only: what nobody has must not be found there.
        let candidates = below.filter(|prefix| prefix.len() > 1 || path == "/").chain([path]);
        candidates
            .filter_map(|at| pages.get_key_value(at))
            .next_back()
            .map(|(at, page)| (at.clone(), Arc::clone(page)))
    }

    /// The same pages, for one of them: it must not keep itself alive.
    pub(crate) fn downgrade(&self) -> WeakPages {
        WeakPages(Arc::downgrade(&self.0))
    }

    /// The paths of all pages, in order.
    pub fn paths(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// The first parts of all paths, each once, in order: what `/statusz` lists.
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

/// Pages, as a page among them may hold them.
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

/// Names and values of a query, with `+` and `%` undone.
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
    fn longest_path_answers_and_only_one_that_ends_with_a_slash_answers_for_what_is_below() {
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
    fn query_has_its_escapes_undone_and_keeps_its_order() {
        let pairs = query("key=shop%2Fweb&a=1+2&&verbose&a=%zz");
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("key", "shop/web"), ("a", "1 2"), ("verbose", ""), ("a", "%zz")]);
    }
}
