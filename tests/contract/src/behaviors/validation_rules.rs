//! Validation rules of custom kinds: CEL expressions in their schemas.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Behavior, Case, Outcome, behaviors, case::patch::MERGE, same};

pub(super) const ALL: &[Behavior] = behaviors![
    object_that_breaks_a_rule_is_rejected,
    rules_of_fields_and_items_are_enforced,
    rule_with_previous_value_is_enforced_by_updates,
    values_are_compared_completely_and_by_meaning,
    default_must_satisfy_its_rules,
    unchanged_value_may_break_a_rule,
    unchanged_value_may_violate_its_schema,
    reordered_list_of_type_map_is_unchanged,
    later_default_belongs_to_the_previous_value,
    rules_are_not_checked_for_objects_of_wrong_form,
    definition_with_uncompiled_rule_is_rejected,
    definition_with_malformed_rule_is_rejected,
    rule_with_previous_item_of_atomic_list_is_rejected,
];

/// The cause that replaces the errors of rules if the object has the wrong form.
const UNCHECKED: &str = "FieldValueInvalid <nil>: Invalid value: null: some validation rules were not checked because \
                         the object was invalid; correct the existing errors to complete validation";

/// Returns the definition of a kind whose spec has this schema.
fn definition(case: &Case, spec: Value) -> Value {
    let group = group(case);
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": { "type": "object",
        "x-kubernetes-preserve-unknown-fields": true } },
        "x-kubernetes-validations": [{ "rule": "self.metadata.name != 'reserved'" }] });
    let version =
        json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    json!({ "metadata": { "name": format!("rules.{group}") }, "spec": { "group": group,
        "scope": "Namespaced", "names": { "plural": "rules", "kind": "Rule" }, "versions": [version] } })
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn group(case: &Case) -> String {
    format!("{}.example.com", case.namespace)
}

/// Serves a kind whose spec has this schema, and returns the path of its objects.
async fn served(case: &Case, spec: Value) -> anyhow::Result<String> {
    case.make(DEFINITIONS, definition(case, spec)).await?;
    let path = format!("{}/v1 rules", group(case));
    case.until(&path, |answer| answer.status == 200).await?;
    Ok(path)
}

fn object(case: &Case, name: &str, spec: Value) -> Value {
    let api_version = format!("{}/v1", group(case));
    json!({ "apiVersion": api_version, "kind": "Rule", "metadata": { "name": name }, "spec": spec })
}

/// Returns the causes of a rejection, one text each, in alphabetical order.
fn causes(body: &Value) -> Vec<String> {
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    let causes = body["details"]["causes"].as_array().into_iter().flatten();
    let mut causes: Vec<_> = causes
        .map(|it| format!("{} {}: {}", text(it, "reason"), text(it, "field"), text(it, "message")))
        .collect();
    causes.sort();
    causes
}

/// Creates objects with these specs and compares the causes of their rejections.
async fn expect(case: &Case, path: &str, cases: &[(Value, &[&str])]) -> Outcome {
    for (index, (spec, expected)) in cases.iter().enumerate() {
        let answer = case.post(path, object(case, &format!("n-{index}"), spec.clone())).await?;
        let expected: Vec<String> = expected.iter().map(|it| (*it).to_owned()).collect();
        same!((answer.status, causes(&answer.body)), (if expected.is_empty() { 201 } else { 422 }, expected));
    }
    Ok(())
}

