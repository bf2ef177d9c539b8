//! Which kind of object, as a value at run time.

use std::{borrow::Cow, fmt};

use kube::core::{ClusterResourceScope, NamespaceResourceScope, Resource};

/// Whether the objects of a resource live in namespaces.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every object lives in a namespace.
    Namespaced,
    /// Objects belong to the cluster.
    Cluster,
}

/// A scope known at compile time: k8s-openapi's markers, as values.
pub trait Scoped {
    /// The scope this marker stands for.
    const SCOPE: Scope;
}

impl Scoped for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}

impl Scoped for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

/// Everything needed to address the objects of one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKind {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version within the group.
    pub version: Cow<'static, str>,
    /// The kind, in the singular and in capitals: `ReplicaSet`.
    pub kind: Cow<'static, str>,
    /// The resource in paths and roles: `replicasets`.
    pub plural: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
}

impl ResourceKind {
    /// The kind of a Rust type.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: Scoped,
    {
        Self {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
            scope: K::Scope::SCOPE,
        }
    }

    /// `apiVersion` as objects carry it: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_ref() {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Group and resource, without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }

    /// The path of the collection, in one namespace or over all of them.
    ///
    /// A namespace is ignored for cluster-scoped kinds.
    pub fn url_path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let (api_version, plural) = (self.api_version(), &self.plural);
        match namespace {
            Some(namespace) if self.scope == Scope::Namespaced => {
                format!("{root}/{api_version}/namespaces/{namespace}/{plural}")
            }
            _ => format!("{root}/{api_version}/{plural}"),
        }
    }
}

/// `replicasets.v1.apps`, as users write it on command lines.
impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_ref() {
            "" => write!(f, "{}.{}", self.plural, self.version),
            group => write!(f, "{}.{}.{group}", self.plural, self.version),
        }
    }
}

/// A resource in whatever version: what roles, metrics and version comparisons are about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The plural resource.
    pub resource: Cow<'static, str>,
}

impl GroupResource {
    /// `resource` of `group`.
    pub fn new(group: impl Into<Cow<'static, str>>, resource: impl Into<Cow<'static, str>>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// `replicasets.apps`, or `pods` in the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_ref() {
            "" => f.write_str(&self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

impl fmt::Debug for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Node, core::v1::Pod};

    use super::*;

    #[test]
    fn kind_is_read_off_its_type() {
        let kind = ResourceKind::of::<ReplicaSet>();
        assert_eq!(
            (kind.group.as_ref(), kind.version.as_ref(), kind.kind.as_ref()),
            ("apps", "v1", "ReplicaSet")
        );
        assert_eq!((kind.plural.as_ref(), kind.scope), ("replicasets", Scope::Namespaced));
        assert_eq!(ResourceKind::of::<Node>().scope, Scope::Cluster);
    }

    #[test]
    fn paths_follow_group_and_scope() {
        let (sets, pods, nodes) =
            (ResourceKind::of::<ReplicaSet>(), ResourceKind::of::<Pod>(), ResourceKind::of::<Node>());
        assert_eq!(sets.url_path(Some("web")), "/apis/apps/v1/namespaces/web/replicasets");
        assert_eq!(sets.url_path(None), "/apis/apps/v1/replicasets");
        assert_eq!(pods.url_path(Some("web")), "/api/v1/namespaces/web/pods");
        assert_eq!(nodes.url_path(Some("web")), "/api/v1/nodes");
    }

    #[test]
    fn core_group_has_no_name_in_print() {
        assert_eq!(ResourceKind::of::<ReplicaSet>().group_resource().to_string(), "replicasets.apps");
        assert_eq!(ResourceKind::of::<Pod>().group_resource().to_string(), "pods");
        assert_eq!(ResourceKind::of::<Pod>().to_string(), "pods.v1");
        assert_eq!(ResourceKind::of::<Pod>().api_version(), "v1");
        assert_eq!(ResourceKind::of::<ReplicaSet>().api_version(), "apps/v1");
    }
}
