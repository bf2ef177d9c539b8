//! Summary of a request for faults, traces and oracles.

use http::request::Parts;
use http::{Method, header};
use windlass_object::Verb;
use windlass_object::request::{self, RequestInfo, ResourcePath};

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// Verb; `None` if the request is not for objects.
    pub verb: Option<Verb>,
    /// The API group; empty for the core group.
    pub group: String,
    /// Plural name; empty if the request is not for objects.
    pub resource: String,
    /// Subresource; empty for none.
    pub subresource: String,
    /// The namespace; empty for none or all.
    pub namespace: String,
    /// The object's name; empty for collections and creates.
    pub name: String,
    /// Value of the `User-Agent` header.
    pub user_agent: String,
}

impl RequestSummary {
    pub(super) fn of(parts: &Parts) -> RequestSummary {
        let uri = parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let (verb, path) = match RequestInfo::classify(&parts.method, parts.uri.path(), parts.uri.query()) {
            RequestInfo::Resource(about) => (Some(about.verb), about.path),
            RequestInfo::Other { .. } => (None, ResourcePath::default()),
        };
        RequestSummary {
            method: parts.method.clone(),
            uri,
            verb,
            group: path.group,
            resource: path.resource,
            subresource: path.subresource.unwrap_or_default(),
            namespace: path.namespace.unwrap_or_default(),
            name: path.name.unwrap_or_default(),
            user_agent: agent.unwrap_or_default().to_owned(),
        }
    }

    /// Returns method and path without the query: `GET /api/v1/pods`.
    pub fn line(&self) -> String {
        let path = self.uri.split_once('?').map_or(&*self.uri, |(path, _)| path);
        format!("{} {path}", self.method)
    }

    /// Returns whether the request is a watch.
    pub fn is_watch(&self) -> bool {
        self.verb == Some(Verb::Watch)
    }

    /// Returns whether the request can change something.
    pub fn is_write(&self) -> bool {
        match self.verb {
            Some(verb) => verb.is_mutating(),
            None => request::is_mutating(&self.method),
        }
    }

    /// Returns whether the request changes a controlled object, and not a Lease or an Event.
    pub fn is_work(&self) -> bool {
        self.is_write() && !matches!(self.resource.as_str(), "leases" | "events")
    }

    /// Returns whether the query has this parameter with a meaningful value.
    pub(super) fn names(&self, parameter: &str) -> bool {
        let query = self.uri.split_once('?').map(|(_, query)| query);
        request::parameter(query, parameter).is_some_and(|value| !matches!(&*value, "" | "0"))
    }
}
