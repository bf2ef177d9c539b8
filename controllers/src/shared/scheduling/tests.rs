//! Cases of upstream's unit tests.

use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use serde_json::{Value, json};

use super::node_affinity::RequiredNodeAffinity;
use super::taints::{NO_EXECUTE, NO_SCHEDULE, tolerates, tolerates_all};
use crate::shared::fixtures::node_view;
use crate::shared::node_view::{NodeView, TaintView};

fn node(name: &str, labels: Value, taints: Value) -> NodeView {
    node_view(&json!({ "metadata": { "name": name, "labels": labels }, "spec": { "taints": taints } }))
}

fn matches(spec: Value, name: &str, labels: Value) -> bool {
    let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
    RequiredNodeAffinity::from_spec(&spec).matches(&node(name, labels, json!([])))
}

fn required(terms: Value) -> Value {
    let required = json!({ "nodeSelectorTerms": terms });
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } })
}

/// Checks the terms against a node with this name and these labels.
fn check(terms: Value, name: &str, labels: Value, expected: bool) {
    let spec = json!({ "containers": [], "affinity": required(terms.clone()) });
    assert_eq!(matches(spec, name, labels.clone()), expected, "{terms} {name} {labels}");
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": operator, "values": values })
}

fn by_labels(expressions: &[Value]) -> Value {
    json!({ "matchExpressions": expressions })
}

fn by_name(name: &str) -> Value {
    json!({ "matchFields": [expression("metadata.name", "In", &[name])] })
}

#[test]
fn node_selector_requires_all_its_labels() {
    let check = |selector: Value, labels: Value, expected: bool| {
        let spec = json!({ "containers": [], "nodeSelector": selector });
        assert_eq!(matches(spec, "one", labels), expected, "{selector}");
    };
    check(Value::Null, json!({}), true);
    check(json!({ "foo": "bar" }), json!({}), false);
    check(json!({ "foo": "bar" }), json!({ "foo": "bar" }), true);
    check(json!({ "foo": "bar" }), json!({ "foo": "bar", "baz": "blah" }), true);
    check(json!({ "foo": "bar", "baz": "blah" }), json!({ "foo": "bar" }), false);
}

#[test]
fn expressions_match_labels_with_each_operator() {
    let one = |operator: &str, values: &[&str]| json!([by_labels(&[expression("foo", operator, values)])]);
    let labeled = |value: &str| json!({ "foo": value });
    check(one("In", &["bar", "value2"]), "one", labeled("bar"), true);
    check(one("In", &["value1", "value2"]), "one", labeled("bar"), false);
    check(one("NotIn", &["DDR", "DDR2"]), "one", labeled("DDR3"), true);
    check(one("NotIn", &["DDR", "DDR2"]), "one", json!({}), true);
    check(one("Exists", &[]), "one", labeled("any"), true);
    check(one("Exists", &[]), "one", json!({}), false);
    check(one("DoesNotExist", &[]), "one", json!({}), true);
    check(one("DoesNotExist", &[]), "one", labeled("any"), false);
    check(one("Gt", &["0204"]), "one", labeled("0206"), true);
    check(one("Gt", &["0206"]), "one", labeled("0206"), false);
    check(one("Lt", &["7"]), "one", labeled("6"), true);
    check(one("Lt", &["7"]), "one", labeled("-6"), true);
    check(one("Lt", &["7"]), "one", labeled("7"), false);
    check(one("Lt", &["7"]), "one", labeled("six"), false);
    check(one("Lt", &["7"]), "one", json!({}), false);
}

#[test]
fn terms_are_alternatives_and_requirements_are_not() {
    let gpu = json!({ "GPU": "NVIDIA-GRID-K1" });
    let exists = expression("GPU", "Exists", &[]);
    let not_amd = expression("GPU", "NotIn", &["AMD", "INTER"]);
    let amd = expression("GPU", "In", &["AMD", "INTER"]);
    check(json!([by_labels(&[exists.clone(), not_amd])]), "one", gpu.clone(), true);
    check(json!([by_labels(&[exists, amd])]), "one", gpu, false);
    let bar = by_labels(&[expression("foo", "In", &["bar", "value2"])]);
    let wrong = by_labels(&[expression("diffkey", "In", &["wrong", "value2"])]);
    check(json!([bar, wrong]), "one", json!({ "foo": "bar" }), true);
}

#[test]
fn term_without_requirements_matches_no_node() {
    let labels = json!({ "foo": "bar" });
    check(json!([]), "one", labels.clone(), false);
    check(json!([{}]), "one", labels.clone(), false);
    check(json!([{ "matchExpressions": [] }]), "one", labels.clone(), false);
    check(json!([{}, by_name("one")]), "one", labels, true);
    let preferred = json!({ "containers": [], "affinity": { "nodeAffinity": {} } });
    assert!(matches(preferred, "one", json!({})));
    assert!(matches(json!({ "containers": [], "affinity": {} }), "one", json!({})));
}

