//! Correlation of a value with its previous value. Errors about unchanged values do not fail an update.
//!
//! As upstream, items correspond only in lists of type map: those with the same keys, in any position. Undeclared
//! fields count as changed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rule::Rule;

/// A value, and the value before an update that corresponds to it.
#[derive(Clone, Copy, Debug)]
pub struct Correlated<'a> {
    pub(super) rule: &'a Rule,
    pub(super) value: &'a Value,
    pub(super) old: &'a Value,
}

/// The items of a list before an update, by their keys.
#[derive(Debug)]
pub struct PreviousItems<'a> {
    keys: &'a [String],
    items: BTreeMap<String, &'a Value>,
}

impl<'a> Correlated<'a> {
    /// Returns a declared field that exists in both values.
    #[must_use]
    pub fn field(self, name: &str) -> Option<Correlated<'a>> {
        let rule = self.rule.properties.get(name).or(self.rule.additional.as_deref())?;
        Some(Correlated { rule, value: self.value.get(name)?, old: self.old.get(name)? })
    }

    /// Returns the items of a list of type map that have a previous item, by their index.
    #[must_use]
    pub fn items(self) -> BTreeMap<usize, Correlated<'a>> {
        let (Value::Array(items), Some(rule)) = (self.value, self.rule.items.as_deref()) else {
            return BTreeMap::new();
        };
        let previous = PreviousItems::of(self.rule.map_keys.as_deref(), Some(self.old));
        let correlated = items.iter().enumerate().filter_map(|(index, value)| {
            Some((index, Correlated { rule, value, old: previous.get(value)? }))
        });
        correlated.collect()
    }

    /// Returns whether both values are equal. The order of lists of type map does not matter.
    #[must_use]
    pub fn is_unchanged(self) -> bool {
        is_unchanged(self.rule, self.value, self.old)
    }
}

impl<'a> PreviousItems<'a> {
    /// Returns the items of `old`, whose type is map if it has `keys`. Items of other lists do not correspond.
    #[must_use]
    pub fn of(keys: Option<&'a [String]>, old: Option<&'a Value>) -> PreviousItems<'a> {
        let (Some(keys), Some(Value::Array(old))) = (keys, old) else {
            return PreviousItems { keys: &[], items: BTreeMap::new() };
        };
        let mut items = BTreeMap::new();
        for item in old {
            if let Some(key) = key_of(keys, item) {
                items.entry(key).or_insert(item);
            }
        }
        PreviousItems { keys, items }
    }

    /// Returns the first previous item with the same keys.
    #[must_use]
    pub fn get(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() { None } else { self.items.get(&key_of(self.keys, item)?).copied() }
    }
}

/// Returns the values of the keys; `None` if one is missing or not a scalar.
fn key_of(keys: &[String], item: &Value) -> Option<String> {
    let mut texts = Vec::new();
    for key in keys {
        match item.get(key)? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            scalar => texts.push(scalar.to_string()),
        }
    }
    Some(texts.join(","))
}

pub(super) fn is_unchanged(rule: &Rule, value: &Value, old: &Value) -> bool {
    match (value, old) {
        (Value::Array(items), Value::Array(before)) => match rule.map_keys.as_deref() {
            Some(keys) => are_unchanged(rule, keys, items, before, old),
            None => items == before,
        },
        (Value::Object(fields), Value::Object(before)) => {
            let is_same = |(name, value): (&String, &Value)| {
                let rule = rule.properties.get(name).or(rule.additional.as_deref());
                rule.zip(before.get(name)).is_some_and(|(rule, old)| is_unchanged(rule, value, old))
            };
            fields.len() == before.len() && fields.iter().all(is_same)
        }
        _ => value == old,
    }
}

fn are_unchanged(rule: &Rule, keys: &[String], items: &[Value], before: &[Value], old: &Value) -> bool {
    let previous = PreviousItems::of(Some(keys), Some(old));
    let is_same = |item: &Value| {
        let found = rule.items.as_deref().zip(previous.get(item));
        found.is_some_and(|(rule, old)| is_unchanged(rule, item, old))
    };
    items.len() == before.len() && items.iter().all(is_same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list_of_maps() -> Rule {
        let item = json!({ "type": "object", "properties": {
            "key": { "type": "string" }, "port": { "type": "integer" }, "value": { "type": "string" } } });
        Rule::of(&json!({ "type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key", "port"] }))
    }

    #[test]
    fn value_is_unchanged_by_new_order_of_map_items_only() {
        let map = list_of_maps();
        let set = Rule::of(&json!({ "type": "array", "items": { "type": "string" } }));
        let object = Rule::of(&json!({ "type": "object", "properties": { "a": { "type": "string" } } }));
        let (one, two) = (json!({ "key": "a", "port": 1 }), json!({ "key": "a", "port": 2, "value": "x" }));
        let cases = [
            (&map, json!([one, two]), json!([two, one]), true),
            (&map, json!([one]), json!([one, two]), false),
            (&map, json!([one, one]), json!([one, two]), true),
            (&map, json!([{ "key": "a" }]), json!([{ "key": "a" }]), false),
            (&map, json!([]), json!([]), true),
            (&set, json!(["a", "b"]), json!(["a", "b"]), true),
            (&set, json!(["a", "b"]), json!(["b", "a"]), false),
            (&object, json!({ "a": "x" }), json!({ "a": "x" }), true),
            (&object, json!({ "b": "x" }), json!({ "b": "x" }), false),
            (&object, Value::Null, Value::Null, true),
            (&object, json!({}), json!([]), false),
        ];
        for (rule, value, old, expected) in cases {
            assert_eq!(is_unchanged(rule, &value, &old), expected, "{value} {old}");
        }
    }

    #[test]
    fn previous_items_of_long_list_are_found_by_key() {
        let item = |number: u32| json!({ "key": "a", "port": number, "value": "v" });
        let old: Vec<_> = (0..50_000).map(item).collect();
        let new: Vec<_> = (0..50_000).rev().map(item).collect();
        let (old, new) = (Value::from(old), Value::from(new));
        let rule = list_of_maps();
        // Pairwise comparison would need a billion comparisons.
        assert!(is_unchanged(&rule, &new, &old));
        let items = Correlated { rule: &rule, value: &new, old: &old }.items();
        assert_eq!(items.len(), 50_000);
        assert_eq!(items[&0].old["port"], 49_999);
    }
}
