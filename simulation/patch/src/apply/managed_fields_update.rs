//! Updates `managedFields` on a create, an update or a patch.
//!
//! Every write uses this code, and most writes change few fields of few managers. So entries stay encoded: only entries
//! with changed or removed fields are decoded, and the writer's entry only if it gains fields.

use jiff::Timestamp;
use serde_json::Value;

use super::compare::{self, Difference};
use super::managed::{self, ManagedFields, ManagerKey, Operation};
use super::schema_cursor::SchemaCursor;
use super::set::FieldSet;
use super::{Manager, UNOWNED, api_version, name, owners, subresource};

/// Writer, and the data for its entry.
pub(super) struct Write<'a> {
    pub(super) cursor: SchemaCursor<'a>,
    pub(super) manager: &'a Manager,
    pub(super) reset: &'a FieldSet,
    pub(super) now: Timestamp,
}

/// Entries before the write.
enum Start {
    /// Entries of the live object, which the new object also has.
    Shared,
    /// Entries of the request.
    Given(Vec<Value>),
}

pub(super) fn after_update(write: &Write<'_>, live: &Value, new: &mut Value) {
    let start = start(write, live, new);
    let none = match &start {
        Start::Shared => managed::entries(new).is_empty(),
        Start::Given(entries) => entries.is_empty(),
    };
    if none && exists(live) {
        managed::take(new);
        return;
    }
    let mut difference = compare::between(write.cursor, live, new).without(write.reset);
    // As upstream, ownership is unknown for an object whose type cannot be computed.
    if !difference.is_empty() && write.cursor.has_unkeyed_items(new) {
        managed::take(new);
        return;
    }
    let entries = match start {
        Start::Shared if difference.is_empty() => return,
        Start::Shared => match managed::take(new) {
            Some(Value::Array(entries)) => entries,
            _ => Vec::new(),
        },
        Start::Given(entries) => {
            difference = difference.without(&ENTRIES);
            if difference.is_empty() {
                return managed::put(new, entries);
            }
            entries
        }
    };
    let version = api_version(new).to_owned();
    managed::put(new, record(write, &difference, entries, &version));
}

/// Path of the entries, whose changes have no owner.
static ENTRIES: std::sync::LazyLock<FieldSet> =
    std::sync::LazyLock::new(|| FieldSet::of_fields(&[&["metadata", "managedFields"]]));

fn exists(live: &Value) -> bool {
    live.get("metadata").and_then(|it| it.get("uid")).is_some_and(|uid| uid != "")
}

/// Returns the entries of the request if they can be decoded and the write is not for a subresource, or else those of
/// the live object.
fn start(write: &Write<'_>, live: &Value, new: &Value) -> Start {
    let entries_of_live = || {
        let entries = managed::entries(live);
        let sound = entries.iter().all(|entry| ManagerKey::read(entry).is_ok());
        Start::Given(if sound { entries.to_vec() } else { Vec::new() })
    };
    if managed::is_reset(new) && write.manager.subresource.is_none() {
        return Start::Given(Vec::new());
    }
    if managed::raw(new) == managed::raw(live)
        && managed::entries(new).iter().all(|it| ManagerKey::read(it).is_ok())
    {
        return Start::Shared;
    }
    if write.manager.subresource.is_some() {
        return entries_of_live();
    }
    match ManagedFields::read(new) {
        Ok(managed) if !managed.is_empty() => Start::Given(managed::sorted(managed.to_entries())),
        _ => entries_of_live(),
    }
}

/// Returns the entries after the change.
fn record(write: &Write<'_>, difference: &Difference, entries: Vec<Value>, version: &str) -> Vec<Value> {
    let key = ManagerKey::new(name(write.manager), Operation::Update, version, subresource(write.manager));
    let set = difference.set();
    let gained = set.difference(&UNOWNED);
    let mut rest = Vec::with_capacity(entries.len() + 1);
    let mut affected = ManagedFields::default();
    let mut recorded = gained.is_empty();
    for (index, mut entry) in entries.into_iter().enumerate() {
        let fields = entry.get("fieldsV1").unwrap_or(&Value::Null);
        let loses = difference.removed.touches(fields);
        let own = !recorded && ManagerKey::read(&entry).is_ok_and(|its| its == key);
        if own && !loses && gained.is_within(fields) {
            entry["time"] = managed::time_value(write.now);
            recorded = true;
            rest.push(entry);
        } else if own || loses || set.touches(fields) {
            // An invalid entry owns nothing; stored entries are valid.
            _ = affected.read_entry(index, &entry);
        } else {
            rest.push(entry);
        }
    }
    owners::reconcile(write.cursor, &mut affected.owners);
    if recorded {
        owners::take(&mut affected.owners, difference, &set);
    } else if owners::update(&mut affected.owners, difference, &key, version, &UNOWNED) {
        affected.times.insert(key, write.now);
    }
    rest.extend(affected.to_entries());
    if managed::too_many(&rest) { managed::capped(&rest) } else { managed::sorted(rest) }
}
