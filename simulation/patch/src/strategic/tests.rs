use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use windlass_schema::{ListNode, ListType, Node, NodeType, ObjectNode, PatchStrategy, Schema, Types};

use super::strategy_cursor::StrategyCursor;
use super::{apply, between, three_way, words};
use crate::PatchError;

const MERGE: PatchStrategy = PatchStrategy { merge: true, retain_keys: false, replace: false };
const REPLACE: PatchStrategy = PatchStrategy { merge: false, retain_keys: false, replace: true };
const RETAIN_KEYS: PatchStrategy = PatchStrategy { merge: false, retain_keys: true, replace: false };
const NONE: PatchStrategy = PatchStrategy { merge: false, retain_keys: false, replace: false };
const MERGE_RETAINING_KEYS: PatchStrategy = PatchStrategy { merge: true, retain_keys: true, replace: false };

fn node(node_type: NodeType) -> Node {
    Node { node_type, nullable: false, ..Node::anything() }
}

fn text() -> Node {
    node(NodeType::String(None))
}

fn list(items: Node, patch: PatchStrategy, key: Option<&str>) -> Node {
    let merge_key = key.map(Arc::from);
    node(NodeType::List(ListNode { items: Box::new(items), list_type: ListType::Atomic, patch, merge_key }))
}

fn object<const N: usize>(fields: [(&str, Node); N], patch: PatchStrategy) -> Node {
    let fields = fields.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
    node(NodeType::Object(ObjectNode { fields, patch, ..ObjectNode::default() }))
}

/// Returns the type of upstream's cases.
fn schema() -> Schema {
    let item = || node(NodeType::Ref("mergeItem".into()));
    let number = || node(NodeType::Integer(None));
    let map = || {
        let additional = Some(Box::new(text()));
        node(NodeType::Object(ObjectNode { additional, ..ObjectNode::default() }))
    };
    let retaining = object(
        [
            ("name", text()),
            ("value", text()),
            ("other", text()),
            ("simpleMap", map()),
            ("mergingIntList", list(number(), MERGE, None)),
            ("mergingList", list(item(), MERGE, Some("name"))),
            ("nonMergingList", list(item(), NONE, None)),
        ],
        RETAIN_KEYS,
    );
    let merge_item = object(
        [
            ("name", text()),
            ("value", text()),
            ("other", text()),
            ("mergingList", list(item(), MERGE, Some("name"))),
            ("nonMergingList", list(item(), NONE, None)),
            ("mergingIntList", list(number(), MERGE, None)),
            ("nonMergingIntList", list(number(), NONE, None)),
            // Upstream's type has a pointer to one item here, but its cases contain lists.
            ("mergeItemPtr", list(item(), MERGE, Some("name"))),
            ("simpleMap", map()),
            ("replacingItem", object([], REPLACE)),
            ("jsonItem", object([], NONE)),
            ("retainKeysMap", retaining),
            ("retainKeysMergingList", list(item(), MERGE_RETAINING_KEYS, Some("name"))),
            ("int32", number()),
            ("int64", number()),
            ("float32", node(NodeType::Number)),
            ("float64", node(NodeType::Number)),
        ],
        NONE,
    );
    let types = Types(BTreeMap::from([("mergeItem".to_owned(), merge_item)]));
    Schema { types: Arc::new(types), root: Arc::new(item()) }
}

/// Returns one of upstream's tables of cases.
fn table(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("cases/strategic-merge.json")).unwrap();
    all[name].as_array().unwrap().clone()
}

/// Sorts merging lists, as upstream does in tables where order is irrelevant.
fn sorted(value: &Value, cursor: StrategyCursor<'_>) -> Value {
    let Value::Object(fields) = value else { return value.clone() };
    let mut result = Map::new();
    for (field, value) in fields {
        let value = match value {
            Value::Array(items)
                if field == "$retainKeys" || field.starts_with("$deleteFromPrimitiveList") =>
            {
                Value::Array(sorted_scalars(items))
            }
            Value::Object(_) => sorted(value, cursor.map(field).unwrap().0),
            Value::Array(items) if !field.starts_with('$') => match cursor.items(field).unwrap() {
                (inner, strategy) if strategy.patch.merge => match strategy.key {
                    Some(key) => {
                        let mut items: Vec<_> = items.iter().map(|item| sorted(item, inner)).collect();
                        items.sort_by_key(|item| words(&item[key]));
                        Value::Array(items)
                    }
                    None => {
                        let mut items = sorted_scalars(items);
                        items.dedup();
                        Value::Array(items)
                    }
                },
                _ => value.clone(),
            },
            _ => value.clone(),
        };
        result.insert(field.clone(), value);
    }
    Value::Object(result)
}

