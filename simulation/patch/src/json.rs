//! The two patch types without a schema: JSON patch (RFC 6902) and merge patch (RFC 7386), as API servers implement
//! them.
//!
//! Guarantees:
//! - A patch is applied completely or not at all.
//! - Upstream's deviations from the standards are included, because clients rely on them: `replace` of an absent field
//!   adds it, `test` for null passes on an absent value, negative indices count from the end, and a merge patch adds no
//!   nulls, not even inside lists. Libraries that implement the standards do not support this.
//!
//! Limits: 10,000 operations, copies of 3 MiB in total, and the nesting depth of parsed JSON.

use serde_json::{Map, Value};
use windlass_schema::check::kind_of;

use crate::PatchError;

/// Maximum number of operations in a patch, as upstream.
const MAXIMUM_OPERATIONS: usize = 10_000;

/// Maximum number of bytes of JSON that a patch can copy in total, as upstream.
const MAXIMUM_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Maximum nesting of lists and objects; parsed JSON has the same limit.
///
/// Only JSON patches can nest values deeper than both document and patch. Merge patch, strategic merge patch and apply
/// keep the depth of either input and recurse no deeper.
const MAXIMUM_DEPTH: usize = 127;

/// Permitted fields of an operation.
const OPERATION_FIELDS: [&str; 4] = ["op", "path", "from", "value"];

/// Applies a JSON patch.
///
/// # Errors
///
/// Returns [`PatchError::Malformed`] if it is not a list of operations, [`PatchError::TooManyOperations`], and
/// [`PatchError::Inapplicable`] if an operation is unknown, is incomplete, points to a missing value, or is a test that
/// fails.
pub fn apply(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    if operations.len() > MAXIMUM_OPERATIONS {
        return Err(PatchError::TooManyOperations { allowed: MAXIMUM_OPERATIONS, got: operations.len() });
    }
    let mut patched = document.clone();
    let mut extent = PatchUsage { copied: 0, depth: depth(document) };
    for operation in operations {
        perform(&mut patched, operation, &mut extent).map_err(PatchError::Inapplicable)?;
    }
    Ok(patched)
}

/// Returns unknown fields of the operations with upstream's message: `json patch unknown field "[0].foo"`. Under strict
/// field validation they reject a patch; otherwise they are warnings.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut unknown = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        let fields = operation.as_object().into_iter().flat_map(Map::keys);
        for field in fields.filter(|field| !OPERATION_FIELDS.contains(&field.as_str())) {
            unknown.push(format!("json patch unknown field \"[{index}].{field}\""));
        }
    }
    unknown
}

/// Applies a merge patch. A patch that is not an object replaces the document, according to the standard; servers
/// reject it first, see [`expect_object`].
pub fn merge(document: &Value, patch: &Value) -> Value {
    let (Value::Object(document), Value::Object(patch)) = (document, patch) else {
        return match (document, patch) {
            (Value::Object(_), _) => patch.clone(),
            _ => without_nulls(patch.clone()),
        };
    };
    let mut merged = document.clone();
    for (field, value) in patch {
        let value = match (merged.get(field), value) {
            (_, Value::Null) => {
                merged.remove(field);
                continue;
            }
            (None | Some(Value::Null), value) => without_nulls(value.clone()),
            (Some(present), value) => merge(present, value),
        };
        merged.insert(field.clone(), value);
    }
    Value::Object(merged)
}

/// Rejects a merge patch that is not an object, with upstream's message.
///
/// # Errors
///
/// Returns [`PatchError::Malformed`] if `patch` is not an object.
pub fn expect_object(patch: &Value) -> Result<(), PatchError> {
    match patch {
        Value::Object(_) | Value::Null => Ok(()),
        other => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            kind_of(other)
        ))),
    }
}

/// A position: its container, and the last token of the path.
struct PointerTarget<'a> {
    container: &'a mut Value,
    token: String,
}

/// Resource usage of a patch.
struct PatchUsage {
    /// Bytes of JSON that were copied.
    copied: usize,
    /// Upper limit of the document's depth.
    depth: usize,
}

impl PatchUsage {
    /// Checks that a copy is within the limit.
    fn copy(&mut self, value: &Value) -> Result<(), String> {
        self.copied += value.to_string().len();
        let copied = self.copied;
        if copied <= MAXIMUM_COPIED_BYTES {
            return Ok(());
        }
        Err(format!(
            "Unable to complete the copy, the accumulated size increase of the copied values is {copied}, exceeding \
             the limit {MAXIMUM_COPIED_BYTES}"
        ))
    }

    /// Checks that a value can be added at a position.
    fn put(&mut self, path: &str, value: &Value) -> Result<(), String> {
        self.reach(path, tokens(path) + depth(value))
    }

    /// Checks that a value can be moved to another position. Its depth is measured only if it might be too deep.
    fn shift(&mut self, from: &str, path: &str, value: &Value) -> Result<(), String> {
        let most = (self.depth + tokens(path)).saturating_sub(tokens(from));
        if most <= MAXIMUM_DEPTH { self.reach(path, most) } else { self.put(path, value) }
    }

    fn reach(&mut self, path: &str, depth: usize) -> Result<(), String> {
        if depth > MAXIMUM_DEPTH {
            return Err(format!(
                "the value at path: {path} would be nested {depth} deep, at most {MAXIMUM_DEPTH}"
            ));
        }
        self.depth = self.depth.max(depth);
        Ok(())
    }
}

