//! Resource kinds as values at run time.

use std::{borrow::Cow, fmt};

use kube::core::{ClusterResourceScope, NamespaceResourceScope, Resource};

/// Scope of a resource: namespaced or cluster-scoped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every object is in a namespace.
    Namespaced,
    /// Objects are cluster-scoped.
    Cluster,
}

/// A scope known at compile time, for k8s-openapi's marker types.
pub trait Scoped {
    /// The scope that this marker represents.
    const SCOPE: Scope;
}

impl Scoped for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}

impl Scoped for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

/// Group, version, kind, resource name and scope of a kind.
///
/// # Examples
/// ```
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use windlass_object::ResourceKind;
///
/// let kind = ResourceKind::of::<ReplicaSet>();
/// assert_eq!((kind.api_version().as_str(), kind.plural.as_ref()), ("apps/v1", "replicasets"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKind {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version within the group.
    pub version: Cow<'static, str>,
    /// The kind, singular and in upper camel case: `ReplicaSet`.
    pub kind: Cow<'static, str>,
    /// The resource name used in URL paths and RBAC rules: `replicasets`.
    pub plural: Cow<'static, str>,
    /// Scope of the objects.
    pub scope: Scope,
}

impl ResourceKind {
    /// Returns the kind of a Rust type.
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

    /// Returns the `apiVersion` of the objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_ref() {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the group and resource, without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }

    /// Returns the URL path of the collection, in one namespace or across all namespaces.
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

/// The format that users write on command lines: `replicasets.v1.apps`.
impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_ref() {
            "" => write!(f, "{}.{}", self.plural, self.version),
            group => write!(f, "{}.{}.{group}", self.plural, self.version),
        }
    }
}

/// A resource without a version, as RBAC rules, metrics and resource version comparisons refer to it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The plural resource.
    pub resource: Cow<'static, str>,
}

impl GroupResource {
    /// Creates a value for `resource` of `group`.
    pub fn new(group: impl Into<Cow<'static, str>>, resource: impl Into<Cow<'static, str>>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// The format is `replicasets.apps`, or `pods` for the core group.
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
    fn kind_is_derived_from_the_type() {
        let kind = ResourceKind::of::<ReplicaSet>();
        assert_eq!(
            (kind.group.as_ref(), kind.version.as_ref(), kind.kind.as_ref()),
            ("apps", "v1", "ReplicaSet")
        );
        assert_eq!((kind.plural.as_ref(), kind.scope), ("replicasets", Scope::Namespaced));
        assert_eq!(ResourceKind::of::<Node>().scope, Scope::Cluster);
    }

    #[test]
    fn url_paths_depend_on_group_and_scope() {
        let (sets, pods, nodes) =
            (ResourceKind::of::<ReplicaSet>(), ResourceKind::of::<Pod>(), ResourceKind::of::<Node>());
        assert_eq!(sets.url_path(Some("web")), "/apis/apps/v1/namespaces/web/replicasets");
        assert_eq!(sets.url_path(None), "/apis/apps/v1/replicasets");
        assert_eq!(pods.url_path(Some("web")), "/api/v1/namespaces/web/pods");
        assert_eq!(nodes.url_path(Some("web")), "/api/v1/nodes");
    }

    #[test]
    fn core_group_is_omitted_in_display() {
        assert_eq!(ResourceKind::of::<ReplicaSet>().group_resource().to_string(), "replicasets.apps");
        assert_eq!(ResourceKind::of::<Pod>().group_resource().to_string(), "pods");
        assert_eq!(ResourceKind::of::<Pod>().to_string(), "pods.v1");
        assert_eq!(ResourceKind::of::<Pod>().api_version(), "v1");
        assert_eq!(ResourceKind::of::<ReplicaSet>().api_version(), "apps/v1");
    }
}
