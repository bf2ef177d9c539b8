//! Server-side apply: who owns which field, and what a write makes of it.
//!
//! Guarantees:
//! - What is merged, removed, kept and refused is what upstream's structured-merge-diff does; its own case data pass.
//! - A write that changes nothing changes no entry and no time.
//! - The same arguments give the same result, byte for byte; the time is an argument.
//!
//! Applies of the manager `kubectl` take over what client-side apply left in its annotation, as upstream's server does.
//!
//! It refuses to convert between versions: an object, what is applied to it and its type must be of one version.
//! Entries of other versions are read as if their paths were of this one, so fields that were renamed between versions
//! lose their owner at the next write, and entries of versions that are gone stay until nothing is left in them.

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
mod place;
mod reconcile;
mod remove;
mod request;
mod set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value};
use windlass_schema::Schema;

use self::place::SchemaCursor;
pub use self::{
    element::{ElementError, PathElement, Scalar, path_text},
    managed::{ManagedFields, ManagedFieldsError, ManagerKey, Operation},
    set::{FieldSet, Path},
};

/// Who writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manager {
    /// The field manager's name; empty means `unknown`.
    pub name: String,
    /// The subresource written through, if any.
    pub subresource: Option<String>,
    /// Whether an apply takes what others own. Means nothing for other writes.
    pub force: bool,
}

/// Why an apply was refused. The text is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own what it would change (409, reason Conflict, a cause for each).
    #[error("{}", conflicts_text(.0))]
    Conflicts(Vec<Conflict>),
    /// The request says what an apply must not say (400).
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit its type, or the object's own fields cannot be read (500, as upstream has it).
    #[error("{0}")]
    Invalid(String),
}

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager that owns it.
    pub manager: ManagerKey,
    /// The field.
    pub path: Path,
}

impl Conflict {
    /// The message of the status cause, whose reason is `FieldManagerConflict`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }

    /// The field of the status cause.
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

/// The object after an apply: `applied` laid over `live`, without what this manager applied before and nobody wants any
/// more, with the entries of `managedFields` brought up to date. Without a live object, the object to create.
///
/// What comes out has not been decoded, defaulted or stripped of what the caller's strategy resets: the caller does so,
/// as for any write, and does not call [`after_update`] for it. `reset` holds the paths that the strategy resets, such as
/// `status` when the object itself is written: no manager comes to own them.
///
/// That `applied` is of the kind and version that were asked for is the caller's to check. An apply that changes nothing
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
    request::Request { place: SchemaCursor::root(schema), applied, manager, reset, now }.run(live)
}

/// Brings the `managedFields` of an object that was created, updated or patched up to date. `live` is the object before;
/// for a create, an empty one.
///
/// What a request says in `managedFields` itself counts, if it can be read and was not sent to a subresource; an empty
/// list, or one with an empty entry, forgets all managers. An update of an object that has no managers gives it none.
///
/// A write that changes nothing else leaves the entries as they were.
pub fn after_update(
    schema: &Schema,
    live: &Value,
    new: &mut Value,
    manager: &Manager,
    reset: &FieldSet,
    now: Timestamp,
) {
    let write = managed_fields_update::Write { place: SchemaCursor::root(schema), manager, reset, now };
    managed_fields_update::after_update(&write, live, new);
}

/// Puts the times of `before` back, if nothing but times changed. For objects that a strategy changed back after
/// [`after_update`] or [`server_side_apply`] saw them: such a write must not make a new version.
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

/// What no manager owns: what names an object, and what only the server sets.
static NOBODYS: LazyLock<FieldSet> = LazyLock::new(|| {
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
