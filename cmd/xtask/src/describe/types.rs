//! Types of all served kinds, from upstream's published OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

use super::resources::Group;
use super::scheme::{Facts, Field};
use super::{Upstream, texts};

/// Types with custom encodings in Go, and their names in the tables.
const SPECIAL: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "string/date-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "string/micro-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "any"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "any"),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "any"),
];

/// Kinds that resources of any group use.
const COMMON: &[&str] =
    &["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"];

const GROUP_VERSION_KINDS: &str = "x-kubernetes-group-version-kind";

/// Renders the types of all kinds in `groups`, and the types that they refer to.
pub(super) fn read(upstream: &Upstream, groups: &[Group], facts: &Facts) -> Result<String> {
    let swagger = upstream.json("openapi-spec/swagger.json")?;
    let definitions = swagger["definitions"].as_object().context("swagger.json has no definitions")?;
    let mut table = String::from(
        "# type NAME [kind=GROUP/VERSION/KIND] [atomic]; FIELD TYPE ATTRIBUTES.. [with=JSON] [default=JSON], where []x is\n\
         # a list, {}x a map, and `with` holds defaults of fields inside that their type has there alone. Fields are in\n\
         # the order of declaration; `go` is a named type that is no struct, `in` the embedded structs around a field.\n",
    );
    for name in reachable(definitions, roots(definitions, groups)?)? {
        render(&mut table, name, &definitions[name], facts)?;
    }
    Ok(table)
}

/// Returns the types of request and response bodies.
fn roots<'a>(definitions: &'a Map<String, Value>, groups: &[Group]) -> Result<Vec<&'a str>> {
    let by_kind: BTreeMap<_, _> =
        definitions.iter().filter_map(|(name, it)| Some((kind(name, it)?, name.as_str()))).collect();
    let mut roots = COMMON.to_vec();
    for group in groups {
        for version in &group.versions {
            for resource in &version.resources {
                let own = [(group.name.as_str(), version.name.as_str(), resource.kind.as_str())];
                let below = resource.subresources.iter().map(|it| match &it.group_version {
                    Some((group, version)) => (group.as_str(), version.as_str(), it.kind.as_str()),
                    None => (group.name.as_str(), version.name.as_str(), it.kind.as_str()),
                });
                for (group, version, kind) in own.into_iter().chain(below) {
                    match by_kind.get(&format!("{group}/{version}/{kind}")) {
                        Some(name) => roots.push(name),
                        // Options have no body: their fields are query parameters.
                        None if kind.ends_with("Options") || kind.is_empty() => {}
                        None => bail!("no type is defined for {group}/{version} {kind}"),
                    }
                }
            }
        }
    }
    Ok(roots)
}

/// Returns the `GROUP/VERSION/KIND` of a type, if it is a kind. Kinds of all groups use the core group.
fn kind(name: &str, definition: &Value) -> Option<String> {
    let all = definition.get(GROUP_VERSION_KINDS)?.as_array()?;
    let one = match all.as_slice() {
        [one] => one,
        _ if COMMON.contains(&name) => all.iter().find(|it| it["group"] == "" && it["version"] == "v1")?,
        _ => return None,
    };
    Some(format!("{}/{}/{}", one["group"].as_str()?, one["version"].as_str()?, one["kind"].as_str()?))
}

fn reachable<'a>(
    definitions: &'a Map<String, Value>,
    mut waiting: Vec<&'a str>,
) -> Result<BTreeSet<&'a str>> {
    let mut found = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if special(name).is_some() || !found.insert(name) {
            continue;
        }
        let definition = definitions.get(name).with_context(|| format!("{name} is not defined"))?;
        let fields = definition["properties"].as_object();
        waiting.extend(fields.into_iter().flat_map(Map::values).filter_map(referred));
    }
    Ok(found)
}

/// Returns the type that a field, its items or its values refer to.
fn referred(field: &Value) -> Option<&str> {
    if let Some(target) = field.get("$ref") {
        return target.as_str()?.strip_prefix("#/definitions/");
    }
    field.get("items").or_else(|| field.get("additionalProperties")).and_then(referred)
}

fn special(name: &str) -> Option<&'static str> {
    SPECIAL.iter().find(|(it, _)| *it == name).map(|(_, spelled)| *spelled)
}

