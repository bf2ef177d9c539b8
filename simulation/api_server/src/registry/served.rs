//! Resources that the server serves at one point in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_schema::{Catalog, ResourceInfo};

use super::definition::Definition;

/// The served resources.
#[derive(Clone, Debug)]
pub(crate) struct ServedResources {
    /// All resources.
    pub(crate) catalog: Arc<Catalog>,
    /// CRDs of the custom resources, by group and plural name.
    pub(crate) custom: BTreeMap<(String, String), Arc<Definition>>,
}

impl ServedResources {
    /// Returns the CRD of a custom resource.
    pub(crate) fn definition(&self, resource: &ResourceInfo) -> Option<&Arc<Definition>> {
        self.custom.get(&(resource.group.clone(), resource.plural.clone()))
    }
}
