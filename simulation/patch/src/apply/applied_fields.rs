//! Paths that a configuration contains: the set that its manager owns after applying it.

use serde_json::{Map, Value};
use windlass_schema::ListNode;

use super::element::PathElement;
use super::schema_cursor::{FieldOwnership, SchemaCursor};
use super::set::FieldSet;

/// Returns whether the value itself is in the set, and the set below it.
pub(super) fn of(cursor: SchemaCursor<'_>, value: &Value) -> (bool, FieldSet) {
    match (cursor.form(value), value) {
        (FieldOwnership::Whole, _) => (true, FieldSet::new()),
        (FieldOwnership::Fields, Value::Object(fields)) => (false, fields_of(cursor, fields)),
        (FieldOwnership::Items(list), Value::Array(items)) => (false, items_of(cursor, list, items)),
        // A null or a value of the wrong type: no part of it can have an owner.
        _ => (false, FieldSet::new()),
    }
}

fn fields_of(cursor: SchemaCursor<'_>, fields: &Map<String, Value>) -> FieldSet {
    let mut set = FieldSet::new();
    for (name, value) in fields {
        let (itself, below) = of(cursor.field(name), value);
        // A key of a map is owned in addition to its content; a field of a struct is not.
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.put(&PathElement::field(name), itself || empty || !cursor.names(name), below);
    }
    set
}

fn items_of(cursor: SchemaCursor<'_>, list: &ListNode, items: &[Value]) -> FieldSet {
    let elements: Vec<_> = items.iter().map(|item| cursor.item_element(list, item).ok()).collect();
    let mut seen = FieldSet::new();
    let mut twice = FieldSet::new();
    for element in elements.iter().flatten() {
        let element = std::slice::from_ref(element);
        if seen.contains(element) {
            twice.insert(element);
        }
        seen.insert(element);
    }
    let mut set = FieldSet::new();
    for (element, item) in elements.iter().zip(items) {
        let Some(element) = element else { continue };
        // Duplicate items have common owners.
        let below = if twice.contains(std::slice::from_ref(element)) {
            FieldSet::new()
        } else {
            of(cursor.items(list), item).1
        };
        set.put(element, true, below);
    }
    set
}

/// Adds the named fields above the paths of a set: "a.b.c" adds "a" if it is a field of a struct, but not "a.b" if it
/// is a key of a map.
pub(super) fn with_named_fields(cursor: Option<SchemaCursor<'_>>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::new();
    for node in &set.nodes {
        let (named, below) = match (&node.element, cursor) {
            (PathElement::Field(name), Some(cursor)) => {
                (cursor.names(name), Some(cursor.field(name)).filter(|_| !node.below.is_empty()))
            }
            (PathElement::Key(_), Some(cursor)) => (false, cursor.list().map(|list| cursor.items(list))),
            _ => (false, None),
        };
        let owned = node.owned || (named && !node.below.is_empty());
        out.put(&node.element, owned, with_named_fields(below, &node.below));
    }
    out
}
