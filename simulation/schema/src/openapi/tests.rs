use std::collections::BTreeSet;

use super::*;
use crate::{Node, NodeType, ObjectNode, Schema, SubresourceInfo, Types};

fn referred<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|it| referred(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| referred(it, found)),
        _ => {}
    }
}

fn widget() -> ResourceInfo {
    let built_in = Catalog::built_in();
    let mut root = ObjectNode::default();
    let metadata = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    root.fields.insert("metadata".into(), Node::of(NodeType::Ref(metadata.into())));
    root.fields.insert("port".into(), Node { nullable: true, ..Node::of(NodeType::IntOrString) });
    ResourceInfo {
        group: "shop.example.com".into(),
        version: "v1".into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        namespaced: true,
        verbs: ["get", "list", "create", "update", "patch", "delete"].map(str::to_owned).to_vec(),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: None,
        subresources: [(
            "scale".to_owned(),
            SubresourceInfo {
                group: Some("autoscaling".into()),
                version: Some("v1".into()),
                kind: "Scale".into(),
                verbs: ["get", "update", "patch"].map(str::to_owned).to_vec(),
            },
        )]
        .into(),
        schema: Schema {
            types: built_in.kind_schema("", "v1", "Pod").unwrap().types.clone(),
            root: Node::of(NodeType::Object(root)).into(),
        },
    }
}

#[test]
fn every_document_of_the_index_exists_and_is_complete() {
    let mut catalog = Catalog::built_in();
    catalog.insert(widget());
    let index = v3_index(&catalog);
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 23);
    for path in paths.keys() {
        let parts: Vec<_> = path.split('/').collect();
        let (group, version) = match *parts.as_slice() {
            ["api", version] => ("", version),
            ["apis", group, version] => (group, version),
            _ => panic!("{path}"),
        };
        let document = v3_document(&catalog, group, version).unwrap();
        let mut references = BTreeSet::new();
        referred(&document, &mut references);
        for reference in references {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            let schema = &document["components"]["schemas"][name];
            assert!(schema.as_object().is_some_and(|it| !it.is_empty()), "{path}: {name}");
        }
    }
    assert_eq!(v3_document(&catalog, "apps", "v2"), None);
}

#[test]
fn every_patch_operation_has_the_parameters_kubectl_reads() {
    let catalog = Catalog::built_in();
    for resource in catalog.iter().filter(|it| it.verbs.iter().any(|it| it == "patch")) {
        let document = v3_document(&catalog, &resource.group, &resource.version).unwrap();
        let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
        let mut patches = document["paths"].as_object().unwrap().values().filter_map(|it| it.get("patch"));
        let patch = patches.find(|it| it["x-kubernetes-group-version-kind"] == kind).unwrap();
        let parameters = patch["parameters"].as_array().unwrap();
        for name in ["fieldValidation", "dryRun", "fieldManager", "force"] {
            assert!(parameters.iter().any(|it| it["name"] == name && it["in"] == "query"), "{kind}: {name}");
        }
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
        let mut schemas = document["components"]["schemas"].as_object().unwrap().values();
        assert!(schemas.any(|it| it["x-kubernetes-group-version-kind"] == json!([kind])), "{kind}");
    }
}

#[test]
fn kubectl_finds_field_validation_on_kinds_that_are_only_created() {
    let document = v3_document(&Catalog::built_in(), "authorization.k8s.io", "v1").unwrap();
    let item = &document["paths"]["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/{name}"];
    assert_eq!(item["patch"]["x-kubernetes-group-version-kind"]["kind"], "SelfSubjectAccessReview");
    assert!(item["patch"]["parameters"].as_array().unwrap().iter().any(|it| it["name"] == "fieldValidation"));
    assert_eq!(item["patch"].get("requestBody"), None, "the patch cannot be sent");
}

#[test]
fn strategic_merge_keys_are_included() {
    let document = v3_document(&Catalog::built_in(), "apps", "v1").unwrap();
    let schemas = &document["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["items"]["allOf"][0]["$ref"], "#/components/schemas/io.k8s.api.core.v1.Container");
    let strategy = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"];
    assert_eq!(strategy["x-kubernetes-patch-strategy"], "retainKeys");
    assert!(strategy["allOf"][0]["$ref"].as_str().unwrap().ends_with(".DeploymentStrategy"));
}

#[test]
fn custom_kind_is_described_and_its_hash_follows_its_schema() {
    let mut catalog = Catalog::built_in();
    let mut widget = widget();
    catalog.insert(widget.clone());
    let document = v3_document(&catalog, "shop.example.com", "v1").unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let named = &schemas["com.example.shop.v1.Widget"];
    assert_eq!(named["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert_eq!(named["properties"]["port"]["x-kubernetes-int-or-string"], true);
    assert_eq!(named["properties"]["port"]["nullable"], true);
    assert!(schemas.contains_key("io.k8s.api.autoscaling.v1.Scale"));
    let item = "/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}";
    let patch = &document["paths"][item]["patch"];
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
    assert!(document["paths"].get(format!("{item}/scale")).is_some());

    let address = |catalog: &Catalog| v3_index(catalog)["paths"]["apis/shop.example.com/v1"].clone();
    let before = address(&catalog);
    widget.schema.root = Node::of(NodeType::Object(ObjectNode::default())).into();
    catalog.insert(widget.clone());
    let after = address(&catalog);
    assert_ne!(after, before);
    widget.schema = Schema {
        types: Types::default().into(),
        root: Node::of(NodeType::Object(ObjectNode::default())).into(),
    };
    catalog.insert(widget);
    assert_ne!(address(&catalog), after);
}

#[test]
fn version_two_has_every_kind_in_one_document() {
    let catalog = Catalog::built_in();
    let document = v2(&catalog);
    let mut references = BTreeSet::new();
    referred(&document, &mut references);
    for reference in references {
        let name = reference.strip_prefix("#/definitions/").unwrap();
        assert!(document["definitions"].get(name).is_some(), "{name}");
    }
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert!(patch["consumes"].as_array().unwrap().contains(&json!("application/strategic-merge-patch+json")));
    assert!(patch["parameters"].as_array().unwrap().iter().any(|it| it["name"] == "fieldValidation"));
}

#[test]
fn documents_stay_small() {
    let catalog = Catalog::built_in();
    let length = |group| v3_document(&catalog, group, "v1").unwrap().to_string().len();
    assert!(length("") < 250_000, "{}", length(""));
    assert!(length("coordination.k8s.io") < 15_000, "{}", length("coordination.k8s.io"));
}
