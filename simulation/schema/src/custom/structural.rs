//! Validates schemas of custom kinds: supported keywords, structural form, and valid defaults.

use regex::Regex;
use serde_json::{Map, Value};

use super::error::FieldError;
use super::rule::{Rule, list, texts};
use super::version::schema_of;
use super::{format, rules, validate};
use crate::check::Strictness;

/// OpenAPI keywords that upstream does not support in definitions.
const UNSUPPORTED: [&str; 7] =
    ["$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties", "$schema"];

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Returns the errors of a schema at that path.
pub(super) fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    if !schema.is_object() {
        return vec![FieldError::required(path, "")];
    }
    let mut unsupported = false;
    let mut found = Vec::new();
    visit(schema, path, &mut |schema, path| {
        keywords(schema, path, &mut found);
        list_types(schema, path, &mut found);
        rules::check(schema, path, &mut found);
        unsupported |= UNSUPPORTED.iter().any(|keyword| schema.contains_key(*keyword));
        unsupported |= schema.get("items").is_some_and(Value::is_array);
    });
    let mut structural = Vec::new();
    if !unsupported {
        if let Value::Object(root) = schema {
            invariants(root, Level::Root, path, &mut structural);
        }
        structural.sort_by_key(ToString::to_string);
        if structural.is_empty() {
            visit(schema, path, &mut |schema, path| default(schema, path, &mut structural));
        }
    }
    structural.extend(found);
    structural
}

/// Returns upstream's warnings about a schema.
pub(super) fn warnings(schema: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    visit(schema, "", &mut |schema, _| {
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        if let (Some("string"), Some(name)) = (text("type"), text("format"))
            && format::holds(name, "").is_none()
        {
            warnings.push(format!("unrecognized format {name:?}"));
        }
    });
    warnings
}

/// Calls a function for a schema and every schema inside it.
fn visit(schema: &Value, path: &str, each: &mut dyn FnMut(&Map<String, Value>, &str)) {
    let Value::Object(fields) = schema else { return };
    each(fields, path);
    for (name, schema) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        visit(schema, &format!("{path}.properties[{name}]"), each);
    }
    for keyword in ["items", "additionalProperties", "not"] {
        if let Some(schema) = fields.get(keyword) {
            visit(schema, &format!("{path}.{keyword}"), each);
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (index, schema) in list(fields, keyword).iter().enumerate() {
            visit(schema, &format!("{path}.{keyword}[{index}]"), each);
        }
    }
}

fn keywords(schema: &Map<String, Value>, path: &str, found: &mut Vec<FieldError>) {
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    for keyword in UNSUPPORTED.iter().filter(|keyword| schema.contains_key(**keyword)) {
        found
            .push(FieldError::forbidden(format!("{path}.{keyword}"), &format!("{keyword} is not supported")));
    }
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        let detail = "items must be a schema object and not an array";
        found.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => {
            let detail = "additionalProperties cannot be set to false";
            found.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
        }
        Some(Value::Object(_))
            if schema.get("properties").and_then(Value::as_object).is_some_and(|it| !it.is_empty()) =>
        {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
        }
        _ => {}
    }
    if let Some(kind) = text("type").filter(|kind| !kind.is_empty() && !TYPES.contains(kind)) {
        found.push(FieldError::not_supported(format!("{path}.type"), &Value::from(kind), &TYPES));
    }
    if let Some(value @ Value::Bool(false)) = schema.get("x-kubernetes-preserve-unknown-fields") {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        found.push(FieldError::invalid(field, value, "must be true or undefined"));
    }
    if let Some(map_type) = text("x-kubernetes-map-type") {
        if !["granular", "atomic"].contains(&map_type) {
            let field = format!("{path}.x-kubernetes-map-type");
            found.push(FieldError::not_supported(field, &Value::from(map_type), &["granular", "atomic"]));
        } else if text("type") != Some("object") {
            not_that_type(schema, path, "must be object if x-kubernetes-map-type is specified", found);
        }
    }
}

fn not_that_type(schema: &Map<String, Value>, path: &str, detail: &str, found: &mut Vec<FieldError>) {
    let field = format!("{path}.type");
    found.push(match schema.get("type").filter(|it| *it != "") {
        Some(given) => FieldError::invalid(field, given, detail),
        None => FieldError::required(field, detail),
    });
}

