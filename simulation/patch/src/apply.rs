//! Server-side apply: ownership of fields, and the effect of writes on it.
//!
//! Guarantees:
//! - Merging, removal and conflicts follow upstream's structured-merge-diff; its own test cases pass.
//! - A write that changes nothing changes no entry and no time.
//! - Equal arguments produce byte-identical results; the time is an argument.
//!
//! Applies of the manager `kubectl` take over the fields of client-side apply's annotation, as in upstream.
//!
//! Conversion between versions is not supported: the object, the applied configuration and the type must have the same
//! version. Paths in entries of other versions are read as paths of this version. A field that was renamed between
//! versions therefore loses its owner at the next write, and entries of removed versions remain until they are empty.

mod applied_fields;
mod check;
mod compare;
mod element;
mod fields_v1;
mod go_format;
mod last_applied;
mod managed;
mod managed_fields_update;
mod merge;
mod owners;
mod reconcile;
mod remove;
mod request;
mod scale;
mod schema_cursor;
mod set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value};
use windlass_schema::Schema;

use self::schema_cursor::SchemaCursor;
pub use self::{
    element::{ElementError, PathElement, Scalar, path_text},
    go_format::type_name,
    managed::{ManagedFields, ManagedFieldsError, ManagerKey, Operation},
    scale::ReplicasPaths,
    set::{FieldSet, Path},
};

/// Identity and options of a writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manager {
    /// Name of the field manager; empty means `unknown`.
    pub name: String,
    /// Subresource of the write, if any.
    pub subresource: Option<String>,
    /// Whether an apply takes over fields of other managers. Ignored for other writes.
    pub force: bool,
}

/// Reason for rejecting an apply, with upstream's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields that it would change (409, reason Conflict, with one cause per field).
    #[error("{}", conflicts_text(.0))]
    Conflicts(Vec<Conflict>),
    /// The request contains fields that an apply must not set (400).
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not match its type, or the object's `managedFields` cannot be decoded (500, as in
    /// upstream).
    #[error("{0}")]
    Invalid(String),
}

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Manager that owns the field.
    pub manager: ManagerKey,
    /// Path of the field.
    pub path: Path,
}

impl Conflict {
    /// Returns the message of the status cause, whose reason is `FieldManagerConflict`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }

    /// Returns the field of the status cause.
    pub fn field(&self) -> String {
        path_text(&self.path)
    }
}

impl fmt::Display for ManagerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&go_format::quoted(&self.name))?;
        if !self.subresource.is_empty() {
            write!(formatter, " with subresource {}", go_format::quoted(&self.subresource))?;
        }
        if self.operation == Operation::Update {
            write!(formatter, " using {}", self.version)?;
        }
        Ok(())
    }
}

fn conflicts_text(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", one.message(), one.field());
    }
    let mut lines = Vec::new();
    let mut managers: BTreeMap<&ManagerKey, Vec<String>> = BTreeMap::new();
    for conflict in conflicts {
        managers.entry(&conflict.manager).or_default().push(conflict.field());
    }
    for (manager, fields) in managers {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(fields.into_iter().map(|field| format!("- {field}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Returns the object after an apply: `applied` merged into `live`, without fields that this manager applied before and
/// no manager owns now, and with updated `managedFields`. Without a live object, returns the object to create.
///
/// The result is not decoded or defaulted, and still contains the fields that the caller's strategy resets. The caller
/// performs these steps as for any write, but does not call [`after_update`]. `reset` contains the paths that the
/// strategy resets, such as `status` in a write to the object itself: no manager owns them.
///
/// The caller must check that `applied` has the kind and version of the request. An apply that changes nothing keeps
/// all times.
/// keeps all times.
///
/// # Errors
///
/// [`ApplyError`].
pub fn server_side_apply(
    schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    manager: &Manager,
    reset: &FieldSet,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    request::Request { cursor: SchemaCursor::root(schema), applied, manager, reset, now }.run(live)
}

/// Updates the `managedFields` of an object that was created, updated or patched. `live` is the object before the
/// write; for a create, an empty object.
///
/// `managedFields` in the request apply if they can be decoded and the request is not for a subresource. An empty list,
/// or a list with an empty entry, removes all managers. An update of an object without managers adds none.
///
/// A write that changes nothing else keeps the entries.
pub fn after_update(
    schema: &Schema,
    live: &Value,
    new: &mut Value,
    manager: &Manager,
    reset: &FieldSet,
    now: Timestamp,
) {
    let write = managed_fields_update::Write { cursor: SchemaCursor::root(schema), manager, reset, now };
    managed_fields_update::after_update(&write, live, new);
}

/// Restores the times of `before` if only times changed. For objects that a strategy reverted after [`after_update`] or
/// [`server_side_apply`]: such a write must not create a new version.
pub fn keep_times(before: &Value, after: &mut Value) {
    let (old, new) = (managed::entries(before), managed::entries(after));
    let equal = |one: &Value, other: &Value| {
        let fields =
            |entry: &Value| entry.as_object().map(|it| it.iter().filter(|(name, _)| *name != "time").count());
        let kept = |(name, value): (&String, &Value)| name == "time" || other.get(name) == Some(value);
        fields(one) == fields(other) && one.as_object().is_some_and(|one| one.iter().all(kept))
    };
    if old == new || old.len() != new.len() || !old.iter().zip(new).all(|(one, other)| equal(one, other)) {
        return;
    }
    if same_but_managed_fields(before, after) {
        let entries = managed::raw(before).cloned();
        if let (Some(entries), Some(Value::Object(metadata))) = (entries, after.get_mut("metadata")) {
            metadata.insert("managedFields".to_owned(), entries);
        }
    }
}

fn same_but_managed_fields(before: &Value, after: &Value) -> bool {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else { return false };
    let others =
        |object: &Map<String, Value>, left_out: &str| object.keys().filter(|name| *name != left_out).count();
    let metadata = |object: &Map<String, Value>| object.get("metadata").and_then(Value::as_object).cloned();
    let (one, other) = (metadata(before).unwrap_or_default(), metadata(after).unwrap_or_default());
    let agree = |one: &Map<String, Value>, other: &Map<String, Value>, left_out: &str| {
        others(one, left_out) == others(other, left_out)
            && one.iter().all(|(name, value)| name == left_out || other.get(name) == Some(value))
    };
    agree(before, after, "metadata") && agree(&one, &other, "managedFields")
}

/// Fields without owners: object identity, and fields that only the server sets.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

fn name(manager: &Manager) -> &str {
    if manager.name.is_empty() { "unknown" } else { &manager.name }
}

fn subresource(manager: &Manager) -> &str {
    manager.subresource.as_deref().unwrap_or_default()
}

fn api_version(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}
