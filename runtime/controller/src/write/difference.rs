//! Computes the JSON merge patch (RFC 7386) between two documents.

use serde_json::{Map, Value};

/// Returns the merge patch from `before` to `after`; `None` if they are equal. A field that is `null` in `after` counts
/// as absent: a merge patch removes both.
pub(super) fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let changed = after.iter().filter_map(|(name, after)| {
                let patch = match before.get(name) {
                    Some(before) => difference(before, after),
                    None => Some(after.clone()),
                };
                Some((name.clone(), patch?))
            });
            let removed = before.keys().filter(|name| !after.contains_key(*name));
            let removed = removed.map(|name| (name.clone(), Value::Null));
            let patch: Map<String, Value> = changed.chain(removed).collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (before, after) if before == after => None,
        (_, after) => Some(after.clone()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Applies a merge patch as a server does.
    fn merged(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut target = target.as_object().cloned().unwrap_or_default();
        for (name, value) in patch {
            match value {
                Value::Null => drop(target.remove(name)),
                value => {
                    let merged = merged(target.get(name).unwrap_or(&Value::Null), value);
                    target.insert(name.clone(), merged);
                }
            }
        }
        Value::Object(target)
    }

    /// Documents as typed objects are encoded: absent fields are left out and never `null`.
    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..3_u8).prop_map(Value::from),
            "[ab]?".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn objects() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[abc]", documents(), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn patch_makes_one_document_of_the_other((before, after) in (objects(), objects())) {
            match difference(&before, &after) {
                Some(patch) => prop_assert_eq!(merged(&before, &patch), after),
                None => prop_assert_eq!(before, after),
            }
        }
    }

    #[test]
    fn patch_contains_only_what_differs() {
        let before = json!({ "a": 1, "b": { "c": [1], "d": 2 }, "e": 3 });
        let after = json!({ "a": 1, "b": { "c": [1, 2], "d": 2 } });
        assert_eq!(difference(&before, &after), Some(json!({ "b": { "c": [1, 2] }, "e": null })));
        assert_eq!(difference(&before, &before), None);
    }
}
