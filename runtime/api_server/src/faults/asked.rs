//! What a request asks for, as far as faults, traces and oracles want to know.

use http::request::Parts;
use http::{Method, header};
use windlass_object::Verb;

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
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

impl Asked {
    pub(super) fn of(parts: &Parts) -> Asked {
        let uri = parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let mut asked = Asked {
            method: parts.method.clone(),
            uri,
            verb: None,
            group: String::new(),
            resource: String::new(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            user_agent: agent.unwrap_or_default().to_owned(),
        };
        asked.classify(parts.uri.path(), parts.uri.query().unwrap_or_default());
        asked
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
            None => ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.method),
        }
    }

    /// Whether it changes what a controller controls: not the Lease it lives by, nor Events that tell of it.
    pub fn is_work(&self) -> bool {
        self.is_write() && !matches!(self.resource.as_str(), "leases" | "events")
    }

    /// Whether the query has this parameter, with a value that says something.
    pub(super) fn names(&self, parameter: &str) -> bool {
        let query = self.uri.split_once('?').map_or("", |(_, query)| query);
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.any(|(name, value)| name == parameter && !matches!(value, "" | "0"))
    }

    fn classify(&mut self, path: &str, query: &str) {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return,
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize", ..] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let part = |at: usize| rest.get(at).map_or_else(String::new, |part| (*part).to_owned());
        if rest.is_empty() {
            return;
        }
        self.verb = verb(&self.method, rest.len() > 1, is_watch(query));
        (self.group, self.namespace) = (group.to_owned(), namespace.to_owned());
        (self.resource, self.name, self.subresource) = (part(0), part(1), part(2));
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch=True" | "watch"))
}

fn verb(method: &Method, named: bool, watch: bool) -> Option<Verb> {
    match (method.as_str(), named) {
        ("GET" | "HEAD", true) => Some(Verb::Get),
        ("GET" | "HEAD", false) if watch => Some(Verb::Watch),
        ("GET" | "HEAD", false) => Some(Verb::List),
        ("POST", _) => Some(Verb::Create),
        ("PUT", _) => Some(Verb::Update),
        ("PATCH", _) => Some(Verb::Patch),
        ("DELETE", true) => Some(Verb::Delete),
        ("DELETE", false) => Some(Verb::DeleteCollection),
        _ => None,
    }
}
