//! Classification of requests: derives verb, resource and name from method, path and query.
//!
//! The rules are those of the API server, so metrics, fences and declared verbs of a client use the same terms as the
//! authorizer and the audit log. Three rules differ:
//! - A namespace is not in a namespace: `namespaces/web` has the name `web` and no namespace, like the object itself.
//! - A field selector does not give a collection a name.
//! - A request below the old `watch/` paths that is not a watch is not a resource request; no server supports it.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::{GroupResource, Verb};

/// A request as the API server classifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestInfo {
    /// A request for objects.
    Resource(ResourceRequest),
    /// Any other request: `/healthz`, `/version`, discovery.
    Other {
        /// Whether the method can change state.
        mutating: bool,
    },
}

/// A request for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// The verb.
    pub verb: Verb,
    /// The parsed path.
    pub path: ResourcePath,
}

/// A parsed path below `/api/{version}` or `/apis/{group}/{version}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The plural resource.
    pub resource: String,
    /// The subresource: `status`, `scale`, `token`.
    pub subresource: Option<String>,
    /// The namespace; `None` for cluster-scoped objects and for requests across all namespaces.
    pub namespace: Option<String>,
    /// The object's name; `None` for collections, and for create requests except those of subresources.
    pub name: Option<String>,
    /// Whether the path supports only watches. `/api/v1/watch/pods` is the old form of `/api/v1/pods?watch=true`.
    pub only_watches: bool,
    /// Whether path segments follow the subresource, as below `proxy`.
    pub goes_on: bool,
}

impl RequestInfo {
    /// Classifies a request by its method, path and query.
    pub fn classify(method: &Method, path: &str, query: Option<&str>) -> Self {
        let about = ResourcePath::parse(path)
            .and_then(|path| Some(ResourceRequest { verb: path.verb(method, requests_watch(query))?, path }));
        about.map_or_else(|| RequestInfo::Other { mutating: is_mutating(method) }, RequestInfo::Resource)
    }

    /// Returns the request for objects; `None` for other requests.
    pub fn resource(&self) -> Option<&ResourceRequest> {
        match self {
            RequestInfo::Resource(resource) => Some(resource),
            RequestInfo::Other { .. } => None,
        }
    }

    /// Returns whether the request can change the cluster. Unknown methods count as mutating.
    pub fn is_mutating(&self) -> bool {
        match self {
            RequestInfo::Resource(request) => request.verb.is_mutating(),
            RequestInfo::Other { mutating } => *mutating,
        }
    }

    /// Returns whether the request is a watch, which lasts for minutes.
    pub fn is_watch(&self) -> bool {
        self.resource().is_some_and(|request| request.verb == Verb::Watch)
    }
}

impl ResourcePath {
    /// Parses a path. Returns `None` if it does not lead to objects.
    pub fn parse(path: &str) -> Option<Self> {
        let path = decoded(path);
        let parts: Vec<&str> = path.split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (only_watches, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = split_namespace(rest);
        let part = |at: usize| rest.get(at).filter(|part| !part.is_empty()).map(|part| (*part).to_owned());
        Some(ResourcePath {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: part(0)?,
            subresource: part(2),
            namespace: namespace.map(str::to_owned),
            name: part(1),
            only_watches,
            goes_on: rest.len() > 3,
        })
    }

    /// Returns the verb of a request with this method. `None` if the method does not apply to objects.
    pub fn verb(&self, method: &Method, watch: bool) -> Option<Verb> {
        let named = self.name.is_some();
        match method.as_str() {
            "GET" | "HEAD" if self.only_watches => Some(Verb::Watch),
            _ if self.only_watches => None,
            "GET" | "HEAD" if named => Some(Verb::Get),
            "GET" | "HEAD" if watch => Some(Verb::Watch),
            "GET" | "HEAD" => Some(Verb::List),
            "POST" => Some(Verb::Create),
            "PUT" => Some(Verb::Update),
            "PATCH" => Some(Verb::Patch),
            "DELETE" if named => Some(Verb::Delete),
            "DELETE" => Some(Verb::DeleteCollection),
            _ => None,
        }
    }

    /// Returns the group and resource, without version and subresource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.clone(), self.resource.clone())
    }

    /// Returns the resource as RBAC rules name it: `pods`, `pods/status`.
    pub fn resource_in_roles(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.clone(),
        }
    }
}

/// Decodes percent escapes and removes slashes at both ends. An escaped slash separates segments like any other slash,
/// because the API server decodes paths before it parses them.
pub fn decoded(path: &str) -> Cow<'_, str> {
    match percent_decode_str(path).decode_utf8_lossy() {
        Cow::Borrowed(path) => Cow::Borrowed(path.trim_matches('/')),
        Cow::Owned(path) => Cow::Owned(path.trim_matches('/').to_owned()),
    }
}

