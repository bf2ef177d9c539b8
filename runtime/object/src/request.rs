//! What a request is about: verb, resource and name, read off its method, path and query.
//!
//! The rules are the API server's own, so that a client's metrics, fences and declarations speak of the same thing as
//! an authorizer and an audit log. Three readings are ours:
//! - A namespace does not lie in itself: `namespaces/web` has the name `web` and no namespace, as its object.
//! - A selector of fields does not give a collection a name.
//! - What is no watch below the old `watch/` paths is not about objects; nobody serves it.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::{GroupResource, Verb};

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
    /// To what.
    pub path: ResourcePath,
}

/// A path below `/api/{version}` or `/apis/{group}/{version}`, taken apart.
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
    /// The namespace; `None` for objects of the cluster and for requests over all namespaces.
    pub namespace: Option<String>,
    /// The object's name; `None` for collections, and for creates other than of subresources.
    pub name: Option<String>,
    /// Whether there is nothing but watches here, as `/api/v1/watch/pods` is an old way to write
    /// `/api/v1/pods?watch=true`.
    pub only_watches: bool,
    /// Whether something follows the subresource, as below `proxy`.
    pub goes_on: bool,
}

impl RequestInfo {
    /// Classifies a request by its method, path and query.
    pub fn classify(method: &Method, path: &str, query: Option<&str>) -> Self {
        let about = ResourcePath::parse(path)
            .and_then(|path| Some(ResourceRequest { verb: path.verb(method, asks_to_watch(query))?, path }));
        about.map_or_else(|| RequestInfo::Other { mutating: is_mutating(method) }, RequestInfo::Resource)
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

impl ResourcePath {
    /// What a path leads to, if it leads to objects.
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

    /// What a request with that method does there. `None`: no such thing is done with objects.
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

/// A path without escapes and without slashes at its ends. What was an escaped slash separates like any other: the
/// API server looks at paths only after it has decoded them.
pub fn decoded(path: &str) -> Cow<'_, str> {
    match percent_decode_str(path).decode_utf8_lossy() {
        Cow::Borrowed(path) => Cow::Borrowed(path.trim_matches('/')),
        Cow::Owned(path) => Cow::Owned(path.trim_matches('/').to_owned()),
    }
}

/// The value of a query parameter, decoded; the first one counts.
pub fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    let mut pairs = form_urlencoded::parse(query?.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value)
}

/// Whether a method may change something. Those nobody knows may.
pub fn is_mutating(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// `namespaces/web/pods` is about pods in `web`; `namespaces/web` and its subresources are about the namespace.
fn split_namespace<'p, 'a>(parts: &'p [&'a str]) -> (Option<&'a str>, &'p [&'a str]) {
    match parts {
        ["namespaces", _, "status" | "finalize", ..] => (None, parts),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            (Some(*namespace).filter(|namespace| !namespace.is_empty()), rest)
        }
        _ => (None, parts),
    }
}

/// Booleans are never wrong: only `0` and `false` mean no.
fn asks_to_watch(query: Option<&str>) -> bool {
    parameter(query, "watch").is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `verb group/version/resource/subresource namespace/name`, with `-` for what is absent.
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
    fn collections_and_objects_of_the_core_group_are_told_apart() {
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
    fn named_groups_stand_before_their_version() {
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
    fn only_a_collection_is_watched_by_parameter() {
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
    fn below_the_old_watch_paths_everything_is_a_watch() {
        check(&[
            ("GET", "/api/v1/watch/pods", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/watch/pods?watch=false", "watch /v1/pods/- -/-"),
            ("GET", "/api/v1/watch/namespaces/web/pods", "watch /v1/pods/- web/-"),
            ("GET", "/api/v1/watch/namespaces/web/pods/a", "watch /v1/pods/- web/a"),
            ("GET", "/api/v1/watch/namespaces/web", "watch /v1/namespaces/- -/web"),
            ("HEAD", "/apis/apps/v1/watch/namespaces/a/deployments/b", "watch apps/v1/deployments/- a/b"),
            ("POST", "/api/v1/watch/pods", "other mutating=true"),
            ("DELETE", "/api/v1/watch/namespaces/web", "other mutating=true"),
            // Nothing to watch: a resource that happens to be called so.
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
    fn what_follows_a_proxy_is_not_ours_to_read() {
        check(&[
            ("GET", "/api/v1/namespaces/web/services/a/proxy", "get /v1/services/proxy web/a"),
            ("POST", "/api/v1/namespaces/web/services/a/proxy/b/c", "create /v1/services/proxy web/a and on"),
            ("GET", "/api/v1/nodes/n1/proxy/metrics", "get /v1/nodes/proxy -/n1 and on"),
            ("GET", "/api/v1/nodes/n1/proxy/a%2Fb", "get /v1/nodes/proxy -/n1 and on"),
            // The prefix of old, which nobody serves any more.
            ("GET", "/api/v1/proxy/nodes/n1", "get /v1/proxy/n1 -/nodes"),
        ]);
    }

    #[test]
    fn namespace_is_an_object_and_a_place() {
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
    fn escapes_are_undone_before_a_path_is_taken_apart() {
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
    fn what_is_not_about_objects_is_judged_by_its_method() {
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
    fn roles_name_subresources_with_a_slash() {
        let in_roles = |path| ResourcePath::parse(path).map(|path| path.resource_in_roles());
        assert_eq!(in_roles("/api/v1/namespaces/web/pods/a/status").as_deref(), Some("pods/status"));
        assert_eq!(in_roles("/api/v1/namespaces/web/pods/a").as_deref(), Some("pods"));
    }

    #[test]
    fn first_parameter_of_a_name_counts() {
        assert_eq!(parameter(Some("a=1&b=&a=2&c"), "a").as_deref(), Some("1"));
        assert_eq!(parameter(Some("a=1&b=&c"), "c").as_deref(), Some(""));
        assert_eq!(parameter(Some("a=x%3Dy+z"), "a").as_deref(), Some("x=y z"));
        assert_eq!(parameter(Some("ab=1"), "a"), None);
        assert_eq!(parameter(None, "a"), None);
    }
}