async fn object_that_breaks_a_rule_is_rejected(case: Case) -> Outcome {
    let spec = json!({ "type": "object", "properties": {
        "min": { "type": "integer" }, "max": { "type": "integer" }, "ratio": { "type": "number" },
        "port": { "x-kubernetes-int-or-string": true }, "max-size": { "type": "integer" },
        "name": { "type": "string", "maxLength": 20 } },
        "x-kubernetes-validations": [
            { "rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "fieldPath": ".min",
              "messageExpression": "'min is above max of ' + self.name" },
            { "rule": "!has(self.port) || type(self.port) == string || self.port > 1024" },
            { "rule": "!has(self.ratio) || self.ratio < 1.0", "message": "  the ratio must be less than 1 " },
            { "rule": "!has(self.max__dash__size) || 2 / (self.max__dash__size - 1) > 0" }] });
    let path = served(&case, spec).await?;
    let cases: &[(Value, &[&str])] = &[
        (json!({ "min": 2, "max": 2, "port": "http", "ratio": 0.5, "name": "abc", "max-size": 3 }), &[]),
        (
            json!({ "min": 3, "max": 2, "name": "abc" }),
            &["FieldValueInvalid spec.min: Invalid value: min is above max of abc"],
        ),
        (
            json!({ "min": 3, "max": 2 }),
            &["FieldValueInvalid spec.min: Invalid value: failed rule: !has(self.min) || !has(self.max) || \
               self.min <= self.max"],
        ),
        (
            json!({ "port": 80 }),
            &[
                "FieldValueInvalid spec: Invalid value: failed rule: !has(self.port) || type(self.port) == string || \
               self.port > 1024",
            ],
        ),
        (json!({ "ratio": 1 }), &["FieldValueInvalid spec: Invalid value: the ratio must be less than 1"]),
        (
            json!({ "max-size": 1 }),
            &["FieldValueInvalid spec: Invalid value: \"object\": division by zero evaluating rule: \
               !has(self.max__dash__size) || 2 / (self.max__dash__size - 1) > 0"],
        ),
    ];
    expect(&case, &path, cases).await?;
    let answer = case.post(&path, object(&case, "reserved", json!({}))).await?;
    let reserved = "FieldValueInvalid <nil>: Invalid value: failed rule: self.metadata.name != 'reserved'";
    same!(causes(&answer.body), [reserved]);
    Ok(())
}

async fn rules_of_fields_and_items_are_enforced(case: Case) -> Outcome {
    let port = json!({ "type": "object", "required": ["port"], "properties": {
        "port": { "type": "integer" }, "name": { "type": "string", "maxLength": 20 } },
        "x-kubernetes-validations": [{ "rule": "self.port > 0", "fieldPath": ".port",
            "reason": "FieldValueInvalid", "message": "port must be positive" }] });
    let label = json!({ "type": "string", "maxLength": 20, "x-kubernetes-validations": [
        { "rule": "self != ''", "reason": "FieldValueRequired" }] });
    let spec = json!({ "type": "object", "properties": {
        "name": { "type": "string", "maxLength": 20, "x-kubernetes-validations": [
            { "rule": "self.startsWith('a')", "message": "must start with a", "reason": "FieldValueForbidden" },
            { "rule": "self.size() < 4" }] },
        "labels": { "type": "object", "maxProperties": 5, "additionalProperties": label },
        "ports": { "type": "array", "maxItems": 5, "items": port,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
            "x-kubernetes-validations": [{ "rule": "self.all(p, self.exists_one(q, p.name == q.name))",
                "message": "names must be unique", "reason": "FieldValueDuplicate" }] } } });
    let path = served(&case, spec).await?;
    let cases: &[(Value, &[&str])] = &[
        (json!({ "name": "abc", "labels": { "a": "b" }, "ports": [{ "port": 1, "name": "a" }] }), &[]),
        (
            json!({ "name": "bcdef" }),
            &[
                "FieldValueForbidden spec.name: Forbidden: must start with a",
                "FieldValueInvalid spec.name: Invalid value: \"bcdef\": failed rule: self.size() < 4",
            ],
        ),
        (
            json!({ "labels": { "a": "", "b": "c" } }),
            &["FieldValueRequired spec.labels[a]: Required value: failed rule: self != ''"],
        ),
        (
            json!({ "ports": [{ "port": 1, "name": "a" }, { "port": -1, "name": "a" }] }),
            &[
                "FieldValueDuplicate spec.ports: Duplicate value",
                "FieldValueInvalid spec.ports[1].port: Invalid value: port must be positive",
            ],
        ),
    ];
    expect(&case, &path, cases).await
}

/// Changes the spec of the object `a` one change after the other, and compares the causes of their rejections.
async fn expect_changes(
    case: &Case,
    path: &str,
    cases: impl IntoIterator<Item = (Value, Vec<&str>)>,
) -> Outcome {
    for (change, expected) in cases {
        let answer = case.patch(MERGE, &format!("{path}/a"), json!({ "spec": change })).await?;
        let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
        same!((answer.status, causes(&answer.body)), (if expected.is_empty() { 200 } else { 422 }, expected));
    }
    Ok(())
}

