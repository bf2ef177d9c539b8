//! What a path means.

use std::borrow::Cow;

use ::http::Method;
use percent_encoding::percent_decode_str;
use windlass_object::Verb;

/// A path below `/api/{version}` or `/apis/{group}/{version}` that leads to objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// The group; empty for the core group.
    pub(crate) group: String,
    /// The version.
    pub(crate) version: String,
    /// The namespace; empty for the cluster.
    pub(crate) namespace: String,
    /// The plural name.
    pub(crate) resource: String,
    /// The object's name; empty for collections.
    pub(crate) name: String,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// Whether it is one of the paths below which there is nothing but watches, as clients of old used them.
    pub(crate) watch: bool,
    /// Whether something follows the subresource, as below `proxy`. Nothing here is served.
    pub(crate) goes_on: bool,
}

/// The segments of a path, decoded. Empty segments between slashes are kept: they lead nowhere.
pub(crate) fn segments(path: &str) -> Vec<String> {
    let path = path.trim_matches('/');
    if path.is_empty() {
        return Vec::new();
    }
    let decoded = |segment| percent_decode_str(segment).decode_utf8_lossy();
    path.split('/').map(decoded).map(Cow::into_owned).collect()
}

impl ResourcePath {
    /// What the path leads to, if it leads to objects.
    pub(crate) fn parse(segments: &[String]) -> Option<ResourcePath> {
        let (group, version, rest) = match segments {
            [api, version, rest @ ..] if api == "api" => ("", version, rest),
            [apis, group, version, rest @ ..] if apis == "apis" => (group.as_str(), version, rest),
            _ => return None,
        };
        let mut found = ResourcePath { group: group.into(), version: version.clone(), ..Self::default() };
        let rest = match rest {
            [first, rest @ ..] if first == "watch" && !rest.is_empty() => {
                found.watch = true;
                rest
            }
            rest => rest,
        };
        let rest = found.take_namespace(rest);
        let mut parts = rest.iter().cloned();
        found.resource = parts.next().filter(|it| !it.is_empty())?;
        found.name = parts.next().unwrap_or_default();
        found.subresource = parts.next().unwrap_or_default();
        found.goes_on = parts.next().is_some();
        Some(found)
    }

    /// `namespaces/{name}` leads into a namespace if more follows that is not a part of the namespace itself.
    fn take_namespace<'a>(&mut self, rest: &'a [String]) -> &'a [String] {
        match rest {
            [first, name, next, ..] if first == "namespaces" && !matches!(&**next, "status" | "finalize") => {
                self.namespace = name.clone();
                &rest[2..]
            }
            // A namespace counts as an object inside of itself.
            [first, name, ..] if first == "namespaces" => {
                self.namespace = name.clone();
                rest
            }
            _ => rest,
        }
    }

    /// What a request with that method does there. `None`: no such thing is done with objects.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> Option<Verb> {
        let collection = self.name.is_empty();
        if self.watch {
            return matches!(*method, Method::GET | Method::HEAD).then_some(Verb::Watch);
        }
        Some(match (method, collection) {
            (&Method::GET | &Method::HEAD, false) => Verb::Get,
            (&Method::GET | &Method::HEAD, true) if watch => Verb::Watch,
            (&Method::GET | &Method::HEAD, true) => Verb::List,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Update,
            (&Method::PATCH, _) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            (&Method::DELETE, true) => Verb::DeleteCollection,
            _ => return None,
        })
    }

    /// The resource with its subresource, as roles write it.
    pub(crate) fn resource_in_roles(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> Option<[String; 6]> {
        let it = ResourcePath::parse(&segments(path))?;
        Some([it.group, it.version, it.namespace, it.resource, it.name, it.subresource])
    }

    #[test]
    fn a_path_is_taken_apart_as_the_real_server_does() {
        let cases = [
            ("/api/v1/pods", ["", "v1", "", "pods", "", ""]),
            ("/api/v1/namespaces/a/pods/b/status", ["", "v1", "a", "pods", "b", "status"]),
            ("/api/v1/watch/namespaces/a/pods/b", ["", "v1", "a", "pods", "b", ""]),
            ("/api/v1/namespaces", ["", "v1", "", "namespaces", "", ""]),
            ("/api/v1/namespaces/a", ["", "v1", "a", "namespaces", "a", ""]),
            ("/api/v1/namespaces/a/finalize", ["", "v1", "a", "namespaces", "a", "finalize"]),
            ("/apis/apps/v1/deployments/", ["apps", "v1", "", "deployments", "", ""]),
            (
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                ["apps", "v1", "a", "deployments", "b", "scale"],
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                ["rbac.authorization.k8s.io", "v1", "", "clusterroles", "system:node", ""],
            ),
        ];
        for (path, expected) in cases {
            assert_eq!(parsed(path), Some(expected.map(str::to_owned)), "{path}");
        }
        for path in ["/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/version"] {
            assert_eq!(parsed(path), None, "{path}");
        }
    }

    #[test]
    fn the_verb_follows_from_method_and_name() {
        let of = |path: &str, method, watch| {
            ResourcePath::parse(&segments(path)).and_then(|it| it.verb(&method, watch))
        };
        assert_eq!(of("/api/v1/pods", Method::GET, false), Some(Verb::List));
        assert_eq!(of("/api/v1/pods", Method::GET, true), Some(Verb::Watch));
        assert_eq!(of("/api/v1/nodes/a", Method::GET, true), Some(Verb::Get));
        assert_eq!(of("/api/v1/pods", Method::DELETE, false), Some(Verb::DeleteCollection));
        assert_eq!(of("/api/v1/nodes/a", Method::DELETE, false), Some(Verb::Delete));
        assert_eq!(of("/api/v1/nodes/a", Method::OPTIONS, false), None);
        assert_eq!(of("/api/v1/watch/namespaces/a/pods", Method::GET, false), Some(Verb::Watch));
        assert_eq!(
            of("/apis/apps/v1/watch/namespaces/a/deployments/b", Method::GET, false),
            Some(Verb::Watch)
        );
        assert_eq!(of("/api/v1/watch/namespaces/a", Method::DELETE, false), None);
    }
}
