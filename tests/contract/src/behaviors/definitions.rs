//! CustomResourceDefinitions: installing and removing a kind.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{Behavior, Case, Outcome, behaviors, case::patch::MERGE, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    new_crd_is_accepted_and_established,
    new_kind_is_served_in_discovery,
    deleted_kind_is_no_longer_served,
    cluster_scoped_kind_has_no_namespace,
    each_served_version_is_served_and_no_other,
    objects_are_read_in_any_version,
    crd_name_without_its_group_is_rejected,
    kind_without_a_schema_is_rejected,
    schema_that_is_not_structural_is_rejected,
    kind_with_two_storage_versions_is_rejected,
    crd_with_conflicting_names_is_not_accepted,
    crd_names_are_defaulted,
    changed_schema_takes_effect,
    kind_without_status_keeps_it_in_the_object,
    response_to_new_crd_precedes_acceptance_of_names,
    errors_of_items_are_listed_first,
    list_of_item_schemas_is_rejected,
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns an API group that only this case uses.
fn group(case: &Case) -> String {
    format!("{}.example.com", case.namespace)
}

fn version(name: &str, storage: bool) -> Value {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": anything } })
}

fn definition(case: &Case) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things.{}", group(case)) },
        "spec": { "group": group(case), "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
            "versions": [version("v1", true)] },
    })
}

fn own_path(case: &Case) -> String {
    format!("{DEFINITIONS}/things.{}", group(case))
}

fn things(case: &Case, version: &str) -> String {
    format!("{}/{version} things", group(case))
}

async fn define(case: &Case, definition: Value) -> Result<()> {
    case.make(DEFINITIONS, definition).await?;
    case.until(&things(case, "v1"), |answer| answer.status == 200).await?;
    Ok(())
}

async fn delete_crd(case: &Case) -> Outcome {
    case.delete(&own_path(case)).await?.is(200)?;
    Ok(())
}

async fn new_crd_is_accepted_and_established(case: Case) -> Outcome {
    define(&case, definition(&case)).await?;
    let found = case.read(&own_path(&case)).await?;
    let conditions: Vec<_> = found["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| (it["type"].as_str(), it["status"].as_str(), it["reason"].as_str()))
        .collect();
    same!(
        conditions,
        [
            (Some("NamesAccepted"), Some("True"), Some("NoConflicts")),
            (Some("Established"), Some("True"), Some("InitialNamesAccepted"))
        ]
    );
    has!(found["status"], { "storedVersions": ["v1"], "acceptedNames": { "plural": "things", "kind": "Thing" } });
    delete_crd(&case).await
}

async fn new_kind_is_served_in_discovery(case: Case) -> Outcome {
    define(&case, definition(&case)).await?;
    let path = format!("/apis/{}/v1", group(&case));
    let answer = case.until(&path, |answer| answer.status == 200).await?;
    let list = answer.body;
    has!(list, { "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{}/v1", group(&case)) });
    has!(list["resources"][0], { "name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing" });
    same!(
        list["resources"][0]["verbs"],
        json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"])
    );
    delete_crd(&case).await
}

async fn deleted_kind_is_no_longer_served(case: Case) -> Outcome {
    define(&case, definition(&case)).await?;
    let thing =
        json!({ "apiVersion": format!("{}/v1", group(&case)), "kind": "Thing", "metadata": { "name": "a" } });
    case.make(&things(&case, "v1"), thing).await?;
    delete_crd(&case).await?;
    case.until(&own_path(&case), |answer| answer.status == 404).await?;
    case.until(&things(&case, "v1"), |answer| answer.status == 404).await?;
    Ok(())
}

async fn cluster_scoped_kind_has_no_namespace(case: Case) -> Outcome {
    let mut wanted = definition(&case);
    wanted["spec"]["scope"] = json!("Cluster");
    case.make(DEFINITIONS, wanted).await?;
    let path = format!("/apis/{}/v1/things", group(&case));
    case.until(&path, |answer| answer.status == 200).await?;
    let thing =
        json!({ "apiVersion": format!("{}/v1", group(&case)), "kind": "Thing", "metadata": { "name": "a" } });
    same!(case.make(&path, thing).await?["metadata"]["namespace"], Value::Null);
    delete_crd(&case).await
}

