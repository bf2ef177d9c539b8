//! Groups, versions and resources that a server serves by default, from upstream's recorded discovery.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Upstream, text, texts};

/// A group, in the order of discovery.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) versions: Vec<Version>,
}

/// A version of a group; the preferred version is first.
pub(super) struct Version {
    pub(super) name: String,
    pub(super) resources: Vec<Resource>,
}

pub(super) struct Resource {
    pub(super) name: String,
    pub(super) kind: String,
    singular: String,
    namespaced: bool,
    verbs: Vec<String>,
    short_names: Vec<String>,
    categories: Vec<String>,
    storage_version_hash: Option<String>,
    pub(super) subresources: Vec<Subresource>,
}

pub(super) struct Subresource {
    name: String,
    /// Group and version of the kind if they differ from the parent's.
    pub(super) group_version: Option<(String, String)>,
    pub(super) kind: String,
    verbs: Vec<String>,
}

/// Reads the groups. The recording contains all versions; alpha and beta versions are disabled by default.
pub(super) fn read(upstream: &Upstream) -> Result<Vec<Group>> {
    let mut groups = vec![Group { name: String::new(), versions: vec![version(upstream, "", "v1")?] }];
    let listed = upstream.json("discovery/apis.json")?;
    for group in listed["groups"].as_array().context("apis.json lists no groups")? {
        let name = text(group, "name")?;
        let mut versions = Vec::new();
        for listed in group["versions"].as_array().context("a group without versions")? {
            let of_group = text(listed, "version")?;
            if is_on_by_default(of_group) {
                versions.push(version(upstream, name, of_group)?);
            }
        }
        if !versions.is_empty() {
            groups.push(Group { name: name.to_owned(), versions });
        }
    }
    Ok(groups)
}

fn is_on_by_default(version: &str) -> bool {
    !version.contains("alpha") && !version.contains("beta")
}

fn version(upstream: &Upstream, group: &str, name: &str) -> Result<Version> {
    let path = match group {
        "" => format!("discovery/api__{name}.json"),
        _ => format!("discovery/apis__{group}__{name}.json"),
    };
    let listed = upstream.json(&path)?;
    let mut resources: Vec<Resource> = Vec::new();
    for row in listed["resources"].as_array().with_context(|| format!("{path} lists no resources"))? {
        match text(row, "name")?.split_once('/') {
            None => resources.push(resource(row)?),
            Some((parent, name)) => {
                let parent = resources.iter_mut().find(|it| it.name == parent);
                let parent = parent.with_context(|| format!("{path} lists {name} before its parent"))?;
                parent.subresources.push(subresource(name, row)?);
            }
        }
    }
    Ok(Version { name: name.to_owned(), resources })
}

fn resource(row: &Value) -> Result<Resource> {
    Ok(Resource {
        name: text(row, "name")?.to_owned(),
        kind: text(row, "kind")?.to_owned(),
        singular: text(row, "singularName")?.to_owned(),
        namespaced: row["namespaced"] == true,
        verbs: texts(row, "verbs"),
        short_names: texts(row, "shortNames"),
        categories: texts(row, "categories"),
        storage_version_hash: row["storageVersionHash"].as_str().map(str::to_owned),
        subresources: Vec::new(),
    })
}

fn subresource(name: &str, row: &Value) -> Result<Subresource> {
    let group_version =
        row.get("version").map(|version| (text_or_empty(&row["group"]), text_or_empty(version)));
    Ok(Subresource {
        name: name.to_owned(),
        group_version,
        kind: text(row, "kind")?.to_owned(),
        verbs: texts(row, "verbs"),
    })
}

