//! Carries a change of a typed object over to the raw document from which the object was decoded.
//!
//! Fields that the type does not know stay as they are, also in objects of a list. A user function that changes nothing
//! changes no byte, even if the type has default values or omits fields.

use serde_json::{Map, Value};

/// Applies the difference between `before` and `after`, two encodings of a typed object, to `raw`.
pub(crate) fn carry_over(raw: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => fields(raw, before, after),
        (Value::Array(raw), Value::Array(before), Value::Array(after)) if raw.len() == before.len() => {
            *raw = items(raw, before, after);
        }
        (raw, _, after) => raw.clone_from(after),
    }
}

fn fields(raw: &mut Map<String, Value>, before: &Map<String, Value>, after: &Map<String, Value>) {
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        raw.remove(key);
    }
    for (key, after) in after {
        match (raw.get_mut(key), before.get(key)) {
            (Some(raw), Some(before)) => carry_over(raw, before, after),
            // The type has a default for it. The raw document stays without it unless it changed.
            (None, Some(before)) if before == after => {}
            (_, _) => drop(raw.insert(key.clone(), after.clone())),
        }
    }
}

/// Returns the items of a changed list. An item is the raw one if it did not change, or if it has the same name or, in
/// a list of the same length, the same index as before.
fn items(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut free: Vec<bool> = vec![true; before.len()];
    let mut take = |is_same: &dyn Fn(usize) -> bool| {
        let found = (0..before.len()).find(|index| free[*index] && is_same(*index))?;
        free[found] = false;
        Some(found)
    };
    let unchanged: Vec<Option<usize>> =
        after.iter().map(|item| take(&|index| before[index] == *item)).collect();
    let named: Vec<Option<usize>> = after
        .iter()
        .zip(&unchanged)
        .map(|(item, unchanged)| match (unchanged, name(item)) {
            (None, Some(wanted)) => take(&|index| name(&before[index]) == Some(wanted)),
            _ => *unchanged,
        })
        .collect();
    let origin = |(index, found): (usize, &Option<usize>)| {
        let by_index = || (after.len() == before.len() && !named.contains(&Some(index))).then_some(index);
        found.or_else(by_index)
    };
    let from = named.iter().enumerate().map(origin);
    let item = |(after, origin): (&Value, Option<usize>)| match origin {
        Some(origin) => {
            let mut item = raw[origin].clone();
            carry_over(&mut item, &before[origin], after);
            item
        }
        None => after.clone(),
    };
    after.iter().zip(from).map(item).collect()
}

/// Returns the key of an item in most lists of the Kubernetes API.
fn name(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn carried(raw: Value, before: Value, after: Value) -> Value {
        let mut raw = raw;
        carry_over(&mut raw, &before, &after);
        raw
    }

    /// Returns the raw document after a change of the Pod in it.
    fn changed(raw: &Value, change: impl FnOnce(&mut Pod)) -> Value {
        let mut pod: Pod = serde_json::from_value(raw.clone()).expect("a Pod");
        let before = serde_json::to_value(&pod).expect("JSON");
        change(&mut pod);
        carried(raw.clone(), before, serde_json::to_value(&pod).expect("JSON"))
    }

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "future": { "a": 1 }, "metadata": { "name": "web", "labels": null },
            "spec": { "containers": [
                { "name": "a", "image": "x", "unknown": 1 },
                { "name": "b", "image": "y", "unknown": { "deep": [2] } },
            ] },
        })
    }

    #[test]
    fn unknown_fields_survive_a_change_next_to_them() {
        let after = changed(&pod(), |pod| {
            let containers = &mut pod.spec.as_mut().expect("spec").containers;
            containers[1].image = Some("z".to_owned());
            pod.metadata.labels.get_or_insert_default().insert("app".to_owned(), "web".to_owned());
        });
        let mut expected = pod();
        expected["spec"]["containers"][1]["image"] = "z".into();
        expected["metadata"]["labels"] = json!({ "app": "web" });
        assert_eq!(after, expected);
    }

    #[test]
    fn unknown_fields_follow_moved_and_removed_items() {
        let after = changed(&pod(), |pod| {
            let containers = &mut pod.spec.as_mut().expect("spec").containers;
            containers.reverse();
            containers[1].image = Some("w".to_owned());
        });
        let of = |index: usize| pod()["spec"]["containers"][index].clone();
        assert_eq!(after["spec"]["containers"][0], of(1));
        assert_eq!(after["spec"]["containers"][1]["unknown"], 1);
        assert_eq!(after["spec"]["containers"][1]["image"], "w");
        let after = changed(&pod(), |pod| drop(pod.spec.as_mut().expect("spec").containers.remove(0)));
        assert_eq!(after["spec"]["containers"], json!([of(1)]));
    }

    #[test]
    fn unnamed_item_keeps_unknown_fields_by_index() {
        let raw = json!([{ "port": 1, "x": 1 }, { "port": 2, "x": 2 }]);
        let before = json!([{ "port": 1 }, { "port": 2 }]);
        let after = json!([{ "port": 3 }, { "port": 2 }]);
        assert_eq!(
            carried(raw.clone(), before.clone(), after),
            json!([{ "port": 3, "x": 1 }, { "port": 2, "x": 2 }])
        );
        let longer = json!([{ "port": 1 }, { "port": 9 }, { "port": 2 }]);
        let expected = json!([{ "port": 1, "x": 1 }, { "port": 9 }, { "port": 2, "x": 2 }]);
        assert_eq!(carried(raw, before, longer), expected);
    }

    #[test]
    fn function_without_change_changes_nothing() {
        let sparse = json!({ "spec": { "containers": [] }, "x": null });
        assert_eq!(changed(&sparse, |_| {}), sparse);
        let defaulted = json!({ "a": 1, "default": true });
        let after = json!({ "a": 2, "default": true });
        assert_eq!(carried(json!({ "a": 1 }), defaulted, after), json!({ "a": 2 }));
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3_u8).prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab]|name", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn carried_document_is_the_changed_one_if_type_knows_all((before, after) in (documents(), documents())) {
            prop_assert_eq!(carried(before.clone(), before, after.clone()), after);
        }

        #[test]
        fn json_patch_makes_the_changed_document((before, after) in (documents(), documents())) {
            let mut patched = before.clone();
            json_patch::patch(&mut patched, &json_patch::diff(&before, &after).0).expect("applies");
            prop_assert_eq!(patched, after);
        }
    }
}