fn list_types(schema: &Map<String, Value>, path: &str, found: &mut Vec<FieldError>) {
    let Some(list_type) = schema.get("x-kubernetes-list-type") else { return };
    let field = format!("{path}.x-kubernetes-list-type");
    let items = schema.get("items").and_then(Value::as_object);
    if schema.get("type").is_none_or(|it| it != "array") {
        not_that_type(schema, path, "must be array if x-kubernetes-list-type is specified", found);
        return;
    }
    match list_type.as_str() {
        Some("atomic") => {}
        Some("set") => {
            let item_type = items.and_then(|items| items.get("type")).and_then(Value::as_str);
            let keyword =
                if item_type == Some("array") { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
            let given = items.and_then(|items| items.get(keyword)).unwrap_or(&Value::Null);
            if matches!(item_type, Some("array" | "object")) && given != "atomic" {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                found.push(FieldError::invalid(format!("{path}.items.{keyword}"), given, detail));
            }
        }
        Some("map") => map_keys(schema, items, path, found),
        _ => found.push(FieldError::not_supported(field, list_type, &["atomic", "set", "map"])),
    }
}

fn map_keys(
    schema: &Map<String, Value>,
    items: Option<&Map<String, Value>>,
    path: &str,
    found: &mut Vec<FieldError>,
) {
    let field = format!("{path}.x-kubernetes-list-map-keys");
    let keys = texts(schema, "x-kubernetes-list-map-keys");
    if keys.is_empty() {
        found.push(FieldError::required(field, "must not be empty if x-kubernetes-list-type is map"));
        return;
    }
    let given = schema.get("x-kubernetes-list-map-keys").unwrap_or(&Value::Null);
    let properties = items.and_then(|items| items.get("properties")).and_then(Value::as_object);
    let required = items.map(|items| texts(items, "required")).unwrap_or_default();
    for key in &keys {
        let Some(property) = properties.and_then(|properties| properties.get(key)) else {
            found.push(FieldError::invalid(field, given, "entries must all be names of item properties"));
            return;
        };
        let at = format!("{path}.items.properties[{key}]");
        if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            found.push(FieldError::required(format!("{at}.default"), detail));
        }
        if let Some(kind) = property.get("type").filter(|kind| *kind == "array" || *kind == "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            found.push(FieldError::invalid(format!("{at}.type"), kind, detail));
        }
    }
}

