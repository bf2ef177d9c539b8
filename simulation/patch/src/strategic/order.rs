//! Order of the items in a merged list.

use serde_json::Value;

use super::{DIRECTIVE, Kind, key_of, malformed_element_order, words};
use crate::PatchError;

/// Sorts the items in the patch by `patch_order` and the items that only the server has by `server_order`. Server items
/// are placed between patch items, as close to their old position as the order of the patch permits.
pub(super) fn merged(
    items: Vec<Value>,
    of_patch: impl Fn(&Value) -> bool,
    patch_order: &[Value],
    server_order: &[Value],
    by: MergeKey<'_>,
) -> Result<Vec<Value>, PatchError> {
    let (patch, server_only): (Vec<_>, Vec<_>) = items.into_iter().partition(of_patch);
    let patch = sorted(patch, patch_order, by)?;
    let server_only = sorted(server_only, server_order, by)?;
    let mut all = Vec::with_capacity(patch.len() + server_only.len());
    let (mut patch, mut server_only) = (patch.into_iter().peekable(), server_only.into_iter().peekable());
    loop {
        let next = match (server_only.peek(), patch.peek()) {
            (Some(left), Some(right)) => {
                let places = by.index(server_order, left).zip(by.index(server_order, right));
                if places.is_some_and(|(left, right)| left < right) {
                    server_only.next()
                } else {
                    patch.next()
                }
            }
            (Some(_), None) => server_only.next(),
            (None, _) => patch.next(),
        };
        match next {
            Some(item) => all.push(item),
            None => return Ok(all),
        }
    }
}

/// Identity of list items.
#[derive(Clone, Copy, Debug)]
pub(super) enum MergeKey<'a> {
    /// Identity by value, for scalars.
    Value,
    /// Identity by this field, for maps.
    Key(&'a str),
}

impl MergeKey<'_> {
    pub(super) fn same(self, left: &Value, right: &Value) -> bool {
        match self {
            MergeKey::Value => left == right,
            MergeKey::Key(key) => left.get(key) == right.get(key),
        }
    }

    pub(super) fn index(self, list: &[Value], item: &Value) -> Option<usize> {
        list.iter().position(|other| self.same(item, other))
    }
}

/// Returns the items in that order, with items to delete last.
pub(super) fn sorted(
    mut items: Vec<Value>,
    order: &[Value],
    by: MergeKey<'_>,
) -> Result<Vec<Value>, PatchError> {
    let mut deleted = Vec::new();
    if let MergeKey::Key(key) = by {
        for item in items.iter().chain(order) {
            key_of(item, key)?;
        }
        (deleted, items) =
            items.into_iter().partition(|item| item.get(DIRECTIVE).is_some_and(|it| it == "delete"));
    }
    items.sort_by_key(|item| by.index(order, item).unwrap_or(usize::MAX));
    items.append(&mut deleted);
    Ok(items)
}

/// Rejects a patch whose items are not in the order of its directive.
pub(super) fn check(patch: &Value, order: &Value, key: Option<&str>) -> Result<(), PatchError> {
    let (Value::Array(patch), Value::Array(order)) = (patch, order) else {
        return Err(malformed_element_order());
    };
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let mut found = false;
        for other in rest.by_ref() {
            found = match key {
                Some(key) => key_of(item, key)? == key_of(other, key)?,
                None => item == other,
            };
            if found {
                break;
            }
        }
        if !found {
            let (patch, order) = (words(&Value::Array(patch.clone())), words(&Value::Array(order.clone())));
            return Err(PatchError::Failed(format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

/// Returns the identity of the items in a list of that type.
pub(super) fn by(kind: Kind, key: Option<&str>) -> MergeKey<'_> {
    match key {
        Some(key) if kind == Kind::Map => MergeKey::Key(key),
        _ => MergeKey::Value,
    }
}
