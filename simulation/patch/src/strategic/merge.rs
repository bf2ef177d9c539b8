//! Merges a patch into a document, or into another patch.

use serde_json::Value;

use super::order::{self, MergeKey};
use super::strategy_cursor::{Strategy, StrategyCursor};
use super::{
    DELETE_FROM_LIST, DIRECTIVE, ELEMENT_ORDER, Fields, Kind, RETAIN_KEYS, common_kind, key_of,
    malformed_deletion_list, malformed_element_order, malformed_retain_keys, unknown_directive, wrong_kind,
};
use crate::PatchError;

/// Target of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A document: directives are executed.
    Apply,
    /// Another patch: directives and nulls are kept.
    Combine,
}

/// Merges a patch into a map.
pub(super) fn maps(
    mut original: Fields,
    mut patch: Fields,
    cursor: StrategyCursor<'_>,
    mode: Mode,
) -> Result<Fields, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Fields::new()),
            _ => Err(unknown_directive(directive, &Value::Object(patch.clone()))),
        };
    }
    retain_keys(&mut original, &mut patch, mode)?;
    let orders: Vec<_> = patch.keys().filter(|field| field.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in orders {
        ordered_list(&mut original, &mut patch, &directive, cursor, mode)?;
    }
    for (field, value) in patch {
        merge_field(&mut original, field, value, cursor, mode)?;
    }
    Ok(original)
}

/// Merges one field of a patch.
fn merge_field(
    original: &mut Fields,
    field: String,
    value: Value,
    cursor: StrategyCursor<'_>,
    mode: Mode,
) -> Result<(), PatchError> {
    let deletes = field.starts_with(DELETE_FROM_LIST);
    if deletes && mode == Mode::Combine {
        original.insert(field, value);
        return Ok(());
    }
    let field =
        if deletes { list_named(&field).ok_or_else(malformed_deletion_list)?.to_owned() } else { field };
    if value.is_null() {
        original.remove(&field);
        if mode == Mode::Apply {
            return Ok(());
        }
    }
    let merged = match (original.remove(&field), value) {
        (Some(Value::Object(present)), Value::Object(value)) => {
            let (inner, strategy) = cursor.map(&field)?;
            let value = if strategy.patch.replace { value } else { maps(present, value, inner, mode)? };
            Some(Value::Object(value))
        }
        (Some(Value::Array(present)), Value::Array(value)) => {
            let (items, strategy) = cursor.items(&field)?;
            Some(Value::Array(field_lists(present, value, deletes, items, strategy, mode)?))
        }
        (present, _) if deletes => present,
        (_, mut value) => {
            if mode == Mode::Apply {
                discard_nulls(&mut value);
            }
            without_directives(value)
        }
    };
    if let Some(merged) = merged {
        original.insert(field, merged);
    }
    Ok(())
}

/// Merges or replaces a list, according to its strategy.
fn field_lists(
    original: Vec<Value>,
    patch: Vec<Value>,
    deletes: bool,
    items: StrategyCursor<'_>,
    strategy: Strategy<'_>,
    mode: Mode,
) -> Result<Vec<Value>, PatchError> {
    if !strategy.patch.merge && !deletes {
        return Ok(patch);
    }
    let Some(kind) = common_kind([&original, &patch])? else { return Ok(original) };
    if kind != Kind::Map {
        if deletes {
            return Ok(original.into_iter().filter(|item| !patch.contains(item)).collect());
        }
        return scalar_lists(original, patch);
    }
    let Some(key) = strategy.key else {
        return Err(PatchError::Failed("cannot merge lists without merge key for slice".to_owned()));
    };
    map_lists(original, patch, key, items, mode)
}

fn scalar_lists(original: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    let mut both: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
    for item in original.iter().chain(&patch) {
        if !both.contains(item) {
            both.push(item.clone());
        }
    }
    order::merged(both, |item| patch.contains(item), &patch, &original, MergeKey::Value)
}

fn map_lists(
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    cursor: StrategyCursor<'_>,
    mode: Mode,
) -> Result<Vec<Value>, PatchError> {
    let (original, patch) = special_items(original, patch, key)?;
    let mut merged = original.clone();
    for item in &patch {
        let value = key_of(item, key)?;
        let mut present = None;
        for (index, other) in merged.iter().enumerate() {
            let fields = other.as_object().ok_or_else(|| not_a_map(index))?;
            if fields.get(key) == Some(value) {
                present = Some(index);
                break;
            }
        }
        match (present.and_then(|index| merged.get_mut(index)), item) {
            (Some(Value::Object(present)), Value::Object(item)) => {
                *present = maps(std::mem::take(present), item.clone(), cursor, mode)?;
            }
            _ => merged.push(item.clone()),
        }
    }
    for item in &merged {
        key_of(item, key)?;
    }
    let by = MergeKey::Key(key);
    order::merged(merged, |item| by.index(&patch, item).is_some(), &patch, &original, by)
}