async fn each_served_version_is_served_and_no_other(case: Case) -> Outcome {
    let mut wanted = definition(&case);
    let mut hidden = version("v3", false);
    hidden["served"] = json!(false);
    wanted["spec"]["versions"] = json!([version("v1", true), version("v2", false), hidden]);
    define(&case, wanted).await?;
    case.until(&things(&case, "v2"), |answer| answer.status == 200).await?;
    case.get(&things(&case, "v3")).await?.is(404)?;
    delete_crd(&case).await
}

async fn objects_are_read_in_any_version(case: Case) -> Outcome {
    let mut wanted = definition(&case);
    wanted["spec"]["versions"] = json!([version("v1", true), version("v2", false)]);
    define(&case, wanted).await?;
    let thing = json!({ "apiVersion": format!("{}/v1", group(&case)), "kind": "Thing", "metadata": { "name": "a" },
        "spec": { "x": 1 } });
    let made = case.make(&things(&case, "v1"), thing).await?;
    let found = case.read(&format!("{}/a", things(&case, "v2"))).await?;
    has!(found, { "apiVersion": format!("{}/v2", group(&case)), "spec": { "x": 1 },
        "metadata": { "uid": made["metadata"]["uid"] } });
    delete_crd(&case).await
}

async fn crd_name_without_its_group_is_rejected(case: Case) -> Outcome {
    let mut wanted = definition(&case);
    wanted["metadata"]["name"] = json!("others.example.com");
    let answer = case.post(DEFINITIONS, wanted).await?;
    let words =
        "metadata.name: Invalid value: \"others.example.com\": must be spec.names.plural+\".\"+spec.group";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    let answer = case.post(DEFINITIONS, json!({})).await?;
    let message = "CustomResourceDefinition.apiextensions.k8s.io \"\" is invalid: [metadata.name: Required value: name or \
        generateName is required, spec.group: Required value, spec.scope: Required value, spec.versions: Invalid value: \
        null: must have exactly one version marked as storage version, spec.names.plural: Required value, \
        spec.names.singular: Required value, spec.names.kind: Required value, spec.names.listKind: Required value, \
        status.storedVersions: Invalid value: null: must have at least one stored version]";
    answer.expect_rejected(422, "Invalid", message)?;
    let mut generated = definition(&case);
    generated["metadata"] = json!({ "generateName": "a" });
    let words = "metadata.generateName: Invalid value: \"a\": must be spec.names.plural+\".\"+spec.group";
    case.post(DEFINITIONS, generated).await?.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn kind_without_a_schema_is_rejected(case: Case) -> Outcome {
    let mut wanted = definition(&case);
    wanted["spec"]["versions"][0]["schema"] = json!(null);
    let answer = case.post(DEFINITIONS, wanted).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "spec.versions[0].schema.openAPIV3Schema: Required value",
    )?;
    Ok(())
}

async fn schema_that_is_not_structural_is_rejected(case: Case) -> Outcome {
    let mut wanted = definition(&case);
    wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({ "type": "object", "properties": { "spec": { "properties": { "x": { "type": "string" } } } } });
    let answer = case.post(DEFINITIONS, wanted).await?;
    let words = "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn kind_with_two_storage_versions_is_rejected(case: Case) -> Outcome {
    let mut wanted = definition(&case);
    wanted["spec"]["versions"] = json!([version("v1", true), version("v2", true)]);
    let answer = case.post(DEFINITIONS, wanted).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "must have exactly one version marked as storage version",
    )?;
    Ok(())
}

async fn crd_with_conflicting_names_is_not_accepted(case: Case) -> Outcome {
    define(&case, definition(&case)).await?;
    let mut other = definition(&case);
    other["metadata"]["name"] = json!(format!("others.{}", group(&case)));
    other["spec"]["names"]["plural"] = json!("others");
    case.make(DEFINITIONS, other).await?;
    let path = format!("{DEFINITIONS}/others.{}", group(&case));
    let decided =
        |it: &crate::TestResponse| it.body["status"]["conditions"].as_array().is_some_and(|it| it.len() == 2);
    let found = case.until(&path, decided).await?.body;
    has!(found["status"]["conditions"][0], { "type": "NamesAccepted", "status": "False", "reason": "ListKindConflict",
        "message": "\"ThingList\" is already in use" });
    case.delete(&path).await?.is(200)?;
    delete_crd(&case).await
}

async fn crd_names_are_defaulted(case: Case) -> Outcome {
    let made = case.make(DEFINITIONS, definition(&case)).await?;
    has!(made["spec"], { "names": { "singular": "thing", "listKind": "ThingList" },
        "conversion": { "strategy": "None" } });
    delete_crd(&case).await
}

