//! Compares two values of one type path by path.
//!
//! Every write uses this comparison. Equal values are detected without looking up their type; path elements are created
//! only for differences.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value};
use windlass_schema::ListNode;

use super::element::{PathElement, same};
use super::schema_cursor::{FieldOwnership, SchemaCursor};
use super::set::FieldSet;

/// Difference between two values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Returns the difference without paths at or below `paths`.
    pub(super) fn without(self, paths: &FieldSet) -> Difference {
        if paths.is_empty() {
            return self;
        }
        Difference {
            added: self.added.recursive_difference(paths),
            modified: self.modified.recursive_difference(paths),
            removed: self.removed.recursive_difference(paths),
        }
    }

    /// Returns the paths that were added or changed.
    pub(super) fn set(&self) -> FieldSet {
        self.modified.union(&self.added)
    }

    fn put(&mut self, element: &PathElement, modified: bool, below: Difference) {
        self.added.put(element, false, below.added);
        self.modified.put(element, modified, below.modified);
        self.removed.put(element, false, below.removed);
    }
}

/// Returns the difference between two objects.
pub(super) fn between(cursor: SchemaCursor<'_>, before: &Value, after: &Value) -> Difference {
    values(cursor, before, after).1
}

/// Returns whether the value itself changed, and the difference below it. The values must differ.
fn values(cursor: SchemaCursor<'_>, before: &Value, after: &Value) -> (bool, Difference) {
    let whole = |before: &Value, after: &Value| (!same(before, after), Difference::default());
    let empty = Map::new();
    match (cursor.form(before), cursor.form(after)) {
        (FieldOwnership::Items(list), _) | (_, FieldOwnership::Items(list)) => {
            let (left, right) = (array(before), array(after));
            if left.is_empty() && right.is_empty() {
                return whole(before, after);
            }
            items(cursor, list, left, right).map_or_else(|| whole(before, after), |below| (false, below))
        }
        (FieldOwnership::Fields, _) | (_, FieldOwnership::Fields) => {
            let left = before.as_object().unwrap_or(&empty);
            let right = after.as_object().unwrap_or(&empty);
            if left.is_empty() && right.is_empty() {
                return whole(before, after);
            }
            // For an untyped value, the replacement of a map is both a change and the removal of its fields.
            let other = |value: &Value| !value.is_object() && !value.is_null();
            let itself = cursor.is_anything() && (other(before) || other(after));
            (itself, fields(cursor, left, right))
        }
        (FieldOwnership::Whole, FieldOwnership::Whole) => whole(before, after),
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn fields(cursor: SchemaCursor<'_>, before: &Map<String, Value>, after: &Map<String, Value>) -> Difference {
    let mut out = Difference::default();
    let (mut left, mut right) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return out,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let one = if order == Ordering::Greater { None } else { left.next() };
        let other = if order == Ordering::Less { None } else { right.next() };
        match (one, other) {
            (Some((name, one)), Some((_, other))) if one != other => {
                let (itself, below) = values(cursor.field(name), one, other);
                if itself || !below.is_empty() {
                    out.put(&PathElement::field(name), itself, below);
                }
            }
            (Some((name, one)), None) => one_sided(cursor, name, one, Side::Before, &mut out),
            (None, Some((name, other))) => one_sided(cursor, name, other, Side::After, &mut out),
            _ => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// Handles a field that only one side has. If upstream's types always write it, its absence means its zero value.
fn one_sided(cursor: SchemaCursor<'_>, name: &str, value: &Value, side: Side, out: &mut Difference) {
    let field = cursor.field(name);
    if let Some(zero) = field.absent() {
        let (before, after) = if side == Side::Before { (value, &zero) } else { (&zero, value) };
        let (itself, below) = values(field, before, after);
        if itself || !below.is_empty() {
            out.put(&PathElement::field(name), itself, below);
        }
        return;
    }
    let set = if side == Side::Before { &mut out.removed } else { &mut out.added };
    set.put(&PathElement::field(name), true, everything(field, value));
}

/// Returns all paths below a value that only one side has.
fn everything(cursor: SchemaCursor<'_>, value: &Value) -> FieldSet {
    let mut out = FieldSet::new();
    match (cursor.form(value), value) {
        (FieldOwnership::Fields, Value::Object(fields)) => {
            for (name, value) in fields {
                out.put(&PathElement::field(name), true, everything(cursor.field(name), value));
            }
        }
        (FieldOwnership::Items(list), Value::Array(items)) => {
            let Some(sorted) = sorted(cursor, list, items) else { return out };
            for (element, items) in sorted {
                let below = match items.as_slice() {
                    [one] => everything(cursor.items(list), one),
                    _ => FieldSet::new(),
                };
                out.put(&element, true, below);
            }
        }
        _ => {}
    }
    out
}

/// Returns the items by path element, or `None` if an item has no identity.
fn sorted<'v>(
    cursor: SchemaCursor<'_>,
    list: &ListNode,
    items: &'v [Value],
) -> Option<BTreeMap<PathElement, Vec<&'v Value>>> {
    let mut out: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in items {
        out.entry(cursor.item_element(list, item).ok()?).or_default().push(item);
    }
    Some(out)
}

fn items(cursor: SchemaCursor<'_>, list: &ListNode, before: &[Value], after: &[Value]) -> Option<Difference> {
    let (left, mut right) = (sorted(cursor, list, before)?, sorted(cursor, list, after)?);
    let item = cursor.items(list);
    let mut out = Difference::default();
    for (element, before) in left {
        let after = right.remove(&element).unwrap_or_default();
        matching(item, &element, &before, &after, &mut out);
    }
    for (element, after) in right {
        matching(item, &element, &[], &after, &mut out);
    }
    Some(out)
}

/// Compares the items with one path element. Duplicate items have common owners.
fn matching(
    item: SchemaCursor<'_>,
    element: &PathElement,
    before: &[&Value],
    after: &[&Value],
    out: &mut Difference,
) {
    match (before, after) {
        ([one], [other]) if one == other => {}
        ([one], [other]) => {
            let (itself, below) = values(item, one, other);
            out.put(element, itself, below);
        }
        ([], [_, _, ..]) => out.added.put(element, true, FieldSet::new()),
        ([_, _, ..], []) => out.removed.put(element, true, FieldSet::new()),
        ([one], []) => out.removed.put(element, true, everything(item, one)),
        ([], [one]) => out.added.put(element, true, everything(item, one)),
        ([one], [_, _, ..]) => {
            out.removed.put(element, true, everything(item, one));
            out.added.put(element, true, FieldSet::new());
        }
        ([_, _, ..], [one]) => {
            out.added.put(element, true, everything(item, one));
            out.removed.put(element, true, FieldSet::new());
        }
        _ => {
            let equal =
                before.len() == after.len() && before.iter().zip(after).all(|(one, other)| same(one, other));
            out.modified.put(element, !equal, FieldSet::new());
        }
    }
}
