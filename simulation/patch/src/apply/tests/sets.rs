//! Tests of sets of paths: JSON form and set operations.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{ElementError, FieldSet, Path, PathElement, Scalar, path_text};

fn set(value: Value) -> FieldSet {
    FieldSet::from_fields_v1(&value).unwrap()
}

#[test]
fn fields_v1_round_trips_without_loss() {
    let texts = [
        r#"{"f:aaa":{},"f:aab":{},"i:1":{},"i:2":{},"k:{\"name\":\"first\"}":{},"k:{\"port\":443,\"protocol\":\"tcp\"}":{},"v:\"aa\"":{},"v:1":{},"v:true":{}}"#,
        r#"{"f:aaa":{"k:{\"name\":\"second\"}":{"v:3":{"f:aab":{}}},"v:3":{},"v:true":{}},"f:aaf":{"i:1":{"f:aac":{}},"i:2":{}}}"#,
        r#"{"f:spec":{".":{},"f:apps":{".":{},"k:{\"name\":\" app-💻\"}":{".":{},"f:ports":{".":{},"k:{\"name\":\"port 🔑\"}":{".":{}}}}}}}"#,
    ];
    for text in texts {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(set(value.clone()).to_fields_v1(), normal(&value), "{text}");
    }
}

/// Removes the dot of nodes without children, as the encoder does.
fn normal(value: &Value) -> Value {
    let Value::Object(map) = value else { return value.clone() };
    if map.len() == 1 && map.contains_key(".") {
        return json!({});
    }
    Value::Object(map.iter().map(|(key, value)| (key.clone(), normal(value))).collect())
}

#[test]
fn keys_are_equal_in_any_order_and_spacing() {
    let one = PathElement::parse(r#"k:{"port": 443 , "name":"a"}"#).unwrap();
    assert_eq!(one, PathElement::parse(r#"k:{"name":"a","port":443.0}"#).unwrap());
    assert_eq!(one.encoded(), r#"k:{"name":"a","port":443}"#);
}

#[test]
fn unknown_path_elements_are_omitted_and_invalid_ones_rejected() {
    assert_eq!(set(json!({"x:later": {}, "f:now": {}})), FieldSet::of_fields(&[&["now"]]));
    for broken in ["f", "spec", "v:", "v:{", "k:[]", "i:one"] {
        let outcome = FieldSet::from_fields_v1(&json!({"f:a": {broken: {}}}));
        assert_eq!(outcome, Err(ElementError::Malformed(broken.to_owned())));
    }
}

#[test]
fn only_difference_keeps_paths_below_the_removed_path() {
    let one = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
    let parent = set(json!({"f:a": {}}));
    assert_eq!(one.difference(&parent), set(json!({"f:a": {"f:b": {}}, "f:c": {}})));
    assert_eq!(one.recursive_difference(&parent), set(json!({"f:c": {}})));
    assert_eq!(one.leaves(), set(json!({"f:a": {"f:b": {}}, "f:c": {}})));
}

#[test]
fn paths_are_formatted_as_in_upstream() {
    let shown: Vec<_> = set(json!({"f:spec": {
        "f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: {"f:name": {}}},
        "f:finalizers": {r#"v:"a\"b""#: {}},
        "f:args": {"i:3": {}},
        "f:x": {},
    }}))
    .paths()
    .iter()
    .map(|path| path_text(path))
    .collect();
    let expected = [
        ".spec.x",
        ".spec.args[3]",
        r#".spec.finalizers[="a\"b"]"#,
        r#".spec.ports[port=80,protocol="TCP"].name"#,
    ];
    assert_eq!(shown, expected);
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[a-c]".prop_map(|name| PathElement::field(&name)),
        (0..2_i64).prop_map(PathElement::Index),
        (0..2).prop_map(|value| PathElement::Value(Scalar(json!(value)))),
        (0..2).prop_map(|value| PathElement::Key(vec![("k".into(), Scalar(json!(value)))])),
    ]
}

fn paths() -> impl Strategy<Value = Vec<Path>> {
    prop::collection::vec(prop::collection::vec(element(), 1..4), 0..12)
}

fn of(paths: &[Path]) -> FieldSet {
    let mut set = FieldSet::new();
    paths.iter().for_each(|path| set.insert(path));
    set
}

proptest! {
    #[test]
    fn sets_behave_as_sets_of_paths(one in paths(), other in paths()) {
        use std::collections::BTreeSet;
        let (left, right): (BTreeSet<Path>, BTreeSet<Path>) =
            (one.iter().cloned().collect(), other.iter().cloned().collect());
        let (one, other) = (of(&one), of(&other));
        let back = |set: FieldSet| set.paths().into_iter().collect::<BTreeSet<_>>();
        prop_assert_eq!(one.len(), left.len());
        prop_assert_eq!(back(one.union(&other)), &left | &right);
        prop_assert_eq!(back(one.intersection(&other)), &left & &right);
        prop_assert_eq!(back(one.difference(&other)), &left - &right);
        prop_assert_eq!(one.intersects(&other), !left.is_disjoint(&right));
        prop_assert!(left.iter().all(|path| one.contains(path)));
        let below = |path: &Path| right.iter().any(|parent| path.starts_with(parent));
        let rest: BTreeSet<_> = left.iter().filter(|path| !below(path)).cloned().collect();
        prop_assert_eq!(back(one.recursive_difference(&other)), rest);
        prop_assert_eq!(FieldSet::from_fields_v1(&one.to_fields_v1()).unwrap(), one);
    }
}
