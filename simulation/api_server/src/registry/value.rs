//! Access to parts of objects by path. As in upstream's types, a missing part reads as empty.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Returns the value at the path; null if there is none.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, name| value.get(name).unwrap_or(&NULL))
}

/// Returns the text at the path; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// Returns the integer at the path.
pub(crate) fn integer(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64()
}

/// Returns whether the value at the path is `true`.
pub(crate) fn flag(value: &Value, path: &[&str]) -> bool {
    at(value, path).as_bool().unwrap_or_default()
}

/// Returns whether there is a value at the path.
pub(crate) fn has(value: &Value, path: &[&str]) -> bool {
    !at(value, path).is_null()
}

/// Returns the items of the list at the path.
pub(crate) fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the texts of the list at the path.
pub(crate) fn texts<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a str> {
    items(value, path).iter().filter_map(Value::as_str).collect()
}

/// Returns the entries of the map at the path.
pub(crate) fn entries<'a>(
    value: &'a Value,
    path: &[&str],
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    at(value, path).as_object().into_iter().flat_map(Map::iter)
}

/// Returns whether the object, map or list at the path is empty or missing.
pub(crate) fn is_empty(value: &Value, path: &[&str]) -> bool {
    match at(value, path) {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the fields of an object. Replaces any other value by an empty object.
pub(crate) fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("the value was replaced by an object"),
    }
}

/// Returns the slot at the path. Creates missing objects on the way.
pub(crate) fn place<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(value, |value, name| fields(value).entry(*name).or_insert(Value::Null))
}

/// Sets the value at the path.
pub(crate) fn set(value: &mut Value, path: &[&str], to: impl Into<Value>) {
    *place(value, path) = to.into();
}

/// Sets the value at the path if there is none.
pub(crate) fn default(value: &mut Value, path: &[&str], to: impl Into<Value>) {
    if !has(value, path) {
        set(value, path, to);
    }
}

/// Removes and returns the value at the path.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut place = value;
    for name in parents {
        place = place.get_mut(name)?;
    }
    place.as_object_mut()?.remove(*last)
}

/// Copies the value at the path from `old`, or removes it.
pub(crate) fn keep(value: &mut Value, old: &Value, path: &[&str]) {
    match at(old, path) {
        Value::Null => {
            remove(value, path);
        }
        kept => set(value, path, kept.clone()),
    }
}

/// Returns the items of the list at the path; `None` if there is no list.
pub(crate) fn items_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Vec<Value>> {
    path.iter().try_fold(value, |value, name| value.get_mut(name))?.as_array_mut()
}

/// Returns whether two values are equal. Missing, null and empty values are equal.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    fn nothing(value: &Value) -> bool {
        is_empty(value, &[])
    }
    match (one, other) {
        (Value::Object(left), Value::Object(right)) => {
            left.iter().all(|(name, value)| right.get(name).map_or(nothing(value), |it| same(value, it)))
                && right.iter().all(|(name, value)| left.contains_key(name) || nothing(value))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (left, right) => left == right || (nothing(left) && nothing(right)),
    }
}

/// Returns whether both values are equal at the path.
pub(crate) fn same_at(one: &Value, other: &Value, path: &[&str]) -> bool {
    same(at(one, path), at(other, path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_value_reads_as_empty() {
        let object = json!({"a": {"b": "text"}});
        assert_eq!(text(&object, &["a", "b"]), "text");
        assert_eq!(text(&object, &["a", "c", "d"]), "");
        assert!(is_empty(&object, &["x"]));
    }

    #[test]
    fn missing_null_and_empty_are_equal() {
        assert!(same(&json!({"a": {}, "b": [], "c": null}), &json!({})));
        assert!(!same(&json!({"a": 0}), &json!({})));
        assert!(!same(&json!([1]), &json!([1, 2])));
    }

    #[test]
    fn keep_restores_or_removes_the_value() {
        let mut object = json!({"status": {"new": 1}});
        keep(&mut object, &json!({"status": {"old": 1}}), &["status"]);
        assert_eq!(object, json!({"status": {"old": 1}}));
        keep(&mut object, &json!({}), &["status"]);
        assert_eq!(object, json!({}));
    }
}
