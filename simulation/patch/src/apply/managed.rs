//! Encodes and decodes `metadata.managedFields`, the ownership data of an object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::element::ElementError;
use super::owners::{ManagerFields, Owners};
use super::set::FieldSet;

/// Maximum number of update managers, as upstream; older entries are merged.
const UPDATE_MANAGERS: usize = 10;

/// Manager of the entry into which the oldest updates are merged.
const ANCIENT: &str = "ancient-changes";

/// Kind of write by which a manager changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

/// Identity of a manager: one entry of `managedFields`. A manager that applies is the same in all versions; a manager
/// that updates is a different one in each version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerKey {
    /// Name of the manager.
    pub name: String,
    /// Kind of its writes.
    pub operation: Operation,
    /// The `apiVersion` of its updates; empty for applies.
    pub version: String,
    /// Subresource of its writes; empty for the object itself.
    pub subresource: String,
}

/// Decoded `managedFields` of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedFields {
    pub(super) owners: Owners<ManagerKey>,
    pub(super) times: BTreeMap<ManagerKey, Timestamp>,
}

/// Reason why `managedFields` cannot be decoded, with upstream's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    /// The operation of an entry is neither apply nor update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry has no version.
    #[error("apiVersion must not be empty")]
    Version,
    /// An entry has no `fieldsType`.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// The `fieldsType` of an entry is unknown.
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    /// An entry is not an object, or its fields are not paths.
    #[error("error decoding managed fields entry {0}: {1}")]
    Fields(usize, String),
}

impl ManagedFields {
    /// Decodes the managers of an object, which can be empty.
    ///
    /// # Errors
    ///
    /// Returns [`ManagedFieldsError`] for an invalid entry.
    pub fn read(object: &Value) -> Result<ManagedFields, ManagedFieldsError> {
        let mut managed = ManagedFields::default();
        for (index, entry) in entries(object).iter().enumerate() {
            managed.read_entry(index, entry)?;
        }
        Ok(managed)
    }

    pub(super) fn read_entry(&mut self, index: usize, entry: &Value) -> Result<(), ManagedFieldsError> {
        let key = ManagerKey::read(entry)?;
        match text(entry, "fieldsType") {
            "FieldsV1" => {}
            "" => return Err(ManagedFieldsError::NoFieldsType(index)),
            other => return Err(ManagedFieldsError::FieldsType(index, other.to_owned())),
        }
        let broken = |error: ElementError| ManagedFieldsError::Fields(index, error.to_string());
        let set = FieldSet::from_fields_v1(entry.get("fieldsV1").unwrap_or(&Value::Null)).map_err(broken)?;
        if let Ok(time) = text(entry, "time").parse() {
            self.times.insert(key.clone(), time);
        }
        self.owners.insert(key, ManagerFields { set, version: text(entry, "apiVersion").to_owned() });
        Ok(())
    }

    /// Writes the entries into an object, or removes the field if there are no managers.
    pub fn write(&self, object: &mut Value) {
        put(object, sorted(self.to_entries()));
    }

    /// Returns the entries in unspecified order.
    pub(super) fn to_entries(&self) -> Vec<Value> {
        self.owners.iter().map(|(key, owned)| self.entry(key, owned)).collect()
    }

    fn entry(&self, key: &ManagerKey, owned: &ManagerFields) -> Value {
        let operation = match key.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut entry = Map::new();
        entry.insert("apiVersion".to_owned(), Value::from(owned.version.as_str()));
        entry.insert("fieldsType".to_owned(), Value::from("FieldsV1"));
        entry.insert("fieldsV1".to_owned(), owned.set.to_fields_v1());
        if !key.name.is_empty() {
            entry.insert("manager".to_owned(), Value::from(key.name.as_str()));
        }
        entry.insert("operation".to_owned(), Value::from(operation));
        if !key.subresource.is_empty() {
            entry.insert("subresource".to_owned(), Value::from(key.subresource.as_str()));
        }
        if let Some(time) = self.times.get(key) {
            entry.insert("time".to_owned(), time_value(*time));
        }
        Value::Object(entry)
    }

    /// Returns whether there is no manager.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Returns the managers with their fields.
    pub fn iter(&self) -> impl Iterator<Item = (&ManagerKey, &FieldSet)> {
        self.owners.iter().map(|(key, owned)| (key, &owned.set))
    }