async fn rule_with_previous_value_is_enforced_by_updates(case: Case) -> Outcome {
    let item = json!({ "type": "object", "required": ["key"], "properties": { "key": { "type": "string" },
        "value": { "type": "integer" } },
        "x-kubernetes-validations": [{ "rule": "self.value >= oldSelf.value", "message": "must not decrease" }] });
    let spec = json!({ "type": "object", "properties": {
        "class": { "type": "string", "x-kubernetes-validations": [
            { "rule": "self == oldSelf", "message": "class is immutable" }] },
        "first": { "type": "string", "x-kubernetes-validations": [{ "optionalOldSelf": true,
            "rule": "oldSelf.hasValue() || self == 'start'", "message": "must begin with start" }] },
        "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" },
            "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "tags are immutable" }] },
        "items": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
            "items": item } } });
    let path = served(&case, spec).await?;
    let initial = json!({ "class": "a", "first": "start", "tags": ["a", "b"],
        "items": [{ "key": "x", "value": 1 }, { "key": "y", "value": 2 }] });
    let rejected = case.post(&path, object(&case, "b", json!({ "first": "other" }))).await?;
    same!(
        causes(&rejected.body),
        ["FieldValueInvalid spec.first: Invalid value: \"other\": must begin with start"]
    );
    case.make(&path, object(&case, "a", initial)).await?;
    let cases = [
        (
            json!({ "class": "b" }),
            vec!["FieldValueInvalid spec.class: Invalid value: \"b\": class is immutable"],
        ),
        (json!({ "first": "next" }), vec![]),
        (json!({ "tags": ["b", "a"] }), vec![]),
        (json!({ "tags": ["b"] }), vec!["FieldValueInvalid spec.tags: Invalid value: tags are immutable"]),
        (
            json!({ "items": [{ "key": "y", "value": 1 }, { "key": "z", "value": 0 }] }),
            vec!["FieldValueInvalid spec.items[0]: Invalid value: must not decrease"],
        ),
        (json!({ "items": [{ "key": "y", "value": 3 }, { "key": "x", "value": 1 }] }), vec![]),
        (json!({ "class": null }), vec![]),
        (json!({ "class": "b" }), vec![]),
    ];
    expect_changes(&case, &path, cases).await
}

async fn values_are_compared_completely_and_by_meaning(case: Case) -> Outcome {
    let fixed = json!([{ "rule": "self == oldSelf", "message": "is immutable" }]);
    let times = json!({ "type": "object", "properties": { "at": { "type": "string", "format": "date-time" },
        "every": { "type": "string", "format": "duration" } }, "x-kubernetes-validations": fixed });
    let metadata = json!({ "type": "object", "properties": { "name": { "type": "string" },
        "generateName": { "type": "string" }, "labels": { "type": "object",
            "additionalProperties": { "type": "string" } } } });
    let template = json!({ "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true, "properties": { "kind": { "type": "string" },
            "apiVersion": { "type": "string" }, "metadata": metadata },
        "x-kubernetes-validations": [{ "rule": "has(self.metadata.labels)", "message": "needs labels" }] });
    let spec = json!({ "type": "object", "properties": {
        "limit": { "type": "integer", "nullable": true }, "times": times, "template": template,
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": fixed } },
        "x-kubernetes-validations": [{ "rule": "!has(self.limit) || self.limit > 0", "message": "must be positive" }] });
    let path = served(&case, spec).await?;
    let initial = json!({ "limit": null, "free": { "a": 1 },
        "times": { "at": "2020-01-01T00:00:00Z", "every": "60s" } });
    case.make(&path, object(&case, "a", initial)).await?;
    let labeled = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": { "a": "b" } } });
    let cases = [
        (json!({ "limit": 0 }), vec!["FieldValueInvalid spec: Invalid value: must be positive"]),
        (json!({ "times": { "at": "2020-01-01T00:00:00.000Z", "every": "1m" } }), vec![]),
        (
            json!({ "times": { "every": "61s" } }),
            vec!["FieldValueInvalid spec.times: Invalid value: is immutable"],
        ),
        (json!({ "free": { "a": 2 } }), vec!["FieldValueInvalid spec.free: Invalid value: is immutable"]),
        (
            json!({ "template": { "apiVersion": "v1", "kind": "Pod" } }),
            vec![
                "FieldValueInvalid spec.template: Invalid value: \"object\": no such key: metadata evaluating rule: \
                  needs labels",
            ],
        ),
        (json!({ "template": labeled }), vec![]),
    ];
    expect_changes(&case, &path, cases).await
}

