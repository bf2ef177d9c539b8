//! Removes paths from a value.

use serde_json::{Map, Value};
use windlass_schema::ListNode;

use super::element::PathElement;
use super::schema_cursor::{FieldOwnership, SchemaCursor};
use super::set::FieldSet;

/// Returns the value without these paths. A map or list that loses its last element becomes `null`.
pub(super) fn without(cursor: SchemaCursor<'_>, value: &Value, gone: &FieldSet) -> Value {
    match (cursor.form(value), value) {
        (FieldOwnership::Fields, Value::Object(fields)) => fields_without(cursor, fields, gone),
        (FieldOwnership::Items(list), Value::Array(items)) => items_without(cursor, list, items, gone),
        (_, Value::Object(_) | Value::Array(_)) => Value::Null,
        (_, scalar) => scalar.clone(),
    }
}

fn fields_without(cursor: SchemaCursor<'_>, fields: &Map<String, Value>, gone: &FieldSet) -> Value {
    let mut out = Map::new();
    for (name, value) in fields {
        let kept = match gone.field(name) {
            Some(node) if node.owned => continue,
            Some(node) => without(cursor.field(name), value, &node.below),
            None => value.clone(),
        };
        out.insert(name.clone(), kept);
    }
    if out.is_empty() { Value::Null } else { Value::Object(out) }
}

fn items_without(cursor: SchemaCursor<'_>, list: &ListNode, items: &[Value], gone: &FieldSet) -> Value {
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        let element: Option<PathElement> = cursor.item_element(list, item).ok();
        out.push(match element.and_then(|element| gone.node(&element)) {
            Some(node) if node.owned => continue,
            Some(node) => without(cursor.items(list), item, &node.below),
            None => item.clone(),
        });
    }
    if out.is_empty() { Value::Null } else { Value::Array(out) }
}

/// Drops the fields that are `null` only after an apply, that is, neither before nor in the configuration: a removal
/// emptied them.
pub(super) fn drop_emptied(live: &Value, applied: &Value, outcome: &mut Value) {
    let Value::Object(fields) = outcome else { return };
    let said = |name: &str| {
        live.get(name).is_some_and(Value::is_null) || applied.get(name).is_some_and(Value::is_null)
    };
    fields.retain(|name, value| !value.is_null() || said(name));
    for (name, value) in fields.iter_mut().filter(|(_, value)| value.is_object()) {
        let (live, applied) = (live.get(name), applied.get(name));
        drop_emptied(live.unwrap_or(&Value::Null), applied.unwrap_or(&Value::Null), value);
    }
}
