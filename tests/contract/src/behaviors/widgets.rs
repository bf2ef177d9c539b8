//! Custom resources: a test kind with schema, defaults, status, scale and columns.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    Behavior, Case, Outcome, TestResponse, behaviors,
    case::patch::{JSON, MERGE, STRATEGIC},
    check::{names, revision, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    custom_object_is_created_and_read,
    custom_list_has_its_kind,
    custom_object_has_a_generation,
    change_of_a_custom_spec_raises_the_generation,
    change_of_a_custom_status_keeps_the_generation,
    unknown_fields_of_a_custom_object_are_pruned,
    unknown_fields_are_preserved_if_schema_requires_it,
    schema_defaults_are_set,
    default_is_set_only_if_parent_exists,
    null_is_replaced_by_default,
    missing_required_field_is_rejected,
    wrong_type_in_a_custom_object_is_rejected,
    value_outside_an_enum_is_rejected,
    number_below_minimum_is_rejected,
    string_that_does_not_match_pattern_is_rejected,
    too_long_string_is_rejected,
    several_errors_in_a_custom_object_are_listed,
    list_with_a_repeated_key_is_rejected,
    int_or_string_field_accepts_both,
    custom_object_status_is_a_subresource,
    status_in_a_custom_object_is_dropped,
    custom_object_scales,
    custom_object_needs_a_version_to_be_updated,
    old_version_of_a_custom_object_is_rejected,
    custom_object_accepts_merge_and_json_patches,
    custom_object_rejects_strategic_patch,
    custom_object_can_be_applied,
    custom_lists_with_keys_merge_when_applied,
    unknown_field_of_a_custom_object_is_rejected_when_strict,
    unknown_field_of_custom_object_causes_warning,
    custom_object_can_be_watched,
    custom_object_watch_from_compacted_version_is_expired,
    custom_object_is_shown_as_a_table,
    custom_objects_can_be_selected_by_declared_fields,
    custom_object_of_the_wrong_kind_is_rejected,
    finalizer_blocks_removal_of_custom_object,
    missing_custom_object_is_rejected,
    custom_object_can_be_deleted_by_collection,
    custom_object_metadata_is_validated,
    metadata_only_list_of_custom_objects_is_served,
    custom_body_needs_kind_and_version,
    unknown_subresource_of_custom_object_is_not_found,
    fields_of_scale_in_custom_object_are_validated,
    fields_in_scalars_of_custom_object_are_unknown,
    patch_of_custom_object_keeps_type,
];

const GROUP: &str = "contract.example.com/v1";
pub(super) const WIDGETS: &str = "contract.example.com/v1 widgets";
const ONE: &str = "contract.example.com/v1 widgets/a";

fn schema() -> Value {
    json!({
        "type": "object", "required": ["spec"],
        "properties": {
            "spec": { "type": "object", "required": ["size"], "properties": {
                "size": { "type": "integer", "format": "int32", "minimum": 1 },
                "color": { "type": "string", "enum": ["red", "green"], "default": "red" },
                "code": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5 },
                "replicas": { "type": "integer" },
                "port": { "x-kubernetes-int-or-string": true },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "nested": { "type": "object", "properties": { "depth": { "type": "integer", "default": 3 } } },
                "parts": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": { "type": "object", "required": ["name"], "properties": {
                        "name": { "type": "string" }, "value": { "type": "string" } } } },
            } },
            "status": { "type": "object", "properties": {
                "phase": { "type": "string" }, "replicas": { "type": "integer" }, "selector": { "type": "string" } } },
        },
    })
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.contract.example.com" },
        "spec": {
            "group": "contract.example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema() },
                "subresources": { "status": {}, "scale": { "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector" } },
                "selectableFields": [{ "jsonPath": ".spec.color" }],
                "additionalPrinterColumns": [
                    { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                    { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                ],
            }],
        },
    })
}

/// Installs the kind once per server, for all cases.
async fn served(case: &Case) -> Result<()> {
    let _guard = case.server.lock_exclusive().await;
    if case.get(WIDGETS).await?.status == 200 {
        return Ok(());
    }
    case.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await?;
    case.until(WIDGETS, |answer| answer.status == 200).await?;
    Ok(())
}

