//! Computes the patch between two documents.

use serde_json::{Value, json};

use super::order::{self, MergeKey};
use super::strategy_cursor::StrategyCursor;
use super::{
    DELETE_FROM_LIST, DIRECTIVE, ELEMENT_ORDER, Fields, Kind, RETAIN_KEYS, common_kind, key_of, words,
};
use crate::PatchError;

/// Part of the difference to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All changes.
    Whole,
    /// Additions and changes.
    Changes,
    /// Deletions.
    Deletions,
}

impl Part {
    fn changes(self) -> bool {
        self != Part::Deletions
    }

    fn deletions(self) -> bool {
        self != Part::Changes
    }
}

/// Returns the patch that turns one map into the other, with `$retainKeys` if the field has that strategy.
pub(super) fn maps(
    original: &Fields,
    modified: &Fields,
    cursor: StrategyCursor<'_>,
    part: Part,
    retains_keys: bool,
) -> Result<Fields, PatchError> {
    let mut patch = Fields::new();
    for (field, after) in modified {
        match original.get(field) {
            None if part.changes() => {
                patch.insert(field.clone(), after.clone());
            }
            None => {}
            Some(before) => one_field(&mut patch, field, before, after, cursor, part)?,
        }
    }
    let gone = || original.iter().filter(|(field, _)| !modified.contains_key(*field));
    if part.deletions() {
        patch.extend(gone().map(|(field, _)| (field.clone(), Value::Null)));
    }
    let retained: Vec<_> = modified
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(field, _)| Value::from(field.as_str()))
        .collect();
    let differs = !patch.is_empty() || gone().any(|(_, value)| !value.is_null());
    if retains_keys && !retained.is_empty() && differs {
        patch.insert(RETAIN_KEYS.to_owned(), Value::Array(retained));
    }
    Ok(patch)
}

/// Adds the changes of one common field.
fn one_field(
    patch: &mut Fields,
    field: &str,
    before: &Value,
    after: &Value,
    cursor: StrategyCursor<'_>,
    part: Part,
) -> Result<(), PatchError> {
    if field == DIRECTIVE {
        if !before.is_string() || !after.is_string() {
            return Err(PatchError::Failed(format!("invalid value for special key: {DIRECTIVE}")));
        }
        if before != after {
            patch.insert(field.to_owned(), after.clone());
        }
        return Ok(());
    }
    match (before, after) {
        (Value::Object(before_fields), Value::Object(after_fields)) => match cursor.map(field) {
            Ok((_, strategy)) if strategy.patch.replace => {
                if part.changes() {
                    patch.insert(field.to_owned(), after.clone());
                }
            }
            Ok((inner, strategy)) => {
                let inner = maps(before_fields, after_fields, inner, part, strategy.patch.retain_keys)?;
                if !inner.is_empty() {
                    patch.insert(field.to_owned(), Value::Object(inner));
                }
            }
            Err(error) => return if before == after { Ok(()) } else { Err(error) },
        },
        (Value::Array(before_items), Value::Array(after_items)) => match cursor.items(field) {
            Ok((items, strategy)) if strategy.patch.merge => {
                let lists = Lists { before: before_items, after: after_items, part };
                let key = strategy.key.unwrap_or_default();
                lists.difference(items, key, strategy.patch.retain_keys)?.put(patch, field);
            }
            Ok(_) => replace(patch, field, before, after, part),
            Err(error) => return if before == after { Ok(()) } else { Err(error) },
        },
        _ => replace(patch, field, before, after, part),
    }
    Ok(())
}

fn replace(patch: &mut Fields, field: &str, before: &Value, after: &Value, part: Part) {
    if part.changes() && before != after {
        patch.insert(field.to_owned(), after.clone());
    }
}

/// Two lists that are merged item by item.
struct Lists<'a> {
    before: &'a [Value],
    after: &'a [Value],
    part: Part,
}

/// Patch of one list.
#[derive(Default)]
struct ListPatch {
    items: Vec<Value>,
    deleted_scalars: Vec<Value>,
    order: Vec<Value>,
}

impl ListPatch {
    fn put(self, patch: &mut Fields, field: &str) {
        let lists = [
            (field.to_owned(), self.items),
            (format!("{DELETE_FROM_LIST}/{field}"), self.deleted_scalars),
            (format!("{ELEMENT_ORDER}/{field}"), self.order),
        ];
        for (field, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            patch.insert(field, Value::Array(list));
        }
    }
}