async fn changed_schema_takes_effect(case: Case) -> Outcome {
    define(&case, definition(&case)).await?;
    let mut found = case.read(&own_path(&case)).await?;
    found["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": { "x": { "type": "integer", "maximum": 3 } } } } });
    case.replace(&own_path(&case), found).await?;
    let thing = json!({ "apiVersion": format!("{}/v1", group(&case)), "kind": "Thing",
        "metadata": { "generateName": "a-" }, "spec": { "x": 9 } });
    let path = things(&case, "v1");
    let refused = async {
        while case.post(&path, thing.clone()).await?.status != 422 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), refused).await??;
    delete_crd(&case).await
}

async fn kind_without_status_keeps_it_in_the_object(case: Case) -> Outcome {
    define(&case, definition(&case)).await?;
    let thing = json!({ "apiVersion": format!("{}/v1", group(&case)), "kind": "Thing", "metadata": { "name": "a" },
        "status": { "x": 1 } });
    same!(case.make(&things(&case, "v1"), thing).await?["status"], json!({ "x": 1 }));
    case.get(&format!("{}/a/status", things(&case, "v1"))).await?.is(404)?;
    let changed = case.merge(&format!("{}/a", things(&case, "v1")), json!({ "status": { "x": 2 } })).await?;
    same!(changed["metadata"]["generation"], 2);
    delete_crd(&case).await
}

async fn response_to_new_crd_precedes_acceptance_of_names(case: Case) -> Outcome {
    let initial = json!({ "conditions": null, "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": ["v1"] });
    let dry = case.make(&format!("{DEFINITIONS}?dryRun=All"), definition(&case)).await?;
    same!(dry["status"], initial);
    let made = case.make(DEFINITIONS, definition(&case)).await?;
    same!(made["status"], initial);
    case.until(&things(&case, "v1"), |answer| answer.status == 200).await?;
    // Upstream accepts the names again if a client changes them.
    let changed = json!({ "status": { "acceptedNames": { "kind": "Other" } } });
    case.patch(MERGE, &format!("{}/status?fieldManager=me", own_path(&case)), changed).await?.is(200)?;
    let is_restored = |it: &Value| it["status"]["acceptedNames"]["kind"] == "Thing";
    let found = case.until(&own_path(&case), |answer| is_restored(&answer.body)).await?.body;
    let entries = found["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owners: Vec<_> = entries
        .filter(|it| it["fieldsV1"]["f:status"]["f:acceptedNames"]["f:kind"].is_object())
        .map(|it| (&it["manager"], &it["subresource"]))
        .collect();
    same!(owners, [(&json!("kube-apiserver"), &json!("status"))]);
    delete_crd(&case).await
}

/// Creates a definition whose spec has this schema, and compares the causes of the rejection.
async fn expect_schema(case: &Case, spec: Value, expected: &[&str]) -> Outcome {
    let mut wanted = definition(case);
    wanted["spec"]["versions"] = json!([version("v1", true)]);
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    let answer = case.post(DEFINITIONS, wanted).await?;
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let path = "spec.validation.openAPIV3Schema.properties[spec]";
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().replace(path, "");
    let found: Vec<_> =
        causes.iter().map(|it| format!("{}: {}", text(it, "field"), text(it, "message"))).collect();
    same!((answer.status, found), (422, expected.iter().map(|it| (*it).to_owned()).collect()));
    Ok(())
}

async fn errors_of_items_are_listed_first(case: Case) -> Outcome {
    let items = json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": {} });
    let untyped = "Required value: must not be empty for specified object fields";
    let expected = [
        &*format!(".items.additionalProperties.type: {untyped}"),
        &format!(".items.properties[a].type: {untyped}"),
        ".items.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
    ];
    expect_schema(&case, json!({ "type": "array", "items": items }), &expected).await?;
    let untyped = "Required value: must not be empty for specified array items";
    let expected = [
        &*format!(".items.items.items.type: {untyped}"),
        &format!(".items.items.type: {untyped}"),
        &format!(".items.type: {untyped}"),
    ];
    expect_schema(&case, json!({ "type": "array", "items": { "items": { "items": {} } } }), &expected).await
}

async fn list_of_item_schemas_is_rejected(case: Case) -> Outcome {
    let expected = [".items: Forbidden: items must be a schema object and not an array"];
    expect_schema(&case, json!({ "type": "array", "items": [{ "type": "string" }] }), &expected).await
}