/// Executes the directives in the items of a patch, and returns the remaining items of the original and of the patch.
fn special_items(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::new();
    let mut replaces = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = key_of(&item, key)?;
                if let Some(index) = original.iter().position(|other| !other.is_object()) {
                    return Err(not_a_map(index));
                }
                original.retain(|other| other.get(key) != Some(value));
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(PatchError::Failed(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => return Err(unknown_directive(directive, &item)),
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (original, plain) })
}

/// Executes `$retainKeys`: removes fields that it does not list.
fn retain_keys(original: &mut Fields, patch: &mut Fields, mode: Mode) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    if mode == Mode::Combine {
        let present = original.entry(RETAIN_KEYS).or_insert_with(|| retained.clone());
        return if *present == retained { Ok(()) } else { Err(malformed_retain_keys()) };
    }
    let Value::Array(retained) = retained else { return Err(malformed_retain_keys()) };
    let retains = |field: &str| retained.iter().any(|it| it == field);
    for (field, value) in &*patch {
        let directive = field.starts_with(DELETE_FROM_LIST) || field.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !directive && !retains(field) {
            return Err(malformed_retain_keys());
        }
    }
    original.retain(|field, _| retains(field));
    Ok(())
}

/// Executes one `$setElementOrder`: merges its list and orders the result by the directive, the patch and the original,
/// in this precedence.
fn ordered_list(
    original: &mut Fields,
    patch: &mut Fields,
    directive: &str,
    cursor: StrategyCursor<'_>,
    mode: Mode,
) -> Result<(), PatchError> {
    let Some(order) = patch.remove(directive) else { return Ok(()) };
    if mode == Mode::Combine {
        let present = original.entry(directive).or_insert_with(|| order.clone());
        if *present != order {
            return Err(malformed_element_order());
        }
    }
    let wanted = order.as_array().ok_or_else(|| wrong_kind(Kind::List, &order))?;
    let field = list_named(directive).ok_or_else(malformed_element_order)?;
    let original_list = expect_list(original.get(field))?;
    let patch_list = expect_list(patch.get(field))?;
    let (items, strategy) = cursor.items(field)?;
    order::check(&Value::Array(patch_list.clone().unwrap_or_default()), &order, strategy.key)?;
    let merged = match (&original_list, &patch_list) {
        (None, None) => return Ok(()),
        (Some(list), None) => list.clone(),
        (None, Some(list)) => list.iter().cloned().filter_map(without_directives).collect(),
        (Some(list), Some(patch)) => field_lists(list.clone(), patch.clone(), false, items, strategy, mode)?,
    };
    let (original_list, patch_list) = (original_list.unwrap_or_default(), patch_list.unwrap_or_default());
    let kind = common_kind([&original_list, &patch_list])?
        .ok_or_else(|| PatchError::Failed("no elements in any of the given slices".to_owned()))?;
    if let Some(key) = strategy.key {
        merged.iter().try_for_each(|item| key_of(item, key).map(drop))?;
    }
    let by = order::by(kind, strategy.key);
    let of_patch = |item: &Value| by.index(wanted, item).is_some();
    let server_order = places_taken(&original_list, &patch_list, by);
    let merged = order::merged(merged, of_patch, wanted, &server_order, by)?;
    original.insert(field.to_owned(), Value::Array(merged));
    patch.remove(field);
    Ok(())
}

/// Returns the original order with new items at the positions of deleted items: upstream deletes and appends in place,
/// and its test cases contain the resulting order.
fn places_taken(original: &[Value], patch: &[Value], by: MergeKey<'_>) -> Vec<Value> {
    let deletes = |item: &&Value| item.get(DIRECTIVE).is_some_and(|it| it == "delete");
    let mut order: Vec<_> = original.to_vec();
    order.retain(|item| !patch.iter().filter(deletes).any(|deleted| by.same(deleted, item)));
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        if order.len() < original.len() && by.index(&order, item).is_none() {
            order.push(item.clone());
        }
    }
    order
}

fn expect_list(value: Option<&Value>) -> Result<Option<Vec<Value>>, PatchError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(wrong_kind(Kind::List, other)),
    }
}

/// Returns the list name in a directive such as `$setElementOrder/containers`.
fn list_named(directive: &str) -> Option<&str> {
    let (name, list) = directive.split_once('/')?;
    (name == DELETE_FROM_LIST || name == ELEMENT_ORDER).then_some(list)
}

/// Returns the value without all parts that contain a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter_map(|(field, value)| Some((field, without_directives(value)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn not_a_map(index: usize) -> PatchError {
    PatchError::Failed(format!("value for key {index} is not a map"))
}
