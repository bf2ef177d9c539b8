//! Managers of the number of replicas: those of a `Scale`, and those of the object that is scaled.

use std::collections::BTreeMap;

use super::managed::{ManagedFields, ManagerKey};
use super::owners::ManagerFields;
use super::set::FieldSet;

/// The type of all scales.
const SCALE: &str = "autoscaling/v1";

/// Paths of the number of replicas in the versions of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicasPaths(BTreeMap<String, Option<FieldSet>>);

impl ReplicasPaths {
    /// Adds a version and the names of the fields from the root; `None` for a version without scale subresource.
    #[must_use]
    pub fn with_version(mut self, api_version: &str, path: Option<&[&str]>) -> ReplicasPaths {
        self.0.insert(api_version.to_owned(), path.map(|it| FieldSet::of_fields(&[it])));
        self
    }

    fn of(&self, owned: &ManagerFields) -> Option<&FieldSet> {
        self.0.get(&owned.version)?.as_ref().filter(|path| owned.set.intersects(path))
    }
}

impl ManagedFields {
    /// Returns the managers of the `Scale` of an object with these managers.
    #[must_use]
    pub fn to_scale(&self, paths: &ReplicasPaths) -> ManagedFields {
        let mut scale = ManagedFields::default();
        for (key, owned) in &self.owners {
            if paths.of(owned).is_some() {
                scale.put(key.clone(), self, scale_replicas(), SCALE);
            }
        }
        scale
    }

    /// Returns the managers of an object with these managers after a write to its `Scale`, which has the others.
    #[must_use]
    pub fn with_scale(
        &self,
        mut scale: ManagedFields,
        paths: &ReplicasPaths,
        version: &str,
    ) -> ManagedFields {
        let mut parent = ManagedFields::default();
        for (key, owned) in &self.owners {
            if !paths.0.contains_key(&owned.version) {
                continue;
            }
            let set = match paths.of(owned) {
                // As upstream, the name of an update contains its version, so that the scale never has this manager.
                Some(path) if scale.owners.remove(key).is_none() => owned.set.difference(path),
                _ => owned.set.clone(),
            };
            if !set.is_empty() {
                parent.put(key.clone(), self, set, &owned.version);
            }
        }
        let Some(path) = paths.0.get(version).cloned().flatten() else { return parent };
        for (key, owned) in scale.owners {
            if owned.set.intersects(&scale_replicas()) {
                // As upstream, new managers have no time.
                parent.put(key, self, path.clone(), version);
            }
        }
        parent
    }

    fn put(&mut self, key: ManagerKey, times: &ManagedFields, set: FieldSet, version: &str) {
        if let Some(time) = times.times.get(&key) {
            self.times.insert(key.clone(), *time);
        }
        self.owners.insert(key, ManagerFields { set, version: version.to_owned() });
    }
}

fn scale_replicas() -> FieldSet {
    FieldSet::of_fields(&[&["spec", "replicas"]])
}