fn text_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns upstream's recorded discovery responses for `groups`, one path per line, for tests to compare with.
/// Addresses and disabled versions are removed.
pub(super) fn answers(upstream: &Upstream, groups: &[Group]) -> Result<String> {
    let mut answers = vec![
        ("/origin".to_owned(), Value::from(upstream.origin())),
        ("/api".to_owned(), upstream.json("discovery/api.json")?),
        ("/apis".to_owned(), upstream.json("discovery/apis.json")?),
        ("/aggregated".to_owned(), upstream.json("discovery/aggregated_v2.json")?),
    ];
    for group in groups {
        let (base, file) = match group.name.as_str() {
            "" => ("/api".to_owned(), "api".to_owned()),
            name => (format!("/apis/{name}"), format!("apis__{name}")),
        };
        if !group.name.is_empty() {
            answers.push((base.clone(), upstream.json(&format!("discovery/{file}.json"))?));
        }
        for Version { name, .. } in &group.versions {
            let answer = upstream.json(&format!("discovery/{file}__{name}.json"))?;
            answers.push((format!("{base}/{name}"), answer));
        }
    }
    let mut lines = Vec::new();
    for (path, mut answer) in answers {
        trim(&mut answer);
        lines.push(format!("{}:{answer}", Value::from(path)));
    }
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

fn trim(answer: &mut Value) {
    match answer {
        Value::Array(items) => {
            items.retain(|it| !is_off(it));
            items.iter_mut().for_each(trim);
            // A group without versions is removed.
            items.retain(|it| it["versions"].as_array().is_none_or(|versions| !versions.is_empty()));
        }
        Value::Object(fields) => {
            if let Some(addresses) = fields.get_mut("serverAddressByClientCIDRs") {
                *addresses = Value::Array(Vec::new());
            }
            fields.values_mut().for_each(trim);
        }
        _ => {}
    }
}

/// Returns whether a member of `versions` is disabled by default. Rows of resources have a `version` and a name.
fn is_off(item: &Value) -> bool {
    let version = item.get("version").and_then(Value::as_str);
    item.get("name").is_none() && version.is_some_and(|it| !is_on_by_default(it))
}

/// Renders the table: groups, versions and resources in order, one per line, indented below their parent.
pub(super) fn render(groups: &[Group]) -> String {
    let mut table = String::from(
        "# group NAME; version NAME; NAME KIND SINGULAR SCOPE verbs=.. short=.. categories=.. hash=..; /SUBRESOURCE KIND\n",
    );
    for group in groups {
        let name = if group.name.is_empty() { "-" } else { &group.name };
        let _ = writeln!(table, "group {name}");
        for version in &group.versions {
            let _ = writeln!(table, " version {}", version.name);
            version.resources.iter().for_each(|resource| render_resource(&mut table, resource));
        }
    }
    table
}

fn render_resource(table: &mut String, resource: &Resource) {
    let scope = if resource.namespaced { "Namespaced" } else { "Cluster" };
    let _ = write!(table, "  {} {} {} {scope}", resource.name, resource.kind, resource.singular);
    let lists =
        [("verbs", &resource.verbs), ("short", &resource.short_names), ("categories", &resource.categories)];
    for (name, list) in lists {
        if !list.is_empty() {
            let _ = write!(table, " {name}={}", list.join(","));
        }
    }
    if let Some(hash) = &resource.storage_version_hash {
        let _ = write!(table, " hash={hash}");
    }
    table.push('\n');
    for subresource in &resource.subresources {
        let _ = write!(table, "   /{} {}", subresource.name, subresource.kind);
        if let Some((group, version)) = &subresource.group_version {
            let _ = write!(table, " group={group} version={version}");
        }
        let _ = writeln!(table, " verbs={}", subresource.verbs.join(","));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn disabled_versions_and_empty_groups_are_removed() {
        let mut answer = json!({ "groups": [
            { "name": "a", "versions": [{ "version": "v1" }, { "version": "v1beta1" }] },
            { "name": "b", "versions": [{ "version": "v1alpha1" }] },
        ] });
        trim(&mut answer);
        assert_eq!(answer, json!({ "groups": [{ "name": "a", "versions": [{ "version": "v1" }] }] }));
    }
}