fn widget(spec: Value) -> Value {
    json!({ "apiVersion": GROUP, "kind": "Widget", "metadata": { "name": "a" }, "spec": spec })
}

pub(super) async fn make(case: &Case, spec: Value) -> Result<Value> {
    served(case).await?;
    case.make(WIDGETS, widget(spec)).await
}

async fn refuse(case: &Case, spec: Value) -> Result<TestResponse> {
    served(case).await?;
    case.post(WIDGETS, widget(spec)).await
}

async fn custom_object_is_created_and_read(case: Case) -> Outcome {
    let made = make(&case, json!({ "size": 2 })).await?;
    has!(made, { "kind": "Widget", "apiVersion": GROUP, "spec": { "size": 2 } });
    same!(case.read(ONE).await?, made);
    Ok(())
}

async fn custom_list_has_its_kind(case: Case) -> Outcome {
    make(&case, json!({ "size": 2 })).await?;
    let list = case.read(WIDGETS).await?;
    has!(list, { "kind": "WidgetList", "apiVersion": GROUP });
    has!(list["items"], [{ "kind": "Widget", "apiVersion": GROUP }]);
    Ok(())
}

async fn custom_object_has_a_generation(case: Case) -> Outcome {
    same!(make(&case, json!({ "size": 2 })).await?["metadata"]["generation"], 1);
    Ok(())
}

async fn change_of_a_custom_spec_raises_the_generation(case: Case) -> Outcome {
    make(&case, json!({ "size": 2 })).await?;
    same!(case.merge(ONE, json!({ "spec": { "size": 3 } })).await?["metadata"]["generation"], 2);
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    same!(case.merge(ONE, labels).await?["metadata"]["generation"], 2);
    Ok(())
}

async fn change_of_a_custom_status_keeps_the_generation(case: Case) -> Outcome {
    make(&case, json!({ "size": 2 })).await?;
    let changed = case.merge(&format!("{ONE}/status"), json!({ "status": { "phase": "x" } })).await?;
    same!(changed["metadata"]["generation"], 1);
    Ok(())
}

async fn unknown_fields_of_a_custom_object_are_pruned(case: Case) -> Outcome {
    let made = make(&case, json!({ "size": 2, "other": 1, "nested": { "more": 1, "depth": 1 } })).await?;
    same!(made["spec"], json!({ "size": 2, "color": "red", "nested": { "depth": 1 } }));
    Ok(())
}

async fn unknown_fields_are_preserved_if_schema_requires_it(case: Case) -> Outcome {
    let made = make(&case, json!({ "size": 2, "free": { "a": { "b": [1, "c"] } } })).await?;
    same!(made["spec"]["free"], json!({ "a": { "b": [1, "c"] } }));
    Ok(())
}

async fn schema_defaults_are_set(case: Case) -> Outcome {
    same!(make(&case, json!({ "size": 2 })).await?["spec"]["color"], "red");
    Ok(())
}

async fn default_is_set_only_if_parent_exists(case: Case) -> Outcome {
    let made = make(&case, json!({ "size": 2, "nested": {} })).await?;
    same!(made["spec"]["nested"], json!({ "depth": 3 }));
    case.delete(ONE).await?.is(200)?;
    same!(make(&case, json!({ "size": 2 })).await?["spec"]["nested"], Value::Null);
    Ok(())
}

async fn null_is_replaced_by_default(case: Case) -> Outcome {
    same!(make(&case, json!({ "size": 2, "color": null })).await?["spec"]["color"], "red");
    Ok(())
}

async fn missing_required_field_is_rejected(case: Case) -> Outcome {
    let message = "Widget.contract.example.com \"a\" is invalid: spec.size: Required value";
    let details = refuse(&case, json!({})).await?.expect_rejected(422, "Invalid", message)?;
    same!(
        details,
        json!({ "name": "a", "group": "contract.example.com", "kind": "Widget", "causes": [{ "field": "spec.size",
            "reason": "FieldValueRequired", "message": "Required value" }] })
    );
    Ok(())
}

