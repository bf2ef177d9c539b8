//! Catalog of resources with their discovery data and schemas.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::node::Schema;

/// Resources of a server, by group, version and plural name. Clones share the resources.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    resources: BTreeMap<(String, String, String), Arc<ResourceInfo>>,
    /// Schemas of built-in kinds, including kinds without a resource that subresources and request bodies use.
    kinds: Arc<BTreeMap<(String, String, String), Schema>>,
    order: Arc<DiscoveryOrder>,
}

/// One resource in one version, as in discovery.
#[derive(Clone, Debug)]
pub struct ResourceInfo {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, as used in paths.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Kind of the objects.
    pub kind: String,
    /// Kind of the lists.
    pub list_kind: String,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Verbs, in the order of discovery.
    pub verbs: Vec<String>,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// Hash in discovery of the version in which upstream stores the resource; `None` for custom kinds.
    pub storage_version_hash: Option<String>,
    /// Subresources, by name.
    pub subresources: BTreeMap<String, SubresourceInfo>,
    /// Schema of the objects.
    pub schema: Schema,
}

/// One subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubresourceInfo {
    /// Group of the subresource's kind, if it differs from the parent's group.
    pub group: Option<String>,
    /// Version of the subresource's kind, if it differs from the parent's version.
    pub version: Option<String>,
    /// Kind of the subresource.
    pub kind: String,
    /// Verbs of the subresource.
    pub verbs: Vec<String>,
}

/// Order of groups and versions in discovery. Groups that upstream does not define come last, by name.
#[derive(Debug, Default)]
pub(crate) struct DiscoveryOrder(Vec<(String, String)>);

/// A group with its versions, the preferred version first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Group name; empty for the core group.
    pub name: String,
    /// Versions of the group.
    pub versions: Vec<String>,
}

impl Catalog {
    /// Returns a catalog of these resources. `kinds` contains the schemas of all kinds, including kinds without a
    /// resource.
    pub(crate) fn of(
        resources: Vec<ResourceInfo>,
        kinds: BTreeMap<(String, String, String), Schema>,
        order: DiscoveryOrder,
    ) -> Catalog {
        let mut catalog =
            Catalog { resources: BTreeMap::new(), kinds: Arc::new(kinds), order: Arc::new(order) };
        resources.into_iter().for_each(|resource| catalog.insert(resource));
        catalog
    }

    /// Returns the resource with that group, version and plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceInfo>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Returns the resource with that group, version and kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<ResourceInfo>> {
        self.resources.values().find(|it| it.group == group && it.version == version && it.kind == kind)
    }

    /// Returns the schema of a kind, with or without its own resource: `Scale` in `autoscaling/v1`, `Eviction` in
    /// `policy/v1`, `TokenRequest`, `Binding`; `DeleteOptions` and `Status` in `v1`.
    pub fn kind_schema(&self, group: &str, version: &str, kind: &str) -> Option<&Schema> {
        let built_in = self.kinds.get(&(group.to_owned(), version.to_owned(), kind.to_owned()));
        built_in.or_else(|| self.kind(group, version, kind).map(|it| &it.schema))
    }

    /// Returns all resources in the order of group, version and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.resources.values()
    }

    /// Returns the resources of that group and version in the order of their plural names.
    pub fn of_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        let first = (group.to_owned(), version.to_owned(), String::new());
        let rest = self.resources.range(first..).map(|(_, resource)| resource);
        rest.take_while(move |it| it.group == group && it.version == version)
    }

    /// Returns the groups and their versions in the order of discovery: built-in groups in upstream order, then custom
    /// groups by name.
    pub fn groups(&self) -> Vec<Group> {
        let mut found: Vec<_> = self.resources.keys().map(|(group, version, _)| (group, version)).collect();
        found.dedup();
        found.sort_by_cached_key(|(group, version)| self.order.rank(group, version));
        let mut groups: Vec<Group> = Vec::new();
        for (name, version) in found {
            match groups.last_mut() {
                Some(group) if group.name == *name => group.versions.push(version.clone()),
                _ => groups.push(Group { name: name.clone(), versions: vec![version.clone()] }),
            }
        }
        groups
    }

    /// Returns whether the built-in API of upstream serves that group and version.
    pub fn is_built_in(&self, group: &str, version: &str) -> bool {
        self.order.0.iter().any(|it| it.0 == group && it.1 == version)
    }

    /// Returns whether a schema refers to the built-in types.
    pub(crate) fn has_built_in_types(&self, schema: &Schema) -> bool {
        self.kinds.values().next().is_some_and(|it| Arc::ptr_eq(&it.types, &schema.types))
    }

    /// Adds a resource, or replaces the resource of that name.
    pub fn insert(&mut self, resource: ResourceInfo) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, Arc::new(resource));
    }

    /// Removes a resource.
    pub fn remove(&mut self, group: &str, version: &str, plural: &str) {
        self.resources.remove(&(group.to_owned(), version.to_owned(), plural.to_owned()));
    }
}

/// Sort key of a version: position of its group, group, position of the version, and maturity.
type Rank = (usize, String, usize, Reverse<(u8, u64, u64)>, String);

impl DiscoveryOrder {
    pub(crate) fn note(&mut self, group: &str, version: &str) {
        self.0.push((group.to_owned(), version.to_owned()));
    }

    fn rank(&self, group: &str, version: &str) -> Rank {
        let place = |position: Option<usize>| position.unwrap_or(usize::MAX);
        let of_group = place(self.0.iter().position(|it| it.0 == group));
        let of_version = place(self.0.iter().position(|it| it.0 == group && it.1 == version));
        (of_group, group.to_owned(), of_version, Reverse(maturity(version)), version.to_owned())
    }
}

/// Returns the maturity of a version by its name: stable before beta before alpha, then the higher number; other names
/// come last.
fn maturity(version: &str) -> (u8, u64, u64) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.len() - rest.trim_start_matches(|it: char| it.is_ascii_digit()).len();
        let (major, stage) = (rest[..digits].parse().ok()?, &rest[digits..]);
        if stage.is_empty() {
            return Some((3, major, 0));
        }
        let (level, minor) = match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        let minor = if minor.is_empty() { 0 } else { minor.parse().ok()? };
        Some((level, major, minor))
    };
    parsed().unwrap_or((0, 0, 0))
}