impl Lists<'_> {
    fn difference(
        &self,
        items: StrategyCursor<'_>,
        key: &str,
        retains_keys: bool,
    ) -> Result<ListPatch, PatchError> {
        if self.before.is_empty() {
            let items = if self.part.changes() { self.after.to_vec() } else { Vec::new() };
            return Ok(ListPatch { items, ..ListPatch::default() });
        }
        match common_kind([self.before, self.after])? {
            Some(Kind::Map) => self.of_maps(items, key, retains_keys),
            _ => Ok(self.of_scalars()),
        }
    }

    fn of_maps(
        &self,
        cursor: StrategyCursor<'_>,
        key: &str,
        retains_keys: bool,
    ) -> Result<ListPatch, PatchError> {
        let (before, after) = (sorted_by_key(self.before, key)?, sorted_by_key(self.after, key)?);
        let (mut items, mut deleted) = (Vec::new(), Vec::new());
        for step in steps(&before, &after) {
            match step {
                Step::Both((_, before), (_, after)) => {
                    let (Value::Object(before), Value::Object(after)) = (before, after) else { continue };
                    let mut change = maps(before, after, cursor, self.part, retains_keys)?;
                    if let Some(value) = after.get(key).filter(|_| !change.is_empty()) {
                        change.insert(key.to_owned(), value.clone());
                        items.push(Value::Object(change));
                    }
                }
                Step::Added((_, after)) if self.part.changes() => items.push((*after).clone()),
                Step::Deleted((_, before)) if self.part.deletions() => {
                    deleted.push(json!({ key: key_of(before, key)?, DIRECTIVE: "delete" }));
                }
                Step::Added(_) | Step::Deleted(_) => {}
            }
        }
        let mut items = order::sorted(items, self.after, MergeKey::Key(key))?;
        let moved = !self.before.iter().map(|it| it.get(key)).eq(self.after.iter().map(|it| it.get(key)));
        items.append(&mut deleted);
        let mut order = Vec::new();
        if !items.is_empty() || (self.part.changes() && moved) {
            for item in self.after {
                order.push(json!({ key: key_of(item, key)? }));
            }
        }
        Ok(ListPatch { items, order, ..ListPatch::default() })
    }

    fn of_scalars(&self) -> ListPatch {
        let (before, after) = (sorted_by_words(self.before), sorted_by_words(self.after));
        let mut patch = ListPatch::default();
        for step in steps(&before, &after) {
            match step {
                Step::Added((_, after)) if self.part.changes() => patch.items.push((*after).clone()),
                Step::Deleted((_, before)) if self.part.deletions() => {
                    patch.deleted_scalars.push((*before).clone());
                }
                Step::Both(..) | Step::Added(_) | Step::Deleted(_) => {}
            }
        }
        patch.deleted_scalars.dedup();
        patch.items.sort_by_key(|item| MergeKey::Value.index(self.after, item));
        let changed = self.part.changes() && self.before != self.after;
        if changed || (self.part.deletions() && !patch.deleted_scalars.is_empty()) {
            patch.order = self.after.to_vec();
        }
        patch
    }
}

/// An item with its sort key.
type Sorted<'a> = (String, &'a Value);

/// One step in a parallel iteration over two sorted lists.
enum Step<'a, 'b> {
    Both(&'b Sorted<'a>, &'b Sorted<'a>),
    Added(&'b Sorted<'a>),
    Deleted(&'b Sorted<'a>),
}

fn steps<'a, 'b>(before: &'b [Sorted<'a>], after: &'b [Sorted<'a>]) -> Vec<Step<'a, 'b>> {
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    let mut steps = Vec::new();
    loop {
        let step = match (before.peek().copied(), after.peek().copied()) {
            (None, None) => return steps,
            (Some(left), Some(right)) if left.0 == right.0 => {
                before.next();
                after.next();
                Step::Both(left, right)
            }
            (Some(left), right) if right.is_none_or(|right| left.0 < right.0) => {
                before.next();
                Step::Deleted(left)
            }
            (_, Some(right)) => {
                after.next();
                Step::Added(right)
            }
            (Some(left), None) => {
                before.next();
                Step::Deleted(left)
            }
        };
        steps.push(step);
    }
}

fn sorted_by_key<'a>(items: &'a [Value], key: &str) -> Result<Vec<Sorted<'a>>, PatchError> {
    let mut sorted = Vec::with_capacity(items.len());
    for item in items {
        sorted.push((words(key_of(item, key)?), item));
    }
    sorted.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(sorted)
}

fn sorted_by_words(items: &[Value]) -> Vec<Sorted<'_>> {
    let mut sorted: Vec<_> = items.iter().map(|item| (words(item), item)).collect();
    sorted.sort_by(|left, right| left.0.cmp(&right.0));
    sorted
}