fn render(table: &mut String, name: &str, definition: &Value, facts: &Facts) -> Result<()> {
    let _ = write!(table, "type {name}");
    if let Some(kind) = kind(name, definition) {
        let _ = write!(table, " kind={kind}");
    }
    if definition.get("x-kubernetes-map-type").is_some_and(|it| it == "atomic") {
        table.push_str(" atomic");
    }
    table.push('\n');
    let required = texts(definition, "required");
    let known = facts
        .types
        .get(name)
        .with_context(|| format!("the output of the Go program does not contain {name}"))?;
    let mut fields: Vec<_> = definition["properties"].as_object().into_iter().flatten().collect();
    fields.sort_by_key(|(field, _)| known.get(*field).map(|it| it.position));
    for (field, described) in fields {
        let spelled = spell(described).with_context(|| format!("{name}.{field}"))?;
        let _ = write!(table, " {field} {spelled}");
        if required.contains(field) {
            table.push_str(" required");
        }
        attributes(table, described).with_context(|| format!("{name}.{field}"))?;
        let known = known
            .get(field)
            .with_context(|| format!("the output of the Go program does not contain {field} of {name}"))?;
        facts_about(table, known)?;
        table.push('\n');
    }
    Ok(())
}

/// Returns the notation of a type in the tables.
fn spell(described: &Value) -> Result<String> {
    if let Some(target) = referred(described)
        && described.get("$ref").is_some()
    {
        return Ok(special(target).unwrap_or(target).to_owned());
    }
    let format = described.get("format").and_then(Value::as_str);
    match (described.get("type").and_then(Value::as_str), format) {
        (Some("array"), None) => Ok(format!("[]{}", spell(&described["items"])?)),
        (Some("object"), None) => match described.get("additionalProperties") {
            Some(values) => Ok(format!("{{}}{}", spell(values)?)),
            None => Ok("any".to_owned()),
        },
        (Some("number"), _) => Ok("number".to_owned()),
        (Some(scalar @ ("string" | "integer" | "boolean")), None) => Ok(scalar.to_owned()),
        (Some(scalar @ ("string" | "integer")), Some(format)) => Ok(format!("{scalar}/{format}")),
        _ => bail!("the tables have no notation for {described}"),
    }
}

fn attributes(table: &mut String, described: &Value) -> Result<()> {
    match described.get("x-kubernetes-list-type").and_then(Value::as_str) {
        None | Some("atomic") => {}
        Some("set") => table.push_str(" list=set"),
        Some("map") => {
            let _ = write!(table, " list={}", texts(described, "x-kubernetes-list-map-keys").join(","));
        }
        Some(other) => bail!("unknown list type {other}"),
    }
    if let Some(map_type) = described.get("x-kubernetes-map-type").and_then(Value::as_str) {
        let _ = write!(table, " {map_type}");
    }
    if let Some(strategy) = described.get("x-kubernetes-patch-strategy").and_then(Value::as_str) {
        let _ = write!(table, " patch={strategy}");
    }
    if let Some(key) = described.get("x-kubernetes-patch-merge-key").and_then(Value::as_str) {
        let _ = write!(table, " key={key}");
    }
    Ok(())
}

fn facts_about(table: &mut String, known: &Field) -> Result<()> {
    if !known.presence.is_empty() {
        let _ = write!(table, " {}", known.presence);
    }
    for (name, value) in [("go", &known.go), ("in", &known.embedded)] {
        if !value.is_empty() {
            let _ = write!(table, " {name}={value}");
        }
    }
    if !known.enumeration.is_empty() {
        let _ = write!(table, " enum={}", serde_json::to_string(&known.enumeration)?);
    }
    if !known.with.is_empty() {
        let _ = write!(table, " with={}", serde_json::to_string(&known.with)?);
    }
    if let Some(default) = &known.default {
        let _ = write!(table, " default={default}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_rendered_in_table_notation() {
        let reference = |name: &str| json!({ "$ref": format!("#/definitions/{name}") });
        let quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity";
        let cases = [
            (json!({ "type": "string" }), "string"),
            (json!({ "type": "integer", "format": "int32" }), "integer/int32"),
            (json!({ "type": "number", "format": "double" }), "number"),
            (json!({ "type": "array", "items": { "type": "string" } }), "[]string"),
            (json!({ "type": "array", "items": reference("a.B") }), "[]a.B"),
            (json!({ "type": "object", "additionalProperties": reference(quantity) }), "{}quantity"),
            (reference("io.k8s.apimachinery.pkg.runtime.RawExtension"), "any"),
        ];
        for (described, expected) in cases {
            assert_eq!(spell(&described).unwrap(), expected);
        }
        assert!(spell(&json!({ "type": "tuple" })).is_err(), "an unknown type is an error");
    }

    #[test]
    fn types_are_found_through_lists_maps_and_each_other() {
        let swagger = json!({
            "A": { "properties": { "b": { "type": "array", "items": { "$ref": "#/definitions/B" } } } },
            "B": { "properties": { "a": { "$ref": "#/definitions/A" }, "c": { "additionalProperties": { "$ref": "#/definitions/C" } } } },
            "C": {},
            "D": {},
        });
        let found = reachable(swagger.as_object().unwrap(), vec!["A"]).unwrap();
        assert_eq!(found, BTreeSet::from(["A", "B", "C"]));
    }
}
