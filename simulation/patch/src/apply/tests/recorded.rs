//! Scripts of writes that upstream's field manager executed, with upstream's types; see `cases/record.go`.

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_schema::{Catalog, Schema};

use super::super::{FieldSet, Manager, after_update, managed, server_side_apply};

const RECORDED: &str = include_str!("../cases/field_manager.json");

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn schema(script: &Value) -> Schema {
    let (group, version) = text(script, "version").split_once('/').unwrap_or(("", text(script, "version")));
    let catalog = Catalog::built_in();
    catalog.kind(group, version, text(script, "kind")).unwrap().schema.clone()
}

fn reset(step: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    for path in step["reset"].as_array().into_iter().flatten() {
        let path: Vec<_> = path.as_str().unwrap().split('.').collect();
        set = set.union(&FieldSet::of_fields(&[&path]));
    }
    set
}

/// Runs one step on upstream's previous object, and returns the difference to upstream's result.
fn run(schema: &Schema, live: Option<&Value>, recorded: &Value) -> Option<String> {
    let step = &recorded["step"];
    let operation = text(step, "operation");
    let now: Timestamp = text(recorded, "now").parse().unwrap();
    let manager = Manager {
        name: text(step, "manager").to_owned(),
        subresource: Some(text(step, "subresource")).filter(|it| !it.is_empty()).map(str::to_owned),
        force: operation == "force",
    };
    let request = &recorded["request"];
    let found = if matches!(operation, "create" | "update") {
        let mut new = request.clone();
        after_update(schema, live.unwrap_or(&json!({})), &mut new, &manager, &reset(step), now);
        new
    } else {
        match server_side_apply(schema, live, request, &manager, &reset(step), now) {
            Ok(new) => new,
            Err(error) => {
                let (found, expected) = (error.to_string(), text(recorded, "error"));
                return (sorted(&found) != sorted(expected)).then(|| format!("{found}\nnot\n{expected}"));
            }
        }
    };
    if let Some(error) = recorded.get("error") {
        return Some(format!("it succeeded; upstream says {error}"));
    }
    let expected = &recorded["after"];
    if managed::raw(&found) != managed::raw(expected) {
        let lines = |object: &Value| {
            managed::entries(object).iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
        };
        return Some(format!("entries\n{}\nnot\n{}", lines(&found), lines(expected)));
    }
    missing(&found, expected, "")
}

/// Sorts the fields of a message: upstream reports them in the random order of Go's maps.
fn sorted(message: &str) -> Vec<&str> {
    let mut lines: Vec<_> = message.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns a value of the first object that the second lacks; the second can have additional defaults.
fn missing(one: &Value, other: &Value, path: &str) -> Option<String> {
    match (one, other) {
        (Value::Null, _) => None,
        (Value::Object(one), Value::Object(other)) => one.iter().find_map(|(name, value)| {
            missing(value, other.get(name).unwrap_or(&Value::Null), &format!("{path}.{name}"))
        }),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).find_map(|(one, other)| missing(one, other, &format!("{path}[]")))
        }
        (one, other) => (one != other).then(|| format!("{path} is {one}, not {other}")),
    }
}

#[test]
fn entries_after_every_write_equal_upstreams() {
    let data: Value = serde_json::from_str(RECORDED).unwrap();
    let mut differences = Vec::new();
    for script in data["scripts"].as_array().unwrap() {
        let schema = schema(script);
        let mut live: Option<Value> = None;
        for (index, recorded) in script["steps"].as_array().unwrap().iter().enumerate() {
            if let Some(difference) = run(&schema, live.as_ref(), recorded) {
                differences.push(format!("{}, step {index}: {difference}", text(script, "name")));
            }
            live = recorded.get("after").cloned().or(live);
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}