/// Returns the operations of a patch after checking its form.
fn operations(patch: &Value) -> Result<&[Value], PatchError> {
    let malformed = |value: &Value, part: &str, wanted: &str| {
        let value = kind_of(value);
        PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {value} into Go {part} of type {wanted}"
        ))
    };
    let operations = match patch {
        Value::Null => return Ok(&[]),
        Value::Array(operations) => operations,
        other => return Err(malformed(other, "value", "[]handlers.jsonPatchOp")),
    };
    for operation in operations {
        let Value::Object(fields) = operation else {
            return Err(malformed(operation, "value", "handlers.jsonPatchOp"));
        };
        for field in ["op", "path", "from"] {
            match fields.get(field) {
                None | Some(Value::Null | Value::String(_)) => {}
                Some(other) => {
                    return Err(malformed(other, &format!("struct field jsonPatchOp.{field}"), "string"));
                }
            }
        }
    }
    Ok(operations)
}

fn perform(document: &mut Value, operation: &Value, extent: &mut PatchUsage) -> Result<(), String> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let path =
        text("path").ok_or_else(|| format!("{kind} operation failed to decode path: missing value"))?;
    let value = operation.get("value").unwrap_or(&Value::Null);
    let from =
        || text("from").ok_or_else(|| format!("{kind} operation failed to decode from: missing value"));
    match kind {
        "add" => {
            extent.put(path, value)?;
            add(document, kind, path, value.clone())
        }
        "remove" => remove(document, kind, path).map(drop),
        "replace" => {
            extent.put(path, value)?;
            replace(document, path, value.clone())
        }
        "test" => test(document, path, value),
        "move" => {
            let from = from()?;
            let moved = remove(document, kind, from)?;
            extent.shift(from, path, &moved)?;
            add(document, kind, path, moved)
        }
        "copy" => {
            let target = find(document, kind, from()?)?;
            let copy = read(&target)?.cloned().unwrap_or_default();
            extent.copy(&copy)?;
            extent.put(path, &copy)?;
            add(document, kind, path, copy)
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn add(document: &mut Value, kind: &str, path: &str, value: Value) -> Result<(), String> {
    let target = find(document, kind, path)?;
    match target.container {
        Value::Object(fields) => {
            fields.insert(target.token, value);
        }
        Value::Array(items) if target.token == "-" => items.push(value),
        Value::Array(items) => {
            // A position after the last item is valid for an addition, so -1 means the end.
            let index = index(&target.token, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(nowhere(kind, path)),
    }
    Ok(())
}

fn remove(document: &mut Value, kind: &str, path: &str) -> Result<Value, String> {
    let target = find(document, kind, path)?;
    match target.container {
        Value::Object(fields) => fields.remove(&target.token).ok_or_else(|| {
            format!("error in {kind} for path: '{path}': Unable to remove nonexistent key: {}", target.token)
        }),
        Value::Array(items) => {
            let index = index(&target.token, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(nowhere(kind, path)),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let target = find(document, "replace", path)?;
    match target.container {
        Value::Object(fields) => {
            fields.insert(target.token, value);
        }
        Value::Array(items) => {
            let index = index(&target.token, items.len())?;
            if let Some(item) = items.get_mut(index) {
                *item = value;
            }
        }
        _ => return Err(nowhere("replace", path)),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, value: &Value) -> Result<(), String> {
    let holds = if path.is_empty() {
        document == value
    } else {
        let target = find(document, "test", path)?;
        read(&target)?.unwrap_or(&Value::Null) == value
    };
    if holds { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
}

/// Returns the value at a position, or `None` for an absent field.
fn read<'a>(target: &'a PointerTarget<'_>) -> Result<Option<&'a Value>, String> {
    match &*target.container {
        Value::Object(fields) => Ok(fields.get(&target.token)),
        Value::Array(items) => Ok(items.get(index(&target.token, items.len())?)),
        _ => Ok(None),
    }
}

/// Returns the container of the value at a path. The whole document has no container.
fn find<'a>(document: &'a mut Value, kind: &str, path: &str) -> Result<PointerTarget<'a>, String> {
    let mut tokens = path.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~"));
    let Some(mut token) = tokens.next() else { return Err(nowhere(kind, path)) };
    let mut container = document;
    for next in tokens {
        let inner = match container {
            Value::Object(fields) => fields.get_mut(&token),
            Value::Array(items) => index(&token, items.len()).ok().and_then(|index| items.get_mut(index)),
            _ => None,
        };
        container =
            inner.filter(|inner| inner.is_object() || inner.is_array()).ok_or_else(|| nowhere(kind, path))?;
        token = next;
    }
    if container.is_object() || container.is_array() {
        Ok(PointerTarget { container, token })
    } else {
        Err(nowhere(kind, path))
    }
}

/// Returns the index of a token in a list of that length; negative indices count from the end.
fn index(token: &str, length: usize) -> Result<usize, String> {
    let number: i64 = token.parse().map_err(|_| format!("value was not a proper array index: '{token}'"))?;
    let index =
        if number < 0 { i64::try_from(length).unwrap_or(i64::MAX).checked_add(number) } else { Some(number) };
    index
        .and_then(|index| usize::try_from(index).ok())
        .filter(|index| *index < length)
        .ok_or_else(|| format!("Unable to access invalid index: {number}: invalid index referenced"))
}

fn nowhere(kind: &str, path: &str) -> String {
    format!("{kind} operation does not apply: doc is missing path: {path}: missing value")
}

/// Removes nulls from an added value, except as items of lists.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(field, value)| (field, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}

/// Returns the number of lists and objects around the value at a path.
fn tokens(path: &str) -> usize {
    path.matches('/').count()
}

/// Returns the nesting depth of a value without recursion, because the value can be too deep for it.
fn depth(value: &Value) -> usize {
    let (mut deepest, mut rest) = (0, vec![(1, value)]);
    while let Some((depth, value)) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items.iter().map(|item| (depth + 1, item))),
            Value::Object(fields) => rest.extend(fields.values().map(|value| (depth + 1, value))),
            _ => continue,
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests;
