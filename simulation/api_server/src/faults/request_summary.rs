//! What a request asks for, as far as faults, traces and oracles want to know.

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
    /// What is done; `None` if the request is not about objects.
    pub verb: Option<Verb>,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name; empty if the request is not about objects.
    pub resource: String,
    /// The subresource; empty for none.
    pub subresource: String,
    /// The namespace; empty for none or all.
    pub namespace: String,
    /// The object's name; empty for collections and creates.
    pub name: String,
    /// What the sender calls itself.
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

    /// Method and path, without the query: `GET /api/v1/pods`.
    pub fn line(&self) -> String {
        let path = self.uri.split_once('?').map_or(&*self.uri, |(path, _)| path);
        format!("{} {path}", self.method)
    }

    /// Whether it follows changes.
    pub fn is_watch(&self) -> bool {
        self.verb == Some(Verb::Watch)
    }

    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        match self.verb {
            Some(verb) => verb.is_mutating(),
            None => request::is_mutating(&self.method),
        }
    }

    /// Whether it changes what a controller controls: not the Lease it lives by, nor Events that tell of it.
    pub fn is_work(&self) -> bool {
        self.is_write() && !matches!(self.resource.as_str(), "leases" | "events")
    }

    /// Whether the query has this parameter, with a value that says something.
    pub(super) fn names(&self, parameter: &str) -> bool {
        let query = self.uri.split_once('?').map(|(_, query)| query);
        request::parameter(query, parameter).is_some_and(|value| !matches!(&*value, "" | "0"))
    }
}