fn sorted_scalars(items: &[Value]) -> Vec<Value> {
    let mut items = items.to_vec();
    items.sort_by_key(words);
    items
}

/// Applies a patch and compares the outcome with the expected result, or with a part of the expected error.
fn check_apply(
    schema: &Schema,
    document: &Value,
    patch: &Value,
    expected: &Value,
    error: &Value,
    what: &str,
) {
    match (apply(schema, document, patch), error.as_str()) {
        (Ok(result), None) => assert_eq!(&result, expected, "{what}"),
        (Err(refused), Some(error)) => assert!(refused.to_string().contains(error), "{what}: {refused}"),
        (result, error) => panic!("{what}: expected error {error:?}, got {result:?}"),
    }
}

/// Returns the cases of a table, sorted if upstream sorts them.
fn cases(name: &str, schema: &Schema, sorts: bool) -> Vec<Value> {
    let mut cases = table(name);
    for field in
        cases.iter_mut().filter(|_| sorts).flat_map(|case| case.as_object_mut().unwrap().values_mut())
    {
        *field = sorted(field, StrategyCursor::of(schema));
    }
    cases
}

const CREATED: [(&str, bool); 3] = [
    ("createStrategicMergePatchTestCaseData", true),
    ("strategicMergePatchRawTestCases", false),
    ("replaceRawExtensionPatchTestCases", false),
];

#[test]
fn upstream_cases_of_applied_patches_pass() {
    let schema = schema();
    let tables =
        [("customStrategicMergePatchTestCaseData", true), ("customStrategicMergePatchRawTestCases", false)];
    let mut ran = 0;
    for case in tables.into_iter().chain(CREATED).flat_map(|(name, sorts)| cases(name, &schema, sorts)) {
        let expected = if case["twoWayResult"].is_null() { &case["modified"] } else { &case["twoWayResult"] };
        let what = format!("{}", case["description"]);
        check_apply(&schema, &case["original"], &case["twoWay"], expected, &case["expectedError"], &what);
        ran += 1;
    }
    assert_eq!(ran, 146);
}

#[test]
fn upstream_cases_of_differences_pass() {
    let schema = schema();
    let mut ran = 0;
    for case in CREATED.into_iter().flat_map(|(name, sorts)| cases(name, &schema, sorts)) {
        let patch = between(&schema, &case["original"], &case["modified"]);
        assert_eq!(patch.as_ref(), Ok(&case["twoWay"]), "{}", case["description"]);
        ran += 1;
    }
    assert_eq!(ran, 118);
}

/// Upstream also runs these cases without `overwrite`, and expects a conflict if the name contains it. Conflicts
/// between patches are not implemented: servers do not need them, and `kubectl apply` overwrites.
#[test]
fn upstream_cases_of_three_way_merges_pass() {
    let schema = schema();
    let mut ran = 0;
    for case in CREATED.into_iter().flat_map(|(name, sorts)| cases(name, &schema, sorts)) {
        let what = format!("{}", case["description"]);
        let patch = three_way(&schema, &case["original"], &case["modified"], &case["current"]);
        assert_eq!(patch.as_ref(), Ok(&case["threeWay"]), "{what}");
        if case["result"] == json!({}) {
            assert!(what.contains("conflict"), "{what}");
            continue;
        }
        check_apply(&schema, &case["current"], &case["threeWay"], &case["result"], &Value::Null, &what);
        ran += 1;
    }
    assert_eq!(ran, 118);
}

#[test]
fn upstream_cases_of_numbers_and_unknown_fields_pass() {
    let schema = schema();
    for case in table("numberConversion") {
        assert_eq!(
            between(&schema, &case["old"], &case["new"]).as_ref(),
            Ok(&case["expectedPatch"]),
            "{case}"
        );
        check_apply(
            &schema,
            &case["old"],
            &case["expectedPatch"],
            &case["expectedResult"],
            &Value::Null,
            "number",
        );
    }
    for case in table("unknownField") {
        let (two, three) = (
            between(&schema, &case["original"], &case["modified"]),
            three_way(&schema, &case["original"], &case["modified"], &case["current"]),
        );
        for (patch, way, document) in [(two, "TwoWay", "original"), (three, "ThreeWay", "current")] {
            match patch {
                Err(error) => {
                    let expected = case[format!("expected{way}Err")].as_str().expect("an error is expected");
                    assert!(error.to_string().contains(expected), "{case}: {error}");
                }
                Ok(patch) => {
                    assert_eq!(patch, case[format!("expected{way}")], "{case}");
                    let expected = &case[format!("expected{way}Result")];
                    check_apply(&schema, &case[document], &patch, expected, &Value::Null, way);
                }
            }
        }
    }
}

