//! Validation of the fields that the scale subresource reads.

use serde_json::Value;

use super::error::FieldError;
use crate::check;

/// Paths of the numbers of the `scale` subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Path of the desired replicas, below `.spec`.
    pub spec_replicas_path: String,
    /// Path of the observed replicas, below `.status`.
    pub status_replicas_path: String,
    /// Path of the selector of the replicas as text, below `.spec` or `.status`.
    pub label_selector_path: Option<String>,
}

/// Returns the errors in the fields of a scale.
pub(super) fn errors(scale: &Scale, object: &Value) -> Vec<FieldError> {
    let replicas = [&scale.spec_replicas_path, &scale.status_replicas_path];
    let replicas = replicas.into_iter().filter_map(|path| replicas_error(object, path));
    let selector = scale.label_selector_path.as_deref().and_then(|path| selector_error(object, path));
    replicas.chain(selector).collect()
}

fn replicas_error(object: &Value, path: &str) -> Option<FieldError> {
    let invalid = |value: i64, why: &str| Some(FieldError::invalid(path, &value.into(), why));
    let found = match nested(object, path) {
        Ok(None) => return None,
        Ok(Some(found)) => found,
        Err(why) => return invalid(0, &why),
    };
    match found.as_i64() {
        None => invalid(0, &unexpected(path, found, "int64")),
        Some(count) if count < 0 => invalid(count, "should be a non-negative integer"),
        Some(count) if count > i64::from(i32::MAX) => {
            invalid(count, &format!("should be less than or equal to {}", i32::MAX))
        }
        Some(_) => None,
    }
}

fn selector_error(object: &Value, path: &str) -> Option<FieldError> {
    let why = match nested(object, path) {
        Ok(None | Some(Value::String(_))) => return None,
        Ok(Some(found)) => unexpected(path, found, "string"),
        Err(why) => why,
    };
    Some(FieldError::invalid(path, &"".into(), &why))
}

/// Returns a field, or the message for a parent that has no fields.
fn nested<'v>(object: &'v Value, path: &str) -> Result<Option<&'v Value>, String> {
    let (mut value, mut passed) = (object, String::new());
    for name in path.trim_start_matches('.').split('.') {
        passed.push('.');
        passed.push_str(name);
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(found) => found,
                None => return Ok(None),
            },
            other => return Err(unexpected(&passed, other, "map[string]interface{}")),
        };
    }
    Ok(Some(value))
}

fn unexpected(path: &str, found: &Value, expected: &str) -> String {
    let of = match found {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    format!("{path} accessor error: {} is of the type {of}, expected {expected}", check::go_text(found))
}
