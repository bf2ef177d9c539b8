//! What a request is about: verb, resource and name, read off its method, path and query.
//!
//! The rules are the API server's own, so that a client's metrics, fences and declarations speak of the same
//! thing as its authorizer and its audit log.

use http::Method;
use windlass_object::{GroupResource, Verb};

/// A request, as the API server would classify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestInfo {
    /// About objects.
    Resource(ResourceRequest),
    /// About something else: `/healthz`, `/version`, discovery.
    Other {
        /// Whether the method may change something.
        mutating: bool,
    },
}

/// A request about objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// What is done.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The plural resource.
    pub resource: String,
    /// The subresource: `status`, `scale`, `token`.
    pub subresource: Option<String>,
    /// The namespace; `None` for cluster-scoped objects and for requests over all namespaces.
    pub namespace: Option<String>,
    /// The object's name; `None` for collections, and for creates other than of subresources.
    pub name: Option<String>,
}

impl RequestInfo {
    /// Classifies a request by its method, path and query.
    pub fn classify(method: &Method, path: &str, query: Option<&str>) -> Self {
        match resource(method, path, query) {
            Some(resource) => RequestInfo::Resource(resource),
            None => RequestInfo::Other { mutating: is_mutating(method) },
        }
    }

    /// The request about objects, if it is one.
    pub fn resource(&self) -> Option<&ResourceRequest> {
        match self {
            RequestInfo::Resource(resource) => Some(resource),
            RequestInfo::Other { .. } => None,
        }
    }

    /// Whether the request may change the cluster. Methods nobody knows count as changing it.
    pub fn is_mutating(&self) -> bool {
        match self {
            RequestInfo::Resource(request) => request.verb.is_mutating(),
            RequestInfo::Other { mutating } => *mutating,
        }
    }

    /// Whether the request follows changes, and so lasts for minutes.
    pub fn is_watch(&self) -> bool {
        self.resource().is_some_and(|request| request.verb == Verb::Watch)
    }
}

impl ResourceRequest {
    /// Group and resource, without version and subresource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.clone(), self.resource.clone())
    }

    /// The resource as roles name it: `pods`, `pods/status`.
    pub fn resource_in_roles(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.clone(),
        }
    }
}

/// The value of a query parameter, still encoded; the first one counts.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let pairs = query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn is_mutating(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn resource(method: &Method, path: &str, query: Option<&str>) -> Option<ResourceRequest> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let (watch_prefix, parts) = without_watch_prefix(parts.collect());
    let (namespace, parts) = split_namespace(&parts);
    let (resource, name) = (*parts.first()?, parts.get(1).copied());
    let watch = watch_prefix || asks_to_watch(query);
    Some(ResourceRequest {
        verb: verb(method, name.is_some(), watch)?,
        group: group.into(),
        version: version.into(),
        resource: resource.into(),
        subresource: parts.get(2).map(|part| (*part).into()),
        namespace: namespace.map(Into::into),
        name: name.map(Into::into),
    })
}

/// `/api/v1/watch/pods` is an old way of writing `/api/v1/pods?watch=true`.
fn without_watch_prefix(mut parts: Vec<&str>) -> (bool, Vec<&str>) {
    let prefixed = parts.first() == Some(&"watch");
    if prefixed {
        parts.remove(0);
    }
    (prefixed, parts)
}

/// `namespaces/web/pods` is about pods in `web`; `namespaces/web` and its subresources are about the namespace.
fn split_namespace<'p, 'a>(parts: &'p [&'a str]) -> (Option<&'a str>, &'p [&'a str]) {
    match parts {
        ["namespaces", _, "status" | "finalize", ..] => (None, parts),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(namespace), rest),
        _ => (None, parts),
    }
}

