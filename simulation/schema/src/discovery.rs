//! Discovery documents of the server: `/api`, `/apis`, the documents below them, and aggregated discovery.
//!
//! Guarantees: for the built-in kinds, the same content and order as upstream's server with default settings. Custom
//! kinds follow, groups by name and versions by age, as upstream orders them. Optional data about the server is
//! omitted: the addresses for clients, and the storage version hashes of custom kinds.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::catalog::{Catalog, Group, ResourceInfo, SubresourceInfo};

/// Returns the document at `/api`.
pub fn api_versions(catalog: &Catalog) -> Value {
    let versions = catalog.groups().into_iter().filter(|it| it.name.is_empty());
    let versions: Vec<_> = versions.flat_map(|it| it.versions).collect();
    json!({ "kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": [] })
}

/// Returns the document at `/apis`.
pub fn api_groups(catalog: &Catalog) -> Value {
    let groups: Vec<_> = catalog.groups().iter().filter(|it| !it.name.is_empty()).map(group).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// Returns the document at `/apis/{name}`.
pub fn api_group(catalog: &Catalog, name: &str) -> Option<Value> {
    let found = catalog.groups().into_iter().find(|it| it.name == name && !name.is_empty())?;
    let mut described = group(&found);
    described["kind"] = json!("APIGroup");
    described["apiVersion"] = json!("v1");
    Some(described)
}

/// Returns the document at `/api/{version}` or `/apis/{group}/{version}`.
pub fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in catalog.of_version(group, version) {
        resources.push(resource_row(resource));
        resources.extend(resource.subresources.iter().map(|(name, it)| subresource_row(resource, name, it)));
    }
    if resources.is_empty() {
        return None;
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, version),
        "resources": resources,
    });
    // The core group predates the field, and upstream omits it for clients of that time.
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// Returns the document at `/api` in the form `APIGroupDiscoveryList`.
pub fn aggregated_core(catalog: &Catalog) -> Value {
    aggregated(catalog, |group| group.is_empty())
}

/// Returns the document at `/apis` in the form `APIGroupDiscoveryList`.
pub fn aggregated_groups(catalog: &Catalog) -> Value {
    aggregated(catalog, |group| !group.is_empty())
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn group(group: &Group) -> Value {
    let versions: Vec<_> = group
        .versions
        .iter()
        .map(|it| json!({ "groupVersion": group_version(&group.name, it), "version": it }))
        .collect();
    json!({ "name": group.name, "preferredVersion": versions.first(), "versions": versions })
}

fn resource_row(resource: &ResourceInfo) -> Value {
    let mut row = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    name_lists(&mut row, resource);
    if let Some(hash) = &resource.storage_version_hash {
        row["storageVersionHash"] = json!(hash);
    }
    row
}

/// Adds name lists that are not empty.
fn name_lists(row: &mut Value, resource: &ResourceInfo) {
    for (name, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !list.is_empty() {
            row[name] = json!(list);
        }
    }
}

fn subresource_row(parent: &ResourceInfo, name: &str, subresource: &SubresourceInfo) -> Value {
    let mut row = json!({
        "name": format!("{}/{name}", parent.plural),
        "singularName": "",
        "namespaced": parent.namespaced,
        "kind": subresource.kind,
        "verbs": subresource.verbs,
    });
    for (name, value) in [("group", &subresource.group), ("version", &subresource.version)] {
        if let Some(value) = value {
            row[name] = json!(value);
        }
    }
    row
}

fn aggregated(catalog: &Catalog, wanted: impl Fn(&str) -> bool) -> Value {
    let groups = catalog.groups().into_iter().filter(|it| wanted(&it.name));
    let items: Vec<_> = groups
        .map(|group| {
            let versions = group.versions.iter().map(|it| aggregated_version(catalog, &group.name, it));
            // The core group has no name.
            let metadata = if group.name.is_empty() { json!({}) } else { json!({ "name": group.name }) };
            json!({ "metadata": metadata, "versions": versions.collect::<Vec<_>>() })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_version(catalog: &Catalog, group: &str, version: &str) -> Value {
    // Upstream includes group and version of a built-in kind only if they differ from the resource's.
    let own = if catalog.is_built_in(group, version) { ("", "") } else { (group, version) };
    let resources: Vec<_> =
        catalog.of_version(group, version).map(|it| aggregated_resource(it, own)).collect();
    json!({ "version": version, "freshness": "Current", "resources": resources })
}

fn aggregated_resource(resource: &ResourceInfo, own: (&str, &str)) -> Value {
    let mut row = json!({
        "resource": resource.plural,
        "responseKind": { "group": own.0, "version": own.1, "kind": resource.kind },
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    name_lists(&mut row, resource);
    let subresources = resource.subresources.iter().map(|(name, it)| {
        let group = it.group.as_deref().unwrap_or(own.0);
        let version = it.version.as_deref().unwrap_or(own.1);
        json!({
            "subresource": name,
            "responseKind": { "group": group, "version": version, "kind": it.kind },
            "verbs": it.verbs,
        })
    });
    if !resource.subresources.is_empty() {
        row["subresources"] = subresources.collect();
    }
    row
}
