//! Ownership of paths, and its change by updates and applies. Names of managers are opaque here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::element::same;
use super::set::{FieldSet, Path};
use super::{applied_fields, compare, merge, reconcile, remove, schema_cursor::SchemaCursor};

/// Fields of one manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManagerFields {
    pub(super) set: FieldSet,
    /// The `apiVersion` of the write.
    pub(super) version: String,
}

/// Managers of an object. Each owns at least one field.
pub(super) type Owners<K> = BTreeMap<K, ManagerFields>;

/// Reason why an apply failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApplyFailure<K> {
    /// Other managers own fields that it would change.
    Conflicts(Vec<(K, Path)>),
    /// The configuration cannot be merged.
    Merge(String),
}

/// An apply: configuration, manager and options.
pub(super) struct Apply<'a, K> {
    pub(super) config: &'a Value,
    pub(super) version: &'a str,
    pub(super) manager: &'a K,
    pub(super) force: bool,
    /// Paths that the storage strategy resets, so that no manager can own them.
    pub(super) reset: &'a FieldSet,
}

/// Converts the sets to the current type.
pub(super) fn reconcile<K: Ord>(cursor: SchemaCursor<'_>, owners: &mut Owners<K>) {
    for owned in owners.values_mut() {
        if let Cow::Owned(set) = reconcile::with_type(cursor, &owned.set) {
            owned.set = set;
        }
    }
}

/// Adds the changed fields to `manager` and removes them from the others. Returns whether it gained a field.
pub(super) fn update<K: Ord + Clone>(
    owners: &mut Owners<K>,
    difference: &compare::Difference,
    manager: &K,
    version: &str,
    nobodys: &FieldSet,
) -> bool {
    let gained = difference.set();
    take(owners, difference, &gained);
    let gained = gained.difference(nobodys);
    if gained.is_empty() {
        return false;
    }
    let set = match owners.get(manager) {
        Some(before) => before.set.union(&gained),
        None => gained,
    };
    put(owners, manager, set, version);
    true
}

/// Returns the object after the apply, or `None` if it did not change.
///
/// # Errors
///
/// Returns [`ApplyFailure`] on conflicts, or if the configuration cannot be merged.
pub(super) fn apply<K: Ord + Clone>(
    cursor: SchemaCursor<'_>,
    live: &Value,
    owners: &mut Owners<K>,
    apply: &Apply<'_, K>,
) -> Result<Option<Value>, ApplyFailure<K>> {
    let merged = merge::over(cursor, live, apply.config)
        .map_err(|misfit| ApplyFailure::Merge(format!("failed to merge config: {misfit}")))?;
    let set = applied_fields::of(cursor, apply.config).1.recursive_difference(apply.reset);
    let last = put(owners, apply.manager, set, apply.version);
    let new = match last.map(|last| last.set) {
        // Fields that are applied again are not removed, so most applies skip this step.
        Some(last) if !last.difference(set_of(owners, apply.manager)).is_empty() => {
            prune(cursor, &merged, owners, &last)
        }
        _ => merged,
    };
    let difference = compare::between(cursor, live, &new).without(apply.reset);
    let gained = difference.set();
    if !apply.force {
        let conflicts = conflicts(owners, &gained, apply.manager);
        if !conflicts.is_empty() {
            return Err(ApplyFailure::Conflicts(conflicts));
        }
    }
    take_from_others(owners, &difference, &gained, Some(apply.manager));
    Ok((!same(live, &new)).then_some(new))
}

fn set_of<'o, K: Ord>(owners: &'o Owners<K>, manager: &K) -> &'o FieldSet {
    static NOTHING: FieldSet = FieldSet::new();
    owners.get(manager).map_or(&NOTHING, |owned| &owned.set)
}

fn conflicts<K: Ord + Clone>(owners: &Owners<K>, gained: &FieldSet, manager: &K) -> Vec<(K, Path)> {
    let others = owners.iter().filter(|(name, _)| *name != manager);
    others
        .flat_map(|(name, owned)| {
            let paths = owned.set.intersection(gained).paths();
            paths.into_iter().map(move |path| (name.clone(), path))
        })
        .collect()
}

/// Removes changed and removed fields from all managers.
pub(super) fn take<K: Ord>(owners: &mut Owners<K>, difference: &compare::Difference, gained: &FieldSet) {
    take_from_others(owners, difference, gained, None);
}

fn take_from_others<K: Ord>(
    owners: &mut Owners<K>,
    difference: &compare::Difference,
    gained: &FieldSet,
    manager: Option<&K>,
) {
    owners.retain(|name, owned| {
        if Some(name) != manager {
            if owned.set.intersects(gained) {
                owned.set = owned.set.difference(gained);
            }
            if owned.set.intersects(&difference.removed) {
                owned.set = owned.set.difference(&difference.removed);
            }
        }
        !owned.set.is_empty()
    });
}

/// Sets the fields of a manager, and returns its previous fields.
fn put<K: Ord + Clone>(
    owners: &mut Owners<K>,
    manager: &K,
    set: FieldSet,
    version: &str,
) -> Option<ManagerFields> {
    if set.is_empty() {
        return owners.remove(manager);
    }
    owners.insert(manager.clone(), ManagerFields { set, version: version.to_owned() })
}

/// Removes the fields that the manager applied last time and that no manager applies or owns now.
fn prune<K: Ord>(cursor: SchemaCursor<'_>, merged: &Value, owners: &Owners<K>, last: &FieldSet) -> Value {
    let named = |set: &FieldSet| applied_fields::with_named_fields(Some(cursor), set);
    let paths = |value: &Value| named(&applied_fields::of(cursor, value).1);
    let last = named(last);
    let all = paths(merged);
    let kept = paths(&remove::without(cursor, merged, &last));
    let owned = owners.values().fold(FieldSet::new(), |all, one| all.union(&one.set));
    // Fields of other managers are restored, with their parents.
    let with_owned = remove::without(cursor, merged, &all.difference(&kept.union(&named(&owned))));
    // Fields without an owner also stay, unless they are below a removed field.
    let gone = all.difference(&paths(&with_owned)).intersection(&last);
    remove::without(cursor, merged, &gone)
}
