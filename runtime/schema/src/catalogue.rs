//! Which resources there are, with their discovery data and schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::node::Schema;

/// The resources of a server, by group, version and plural name.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    resources: BTreeMap<(String, String, String), Arc<ResourceInfo>>,
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

impl Catalogue {
    /// The resource of that group, version and plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceInfo>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The resource of that group, version and kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<ResourceInfo>> {
        self.resources.values().find(|it| it.group == group && it.version == version && it.kind == kind)
    }

    /// All, in order of group, version and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.resources.values()
    }

    /// Adds a resource, or puts it in the place of the one of that name.
    pub fn insert(&mut self, resource: ResourceInfo) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, Arc::new(resource));
    }

    /// Removes a resource.
    pub fn remove(&mut self, group: &str, version: &str, plural: &str) {
        self.resources.remove(&(group.to_owned(), version.to_owned(), plural.to_owned()));
    }
}
