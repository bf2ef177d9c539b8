//! Merges an applied configuration into a live value.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use windlass_schema::ListNode;

use super::element::PathElement;
use super::schema_cursor::{FieldOwnership, SchemaCursor};

/// Path and reason of a failed merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MergeMismatch {
    path: String,
    text: String,
}

impl std::fmt::Display for MergeMismatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() {
            return formatter.write_str(&self.text);
        }
        write!(formatter, "{}: {}", self.path, self.text)
    }
}

impl MergeMismatch {
    fn here(text: String) -> MergeMismatch {
        MergeMismatch { path: String::new(), text }
    }

    fn inside(mut self, element: &PathElement) -> MergeMismatch {
        self.path.insert_str(0, &element.to_string());
        self
    }
}

/// Returns the live value with the configuration merged into it. Fields outside the configuration stay.
///
/// # Errors
///
/// Fails if an item of the configuration has no identity, or is duplicate.
pub(super) fn over(cursor: SchemaCursor<'_>, live: &Value, applied: &Value) -> Result<Value, MergeMismatch> {
    match cursor.form(applied) {
        FieldOwnership::Fields => {
            let empty = Map::new();
            let (left, right) = (live.as_object().unwrap_or(&empty), applied.as_object().unwrap_or(&empty));
            if left.is_empty() && right.is_empty() {
                return Ok(applied.clone());
            }
            fields(cursor, left, right).map(Value::Object)
        }
        FieldOwnership::Items(list) => {
            let (left, right) = (array(live), array(applied));
            if left.is_empty() && right.is_empty() {
                return Ok(applied.clone());
            }
            items(cursor, list, left, right).map(Value::Array)
        }
        // A null for an untyped value keeps an existing map.
        FieldOwnership::Whole
            if applied.is_null()
                && cursor.is_anything()
                && live.as_object().is_some_and(|it| !it.is_empty()) =>
        {
            Ok(live.clone())
        }
        FieldOwnership::Whole => Ok(applied.clone()),
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn fields(
    cursor: SchemaCursor<'_>,
    live: &Map<String, Value>,
    applied: &Map<String, Value>,
) -> Result<Map<String, Value>, MergeMismatch> {
    let mut out = Map::new();
    for (name, value) in live {
        let merged = match applied.get(name) {
            Some(applied) => over(cursor.field(name), value, applied)
                .map_err(|misfit| misfit.inside(&PathElement::field(name)))?,
            None => value.clone(),
        };
        out.insert(name.clone(), merged);
    }
    for (name, value) in applied.iter().filter(|(name, _)| !live.contains_key(*name)) {
        out.insert(name.clone(), value.clone());
    }
    Ok(out)
}

/// Merges items: live items keep their positions; applied items are in the order of the configuration.
fn items(
    cursor: SchemaCursor<'_>,
    list: &ListNode,
    live: &[Value],
    applied: &[Value],
) -> Result<Vec<Value>, MergeMismatch> {
    let left = Side::of(cursor, list, live, true)?;
    let right = Side::of(cursor, list, applied, false)?;
    let item = cursor.items(list);
    // A duplicate live item is replaced, not merged.
    let merged = |element: &PathElement, value: &Value| match left.single.get(element) {
        Some(Some(live)) => over(item, live, value).map_err(|misfit| misfit.inside(element)),
        _ => Ok(value.clone()),
    };
    // Common items in the order of the configuration; the first one is next.
    let mut shared = right.order.iter().filter(|element| left.single.contains_key(*element)).peekable();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let (mut l, mut r) = (0, 0);
    loop {
        match (left.order.get(l), right.order.get(r)) {
            (None, None) => return Ok(out),
            (Some(mine), theirs) => {
                if theirs == Some(mine) {
                    done.insert(mine);
                    out.push(merged(mine, &applied[r])?);
                    shared.next();
                    (l, r) = (l + 1, r + 1);
                    continue;
                }
                let common = right.single.contains_key(mine);
                if theirs.is_some() && common && shared.peek().is_some_and(|next| *next != mine) {
                    l += 1; // Inserted later, at its position in the configuration.
                    continue;
                }
                if !common {
                    out.push(live[l].clone());
                    l += 1;
                    continue;
                }
                if done.contains(mine) {
                    l += 1;
                }
            }
            (None, Some(_)) => {}
        }
        if let Some(theirs) = right.order.get(r) {
            done.insert(theirs);
            out.push(merged(theirs, &applied[r])?);
            r += 1;
            shared.next_if(|next| *next == theirs);
        }
    }
}

/// Items of one list: their path elements in order, and the unique items by path element.
struct Side<'v> {
    order: Vec<PathElement>,
    single: BTreeMap<PathElement, Option<&'v Value>>,
}

impl<'v> Side<'v> {
    fn of(
        cursor: SchemaCursor<'_>,
        list: &ListNode,
        items: &'v [Value],
        duplicates: bool,
    ) -> Result<Side<'v>, MergeMismatch> {
        let mut side = Side { order: Vec::with_capacity(items.len()), single: BTreeMap::new() };
        for (index, item) in items.iter().enumerate() {
            let element = cursor
                .item_element(list, item)
                .map_err(|text| MergeMismatch::here(format!("element {index}: {text}")))?;
            if let Some(known) = side.single.get_mut(&element) {
                if !duplicates {
                    return Err(MergeMismatch::here(format!("duplicate entries for key {element}")));
                }
                *known = None;
            } else {
                side.single.insert(element.clone(), Some(item));
            }
            side.order.push(element);
        }
        Ok(side)
    }
}