async fn wrong_type_in_a_custom_object_is_rejected(case: Case) -> Outcome {
    let message = "Widget.contract.example.com \"a\" is invalid: spec.size: Invalid value: \"string\": spec.size in \
        body must be of type integer: \"string\"";
    let details = refuse(&case, json!({ "size": "big" })).await?.expect_rejected(422, "Invalid", message)?;
    has!(details["causes"], [{ "reason": "FieldValueTypeInvalid", "field": "spec.size" }]);
    Ok(())
}

async fn value_outside_an_enum_is_rejected(case: Case) -> Outcome {
    let message = "Widget.contract.example.com \"a\" is invalid: spec.color: Unsupported value: \"blue\": supported \
        values: \"red\", \"green\"";
    refuse(&case, json!({ "size": 1, "color": "blue" })).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn number_below_minimum_is_rejected(case: Case) -> Outcome {
    let message = "Widget.contract.example.com \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body \
        should be greater than or equal to 1";
    refuse(&case, json!({ "size": 0 })).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn string_that_does_not_match_pattern_is_rejected(case: Case) -> Outcome {
    let message = "Widget.contract.example.com \"a\" is invalid: spec.code: Invalid value: \"A1\": spec.code in body \
        should match '^[a-z]+$'";
    refuse(&case, json!({ "size": 1, "code": "A1" })).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn too_long_string_is_rejected(case: Case) -> Outcome {
    let message =
        "Widget.contract.example.com \"a\" is invalid: spec.code: Too long: may not be more than 5 bytes";
    refuse(&case, json!({ "size": 1, "code": "abcdefg" })).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn several_errors_in_a_custom_object_are_listed(case: Case) -> Outcome {
    let details = refuse(&case, json!({ "size": 0, "code": "A" }))
        .await?
        .expect_rejected_with_reason(422, "Invalid")?;
    let fields = details["causes"].as_array().into_iter().flatten().map(|it| it["field"].as_str());
    let mut fields: Vec<_> = fields.collect();
    fields.sort_unstable();
    same!(fields, [Some("spec.code"), Some("spec.size")]);
    Ok(())
}

async fn list_with_a_repeated_key_is_rejected(case: Case) -> Outcome {
    let parts = json!([{ "name": "x" }, { "name": "x" }]);
    let message =
        "Widget.contract.example.com \"a\" is invalid: spec.parts[1]: Duplicate value: {\"name\":\"x\"}";
    refuse(&case, json!({ "size": 1, "parts": parts })).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn int_or_string_field_accepts_both(case: Case) -> Outcome {
    same!(make(&case, json!({ "size": 1, "port": 80 })).await?["spec"]["port"], 80);
    same!(case.merge(ONE, json!({ "spec": { "port": "http" } })).await?["spec"]["port"], "http");
    let answer = case.patch(MERGE, ONE, json!({ "spec": { "port": true } })).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "spec.port in body must be of type integer,string: \"boolean\"",
    )?;
    Ok(())
}

async fn custom_object_status_is_a_subresource(case: Case) -> Outcome {
    let mut made = make(&case, json!({ "size": 1 })).await?;
    made["status"] = json!({ "phase": "x", "unknown": 1 });
    made["spec"]["size"] = json!(5);
    let changed = case.replace(&format!("{ONE}/status"), made).await?;
    same!(changed["status"], json!({ "phase": "x" }));
    same!(changed["spec"]["size"], 1);
    Ok(())
}

async fn status_in_a_custom_object_is_dropped(case: Case) -> Outcome {
    served(&case).await?;
    let mut wanted = widget(json!({ "size": 1 }));
    wanted["status"] = json!({ "phase": "x" });
    same!(case.make(WIDGETS, wanted).await?["status"], Value::Null);
    let made = case.read(ONE).await?;
    same!(case.merge(ONE, json!({ "status": { "phase": "x" } })).await?, made);
    Ok(())
}

async fn custom_object_scales(case: Case) -> Outcome {
    make(&case, json!({ "size": 1, "replicas": 2 })).await?;
    case.merge(&format!("{ONE}/status"), json!({ "status": { "replicas": 1, "selector": "a=b" } })).await?;
    let mut scale = case.read(&format!("{ONE}/scale")).await?;
    has!(scale, { "kind": "Scale", "apiVersion": "autoscaling/v1", "spec": { "replicas": 2 },
        "status": { "replicas": 1, "selector": "a=b" } });
    scale["spec"]["replicas"] = json!(6);
    case.replace(&format!("{ONE}/scale"), scale).await?;
    same!(case.read(ONE).await?["spec"]["replicas"], 6);
    Ok(())
}

async fn custom_object_needs_a_version_to_be_updated(case: Case) -> Outcome {
    make(&case, json!({ "size": 1 })).await?;
    let answer = case.put(ONE, widget(json!({ "size": 2 }))).await?;
    let message = "widgets.contract.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
        specified for an update";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn old_version_of_a_custom_object_is_rejected(case: Case) -> Outcome {
    let made = make(&case, json!({ "size": 1 })).await?;
    case.merge(ONE, json!({ "spec": { "size": 2 } })).await?;
    let message = "Operation cannot be fulfilled on widgets.contract.example.com \"a\": the object has been \
        modified; please apply your changes to the latest version and try again";
    case.put(ONE, made).await?.expect_rejected(409, "Conflict", message)?;
    Ok(())
}

async fn custom_object_accepts_merge_and_json_patches(case: Case) -> Outcome {
    make(&case, json!({ "size": 1 })).await?;
    same!(case.merge(ONE, json!({ "spec": { "size": 2 } })).await?["spec"]["size"], 2);
    let patch = json!([{ "op": "replace", "path": "/spec/size", "value": 3 }]);
    same!(case.patch(JSON, ONE, patch).await?.is(200)?["spec"]["size"], 3);
    Ok(())
}

async fn custom_object_rejects_strategic_patch(case: Case) -> Outcome {
    make(&case, json!({ "size": 1 })).await?;
    let answer = case.patch(STRATEGIC, ONE, json!({ "spec": { "size": 2 } })).await?;
    let message = "the body of the request was in an unknown format - accepted media types include: \
        application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    answer.expect_rejected_containing(415, "UnsupportedMediaType", message)?;
    Ok(())
}

async fn custom_object_can_be_applied(case: Case) -> Outcome {
    served(&case).await?;
    let made = case.apply("one", ONE, widget(json!({ "size": 1 }))).await?.is(201)?;
    same!(made["metadata"]["managedFields"][0]["fieldsV1"], json!({ "f:spec": { "f:size": {} } }));
    let answer = case.apply("two", ONE, widget(json!({ "size": 2 }))).await?;
    answer.expect_rejected(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .spec.size",
    )?;
    Ok(())
}

async fn custom_lists_with_keys_merge_when_applied(case: Case) -> Outcome {
    served(&case).await?;
    let with = |name: &str| widget(json!({ "size": 1, "parts": [{ "name": name, "value": name }] }));
    case.apply("one", ONE, with("x")).await?.is(201)?;
    let both = case.apply("two", ONE, with("y")).await?.is(200)?;
    has!(both["spec"]["parts"], [{ "name": "x" }, { "name": "y" }]);
    Ok(())
}

async fn unknown_field_of_a_custom_object_is_rejected_when_strict(case: Case) -> Outcome {
    served(&case).await?;
    let path = format!("{WIDGETS}?fieldValidation=Strict");
    let answer = case.post(&path, widget(json!({ "size": 1, "foo": 1 }))).await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "strict decoding error: unknown field \"spec.foo\"",
    )?;
    Ok(())
}

async fn unknown_field_of_custom_object_causes_warning(case: Case) -> Outcome {
    served(&case).await?;
    let path = format!("{WIDGETS}?fieldValidation=Warn");
    let answer = case.post(&path, widget(json!({ "size": 1, "foo": 1 }))).await?;
    same!(answer.warnings(), ["unknown field \"spec.foo\""]);
    same!(answer.status, 201);
    Ok(())
}

async fn custom_object_can_be_watched(case: Case) -> Outcome {
    served(&case).await?;
    let now = version(&case.read(WIDGETS).await?);
    let mut watch = case.watch(&format!("{WIDGETS}?resourceVersion={now}")).await?;
    make(&case, json!({ "size": 1 })).await?;
    case.merge(ONE, json!({ "spec": { "size": 2 } })).await?;
    case.delete(ONE).await?.is(200)?;
    let added = watch.expect("ADDED", "a").await?;
    let modified = watch.expect("MODIFIED", "a").await?;
    let deleted = watch.expect("DELETED", "a").await?;
    anyhow::ensure!(revision(&added) < revision(&modified) && revision(&modified) < revision(&deleted));
    Ok(())
}

async fn custom_object_watch_from_compacted_version_is_expired(case: Case) -> Outcome {
    make(&case, json!({ "size": 1 })).await?;
    case.server.compact_history();
    let mut watch = case.watch(&format!("{WIDGETS}?resourceVersion=1")).await?;
    let Some(frame) = watch.frame().await? else { anyhow::bail!("ended without a word") };
    same!(frame.kind, "ERROR");
    let mut status = frame.object;
    let message = status["message"].take();
    let words = "too old resource version: 1 (";
    anyhow::ensure!(message.as_str().is_some_and(|it| it.starts_with(words)), "{message}");
    same!(
        status,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": null,
            "reason": "Expired", "code": 410 })
    );
    same!(watch.frame().await?, None);
    Ok(())
}

async fn custom_object_is_shown_as_a_table(case: Case) -> Outcome {
    make(&case, json!({ "size": 4 })).await?;
    let table = case.get_as("application/json;as=Table;g=meta.k8s.io;v=v1", WIDGETS).await?.is(200)?;
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    let columns: Vec<_> = columns.map(|it| it["name"].as_str().unwrap_or_default()).collect();
    same!(columns, ["Name", "Size", "Age"]);
    same!(table["rows"][0]["cells"][0], "a");
    same!(table["rows"][0]["cells"][1], 4);
    Ok(())
}

async fn custom_objects_can_be_selected_by_declared_fields(case: Case) -> Outcome {
    make(&case, json!({ "size": 4 })).await?;
    let mut green = widget(json!({ "size": 4, "color": "green" }));
    green["metadata"]["name"] = json!("b");
    case.make(WIDGETS, green).await?;
    same!(names(&case.read(&format!("{WIDGETS}?fieldSelector=spec.color=green")).await?), ["b"]);
    let answer = case.get(&format!("{WIDGETS}?fieldSelector=spec.size=4")).await?;
    answer.expect_rejected_containing(400, "BadRequest", "field label not supported: spec.size")?;
    Ok(())
}

async fn custom_object_of_the_wrong_kind_is_rejected(case: Case) -> Outcome {
    served(&case).await?;
    let mut wanted = widget(json!({ "size": 1 }));
    wanted["kind"] = json!("Gadget");
    let answer = case.post(WIDGETS, wanted).await?;
    let message =
        "Gadget.contract.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn finalizer_blocks_removal_of_custom_object(case: Case) -> Outcome {
    make(&case, json!({ "size": 1 })).await?;
    case.merge(ONE, json!({ "metadata": { "finalizers": ["example.com/hold"] } })).await?;
    let marked = case.delete(ONE).await?.is(200)?;
    has!(marked, { "kind": "Widget", "metadata": { "generation": 2 } });
    case.merge(ONE, json!({ "metadata": { "finalizers": [] } })).await?;
    case.get(ONE).await?.expect_rejected(404, "NotFound", "widgets.contract.example.com \"a\" not found")?;
    Ok(())
}

async fn missing_custom_object_is_rejected(case: Case) -> Outcome {
    served(&case).await?;
    let answer = case.get(ONE).await?;
    let details = answer.expect_rejected(404, "NotFound", "widgets.contract.example.com \"a\" not found")?;
    same!(details, json!({ "name": "a", "group": "contract.example.com", "kind": "widgets" }));
    Ok(())
}

async fn custom_object_can_be_deleted_by_collection(case: Case) -> Outcome {
    make(&case, json!({ "size": 1 })).await?;
    same!(names(&case.delete(WIDGETS).await?.is(200)?), ["a"]);
    same!(case.read(WIDGETS).await?["items"], json!([]));
    Ok(())
}

async fn custom_object_metadata_is_validated(case: Case) -> Outcome {
    served(&case).await?;
    let mut wanted = widget(json!({ "size": 1 }));
    wanted["metadata"]["name"] = json!("A_b");
    let answer = case.post(WIDGETS, wanted).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of",
    )?;
    Ok(())
}