async fn default_must_satisfy_its_rules(case: Case) -> Outcome {
    let field =
        json!({ "type": "integer", "default": 0, "x-kubernetes-validations": [{ "rule": "self > 0" }] });
    let expected = "FieldValueInvalid spec.validation.openAPIV3Schema.properties[spec].properties[a].default: \
                    Invalid value: 0: failed rule: self > 0";
    expect_definition(&case, field, json!({ "rule": "true" }), expected).await
}

/// Replaces the schema of the spec, and waits until it applies: until this spec is rejected.
async fn change_schema(case: &Case, path: &str, spec: Value, rejected: Value) -> Outcome {
    let at = format!("{DEFINITIONS}/rules.{}", group(case));
    let mut changed = case.read(&at).await?;
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    case.replace(&at, changed).await?;
    let create = format!("{path}?dryRun=All");
    let applied = async {
        while case.post(&create, object(case, "dry", rejected.clone())).await?.status == 201 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(30), applied).await?
}

async fn unchanged_value_may_break_a_rule(case: Case) -> Outcome {
    let spec = |rules: Value| {
        json!({ "type": "object", "properties": {
            "a": { "type": "integer", "x-kubernetes-validations": rules }, "b": { "type": "integer" } } })
    };
    let path = served(&case, spec(json!([]))).await?;
    case.make(&path, object(&case, "a", json!({ "a": 1 }))).await?;
    let rule = json!([{ "rule": "self > 1", "message": "must be more than 1" }]);
    change_schema(&case, &path, spec(rule), json!({ "a": 1 })).await?;
    let one = format!("{path}/a");
    same!(case.patch(MERGE, &one, json!({ "spec": { "b": 1 } })).await?.status, 200);
    let changed = case.patch(MERGE, &one, json!({ "spec": { "a": 0 } })).await?;
    same!(causes(&changed.body), ["FieldValueInvalid spec.a: Invalid value: 0: must be more than 1"]);
    Ok(())
}

