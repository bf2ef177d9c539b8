//! Upstream's tables about templates and names.

use serde_json::{Value, json};

use super::super::template::{equal_ignoring_hash, new_set, set_name};
use super::fixtures::{changed, planner, rolling, set, template};

fn labeled(labels: Value) -> k8s_openapi::api::core::v1::PodTemplateSpec {
    let mut value = template("image");
    value["metadata"]["labels"] = labels;
    serde_json::from_value(value).expect("a template")
}

#[test]
fn templates_are_equal_regardless_of_the_hash_label() {
    const HASH: &str = "pod-template-hash";
    let cases = [
        (json!({ "a": "b", HASH: "1" }), json!({ "a": "b", HASH: "1" }), true),
        (json!({ "a": "b", HASH: "1" }), json!({ "a": "b", HASH: "2" }), true),
        (json!({ "a": "b" }), json!({ "a": "b", HASH: "2" }), true),
        (json!({}), json!({ HASH: "2" }), true),
        (Value::Null, json!({ HASH: "2" }), true),
        (json!({ "a": "b", HASH: "1" }), json!({ "a": "c", HASH: "1" }), false),
        (json!({ "a": "b", HASH: "1" }), json!({ HASH: "1" }), false),
        (json!({ "a": "b" }), json!({ "a": "b", "c": "d" }), false),
    ];
    for (one, other, expected) in cases {
        let (first, second) = (labeled(one.clone()), labeled(other.clone()));
        assert_eq!(equal_ignoring_hash(&first, &second), expected, "{one} {other}");
        assert_eq!(equal_ignoring_hash(&second, &first), expected, "{other} {one}");
    }
}

#[test]
fn oldest_set_with_the_template_is_the_new_one() {
    let name_of_new = |sets: &[k8s_openapi::api::apps::v1::ReplicaSet]| {
        let planner = planner(&rolling(1, 1, 1), sets);
        planner.new.and_then(|index| planner.sets[index].metadata.name.clone())
    };
    let (older, newer, other) =
        (set("older", "new", 1, 1), set("newer", "new", 1, 2), set("other", "old", 1, 0));
    assert_eq!(name_of_new(&[newer.clone(), other.clone(), older]).as_deref(), Some("older"));
    assert_eq!(name_of_new(&[other.clone(), newer]).as_deref(), Some("newer"));
    assert_eq!(name_of_new(&[other]), None);
    assert_eq!(name_of_new(&[set("b", "new", 1, 1), set("a", "new", 1, 1)]).as_deref(), Some("a"));
}

#[test]
fn names_of_sets_fit_into_their_limit() {
    assert_eq!(set_name("web", "5ccfcdddd6"), "web-5ccfcdddd6");
    let long = set_name(&"a".repeat(253), "5ccfcdddd6");
    assert_eq!(long, format!("{}-5ccfcdddd6", "a".repeat(242)));
    assert_eq!(long.len(), 253);
    assert_eq!(set_name(&"a".repeat(242), "5ccfcdddd6"), long);
}

#[test]
fn collision_count_changes_the_name() {
    let name = |count: Value| {
        let deployment = changed(&rolling(1, 1, 1), json!({ "status": { "collisionCount": count } }));
        new_set(&deployment).expect("a ReplicaSet").metadata.name
    };
    let names = [name(Value::Null), name(json!(0)), name(json!(1))];
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
}
