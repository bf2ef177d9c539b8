//! Who owns which paths, and what an update or an apply makes of it. Names of managers are opaque here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::element::same;
use super::set::{FieldSet, Path};
use super::{applied_fields, compare, merge, place::SchemaCursor, reconcile, remove};

/// What one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManagerFields {
    pub(super) set: FieldSet,
    /// The `apiVersion` in which it was written.
    pub(super) version: String,
}

/// All managers of an object. None owns nothing.
pub(super) type Owners<K> = BTreeMap<K, ManagerFields>;

/// Why an apply failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApplyFailure<K> {
    /// Others own what it would change.
    Conflicts(Vec<(K, Path)>),
    /// The configuration cannot be merged.
    Merge(String),
}

/// An apply: what is applied, by whom, how.
pub(super) struct Apply<'a, K> {
    pub(super) config: &'a Value,
    pub(super) version: &'a str,
    pub(super) manager: &'a K,
    pub(super) force: bool,
    /// Paths that whoever stores the object resets, so that no manager can own them.
    pub(super) reset: &'a FieldSet,
}

/// Brings the sets to today's type.
pub(super) fn reconcile<K: Ord>(place: SchemaCursor<'_>, owners: &mut Owners<K>) {
    for owned in owners.values_mut() {
        if let Cow::Owned(set) = reconcile::with_type(place, &owned.set) {
            owned.set = set;
        }
    }
}

/// What `manager` gained by changing the object in this way; the others lose it. Says whether it gained anything.
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

/// The object after the apply, if it changed at all.
///
/// # Errors
///
/// [`ApplyFailure`].
pub(super) fn apply<K: Ord + Clone>(
    place: SchemaCursor<'_>,
    live: &Value,
    owners: &mut Owners<K>,
    apply: &Apply<'_, K>,
) -> Result<Option<Value>, ApplyFailure<K>> {
    let merged = merge::over(place, live, apply.config)
        .map_err(|misfit| ApplyFailure::Merge(format!("failed to merge config: {misfit}")))?;
    let set = applied_fields::of(place, apply.config).1.recursive_difference(apply.reset);
    let last = put(owners, apply.manager, set, apply.version);
    let new = match last.map(|last| last.set) {
        // What is applied again is not removed, so most applies need not look.
        Some(last) if !last.difference(set_of(owners, apply.manager)).is_empty() => {
            prune(place, &merged, owners, &last)
        }
        _ => merged,
    };
    let difference = compare::between(place, live, &new).without(apply.reset);
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

/// Takes what was set or removed from everybody.
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

/// Sets what a manager owns, and returns what it owned.
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

/// Removes what the manager applied last time and nobody applies or owns now.
fn prune<K: Ord>(place: SchemaCursor<'_>, merged: &Value, owners: &Owners<K>, last: &FieldSet) -> Value {
    let named = |set: &FieldSet| applied_fields::with_named_fields(Some(place), set);
    let paths = |value: &Value| named(&applied_fields::of(place, value).1);
    let last = named(last);
    let all = paths(merged);
    let kept = paths(&remove::without(place, merged, &last));
    let owned = owners.values().fold(FieldSet::new(), |all, one| all.union(&one.set));
    // What others own comes back, with what leads to it.
    let with_owned = remove::without(place, merged, &all.difference(&kept.union(&named(&owned))));
    // What nobody ever owned stays too, unless it was below what is removed.
    let gone = all.difference(&paths(&with_owned)).intersection(&last);
    remove::without(place, merged, &gone)
}
