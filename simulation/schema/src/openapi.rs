//! OpenAPI documents of the server: version 3 with one document per group and version, and version 2 with a single
//! document.
//!
//! Guarantees: every resource of the catalog, built-in or custom, is included with its paths, the query parameters of
//! its writes, its patch types, and its type with the extensions that strategic merge, server-side apply and `kubectl
//! explain` use. kubectl reads these parts.
//!
//! Descriptions, response bodies, lists, and subresources that are not objects are omitted; they make upstream's
//! documents twenty times larger.

mod types;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use self::types::Components;
use crate::catalog::{Catalog, ResourceInfo};
use crate::hash::Hash;
use crate::tables;

/// Returns the index at `/openapi/v3`. Each document's URL contains its content hash, so that clients can cache it.
pub fn v3_index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for group in catalog.groups() {
        for version in &group.versions {
            let path = base(&group.name, version);
            let hash = hash(catalog, &group.name, version);
            let address = format!("/openapi/v3{path}?hash={hash:016X}");
            paths.insert(path[1..].to_owned(), json!({ "serverRelativeURL": address }));
        }
    }
    json!({ "paths": paths })
}

/// Returns the document at `/openapi/v3/api/{version}` or `/openapi/v3/apis/{group}/{version}`.
pub fn v3_document(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut components = Components::new("#/components/schemas/");
    let mut paths = Map::new();
    for resource in catalog.of_version(group, version) {
        describe(catalog, resource, Version::Three, &mut components, &mut paths);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": { "schemas": components.finish() },
    }))
}

/// Returns the document at `/openapi/v2`.
pub fn v2(catalog: &Catalog) -> Value {
    let mut components = Components::new("#/definitions/");
    let mut paths = Map::new();
    for resource in catalog.iter() {
        describe(catalog, resource, Version::Two, &mut components, &mut paths);
    }
    json!({ "swagger": "2.0", "info": info(), "paths": paths, "definitions": components.finish() })
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    Two,
    Three,
}

fn info() -> Value {
    json!({ "title": "Kubernetes", "version": "unversioned" })
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// Returns a hash that changes with the document. Built-in types change only with the tables, so their nodes need not
/// be hashed.
fn hash(catalog: &Catalog, group: &str, version: &str) -> u64 {
    let mut hash = Hash(tables::hash());
    if catalog.is_built_in(group, version) {
        return hash.0;
    }
    for ResourceInfo { plural, kind, namespaced, verbs, subresources, schema, .. } in
        catalog.of_version(group, version).map(|it| &**it)
    {
        // Writing to a hash is infallible.
        let _ = write!(hash, "{plural:?}{kind:?}{namespaced}{verbs:?}{subresources:?}{:?}", schema.root);
        if !catalog.has_built_in_types(schema) {
            let _ = write!(hash, "{:?}", schema.types);
        }
    }
    hash.0
}

/// Adds the paths and types of one resource and its subresources.
fn describe(
    catalog: &Catalog,
    resource: &ResourceInfo,
    version: Version,
    components: &mut Components,
    paths: &mut Map<String, Value>,
) {
    let kind = Kind { group: &resource.group, version: &resource.version, kind: &resource.kind };
    let built_in = catalog.is_built_in(kind.group, kind.version);
    components.kind(kind, &resource.schema, built_in);
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{}{scope}/{}", base(kind.group, kind.version), resource.plural);
    let item = format!("{collection}/{{name}}");
    let render = |of: &[(&str, &str)], kind: Kind<'_>, verbs: &[String]| {
        let merged_strategically = built_in && verbs.iter().any(|it| it == "patch");
        operations(of, kind, verbs, Patches { strategic: merged_strategically }, version)
    };
    paths.insert(collection, render(COLLECTION, kind, &resource.verbs));
    let mut on_item = render(ITEM, kind, &resource.verbs);
    if !resource.verbs.iter().any(|it| it == "patch") {
        on_item["patch"] = probe(kind, version);
    }
    paths.insert(item.clone(), on_item);
    for (name, subresource) in &resource.subresources {
        let group = subresource.group.as_deref().unwrap_or(kind.group);
        let version = subresource.version.as_deref().unwrap_or(kind.version);
        let below = Kind { group, version, kind: &subresource.kind };
        // Subresources without a type use query parameters and streams.
        let Some(schema) = catalog.kind_schema(group, version, below.kind) else { continue };
        components.kind(below, schema, catalog.is_built_in(group, version));
        paths.insert(format!("{item}/{name}"), render(SUBRESOURCE, below, &subresource.verbs));
    }
}

/// A group, version and kind, as OpenAPI extensions contain it.
#[derive(Clone, Copy)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl Kind<'_> {
    fn spelled(self) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": self.kind })
    }
}

/// Methods by the verb that permits them.
const COLLECTION: &[(&str, &str)] = &[("list", "get"), ("create", "post"), ("deletecollection", "delete")];
const ITEM: &[(&str, &str)] = &[("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete")];
const SUBRESOURCE: &[(&str, &str)] =
    &[("get", "get"), ("create", "post"), ("update", "put"), ("patch", "patch")];

struct Patches {
    strategic: bool,
}

fn operations(
    methods: &[(&str, &str)],
    kind: Kind<'_>,
    verbs: &[String],
    patches: Patches,
    version: Version,
) -> Value {
    let mut operations = Map::new();
    for (verb, method) in methods.iter().filter(|(verb, _)| verbs.iter().any(|it| it == verb)) {
        let mut operation = json!({
            "x-kubernetes-action": verb,
            "x-kubernetes-group-version-kind": kind.spelled(),
            "responses": { "200": { "description": "OK" } },
        });
        if let ("create" | "update" | "patch", _) | (_, "delete") = (*verb, *method) {
            operation["parameters"] = parameters(verb, version);
        }
        if *verb == "patch" {
            patch_types(&mut operation, &patches, version);
        }
        operations.insert((*method).to_owned(), operation);
    }
    Value::Object(operations)
}

/// Returns a patch operation with only the parts that kubectl reads. kubectl looks up support for field validation in
/// the patch of a kind, even before it creates a kind without patch; from upstream it reads version 2 in protobuf
/// instead.
fn probe(kind: Kind<'_>, version: Version) -> Value {
    json!({
        "x-kubernetes-group-version-kind": kind.spelled(),
        "parameters": parameters("create", version),
        "responses": { "405": { "description": "Method Not Allowed" } },
    })
}

/// Returns the query parameters of a write.
fn parameters(verb: &str, version: Version) -> Value {
    let names: &[&str] = match verb {
        "create" | "update" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        _ => &["dryRun"],
    };
    let one = |name: &&str| {
        let kind = if *name == "force" { "boolean" } else { "string" };
        match version {
            Version::Two => json!({ "name": name, "in": "query", "type": kind }),
            Version::Three => json!({ "name": name, "in": "query", "schema": { "type": kind } }),
        }
    };
    names.iter().map(one).collect()
}

fn patch_types(operation: &mut Value, patches: &Patches, version: Version) {
    let mut types =
        vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    if patches.strategic {
        types.push("application/strategic-merge-patch+json");
    }
    match version {
        Version::Two => operation["consumes"] = json!(types),
        Version::Three => {
            let content: Map<_, _> = types.into_iter().map(|it| (it.to_owned(), json!({}))).collect();
            operation["requestBody"] = json!({ "content": content, "required": true });
        }
    }
}