/// Position within a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks the rules for structural schemas.
fn invariants(schema: &Map<String, Value>, level: Level, path: &str, found: &mut Vec<FieldError>) {
    let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let (embedded, int_or_string) =
        (flag("x-kubernetes-embedded-resource"), flag("x-kubernetes-int-or-string"));
    let preserves = flag("x-kubernetes-preserve-unknown-fields");
    match schema.get("items") {
        Some(Value::Object(items)) => invariants(items, Level::Item, &format!("{path}.items"), found),
        _ if kind == "array" => {
            found.push(FieldError::required(format!("{path}.items"), "must be specified"));
        }
        _ => {}
    }
    for (name, property) in properties.into_iter().flatten() {
        if let Value::Object(property) = property {
            invariants(property, Level::Field, &format!("{path}.properties[{name}]"), found);
        }
    }
    if let Some(additional) = schema.get("additionalProperties") {
        let field = format!("{path}.additionalProperties");
        if level == Level::Root {
            found.push(FieldError::forbidden(&field, "must not be used at the root"));
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            found.push(FieldError::forbidden(&field, detail));
        }
        if let Value::Object(additional) = additional {
            invariants(additional, Level::Field, &field, found);
        }
    }
    for (keyword, set) in [("preserve-unknown-fields", preserves), ("embedded-resource", embedded)] {
        if int_or_string && set {
            let field = format!("{path}.x-kubernetes-{keyword}");
            let detail = "must be false if x-kubernetes-int-or-string is true";
            found.push(FieldError::invalid(field, &Value::Bool(true), detail));
        }
    }
    value_validation(schema, path, found);
    types(schema, level, path, found);
    identity(schema, level, path, found);
    if embedded && !preserves && properties.is_none_or(Map::is_empty) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        found.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn types(schema: &Map<String, Value>, level: Level, path: &str, found: &mut Vec<FieldError>) {
    let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if flag("x-kubernetes-embedded-resource") && kind != "object" {
        not_that_type(schema, path, "must be object if x-kubernetes-embedded-resource is true", found);
    } else if kind.is_empty()
        && !flag("x-kubernetes-int-or-string")
        && !flag("x-kubernetes-preserve-unknown-fields")
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        found.push(FieldError::required(format!("{path}.type"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        let detail = "must be object at the root";
        found.push(FieldError::invalid(format!("{path}.type"), &Value::from(kind), detail));
    }
}

/// Checks the schemas of kind and metadata.
fn identity(schema: &Map<String, Value>, level: Level, path: &str, found: &mut Vec<FieldError>) {
    let embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    if level != Level::Root && !embedded {
        return;
    }
    let property =
        |name: &str| schema.get("properties").and_then(|it| it.get(name)).and_then(Value::as_object);
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(property) = property(name) else { continue };
        let kind = property.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind != wanted {
            let field = format!("{path}.properties[{name}].type");
            found.push(FieldError::invalid(field, &Value::from(kind), &format!("must be {wanted}")));
        }
    }
    let Some(metadata) = property("metadata").filter(|_| level == Level::Root) else { return };
    let names = metadata.get("properties").and_then(Value::as_object);
    let names_only = names.is_none_or(|it| it.keys().all(|name| name == "name" || name == "generateName"));
    let rest = metadata
        .iter()
        .any(|(name, value)| !["type", "properties", "default"].contains(&name.as_str()) && !value.is_null());
    if !names_only || rest {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        found.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Checks the content of `allOf`, `anyOf`, `oneOf` and `not`, which must only constrain values and not define
/// structure.
fn value_validation(schema: &Map<String, Value>, path: &str, found: &mut Vec<FieldError>) {
    for keyword in ["anyOf", "allOf", "oneOf"] {
        for (index, alternative) in list(schema, keyword).iter().enumerate() {
            let Value::Object(nested) = alternative else { continue };
            let exempt = keyword == "anyOf" && is_int_or_string(schema);
            if !exempt {
                let inner = keyword == "allOf" && index == 0 && is_int_or_string(nested);
                self::nested(nested, &format!("{path}.{keyword}[{index}]"), inner, found);
            }
        }
    }
    if let Some(Value::Object(not)) = schema.get("not") {
        nested(not, &format!("{path}.not"), false, found);
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Err(error) = Regex::new(pattern)
    {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let detail = format!("must be a valid regular expression, but isn't: error parsing regexp: {why}");
        found.push(FieldError::invalid(format!("{path}.pattern"), &Value::from(pattern), &detail));
    }
}

/// Returns whether `anyOf` has the only permitted form with types: integer or string.
fn is_int_or_string(schema: &Map<String, Value>) -> bool {
    let kinds = list(schema, "anyOf");
    kinds.len() == 2
        && kinds[0] == serde_json::json!({"type": "integer"})
        && kinds[1] == serde_json::json!({"type": "string"})
}

fn nested(schema: &Map<String, Value>, path: &str, exempt: bool, found: &mut Vec<FieldError>) {
    if exempt {
        return;
    }
    value_validation(schema, path, found);
    let forbidden = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (keyword, detail) in forbidden {
        let says = schema
            .get(keyword)
            .is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)) && *value != "");
        if says {
            found.push(FieldError::forbidden(format!("{path}.{keyword}"), detail));
        }
    }
    if let Some(Value::Object(items)) = schema.get("items") {
        nested(items, &format!("{path}.items"), false, found);
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            found.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
        }
        if let Value::Object(property) = property {
            nested(property, &format!("{path}.properties[{name}]"), false, found);
        }
    }
}

/// Checks that a default matches its schema and contains no field that pruning would drop.
fn default(schema: &Map<String, Value>, path: &str, found: &mut Vec<FieldError>) {
    let Some(default) = schema.get("default").filter(|it| !it.is_null()) else { return };
    let field = format!("{path}.default");
    let own = Value::Object(schema.clone());
    let mut pruned = default.clone();
    let decoded = super::version::prune(&schema_of(&own), &mut pruned, Strictness::Strict);
    if !decoded.unknown_fields.is_empty() {
        found.push(FieldError::invalid(&field, default, "must not have unknown fields"));
    }
    for mut error in validate::value(&Rule::of(&own), default, None) {
        error.field = match error.field.as_str() {
            "<nil>" => field.clone(),
            inner => format!("{field}.{inner}"),
        };
        found.push(error);
    }
}