    /// Merges the oldest updates of one version into one entry until the limit is met.
    fn cap(&mut self) {
        let is_update = |key: &&ManagerKey| key.operation == Operation::Update;
        let mut updates: Vec<_> = self.owners.keys().filter(is_update).cloned().collect();
        let mut count = updates.len();
        if count <= UPDATE_MANAGERS {
            return;
        }
        updates
            .sort_by_cached_key(|key| (self.times.get(key).map_or(0, |time| time.as_second()), key.clone()));
        let mut first: BTreeMap<String, ManagerKey> = BTreeMap::new();
        for key in updates {
            if count <= UPDATE_MANAGERS {
                return;
            }
            let Some(version) = self.owners.get(&key).map(|owned| owned.version.clone()) else { continue };
            match first.get(&version) {
                None => {
                    first.insert(version, key);
                }
                Some(oldest) => {
                    self.merge_into_ancient(oldest.clone(), &key, &version);
                    count -= 1;
                }
            }
        }
    }

    fn merge_into_ancient(&mut self, oldest: ManagerKey, key: &ManagerKey, version: &str) {
        let bucket = ManagerKey::new(ANCIENT, Operation::Update, version, "");
        if !self.owners.contains_key(&bucket)
            && let Some(owned) = self.owners.remove(&oldest)
        {
            self.owners.insert(bucket.clone(), owned);
        }
        let Some(merged) = self.owners.remove(key) else { return };
        let set = match self.owners.get(&bucket) {
            Some(there) => there.set.union(&merged.set),
            None => merged.set,
        };
        self.owners.insert(bucket.clone(), ManagerFields { set, version: merged.version });
        // The merged entry has the time of the later update.
        match self.times.get(key).copied() {
            Some(time) => self.times.insert(bucket, time),
            None => self.times.remove(&bucket),
        };
    }
}

impl ManagerKey {
    /// Returns the key of an encoded entry.
    pub(super) fn read(entry: &Value) -> Result<ManagerKey, ManagedFieldsError> {
        let operation = match text(entry, "operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedFieldsError::Operation),
        };
        let version = text(entry, "apiVersion");
        if version.is_empty() {
            return Err(ManagedFieldsError::Version);
        }
        Ok(ManagerKey::new(text(entry, "manager"), operation, version, text(entry, "subresource")))
    }

    /// Returns the key of a manager's entry.
    pub fn new(name: &str, operation: Operation, version: &str, subresource: &str) -> ManagerKey {
        let version = if operation == Operation::Apply { "" } else { version };
        ManagerKey {
            name: name.to_owned(),
            operation,
            version: version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

fn text<'v>(entry: &'v Value, name: &str) -> &'v str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a time in the format of entries: whole seconds.
pub(super) fn time_value(time: Timestamp) -> Value {
    Value::from(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Returns whether the number of update entries exceeds the limit.
pub(super) fn too_many(entries: &[Value]) -> bool {
    entries.iter().filter(|entry| text(entry, "operation") == "Update").count() > UPDATE_MANAGERS
}

/// Returns the entries with the oldest updates merged.
pub(super) fn capped(entries: &[Value]) -> Vec<Value> {
    let mut managed = ManagedFields::default();
    for (index, entry) in entries.iter().enumerate() {
        _ = managed.read_entry(index, entry);
    }
    managed.cap();
    sorted(managed.to_entries())
}

/// Returns the entries in upstream's order: applies first, then by time and name.
pub(super) fn sorted(mut entries: Vec<Value>) -> Vec<Value> {
    let seconds = |entry: &Value| text(entry, "time").parse().map_or(0, |time: Timestamp| time.as_second());
    entries.sort_by_cached_key(|entry| {
        let own = |name| text(entry, name).to_owned();
        (own("operation"), seconds(entry), own("manager"), own("apiVersion"), own("subresource"))
    });
    entries
}

/// Writes entries into an object, or removes the field if there are none.
pub(super) fn put(object: &mut Value, entries: Vec<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    if entries.is_empty() {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        return;
    }
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

/// Returns the encoded entries of an object.
pub(super) fn entries(object: &Value) -> &[Value] {
    raw(object).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn raw(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Returns whether a request removes all managers: an empty list, or a list with one empty entry.
pub(super) fn is_reset(object: &Value) -> bool {
    match raw(object) {
        Some(Value::Array(entries)) => entries.is_empty() || *entries == [json!({})],
        _ => false,
    }
}

/// Removes the field and returns it.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}