/// Returns the decoded value of a query parameter. If the parameter is repeated, the first value counts.
pub fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    let mut pairs = form_urlencoded::parse(query?.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value)
}

/// Returns whether a method can change state. Unknown methods count as mutating.
pub fn is_mutating(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// `namespaces/web/pods` refers to pods in `web`; `namespaces/web` and its subresources refer to the namespace.
fn split_namespace<'p, 'a>(parts: &'p [&'a str]) -> (Option<&'a str>, &'p [&'a str]) {
    match parts {
        ["namespaces", _, "status" | "finalize", ..] => (None, parts),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            (Some(*namespace).filter(|namespace| !namespace.is_empty()), rest)
        }
        _ => (None, parts),
    }
}

/// Like the API server, accepts any value: only `0` and `false` disable the watch.
fn requests_watch(query: Option<&str>) -> bool {
    parameter(query, "watch").is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a request as `verb group/version/resource/subresource namespace/name`, with `-` for absent parts.
    fn describe(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::classify(&method.parse().unwrap(), path, query);
        let Some(ResourceRequest { verb, path }) = info.resource() else {
            return format!("other mutating={}", info.is_mutating());
        };
        let or_dash = |part: &Option<String>| part.clone().unwrap_or("-".into());
        let (subresource, namespace, name) =
            (or_dash(&path.subresource), or_dash(&path.namespace), or_dash(&path.name));
        let deeper = if path.goes_on { " and on" } else { "" };
        let ResourcePath { group, version, resource, .. } = path;
        format!("{verb} {group}/{version}/{resource}/{subresource} {namespace}/{name}{deeper}")
    }

    fn check(table: &[(&str, &str, &str)]) {
        for (method, uri, expected) in table {
            assert_eq!(describe(method, uri), *expected, "{method} {uri}");
        }
    }

    #[test]
    fn core_group_collections_and_objects_are_distinguished() {
        check(&[
            ("GET", "/api/v1/pods", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/pods/", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/namespaces/web/pods", "list /v1/pods/- web/-"),
            ("GET", "/api/v1/namespaces/web/pods/a", "get /v1/pods/- web/a"),
            ("HEAD", "/api/v1/namespaces/web/pods/a", "get /v1/pods/- web/a"),
            ("POST", "/api/v1/namespaces/web/pods", "create /v1/pods/- web/-"),
            ("DELETE", "/api/v1/namespaces/web/pods/a", "delete /v1/pods/- web/a"),
            ("DELETE", "/api/v1/namespaces/web/pods", "deletecollection /v1/pods/- web/-"),
            ("GET", "/api/v1/nodes/n1", "get /v1/nodes/- -/n1"),
            ("DELETE", "/api/v1/nodes", "deletecollection /v1/nodes/- -/-"),
        ]);
    }

    #[test]
    fn named_group_precedes_its_version() {
        check(&[
            ("GET", "/apis/apps/v1/replicasets?limit=500", "list apps/v1/replicasets/- -/-"),
            ("POST", "/apis/example.com/v1alpha1/widgets", "create example.com/v1alpha1/widgets/- -/-"),
            ("DELETE", "/apis/example.com/v1/widgets/w", "delete example.com/v1/widgets/- -/w"),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass",
                "update coordination.k8s.io/v1/leases/- kube-system/windlass",
            ),
        ]);
    }

    #[test]
    fn watch_parameter_applies_only_to_collections() {
        check(&[
            ("GET", "/api/v1/pods?watch=true", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=f", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=false", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=False&watch=true", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=%66alse", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?watch=0", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/pods?allowWatchBookmarks=true", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/namespaces/web/pods/a?watch=true", "get /v1/pods/- web/a"),
            ("POST", "/api/v1/namespaces/web/pods?watch=true", "create /v1/pods/- web/-"),
        ]);
    }

    #[test]
    fn requests_below_old_watch_paths_are_watches() {
        check(&[
            ("GET", "/api/v1/watch/pods", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/watch/pods?watch=false", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/watch/namespaces/web/pods", "watch /v1/pods/- web/-"),
            ("GET", "/api/v1/watch/namespaces/web/pods/a", "watch /v1/pods/- web/a"),
            ("GET", "/api/v1/watch/namespaces/web", "watch /v1/namespaces/- -/web"),
            ("HEAD", "/apis/apps/v1/watch/namespaces/a/deployments/b", "watch apps/v1/deployments/- a/b"),
            ("POST", "/api/v1/watch/pods", "other mutating=true"),
            ("DELETE", "/api/v1/watch/namespaces/web", "other mutating=true"),
            // No resource to watch follows, so `watch` is itself parsed as the resource.
            ("GET", "/api/v1/watch", "list /v1/watch/- -/-"),
        ]);
    }

    #[test]
    fn subresources_follow_the_name() {
        check(&[
            ("PUT", "/api/v1/namespaces/web/pods/a/status", "update /v1/pods/status web/a"),
            ("PATCH", "/api/v1/nodes/n1/status", "patch /v1/nodes/status -/n1"),
            ("POST", "/api/v1/namespaces/web/pods/a/binding", "create /v1/pods/binding web/a"),
            (
                "POST",
                "/api/v1/namespaces/web/serviceaccounts/a/token",
                "create /v1/serviceaccounts/token web/a",
            ),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/web/replicasets/a/scale",
                "patch apps/v1/replicasets/scale web/a",
            ),
            ("GET", "/api/v1/namespaces/web/pods/a/log?follow=true", "get /v1/pods/log web/a"),
        ]);
    }

    #[test]
    fn path_after_proxy_is_not_parsed() {
        check(&[
            ("GET", "/api/v1/namespaces/web/services/a/proxy", "get /v1/services/proxy web/a"),
            ("POST", "/api/v1/namespaces/web/services/a/proxy/b/c", "create /v1/services/proxy web/a and on"),
            ("GET", "/api/v1/nodes/n1/proxy/metrics", "get /v1/nodes/proxy -/n1 and on"),
            ("GET", "/api/v1/nodes/n1/proxy/a%2Fb", "get /v1/nodes/proxy -/n1 and on"),
            // The old proxy prefix, which servers no longer support.
            ("GET", "/api/v1/proxy/nodes/n1", "get /v1/proxy/n1 -/nodes"),
        ]);
    }

    #[test]
    fn namespace_can_be_object_or_scope() {
        check(&[
            ("GET", "/api/v1/namespaces", "list /v1/namespaces/- -/-"),
            ("GET", "/api/v1/namespaces?watch=true", "watch /v1/namespaces/- -/-"),
            ("POST", "/api/v1/namespaces", "create /v1/namespaces/- -/-"),
            ("GET", "/api/v1/namespaces/web", "get /v1/namespaces/- -/web"),
            ("DELETE", "/api/v1/namespaces/web/", "delete /v1/namespaces/- -/web"),
            ("PUT", "/api/v1/namespaces/web/finalize", "update /v1/namespaces/finalize -/web"),
            ("PATCH", "/api/v1/namespaces/web/status", "patch /v1/namespaces/status -/web"),
            ("GET", "/api/v1/namespaces/status/pods", "list /v1/pods/- status/-"),
            ("GET", "/api/v1/namespaces//pods", "list /v1/pods/- -/-"),
        ]);
    }

    #[test]
    fn escapes_are_decoded_before_path_is_split() {
        check(&[
            (
                "GET",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "get rbac.authorization.k8s.io/v1/clusterroles/- -/system:node",
            ),
            ("PUT", "/api/v1/namespaces/web/pods/a%2Fstatus", "update /v1/pods/status web/a"),
            ("GET", "/%61pi/v1/pods", "list /v1/pods/- -/-"),
            ("GET", "/api/v1/nodes/a%zz", "get /v1/nodes/- -/a%zz"),
        ]);
    }

    #[test]
    fn non_resource_request_is_mutating_by_method() {
        let not_objects = [
            "",
            "/",
            "/healthz",
            "/livez/etcd",
            "/version",
            "/api",
            "/api/v1",
            "/api/v1/",
            "/api/v1//pods",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/apis/apps/v1/",
            "/openapi/v3/apis/apps/v1",
            "/metrics",
            "/apiserver/v1/pods",
        ];
        for path in not_objects {
            check(&[("GET", path, "other mutating=false"), ("POST", path, "other mutating=true")]);
        }
        check(&[
            ("OPTIONS", "/api/v1/pods", "other mutating=false"),
            ("CONNECT", "/api/v1/namespaces/web/pods/a/exec", "other mutating=true"),
            ("UNHEARD", "/api/v1/namespaces/web/pods/a", "other mutating=true"),
        ]);
    }

    #[test]
    fn subresource_in_roles_has_a_slash() {
        let in_roles = |path| ResourcePath::parse(path).map(|path| path.resource_in_roles());
        assert_eq!(in_roles("/api/v1/namespaces/web/pods/a/status").as_deref(), Some("pods/status"));
        assert_eq!(in_roles("/api/v1/namespaces/web/pods/a").as_deref(), Some("pods"));
    }

    #[test]
    fn first_value_of_repeated_parameter_counts() {
        assert_eq!(parameter(Some("a=1&b=&a=2&c"), "a").as_deref(), Some("1"));
        assert_eq!(parameter(Some("a=1&b=&c"), "c").as_deref(), Some(""));
        assert_eq!(parameter(Some("a=x%3Dy+z"), "a").as_deref(), Some("x=y z"));
        assert_eq!(parameter(Some("ab=1"), "a"), None);
        assert_eq!(parameter(None, "a"), None);
    }
}