async fn metadata_only_list_of_custom_objects_is_served(case: Case) -> Outcome {
    make(&case, json!({ "size": 1 })).await?;
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = case.get_as(accept, WIDGETS).await?.is(200)?;
    has!(list, { "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1" });
    has!(list["items"], [{ "kind": "PartialObjectMetadata", "spec": null }]);
    Ok(())
}

async fn custom_body_needs_kind_and_version(case: Case) -> Outcome {
    served(&case).await?;
    for (body, why) in [
        (
            json!({ "apiVersion": GROUP }),
            "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in \
             '{\"apiVersion\":\"contract.example.com/v1\"}' ({\"apiVersion\":\"contract.exampl ...)",
        ),
        (
            json!({ "kind": "Other" }),
            "the API version in the data () does not match the expected API version (contract.example.com/v1)",
        ),
    ] {
        case.post(WIDGETS, body.clone()).await?.expect_rejected(400, "BadRequest", why)?;
        // The name in the path of a creation has no meaning.
        case.post(ONE, body.clone()).await?.expect_rejected(400, "BadRequest", why)?;
        case.put(ONE, body).await?.expect_rejected(400, "BadRequest", why)?;
    }
    case.put(WIDGETS, json!({})).await?.expect_rejected(400, "BadRequest", "name must be provided")?;
    Ok(())
}

