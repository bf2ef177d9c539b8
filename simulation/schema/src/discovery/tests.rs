use std::collections::BTreeMap;

use super::*;

/// Responses of upstream's server by path, without the optional data that is omitted here.
const UPSTREAM: &str = include_str!("../tables/discovery.json");

fn upstream() -> BTreeMap<String, Value> {
    serde_json::from_str(UPSTREAM).unwrap()
}

fn widget(version: &str) -> ResourceInfo {
    ResourceInfo {
        group: "example.com".into(),
        version: version.into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        namespaced: true,
        verbs: vec!["get".into()],
        short_names: vec!["wd".into()],
        categories: vec!["all".into()],
        storage_version_hash: None,
        subresources: BTreeMap::from([(
            "scale".to_owned(),
            SubresourceInfo {
                group: Some("autoscaling".into()),
                version: Some("v1".into()),
                kind: "Scale".into(),
                verbs: vec!["get".into()],
            },
        )]),
        schema: Catalog::built_in().kind_schema("", "v1", "ConfigMap").unwrap().clone(),
    }
}

#[test]
fn every_path_returns_the_document_of_upstream() {
    let catalog = Catalog::built_in();
    let mut compared = 0;
    for (path, expected) in upstream() {
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let answered = match *parts.as_slice() {
            ["api"] => Some(api_versions(&catalog)),
            ["apis"] => Some(api_groups(&catalog)),
            ["apis", group] => api_group(&catalog, group),
            ["api", version] => resource_list(&catalog, "", version),
            ["apis", group, version] => resource_list(&catalog, group, version),
            ["aggregated"] => Some(aggregated_groups(&catalog)),
            _ => continue,
        };
        assert!(answered.as_ref() == Some(&expected), "{path}: {answered:#?}\nis not {expected:#?}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn storage_version_hash_equals_upstreams() {
    let catalog = Catalog::built_in();
    let cases = [
        ("apps", "v1", "deployments", Some("8aSe+NMegvE=")),
        // Both are stored as the newer version.
        ("autoscaling", "v1", "horizontalpodautoscalers", Some("qwQve8ut294=")),
        ("autoscaling", "v2", "horizontalpodautoscalers", Some("qwQve8ut294=")),
        ("", "v1", "bindings", None),
    ];
    for (group, version, plural, expected) in cases {
        let found = catalog.resource(group, version, plural).unwrap();
        assert_eq!(found.storage_version_hash.as_deref(), expected, "{plural}");
    }
}

#[test]
fn unknown_groups_and_versions_have_no_documents() {
    let catalog = Catalog::built_in();
    assert_eq!(api_group(&catalog, "example.com"), None);
    assert_eq!(api_group(&catalog, ""), None);
    assert_eq!(resource_list(&catalog, "apps", "v2"), None);
}

#[test]
fn core_group_is_aggregated_without_a_name() {
    let described = aggregated_core(&Catalog::built_in());
    assert_eq!(described["items"].as_array().unwrap().len(), 1);
    assert_eq!(described["items"][0]["metadata"], json!({}));
    let resources = described["items"][0]["versions"][0]["resources"].as_array().unwrap();
    let pods = resources.iter().find(|it| it["resource"] == "pods").unwrap();
    let kind = |name| {
        let mut all = pods["subresources"].as_array().unwrap().iter();
        all.find(|it| it["subresource"] == name).unwrap()["responseKind"].clone()
    };
    assert_eq!(kind("eviction"), json!({ "group": "policy", "version": "v1", "kind": "Eviction" }));
    assert_eq!(kind("status"), json!({ "group": "", "version": "", "kind": "Pod" }));
}

#[test]
fn custom_kinds_come_last_and_their_stable_versions_first() {
    let mut catalog = Catalog::built_in();
    for version in ["v1alpha1", "v1", "v2beta1", "v10", "v2", "other"] {
        catalog.insert(widget(version));
    }
    let groups = api_groups(&catalog);
    let last = groups["groups"].as_array().unwrap().last().unwrap();
    let versions: Vec<_> = last["versions"].as_array().unwrap().iter().map(|it| &it["version"]).collect();
    assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1alpha1", "other"]);
    assert_eq!(last["preferredVersion"], json!({ "groupVersion": "example.com/v10", "version": "v10" }));
    let listed = resource_list(&catalog, "example.com", "v2").unwrap();
    assert_eq!(
        listed["resources"][1],
        json!({
            "name": "widgets/scale", "singularName": "", "namespaced": true,
            "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"],
        })
    );
    let aggregated = aggregated_groups(&catalog);
    let last = aggregated["items"].as_array().unwrap().last().unwrap();
    let kind = &last["versions"][0]["resources"][0]["responseKind"];
    assert_eq!(*kind, json!({ "group": "example.com", "version": "v10", "kind": "Widget" }));
    catalog.remove("example.com", "v10", "widgets");
    assert_eq!(api_group(&catalog, "example.com").unwrap()["preferredVersion"]["version"], "v2");
}