#[test]
fn name_field_selects_one_node() {
    let labels = json!({ "foo": "bar" });
    let bar = expression("foo", "In", &["bar"]);
    let both = json!({ "matchFields": by_name("node_1")["matchFields"], "matchExpressions": [bar.clone()] });
    check(json!([by_name("node_1")]), "node_1", json!({}), true);
    check(json!([by_name("node_1")]), "node_2", json!({}), false);
    check(json!([by_name("node_1"), by_labels(&[bar])]), "node_2", labels.clone(), true);
    check(json!([both.clone()]), "node_2", labels.clone(), false);
    check(json!([both.clone()]), "node_1", labels, true);
    check(json!([both]), "node_1", json!({ "foo": "another" }), false);
    let field =
        |key: &str, operator: &str| json!([{ "matchFields": [expression(key, operator, &["node_1"])] }]);
    check(field("metadata.name", "NotIn"), "node_2", json!({}), true);
    check(field("metadata.name", "NotIn"), "node_1", json!({}), false);
    check(field("metadata.namespace", "In"), "node_1", json!({}), false);
}

#[test]
fn term_with_an_invalid_requirement_matches_no_node() {
    let labels = json!({ "foo": "bar", "number": "5" });
    for invalid in [
        by_labels(&[expression("foo", "NotIn", &["invalid value: ___@#$%^"])]),
        by_labels(&[expression("invalid key", "NotIn", &["bar"])]),
        by_labels(&[expression("foo", "Exists", &["bar", "baz"])]),
        by_labels(&[expression("foo", "NotIn", &[])]),
        by_labels(&[expression("foo", "Near", &["bar"])]),
        by_labels(&[expression("number", "Gt", &["-1"])]),
        by_labels(&[expression("number", "Gt", &["1", "2"])]),
        by_labels(&[expression("number", "Gt", &["one"])]),
        by_labels(&[expression("number", "Gt", &[])]),
        json!({ "matchFields": [expression("metadata.name", "In", &["one", "two"])] }),
        json!({ "matchFields": [expression("metadata.name", "Exists", &[])] }),
    ] {
        check(json!([invalid]), "one", labels.clone(), false);
        check(json!([invalid, by_name("one")]), "one", labels.clone(), true);
    }
}

#[test]
fn selector_and_affinity_are_both_required() {
    let exists = required(json!([by_labels(&[expression("foo", "Exists", &[])])]));
    let spec = json!({ "containers": [], "nodeSelector": { "foo": "bar" }, "affinity": exists });
    assert!(matches(spec.clone(), "one", json!({ "foo": "bar" })));
    assert!(!matches(spec, "one", json!({ "foo": "barrrrrr" })));
}

fn toleration(toleration: &Value) -> Toleration {
    serde_json::from_value(toleration.clone()).expect("a toleration")
}

fn taint(key: &str, value: &str, effect: &str) -> Value {
    json!({ "key": key, "value": value, "effect": effect })
}

#[test]
fn toleration_accepts_key_value_and_effect() {
    let check = |wanted: Value, key: &str, value: &str, effect: &str, expected: bool| {
        let node = node("one", json!({}), json!([taint(key, value, effect)]));
        assert_eq!(tolerates(&toleration(&wanted), &node.taints[0]), expected, "{wanted}");
    };
    let equal = json!({ "key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule" });
    check(equal.clone(), "foo", "bar", "NoSchedule", true);
    check(equal.clone(), "foo", "other", "NoSchedule", false);
    check(equal.clone(), "other", "bar", "NoSchedule", false);
    check(equal, "foo", "bar", "PreferNoSchedule", false);
    check(json!({ "key": "foo", "value": "bar", "effect": "" }), "foo", "bar", "NoExecute", true);
    check(json!({ "key": "foo", "operator": "Exists" }), "foo", "bar", "NoSchedule", true);
    check(json!({ "operator": "Exists" }), "any", "bar", "NoSchedule", true);
    check(json!({ "key": "foo", "operator": "Gt", "value": "1" }), "foo", "2", "NoSchedule", false);
    check(json!({ "key": "foo", "operator": "Lt", "value": "3" }), "foo", "2", "NoSchedule", false);
    check(json!({ "key": "foo", "operator": "Other" }), "foo", "", "NoSchedule", false);
}

#[test]
fn only_taints_with_the_given_effects_must_be_tolerated() {
    let check = |tolerations: &[Value], taints: &[Value], effects: &[&str], expected: bool| {
        let tolerations: Vec<_> = tolerations.iter().map(toleration).collect();
        let node = node("one", json!({}), json!(taints));
        let is_tolerated = |taint: &TaintView| tolerations.iter().any(|it| tolerates(it, taint));
        assert_eq!(tolerates_all(is_tolerated, &node.taints, effects), expected, "{taints:?}");
    };
    let all = [NO_SCHEDULE, NO_EXECUTE];
    let foo = json!({ "key": "foo", "operator": "Exists", "effect": "NoSchedule" });
    let foo_taint = taint("foo", "", "NoSchedule");
    check(&[], &[], &all, true);
    check(std::slice::from_ref(&foo), &[], &all, true);
    check(std::slice::from_ref(&foo), std::slice::from_ref(&foo_taint), &all, true);
    check(std::slice::from_ref(&foo), &[foo_taint, taint("bar", "", "NoSchedule")], &all, false);
    check(&[], &[taint("bar", "", "NoSchedule")], &[NO_EXECUTE], true);
    check(&[], &[taint("bar", "", "PreferNoSchedule")], &all, true);
    check(&[], &[taint("bar", "", "NoExecute")], &[NO_EXECUTE], false);
}
