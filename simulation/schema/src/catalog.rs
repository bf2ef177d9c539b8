//! Which resources there are, with their discovery data and schemas.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::node::Schema;

/// The resources of a server, by group, version and plural name. Cloning shares what each of them is.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    resources: BTreeMap<(String, String, String), Arc<ResourceInfo>>,
    /// Built-in kinds, those without resources of their own too: what subresources and bodies of requests are made of.
    kinds: Arc<BTreeMap<(String, String, String), Schema>>,
    order: Arc<DiscoveryOrder>,
}

/// One resource in one version, as discovery tells of it.
#[derive(Clone, Debug)]
pub struct ResourceInfo {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name in paths.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The verbs, in discovery's order.
    pub verbs: Vec<String>,
    /// The short names.
    pub short_names: Vec<String>,
    /// The categories.
    pub categories: Vec<String>,
    /// What discovery says of the version in which upstream stores it; custom kinds have none here.
    pub storage_version_hash: Option<String>,
    /// What hangs below each object, by name.
    pub subresources: BTreeMap<String, SubresourceInfo>,
    /// The type.
    pub schema: Schema,
}

/// One subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubresourceInfo {
    /// The group of what is read and written there, where it differs from the parent's.
    pub group: Option<String>,
    /// Its version, where it differs.
    pub version: Option<String>,
    /// Its kind.
    pub kind: String,
    /// The verbs.
    pub verbs: Vec<String>,
}

/// In which order discovery lists groups and their versions. What upstream says nothing of comes last, by name.
#[derive(Debug, Default)]
pub(crate) struct DiscoveryOrder(Vec<(String, String)>);

/// A group and its versions, the preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: String,
    /// The versions.
    pub versions: Vec<String>,
}

impl Catalog {
    /// A catalog of these resources. `kinds` are the schemas of all kinds, also of those that are no resource.
    pub(crate) fn of(
        resources: Vec<ResourceInfo>,
        kinds: BTreeMap<(String, String, String), Schema>,
        order: DiscoveryOrder,
    ) -> Catalog {
        let mut catalogue =
            Catalog { resources: BTreeMap::new(), kinds: Arc::new(kinds), order: Arc::new(order) };
        resources.into_iter().for_each(|resource| catalogue.insert(resource));
        catalogue
    }

    /// The resource of that group, version and plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceInfo>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The resource of that group, version and kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<ResourceInfo>> {
        self.resources.values().find(|it| it.group == group && it.version == version && it.kind == kind)
    }

    /// What that kind looks like, whether it has its own resource or not: `Scale` in `autoscaling/v1`, `Eviction`
    /// in `policy/v1`, `TokenRequest`, `Binding`; `DeleteOptions` and `Status` in `v1`.
    pub fn kind_schema(&self, group: &str, version: &str, kind: &str) -> Option<&Schema> {
        let built_in = self.kinds.get(&(group.to_owned(), version.to_owned(), kind.to_owned()));
        built_in.or_else(|| self.kind(group, version, kind).map(|it| &it.schema))
    }

    /// All, in order of group, version and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.resources.values()
    }

    /// The resources of that group and version, in order of their plural names.
    pub fn of_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        let first = (group.to_owned(), version.to_owned(), String::new());
        let rest = self.resources.range(first..).map(|(_, resource)| resource);
        rest.take_while(move |it| it.group == group && it.version == version)
    }

    /// The groups and their versions in the order of discovery: the built-in ones as upstream has them, then the
    /// others by name.
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

    /// Whether upstream's server serves that group and version by itself.
    pub fn is_built_in(&self, group: &str, version: &str) -> bool {
        self.order.0.iter().any(|it| it.0 == group && it.1 == version)
    }

    /// Whether the types that a schema refers to are the built-in ones.
    pub(crate) fn has_built_in_types(&self, schema: &Schema) -> bool {
        self.kinds.values().next().is_some_and(|it| Arc::ptr_eq(&it.types, &schema.types))
    }

    /// Adds a resource, or puts it instead of the one of that name.
    pub fn insert(&mut self, resource: ResourceInfo) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, Arc::new(resource));
    }

    /// Removes a resource.
    pub fn remove(&mut self, group: &str, version: &str, plural: &str) {
        self.resources.remove(&(group.to_owned(), version.to_owned(), plural.to_owned()));
    }
}

/// Where a version stands: the place of its group, the group, its own place, and then its age.
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

/// How mature a version is by its name: stable before beta before alpha, then the higher number; names of another form
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
