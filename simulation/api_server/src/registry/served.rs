//! What the server serves at one time.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_schema::{Catalog, ResourceInfo};

use super::definition::Definition;

/// What is served at one time.
#[derive(Clone, Debug)]
pub(crate) struct ServedResources {
    /// The resources.
    pub(crate) catalogue: Arc<Catalog>,
    /// What defines the custom ones, by group and plural.
    pub(crate) custom: BTreeMap<(String, String), Arc<Definition>>,
}

impl ServedResources {
    /// The definition of a custom resource.
    pub(crate) fn definition(&self, resource: &ResourceInfo) -> Option<&Arc<Definition>> {
        self.custom.get(&(resource.group.clone(), resource.plural.clone()))
    }
}