#[test]
fn invalid_patches_have_upstream_errors() {
    let cases = [
        (json!({"$patch": "frob"}), "unknown patch type: frob in map: map[$patch:frob]"),
        (json!({"$patch": "merge"}), "unknown patch type: merge in map: map[$patch:merge]"),
        (
            json!({"mergingList": [{"value": "x"}]}),
            "map: map[value:x] does not contain declared merge key: name",
        ),
        (json!({"mergingList": [{"$patch": "delete"}]}), "does not contain declared merge key: name"),
        (json!({"mergingList": ["x"]}), "list element types are not identical: [[map[name:1]] [x]]"),
        (json!({"$deleteFromPrimitiveList": [1]}), "invalid patch format of primitive list"),
        (json!({"$setElementOrder": [1]}), "invalid patch format of setElementOrder list"),
        (json!({"$retainKeys": 1}), "invalid patch format of retainKeys"),
        (json!({"$retainKeys": ["name"], "value": "x"}), "invalid patch format of retainKeys"),
        (json!({"$setElementOrder/mergingList": 1}), "expected a []interface {}, but received a int64"),
    ];
    let document = json!({"mergingList": [{"name": "1"}]});
    for (patch, expected) in cases {
        let refused = apply(&schema(), &document, &patch).expect_err(expected).to_string();
        assert!(refused.contains(expected), "{patch}: {refused}");
    }
    let lists = apply(&schema(), &json!({"mergingIntList": [[1]]}), &json!({"mergingIntList": [[2]]}));
    assert_eq!(lists, Err(PatchError::Inapplicable("lists of lists are not supported".to_owned())));
}

/// Generates documents of the type of upstream's cases; no list has duplicates.
fn documents() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["a", "b", "c"]).prop_map(Value::from);
    let item =
        (prop::option::of(text()), prop::option::of(prop::collection::btree_map("[xy]", text(), 0..2)));
    let item = item.prop_map(|(value, map)| {
        let fields = [value.map(|it| ("value", it)), map.map(|it| ("simpleMap", json!(it)))];
        Value::from_iter(fields.into_iter().flatten())
    });
    let named = prop::collection::vec((0..6_u8, item), 0..5).prop_map(|items| {
        let mut list: Vec<Value> = Vec::new();
        for (name, mut item) in items {
            item["name"] = json!(name.to_string());
            if !list.iter().any(|it| it["name"] == item["name"]) {
                list.push(item);
            }
        }
        Value::Array(list)
    });
    let numbers = prop::collection::vec(0..6_u8, 0..5).prop_map(|mut numbers| {
        let mut seen = Vec::new();
        numbers.retain(|number| {
            !seen.contains(number) && {
                seen.push(*number);
                true
            }
        });
        json!(numbers)
    });
    let fields =
        ["mergingList", "nonMergingList", "retainKeysMergingList", "mergingIntList", "name", "retainKeysMap"];
    let values = (
        named.clone(),
        named.clone(),
        named,
        numbers,
        text(),
        prop::collection::btree_map("(name|value|other)", text(), 0..3),
    );
    let values = values.prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, json!(f)]);
    (values, prop::array::uniform6(any::<bool>())).prop_map(move |(values, there)| {
        let present = fields.into_iter().zip(values).zip(there).filter(|(_, there)| *there);
        Value::from_iter(present.map(|(field, _)| field))
    })
}

proptest! {
    #[test]
    fn patch_between_two_documents_produces_the_second(original in documents(), modified in documents()) {
        let schema = schema();
        let patch = between(&schema, &original, &modified).unwrap();
        prop_assert_eq!(apply(&schema, &original, &patch), Ok(modified), "{}", patch);
    }

    #[test]
    fn patch_between_a_document_and_itself_is_empty(document in documents()) {
        prop_assert_eq!(between(&schema(), &document, &document), Ok(json!({})));
    }
}
