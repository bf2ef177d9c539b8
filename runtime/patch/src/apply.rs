//! Server-side apply: who owns which field, and what a write makes of it.
//!
//! Guarantees:
//! - What is merged, removed, kept and refused is what upstream's structured-merge-diff does; its own case data pass.
//! - A write that changes nothing changes no entry and no time.
//! - The same arguments give the same result, byte for byte; the time is an argument.
//!
//! It refuses to convert between versions: an object, what is applied to it and its type must be of one version.
//! Entries of other versions are read as if their paths were of this one, so fields that were renamed between versions
//! lose their owner at the next write, and entries of versions that are gone stay until nothing is left in them.

mod check;
mod compare;
mod element;
mod fields_v1;
mod go;
mod managed;
mod merge;
mod owned;
mod owners;
mod place;
mod reconcile;
mod remove;
mod set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value};
use windlass_schema::Schema;

pub use self::{
    element::{Element, ElementError, Scalar, path_text},
    managed::{ManagedFields, ManagedFieldsError, ManagerKey, Operation},
    set::{FieldSet, Path},
};
use self::{
    owners::{Apply, Failure},
    place::Place,
};

/// The manager of what was there before the first apply, if nobody knows better.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

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
        formatter.write_str(&go::quoted(&self.name))?;
        if !self.subresource.is_empty() {
            write!(formatter, " with subresource {}", go::quoted(&self.subresource))?;
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
/// An apply that changes nothing keeps all times.
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
    let place = Place::root(schema);
    if managed::raw(applied).is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let version = api_version(applied);
    let empty = Value::Object(Map::new());
    let mut live = live.unwrap_or(&empty).clone();
    let mut managed = ManagedFields::read(&live)
        .map_err(|error| ApplyError::Invalid(format!("failed to decode managed fields: {error}")))?;
    managed::take(&mut live);
    if managed.is_empty() {
        let first = ManagerKey::new(BEFORE_FIRST_APPLY, Operation::Update, version, subresource(manager));
        record(place, &empty, &live, &mut managed, &first, version, reset, now);
    }
    owners::check(place, applied).map_err(|text| {
        let text = format!("failed to create typed patch object ({}): {text}", described(applied));
        ApplyError::Invalid(text)
    })?;
    let key = ManagerKey::new(name(manager), Operation::Apply, version, subresource(manager));
    let apply = Apply { config: applied, version, manager: &key, force: manager.force, reset };
    owners::reconcile(place, &mut managed.owners);
    let new = owners::apply(place, &live, &mut managed.owners, &apply).map_err(refused)?;
    strip(&mut managed, &key);
    if new.is_some() {
        managed.times.insert(key, now);
    }
    let mut object = match new {
        Some(mut new) => {
            remove::drop_emptied(&live, applied, &mut new);
            new
        }
        None => live,
    };
    managed.write(&mut object);
    Ok(object)
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
    let place = Place::root(schema);
    let (mut managed, untouched) = decode_live_or_new(live, new, manager.subresource.is_some());
    managed::take(new);
    let exists = live.get("metadata").and_then(|it| it.get("uid")).is_some_and(|uid| uid != "");
    if managed.is_empty() && exists {
        return;
    }
    let version = api_version(new).to_owned();
    let key = ManagerKey::new(name(manager), Operation::Update, &version, subresource(manager));
    let changed = record(place, live, new, &mut managed, &key, &version, reset, now);
    managed.cap();
    match untouched {
        // Byte by byte what it was.
        Some(entries) if !changed => {
            if let Some(Value::Object(metadata)) = new.get_mut("metadata") {
                metadata.insert("managedFields".to_owned(), entries.clone());
            }
        }
        _ => managed.write(new),
    }
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

/// Compares the objects and gives what changed to the manager. Says whether any owner, set or time changed.
#[expect(clippy::too_many_arguments, reason = "what is compared, who did it, and when")]
fn record(
    place: Place<'_>,
    live: &Value,
    new: &Value,
    managed: &mut ManagedFields,
    key: &ManagerKey,
    version: &str,
    reset: &FieldSet,
    now: Timestamp,
) -> bool {
    owners::reconcile(place, &mut managed.owners);
    let difference = compare::between(place, live, new).without(reset);
    if difference.is_empty() {
        return false;
    }
    if owners::update(&mut managed.owners, &difference, key, version, &NOBODYS) {
        managed.times.insert(key.clone(), now);
    }
    true
}

/// The managers that an update starts from; with the entries as they stand in the live object, if it starts from them.
fn decode_live_or_new<'l>(
    live: &'l Value,
    new: &Value,
    is_subresource: bool,
) -> (ManagedFields, Option<&'l Value>) {
    let from_live = || (ManagedFields::read(live).unwrap_or_default(), managed::raw(live));
    if is_subresource || managed::raw(new) == managed::raw(live) && !managed::is_reset(new) {
        return from_live();
    }
    if managed::is_reset(new) {
        return (ManagedFields::default(), None);
    }
    match ManagedFields::read(new) {
        Ok(managed) if !managed.is_empty() => (managed, None),
        _ => from_live(),
    }
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

fn strip(managed: &mut ManagedFields, key: &ManagerKey) {
    let Some(owned) = managed.owners.get_mut(key) else { return };
    owned.set = owned.set.difference(&NOBODYS);
    if owned.set.is_empty() {
        managed.owners.remove(key);
    }
}

fn refused(failure: Failure<ManagerKey>) -> ApplyError {
    match failure {
        Failure::Merge(text) => ApplyError::Invalid(text),
        Failure::Conflicts(conflicts) => {
            let conflict = |(manager, path)| Conflict { manager, path };
            ApplyError::Conflicts(conflicts.into_iter().map(conflict).collect())
        }
    }
}

fn name(manager: &Manager) -> &str {
    if manager.name.is_empty() { "unknown" } else { &manager.name }
}

fn subresource(manager: &Manager) -> &str {
    manager.subresource.as_deref().unwrap_or_default()
}

fn api_version(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

/// `namespace/name; group/version, Kind=Kind`.
fn described(object: &Value) -> String {
    let metadata = |field: &str| object.get("metadata").and_then(|it| it.get(field)).and_then(Value::as_str);
    let version = api_version(object);
    let group = if version.contains('/') { "" } else { "/" };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (metadata("namespace").unwrap_or_default(), metadata("name").unwrap_or_default());
    format!("{namespace}/{name}; {group}{version}, Kind={kind}")
}