fn asks_to_watch(query: Option<&str>) -> bool {
    parameter(query, "watch")
        .is_some_and(|value| !["false", "0", "f", "F", "False", "FALSE"].contains(&value))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `verb group/version/resource/subresource namespace/name`, with `-` for what is absent.
    fn describe(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::classify(&method.parse().unwrap(), path, query);
        let Some(it) = info.resource() else { return format!("other mutating={}", info.is_mutating()) };
        let or_dash = |part: &Option<String>| part.clone().unwrap_or("-".into());
        format!(
            "{} {}/{}/{}/{} {}/{}",
            it.verb,
            it.group,
            it.version,
            it.resource,
            or_dash(&it.subresource),
            or_dash(&it.namespace),
            or_dash(&it.name)
        )
    }

    #[test]
    fn requests_are_classified_as_the_api_server_classifies_them() {
        let table = [
            // The core group.
            ("GET", "/api/v1/pods", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=true", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=false", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/watch/pods", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/namespaces/web/pods", "list /v1/pods/- web/-"),
            ("GET", "/api/v1/namespaces/web/pods/a", "get /v1/pods/- web/a"),
            ("GET", "/api/v1/namespaces/web/pods/a?watch=true", "get /v1/pods/- web/a"),
            ("HEAD", "/api/v1/namespaces/web/pods/a", "get /v1/pods/- web/a"),
            ("POST", "/api/v1/namespaces/web/pods", "create /v1/pods/- web/-"),
            ("POST", "/api/v1/namespaces/web/pods/a/binding", "create /v1/pods/binding web/a"),
            (
                "POST",
                "/api/v1/namespaces/web/serviceaccounts/a/token",
                "create /v1/serviceaccounts/token web/a",
            ),
            ("PUT", "/api/v1/namespaces/web/pods/a/status", "update /v1/pods/status web/a"),
            ("PATCH", "/api/v1/nodes/n1/status", "patch /v1/nodes/status -/n1"),
            ("DELETE", "/api/v1/namespaces/web/pods/a", "delete /v1/pods/- web/a"),
            ("DELETE", "/api/v1/namespaces/web/pods", "deletecollection /v1/pods/- web/-"),
            // Namespaces are objects too.
            ("GET", "/api/v1/namespaces", "list /v1/namespaces/- -/-"),
            ("GET", "/api/v1/namespaces?watch=true", "watch /v1/namespaces/- -/-"),
            ("GET", "/api/v1/namespaces/web", "get /v1/namespaces/- -/web"),
            ("PUT", "/api/v1/namespaces/web/finalize", "update /v1/namespaces/finalize -/web"),
            ("PATCH", "/api/v1/namespaces/web/status", "patch /v1/namespaces/status -/web"),
            // Named groups.
            ("GET", "/apis/apps/v1/replicasets?limit=500", "list apps/v1/replicasets/- -/-"),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/web/replicasets/a/scale",
                "patch apps/v1/replicasets/scale web/a",
            ),
            ("POST", "/apis/example.com/v1alpha1/widgets", "create example.com/v1alpha1/widgets/- -/-"),
            ("DELETE", "/apis/example.com/v1/widgets/w", "delete example.com/v1/widgets/- -/w"),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass",
                "update coordination.k8s.io/v1/leases/- kube-system/windlass",
            ),
            // Not about objects.
            ("GET", "/", "other mutating=false"),
            ("GET", "/healthz", "other mutating=false"),
            ("GET", "/version", "other mutating=false"),
            ("GET", "/api", "other mutating=false"),
            ("GET", "/api/v1", "other mutating=false"),
            ("GET", "/apis/apps", "other mutating=false"),
            ("GET", "/apis/apps/v1", "other mutating=false"),
            ("POST", "/somewhere", "other mutating=true"),
            ("CONNECT", "/api/v1/namespaces/web/pods/a/exec", "other mutating=true"),
        ];
        for (method, uri, expected) in table {
            assert_eq!(describe(method, uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn roles_name_subresources_with_a_slash() {
        let info = RequestInfo::classify(&Method::PUT, "/api/v1/namespaces/web/pods/a/status", None);
        assert_eq!(info.resource().unwrap().resource_in_roles(), "pods/status");
    }

    #[test]
    fn the_first_parameter_of_a_name_counts() {
        assert_eq!(parameter(Some("a=1&b=&a=2&c"), "a"), Some("1"));
        assert_eq!(parameter(Some("a=1&b=&c"), "c"), Some(""));
        assert_eq!(parameter(Some("ab=1"), "a"), None);
        assert_eq!(parameter(None, "a"), None);
    }
}
