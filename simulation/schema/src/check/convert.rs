//! Errors of upstream's converter from generic values to Go types, which strategic merge and apply use.
//!
//! The converter accepts and rejects almost the same values as the JSON decoder, with other messages.

use serde_json::Value;

use super::decode::decode;
use super::{Strictness, json::kind_of};
use crate::node::{Node, NodeType, Schema};

/// Returns the first error of a conversion, in the order of declaration.
pub fn conversion_error(schema: &Schema, value: &Value) -> Option<String> {
    within(schema, &schema.root, value, "")
}

fn within(schema: &Schema, node: &Node, value: &Value, go_type: &str) -> Option<String> {
    if value.is_null() {
        return None;
    }
    match &schema.resolve(node).node_type {
        NodeType::Any | NodeType::Ref(_) => None,
        NodeType::Object(object) => {
            let Value::Object(fields) = value else {
                let is_struct = !object.fields.is_empty();
                let target = if is_struct { "struct from:" } else { "map from" };
                return Some(format!("cannot restore {target} {}", source(value)));
            };
            let mut known: Vec<_> = object.fields.iter().collect();
            known.sort_by_key(|(_, node)| node.go.as_ref().map(|it| it.position));
            let known = known.into_iter().filter_map(|(name, node)| Some((node, fields.get(name)?)));
            let others = object.additional.iter().flat_map(|node| {
                let others = fields.iter().filter(|(name, _)| !object.fields.contains_key(*name));
                others.map(|(_, value)| (&**node, value))
            });
            known.chain(others).find_map(|(node, value)| {
                let go_type = node.go.as_ref().map_or("", |it| it.go_type.as_str());
                within(schema, node, value, go_type)
            })
        }
        NodeType::List(list) => match value {
            Value::Array(items) => {
                let go_type = go_type.strip_prefix("[]").unwrap_or_default();
                items.iter().find_map(|item| within(schema, &list.items, item, go_type))
            }
            other => Some(format!("cannot restore slice from {}", source(other))),
        },
        NodeType::String(None) => scalar(value, go_type, "string"),
        NodeType::Integer(format) => {
            scalar(value, go_type, if format.as_deref() == Some("int32") { "int32" } else { "int64" })
        }
        NodeType::Number => scalar(value, go_type, "float64"),
        NodeType::Boolean => scalar(value, go_type, "bool"),
        // These types decode JSON.
        NodeType::String(Some(_)) | NodeType::IntOrString | NodeType::Quantity => {
            let is_bytes = matches!(&schema.resolve(node).node_type, NodeType::String(Some(format)) if &**format == "byte");
            if is_bytes && !value.is_string() && !value.is_array() {
                return Some(format!("cannot restore slice from {}", source(value)));
            }
            let part = Schema { types: schema.types.clone(), root: node.clone().into() };
            let found = decode(&part, &mut value.clone(), Strictness::Ignore);
            let message = found.errors.into_iter().next()?.message;
            Some(if is_bytes { format!("error decoding from json: {message}") } else { message })
        }
    }
}

fn scalar(value: &Value, go_type: &str, kind: &str) -> Option<String> {
    let given = source(value);
    let is_number = |kind: &str| kind != "string" && kind != "bool";
    let fits = match (given, kind) {
        ("float64", "int32" | "int64") => value.as_f64().is_some_and(|it| it.fract() == 0.0),
        (given, kind) => given == kind || (given == "int64" && is_number(kind)),
    };
    if fits {
        return None;
    }
    // Go converts a number to a string and between numbers; the converter does not.
    let converts =
        matches!(given, "int64" | "float64") && is_number(kind) || (given, kind) == ("int64", "string");
    if !converts {
        return Some(format!("unrecognized type: {kind}"));
    }
    let target = if go_type.is_empty() { kind } else { go_type };
    Some(format!("cannot convert {given} to {target}"))
}

/// Returns the kind of the Go value that represents a JSON value.
fn source(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Object(_) => "map",
        Value::Array(_) => "slice",
        other => kind_of(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Catalog;

    #[test]
    fn conversion_errors_have_upstream_messages() {
        let catalog = Catalog::built_in();
        let schema = catalog.kind_schema("", "v1", "Pod").unwrap();
        let container = |part: Value| json!({ "spec": { "containers": [part] } });
        let cases = [
            (json!({ "spec": 1 }), Some("cannot restore struct from: int64")),
            (json!({ "spec": { "priority": "x" } }), Some("unrecognized type: int32")),
            (json!({ "spec": { "priority": 1.5 } }), Some("cannot convert float64 to int32")),
            (json!({ "spec": { "priority": 1.0 } }), None),
            (json!({ "spec": { "nodeName": 1 } }), Some("cannot convert int64 to string")),
            (json!({ "spec": { "restartPolicy": 1 } }), Some("cannot convert int64 to v1.RestartPolicy")),
            (json!({ "metadata": { "labels": [] } }), Some("cannot restore map from slice")),
            (json!({ "spec": { "containers": {} } }), Some("cannot restore slice from map")),
            (container(json!({ "command": [true] })), Some("unrecognized type: string")),
        ];
        for (value, expected) in cases {
            assert_eq!(conversion_error(schema, &value).as_deref(), expected, "{value}");
        }
    }
}