async fn unknown_subresource_of_custom_object_is_not_found(case: Case) -> Outcome {
    make(&case, json!({ "size": 2 })).await?;
    let message = "widgets.contract.example.com \"a\" not found";
    case.get(&format!("{ONE}/nothing")).await?.expect_rejected(404, "NotFound", message)?;
    has!(case.read(&format!("{ONE}/status/more")).await?, { "kind": "Widget" });
    Ok(())
}

async fn fields_of_scale_in_custom_object_are_validated(case: Case) -> Outcome {
    let of = |why: &str| {
        format!(
            "Widget.contract.example.com \"a\" is invalid: [spec.replicas: Invalid value: \"string\": spec.replicas in \
             body must be of type integer: \"string\", {why}]"
        )
    };
    let why = ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64";
    refuse(&case, json!({ "size": 2, "replicas": "x" })).await?.expect_rejected(422, "Invalid", &of(why))?;
    for (replicas, why) in [
        (-1_i64, "should be a non-negative integer"),
        (1_i64 << 31, "should be less than or equal to 2147483647"),
    ] {
        let message = format!(
            "Widget.contract.example.com \"a\" is invalid: .spec.replicas: Invalid value: {}: {why}",
            replicas
        );
        let answer = refuse(&case, json!({ "size": 2, "replicas": replicas })).await?;
        answer.expect_rejected(422, "Invalid", &message)?;
    }
    Ok(())
}