async fn unchanged_value_may_violate_its_schema(case: Case) -> Outcome {
    let spec = |most: u64| {
        let item = json!({ "type": "object", "required": ["key"], "properties": {
            "key": { "type": "string" }, "value": { "type": "string", "maxLength": most } } });
        json!({ "type": "object", "properties": {
            "a": { "type": "string", "maxLength": most }, "b": { "type": "integer" },
            "list": { "type": "array", "items": { "type": "string", "maxLength": most } },
            "map": { "type": "array", "items": item,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"] } } })
    };
    let path = served(&case, spec(9)).await?;
    let initial = json!({ "a": "long", "list": ["long"], "map": [{ "key": "x", "value": "long" }] });
    case.make(&path, object(&case, "a", initial)).await?;
    change_schema(&case, &path, spec(2), json!({ "a": "long" })).await?;
    let long = |field: &str| format!("FieldValueTooLong {field}: Too long: may not be more than 2 bytes");
    let one = format!("{path}/a");
    let cases = [
        (json!({ "b": 1 }), vec![]),
        (json!({ "map": [{ "key": "y" }, { "key": "x", "value": "long" }] }), vec![]),
        (json!({ "map": [{ "key": "y", "value": "long" }] }), vec![long("spec.map[0].value")]),
        (json!({ "list": ["long", "a"] }), vec![long("spec.list[0]")]),
        (json!({ "a": "other" }), vec![long("spec.a")]),
        (json!({ "a": "b", "list": ["b"] }), vec![]),
    ];
    for (change, expected) in cases {
        let answer = case.patch(MERGE, &one, json!({ "spec": change })).await?;
        let mut found = causes(&answer.body);
        found.retain(|it| it != UNCHECKED);
        same!((answer.status, found), (if expected.is_empty() { 200 } else { 422 }, expected));
    }
    Ok(())
}

async fn reordered_list_of_type_map_is_unchanged(case: Case) -> Outcome {
    let spec = |most: u64, of_item: Value, of_list: Value, of_free: Value| {
        let item = json!({ "type": "object", "required": ["key"], "x-kubernetes-validations": of_item,
            "properties": { "key": { "type": "string" }, "port": { "type": "integer" },
                "value": { "type": "string" } } });
        let list = json!({ "type": "array", "items": item, "maxItems": most, "x-kubernetes-validations": of_list,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"] });
        let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": { "a": { "type": "integer" } }, "x-kubernetes-validations": of_free });
        json!({ "type": "object", "properties": { "map": list, "free": free, "b": { "type": "integer" } } })
    };
    let path = served(&case, spec(9, json!([]), json!([]), json!([]))).await?;
    let item = |key: &str, value: &str| json!({ "key": key, "value": value });
    let initial = json!({ "map": [item("x", "1"), item("y", "2")], "free": { "a": 1 } });
    case.make(&path, object(&case, "a", initial)).await?;
    case.make(&path, object(&case, "b", json!({ "free": { "a": 1, "undeclared": 1 } }))).await?;
    let (of_item, of_list, of_free) = (
        json!([{ "rule": "self.value == '3'", "message": "must be 3" }]),
        json!([{ "rule": "self.size() > 2", "message": "must be long" }]),
        json!([{ "rule": "self.a > 1", "message": "must be more than 1" }]),
    );
    change_schema(&case, &path, spec(1, of_item, of_list, of_free), json!({ "map": [item("x", "1")] }))
        .await?;
    let many = "FieldValueTooMany spec.map: Too many: 2: must have at most 1 item";
    let broken = |index: usize| format!("FieldValueInvalid spec.map[{index}]: Invalid value: must be 3");
    let short = "FieldValueInvalid spec.map: Invalid value: must be long".to_owned();
    let free = "FieldValueInvalid spec.free: Invalid value: must be more than 1".to_owned();
    let one = [item("x", "3")];
    let cases = [
        ("a", json!({ "map": [item("y", "2"), item("x", "1")] }), vec![]),
        ("a", json!({ "b": 1 }), vec![]),
        (
            "a",
            json!({ "map": [item("y", "2"), item("x", "3")] }),
            vec![UNCHECKED.to_owned(), many.to_owned()],
        ),
        ("a", json!({ "map": [item("z", "1")] }), vec![short.clone(), broken(0)]),
        ("a", json!({ "map": [item("x", "1")] }), vec![short.clone()]),
        ("a", json!({ "map": one }), vec![short]),
        ("b", json!({ "b": 1 }), vec![free]),
    ];
    for (name, change, expected) in cases {
        let answer = case.patch(MERGE, &format!("{path}/{name}"), json!({ "spec": change })).await?;
        same!((answer.status, causes(&answer.body)), (if expected.is_empty() { 200 } else { 422 }, expected));
    }
    Ok(())
}

async fn later_default_belongs_to_the_previous_value(case: Case) -> Outcome {
    let spec = |default: Value, rules: Value| {
        let mut new = json!({ "type": "string" });
        if !default.is_null() {
            new["default"] = default;
        }
        json!({ "type": "object", "x-kubernetes-validations": rules,
            "properties": { "a": { "type": "integer" }, "new": new } })
    };
    let path = served(&case, spec(Value::Null, json!([]))).await?;
    let made = case.make(&path, object(&case, "a", json!({ "a": 1 }))).await?;
    let rules = json!([{ "rule": "self.a > 1", "message": "must be more than 1" },
        { "rule": "self.new == oldSelf.new", "message": "must not change" }]);
    change_schema(&case, &path, spec(json!("set"), rules), json!({ "a": 1 })).await?;
    let one = format!("{path}/a");
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let found = case.read(&one).await?;
    same!((&found["spec"], version(&found)), (&json!({ "a": 1, "new": "set" }), version(&made)));
    let listed = case.read(&path).await?;
    same!(listed["items"][0]["spec"], json!({ "a": 1, "new": "set" }));
    let changed = case.patch(MERGE, &one, json!({ "spec": { "new": "other" } })).await?;
    same!(
        causes(&changed.body),
        [
            "FieldValueInvalid spec: Invalid value: must be more than 1",
            "FieldValueInvalid spec: Invalid value: must not change",
        ]
    );
    let labeled = case.merge(&one, json!({ "metadata": { "labels": { "a": "b" } } })).await?;
    same!(
        (&labeled["spec"], &labeled["metadata"]["generation"]),
        (&json!({ "a": 1, "new": "set" }), &json!(1))
    );
    Ok(())
}

async fn rules_are_not_checked_for_objects_of_wrong_form(case: Case) -> Outcome {
    let spec = json!({ "type": "object", "required": ["b"], "properties": { "a": { "type": "integer", "minimum": 0 },
        "b": { "type": "string" } },
        "x-kubernetes-validations": [{ "rule": "self.a > 1", "message": "must be more than 1" }] });
    let path = served(&case, spec).await?;
    let answer = case.post(&path, object(&case, "a", json!({ "a": 1 }))).await?;
    same!(causes(&answer.body), [UNCHECKED, "FieldValueRequired spec.b: Required value",]);
    let answer = case.post(&path, object(&case, "a", json!({ "a": -1, "b": "" }))).await?;
    same!(
        causes(&answer.body),
        [
            "FieldValueInvalid spec.a: Invalid value: -1: spec.a in body should be greater than or equal to 0",
            "FieldValueInvalid spec: Invalid value: must be more than 1",
        ]
    );
    Ok(())
}

/// Path of the first rule of the spec.
const RULE: &str = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]";

/// Creates definitions with this field and rule of the spec, and compares the only cause of each rejection.
async fn expect_definition(case: &Case, field: Value, rule: Value, expected: &str) -> Outcome {
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({ "type": "object", "properties": { "a": field, "free": free },
        "x-kubernetes-validations": [rule] });
    let answer = case.post(DEFINITIONS, definition(case, spec)).await?;
    same!((answer.status, causes(&answer.body)), (422, vec![expected.to_owned()]));
    Ok(())
}

async fn definition_with_uncompiled_rule_is_rejected(case: Case) -> Outcome {
    let rest = r#""Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null"#;
    let cases = [
        (
            "self.b == 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b == 1\n | ....^",
        ),
        ("self.a", "cel expression must evaluate to a bool"),
        (
            "self.a == 'x'",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to \
             '(int, string)'\n | self.a == 'x'\n | .......^",
        ),
        (
            "self.a ==",
            "compilation failed: ERROR: <input>:1:10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', \
             '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n \
             | self.a ==\n | .........^",
        ),
        (
            "self.free.b == 1",
            "compilation failed: ERROR: <input>:1:10: undefined field 'b'\n | self.free.b == 1\n | .........^",
        ),
    ];
    for (rule, why) in cases {
        let expected =
            format!("FieldValueInvalid {RULE}.rule: Invalid value: {{\"Rule\":{rule:?},{rest}}}: {why}");
        expect_definition(&case, json!({ "type": "integer" }), json!({ "rule": rule }), &expected).await?;
    }
    Ok(())
}

async fn definition_with_malformed_rule_is_rejected(case: Case) -> Outcome {
    let cases = [
        (json!({ "rule": " " }), "FieldValueRequired @.rule: Required value: rule is not specified"),
        (
            json!({ "rule": "true", "message": " " }),
            "FieldValueInvalid @.message: Invalid value: \" \": must be non-empty if specified",
        ),
        (
            json!({ "rule": "true", "reason": "Other" }),
            "FieldValueNotSupported @.reason: Unsupported value: \"Other\": supported values: \
             \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (
            json!({ "rule": "true", "fieldPath": ".b" }),
            "FieldValueInvalid @.fieldPath: Invalid value: \".b\": must be a valid path",
        ),
        (
            json!({ "rule": "true", "optionalOldSelf": true }),
            "FieldValueInvalid @.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ];
    for (rule, expected) in cases {
        let expected = expected.replace('@', RULE);
        expect_definition(&case, json!({ "type": "integer" }), rule, &expected).await?;
    }
    Ok(())
}

async fn rule_with_previous_item_of_atomic_list_is_rejected(case: Case) -> Outcome {
    let rule = json!({ "rule": "self == oldSelf" });
    let items = json!({ "type": "string", "maxLength": 9, "x-kubernetes-validations": [rule] });
    let list = json!({ "type": "array", "maxItems": 5, "items": items });
    let field = "spec.validation.openAPIV3Schema.properties[spec].properties[a]";
    let expected = format!(
        "FieldValueInvalid {field}.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": \
         oldSelf cannot be used on the uncorrelatable portion of the schema within {field}"
    );
    expect_definition(&case, list, json!({ "rule": "true" }), &expected).await
}
