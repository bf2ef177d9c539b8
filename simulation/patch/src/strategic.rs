//! Strategic merge patch: a merge patch that uses the schema to merge lists item by item by a merge key.
//!
//! Guarantees:
//! - Upstream's directives are supported: `$patch` (`replace`, `delete`), `$setElementOrder/<list>`,
//!   `$deleteFromPrimitiveList/<list>` and `$retainKeys`.
//! - [`apply`] with a patch of [`between`] turns the original document into the modified one.
//! - Upstream's own test cases pass.
//!
//! Lists of lists, lists of mixed types, items without their merge key, and patches below a value whose type has no
//! fields are rejected, as in upstream.

mod difference;
mod merge;
mod order;
mod strategy_cursor;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};
use windlass_schema::Schema;

use self::{difference::Part, merge::Mode, strategy_cursor::StrategyCursor};
use crate::PatchError;

type Fields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

/// Applies a patch to a document of that type.
///
/// # Errors
///
/// Returns [`PatchError::Malformed`] if a directive is invalid, [`PatchError::Inapplicable`] for lists of lists, and
/// [`PatchError::Failed`] for all other errors.
pub fn apply(schema: &Schema, document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (document, patch) = (fields(document)?, fields(patch)?);
    merge::maps(document, patch, StrategyCursor::of(schema), Mode::Apply).map(Value::Object)
}

/// Returns the patch that turns `original` into `modified`.
///
/// # Errors
///
/// Returns the same errors as [`apply`].
pub fn between(schema: &Schema, original: &Value, modified: &Value) -> Result<Value, PatchError> {
    let (original, modified) = (fields(original)?, fields(modified)?);
    difference::maps(&original, &modified, StrategyCursor::of(schema), Part::Whole, false).map(Value::Object)
}

/// Returns the patch that applies the changes from `original` to `modified` to `current`, as `kubectl apply` computes
/// it in the client. `modified` overrides concurrent changes in `current`.
///
/// # Errors
///
/// Returns the same errors as [`apply`].
pub fn three_way(
    schema: &Schema,
    original: &Value,
    modified: &Value,
    current: &Value,
) -> Result<Value, PatchError> {
    let (original, modified, current) = (fields(original)?, fields(modified)?, fields(current)?);
    let cursor = StrategyCursor::of(schema);
    let changes = difference::maps(&current, &modified, cursor, Part::Changes, false)?;
    let deletions = difference::maps(&original, &modified, cursor, Part::Deletions, false)?;
    merge::maps(deletions, changes, cursor, Mode::Combine).map(Value::Object)
}

/// Returns the fields of a document; null is an empty document.
fn fields(document: &Value) -> Result<Fields, PatchError> {
    match document {
        Value::Object(fields) => Ok(fields.clone()),
        Value::Null => Ok(Fields::new()),
        _ => Err(PatchError::Malformed("invalid JSON document".to_owned())),
    }
}

/// Types of decoded values in Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Boolean,
    Integer,
    Float,
    Text,
    List,
    Map,
}

impl Kind {
    fn of(value: &Value) -> Kind {
        match value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Boolean,
            Value::Number(number) if number.is_f64() => Kind::Float,
            Value::Number(_) => Kind::Integer,
            Value::String(_) => Kind::Text,
            Value::Array(_) => Kind::List,
            Value::Object(_) => Kind::Map,
        }
    }

    /// Returns the name of the type in Go, for messages.
    fn name(self) -> &'static str {
        match self {
            Kind::Null => "%!s(<nil>)",
            Kind::Boolean => "bool",
            Kind::Integer => "int64",
            Kind::Float => "float64",
            Kind::Text => "string",
            Kind::List => "[]interface {}",
            Kind::Map => "map[string]interface {}",
        }
    }
}

/// Returns a value in the format of Go's `%v`, which upstream uses to sort scalars and keys and in messages.
fn words(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(words).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(field, value)| format!("{field}:{}", words(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

/// Returns the item's value of the merge key.
fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, PatchError> {
    let fields = item.as_object().ok_or_else(|| wrong_kind(Kind::Map, item))?;
    fields.get(key).ok_or_else(|| {
        PatchError::Failed(format!("map: {} does not contain declared merge key: {key}", words(item)))
    })
}

/// Returns the common type of all items of these lists, or `None` if there are no items.
fn common_kind(lists: [&[Value]; 2]) -> Result<Option<Kind>, PatchError> {
    let mut common = None;
    for item in lists.into_iter().flatten() {
        match (common, Kind::of(item)) {
            (None, Kind::List) => {
                return Err(PatchError::Inapplicable("lists of lists are not supported".to_owned()));
            }
            (None, kind) => common = Some(kind),
            (Some(common), kind) if common == kind => {}
            (Some(_), _) => {
                let lists: Vec<_> = lists.iter().map(|list| words(&Value::Array(list.to_vec()))).collect();
                let lists = lists.join(" ");
                return Err(PatchError::Failed(format!("list element types are not identical: [{lists}]")));
            }
        }
    }
    Ok(common)
}

fn wrong_kind(expected: Kind, actual: &Value) -> PatchError {
    PatchError::Failed(format!("expected a {}, but received a {}", expected.name(), Kind::of(actual).name()))
}

fn malformed_deletion_list() -> PatchError {
    PatchError::Malformed("invalid patch format of primitive list".to_owned())
}

fn malformed_element_order() -> PatchError {
    PatchError::Malformed("invalid patch format of setElementOrder list".to_owned())
}

fn malformed_retain_keys() -> PatchError {
    PatchError::Malformed("invalid patch format of retainKeys".to_owned())
}

fn unknown_directive(directive: &Value, patch: &Value) -> PatchError {
    PatchError::Failed(format!("unknown patch type: {} in map: {}", words(directive), words(patch)))
}
