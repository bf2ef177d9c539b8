//! Which paths a configuration speaks of: the set its manager owns by applying it.

use serde_json::{Map, Value};
use windlass_schema::ListNode;

use super::element::PathElement;
use super::place::{FieldOwnership, SchemaCursor};
use super::set::FieldSet;

/// The set below a value, and whether its own place is in it.
pub(super) fn of(place: SchemaCursor<'_>, value: &Value) -> (bool, FieldSet) {
    match (place.form(value), value) {
        (FieldOwnership::Whole, _) => (true, FieldSet::new()),
        (FieldOwnership::Fields, Value::Object(fields)) => (false, fields_of(place, fields)),
        (FieldOwnership::Items(list), Value::Array(items)) => (false, items_of(place, list, items)),
        // Nothing, or what does not fit: no part of it can have an owner.
        _ => (false, FieldSet::new()),
    }
}

fn fields_of(place: SchemaCursor<'_>, fields: &Map<String, Value>) -> FieldSet {
    let mut set = FieldSet::new();
    for (name, value) in fields {
        let (itself, below) = of(place.field(name), value);
        // A key of a map is owned itself, next to what it holds; a field of a struct is not.
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.put(&PathElement::field(name), itself || empty || !place.names(name), below);
    }
    set
}

fn items_of(place: SchemaCursor<'_>, list: &ListNode, items: &[Value]) -> FieldSet {
    let elements: Vec<_> = items.iter().map(|item| place.item_element(list, item).ok()).collect();
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
        // Items that are there twice are owned as one.
        let below = if twice.contains(std::slice::from_ref(element)) {
            FieldSet::new()
        } else {
            of(place.items(list), item).1
        };
        set.put(element, true, below);
    }
    set
}

/// Adds the named fields above what is in a set: "a.b.c" then owns "a" if that is a field of a struct, and not "a.b" if
/// that is a key of a map.
pub(super) fn with_named_fields(place: Option<SchemaCursor<'_>>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::new();
    for node in &set.nodes {
        let (named, below) = match (&node.element, place) {
            (PathElement::Field(name), Some(place)) => {
                (place.names(name), Some(place.field(name)).filter(|_| !node.below.is_empty()))
            }
            (PathElement::Key(_), Some(place)) => (false, place.list().map(|list| place.items(list))),
            _ => (false, None),
        };
        let owned = node.owned || (named && !node.below.is_empty());
        out.put(&node.element, owned, with_named_fields(below, &node.below));
    }
    out
}