async fn fields_in_scalars_of_custom_object_are_unknown(case: Case) -> Outcome {
    let answer = refuse(&case, json!({ "size": 2, "code": [{ "a": 1 }], "parts": { "b": 2 } })).await?;
    same!(answer.warnings(), ["unknown field \"spec.code[0].a\"", "unknown field \"spec.parts.b\""]);
    answer.expect_rejected_with_reason(422, "Invalid")?;
    Ok(())
}

async fn patch_of_custom_object_keeps_type(case: Case) -> Outcome {
    make(&case, json!({ "size": 2 })).await?;
    let remove = |path: &str| json!([{ "op": "remove", "path": path }]);
    let message =
        "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'";
    let answer = case.patch(JSON, ONE, remove("/apiVersion")).await?;
    answer.expect_rejected(500, "InternalError", message)?;
    let words = "Object 'Kind' is missing in '{\"apiVersion\":\"contract.example.com/v1\",";
    case.patch(JSON, ONE, remove("/kind")).await?.expect_rejected_containing(422, "Invalid", words)?;
    let message =
        "Widget \"a\" is invalid: apiVersion: Invalid value: \"v9\": must be contract.example.com/v1";
    let answer = case.patch(MERGE, ONE, json!({ "apiVersion": "v9" })).await?;
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}
