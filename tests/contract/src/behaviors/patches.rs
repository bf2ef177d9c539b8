//! JSON patch, merge patch, strategic merge patch, and rules for all patches.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, pod, service};
use crate::{
    Behavior, Case, Outcome, behaviors,
    case::patch::{APPLY, JSON, MERGE, STRATEGIC},
    check::version,
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    json_patch_adds_replaces_and_removes,
    json_patch_moves_and_copies,
    json_patch_escapes_slashes,
    json_patch_appends_to_a_list,
    json_patch_with_passing_test_is_applied,
    json_patch_with_failing_test_is_rejected,
    json_patch_of_a_missing_path_is_rejected,
    json_patch_that_is_not_a_list_is_rejected,
    json_patch_can_test_the_version,
    merge_patch_null_removes_field,
    merge_patch_replaces_lists,
    merge_patch_creates_missing_parents,
    merge_patch_that_is_not_an_object_is_rejected,
    strategic_patch_merges_containers_by_name,
    strategic_patch_deletes_by_directive,
    strategic_patch_replaces_by_directive,
    strategic_patch_orders_elements,
    strategic_patch_deletes_from_a_primitive_list,
    strategic_patch_merges_finalizers,
    strategic_patch_retains_keys,
    strategic_patch_merges_environment_by_name,
    strategic_patch_merges_service_ports_by_port,
    strategic_patch_with_empty_list_for_map_is_rejected,
    merge_patch_of_null_or_scalar_is_rejected,
    strategic_patch_replaces_lists_without_a_key,
    strategic_patch_merges_owner_references_by_uid,
    strategic_patch_without_the_merge_key_is_rejected,
    strategic_patch_with_an_unknown_directive_is_rejected,
    unknown_patch_type_is_rejected,
    patch_of_a_missing_object_is_rejected,
    patch_with_an_old_version_is_rejected,
    patch_with_the_current_version_is_applied,
    patch_with_another_uid_is_rejected,
    empty_patch_keeps_the_version,
    patch_with_invalid_result_is_rejected,
    patch_of_the_name_is_rejected,
    patch_with_invalid_json_is_rejected,
    patch_of_the_kind_is_rejected,
    forced_patch_other_than_apply_is_rejected,
    unknown_field_in_a_patch_is_dropped_with_a_warning,
    unknown_field_in_a_strict_patch_is_rejected,
    wrong_type_in_a_patch_is_rejected,
    patch_of_status_through_the_object_is_ignored,
    malformed_json_patch_is_rejected_without_field_validation,
    patch_that_removes_the_version_is_rejected,
];

async fn json_patch_adds_replaces_and_removes(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let patch = json!([
        { "op": "add", "path": "/data/new", "value": "1" },
        { "op": "replace", "path": "/data/key", "value": "2" },
        { "op": "add", "path": "/metadata/labels", "value": { "a": "b" } },
    ]);
    let patched = case.patch(JSON, "configmaps/a", patch).await?.is(200)?;
    same!(patched["data"], json!({ "new": "1", "key": "2" }));
    let remove = json!([{ "op": "remove", "path": "/metadata/labels" }]);
    let patched = case.patch(JSON, "configmaps/a", remove).await?.is(200)?;
    same!(patched["metadata"]["labels"], Value::Null);
    Ok(())
}

async fn json_patch_moves_and_copies(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let patch = json!([
        { "op": "copy", "from": "/data/key", "path": "/data/copy" },
        { "op": "move", "from": "/data/key", "path": "/data/moved" },
    ]);
    let patched = case.patch(JSON, "configmaps/a", patch).await?.is(200)?;
    same!(patched["data"], json!({ "copy": "value", "moved": "value" }));
    Ok(())
}

async fn json_patch_escapes_slashes(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["annotations"] = json!({ "example.com/a": "b" });
    case.make("configmaps", wanted).await?;
    let patch = json!([{ "op": "replace", "path": "/metadata/annotations/example.com~1a", "value": "c" }]);
    let patched = case.patch(JSON, "configmaps/a", patch).await?.is(200)?;
    same!(patched["metadata"]["annotations"], json!({ "example.com/a": "c" }));
    Ok(())
}

async fn json_patch_appends_to_a_list(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["finalizers"] = json!(["example.com/a"]);
    case.make("configmaps", wanted).await?;
    let patch = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b" }]);
    let patched = case.patch(JSON, "configmaps/a", patch).await?.is(200)?;
    same!(patched["metadata"]["finalizers"], json!(["example.com/a", "example.com/b"]));
    Ok(())
}

async fn json_patch_with_passing_test_is_applied(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let patch = json!([
        { "op": "test", "path": "/data/key", "value": "value" },
        { "op": "replace", "path": "/data/key", "value": "new" },
    ]);
    same!(case.patch(JSON, "configmaps/a", patch).await?.is(200)?["data"]["key"], "new");
    Ok(())
}

async fn json_patch_with_failing_test_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let patch = json!([
        { "op": "replace", "path": "/data/key", "value": "new" },
        { "op": "test", "path": "/data/key", "value": "value" },
    ]);
    let message = "the server rejected our request due to an error in our request";
    let details = case.patch(JSON, "configmaps/a", patch).await?.expect_rejected(422, "Invalid", message)?;
    same!(details, json!({}));
    same!(case.read("configmaps/a").await?["data"]["key"], "value");
    Ok(())
}

async fn json_patch_of_a_missing_path_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    for patch in [
        json!([{ "op": "replace", "path": "/nothing/here", "value": 1 }]),
        json!([{ "op": "remove", "path": "/data/nothing" }]),
    ] {
        let message = "the server rejected our request due to an error in our request";
        case.patch(JSON, "configmaps/a", patch).await?.expect_rejected(422, "Invalid", message)?;
    }
    Ok(())
}

async fn json_patch_that_is_not_a_list_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch(JSON, "configmaps/a", json!({ "op": "add" })).await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "error decoding patch: json: cannot unmarshal object into Go value of type",
    )?;
    Ok(())
}

async fn json_patch_can_test_the_version(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let patch = |version: &str| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": version },
            { "op": "replace", "path": "/data/key", "value": "new" },
        ])
    };
    case.patch(JSON, "configmaps/a", patch(&version(&made))).await?.is(200)?;
    case.patch(JSON, "configmaps/a", patch(&version(&made)))
        .await?
        .expect_rejected_with_reason(422, "Invalid")?;
    Ok(())
}

async fn merge_patch_null_removes_field(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let patched = case.merge("configmaps/a", json!({ "data": { "key": null, "new": "x" } })).await?;
    same!(patched["data"], json!({ "new": "x" }));
    let patched = case.merge("configmaps/a", json!({ "data": null })).await?;
    same!(patched["data"], Value::Null);
    Ok(())
}

async fn merge_patch_replaces_lists(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let containers = json!([{ "name": "other", "image": "image" }]);
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let patched = case.merge("apps/v1 deployments/a", patch).await?;
    has!(patched["spec"]["template"]["spec"]["containers"], [{ "name": "other" }]);
    Ok(())
}

async fn merge_patch_creates_missing_parents(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let patched = case.merge("configmaps/a", json!({ "metadata": { "annotations": { "a": "b" } } })).await?;
    same!(patched["metadata"]["annotations"], json!({ "a": "b" }));
    Ok(())
}

async fn merge_patch_that_is_not_an_object_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch(MERGE, "configmaps/a", json!("text")).await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "error decoding patch: json: cannot unmarshal string into Go value of type",
    )?;
    Ok(())
}

async fn strategic(case: &Case, patch: Value) -> anyhow::Result<Value> {
    case.patch(STRATEGIC, "apps/v1 deployments/a", patch).await?.is(200)
}

fn spec(pod_spec: Value) -> Value {
    json!({ "spec": { "template": { "spec": pod_spec } } })
}

fn container_names(deployment: &Value) -> Vec<&str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    containers.into_iter().flatten().filter_map(|it| it["name"].as_str()).collect()
}

async fn strategic_patch_merges_containers_by_name(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let more = json!([{ "name": "side", "image": "side" }, { "name": "main", "image": "new" }]);
    let patched = strategic(&case, spec(json!({ "containers": more }))).await?;
    let mut names = container_names(&patched);
    names.sort_unstable();
    same!(names, ["main", "side"]);
    let containers =
        patched["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let main = containers.iter().find(|it| it["name"] == "main").cloned().unwrap_or_default();
    has!(main, { "image": "new", "imagePullPolicy": "Always" });
    Ok(())
}

async fn strategic_patch_deletes_by_directive(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["template"]["spec"]["containers"] =
        json!([{ "name": "main", "image": "i" }, { "name": "side", "image": "i" }]);
    case.make("apps/v1 deployments", wanted).await?;
    let delete = json!({ "containers": [{ "name": "main", "$patch": "delete" }] });
    same!(container_names(&strategic(&case, spec(delete)).await?), ["side"]);
    Ok(())
}

async fn strategic_patch_replaces_by_directive(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let replace = json!({ "containers": [{ "name": "only", "image": "i" }, { "$patch": "replace" }] });
    same!(container_names(&strategic(&case, spec(replace)).await?), ["only"]);
    Ok(())
}

async fn strategic_patch_orders_elements(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let ordered = json!({ "containers": [{ "name": "side", "image": "i" }],
        "$setElementOrder/containers": [{ "name": "side" }, { "name": "main" }] });
    same!(container_names(&strategic(&case, spec(ordered)).await?), ["side", "main"]);
    let ordered = json!({ "$setElementOrder/containers": [{ "name": "main" }, { "name": "side" }] });
    same!(container_names(&strategic(&case, spec(ordered)).await?), ["main", "side"]);
    Ok(())
}

async fn strategic_patch_deletes_from_a_primitive_list(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    case.make("configmaps", wanted).await?;
    let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/a"] } });
    let patched = case.patch(STRATEGIC, "configmaps/a", patch).await?.is(200)?;
    same!(patched["metadata"]["finalizers"], json!(["example.com/b"]));
    Ok(())
}

async fn strategic_patch_merges_finalizers(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["finalizers"] = json!(["example.com/a"]);
    case.make("configmaps", wanted).await?;
    let patch = json!({ "metadata": { "finalizers": ["example.com/b", "example.com/a"] } });
    let patched = case.patch(STRATEGIC, "configmaps/a", patch).await?.is(200)?;
    let mut finalizers: Vec<_> = patched["metadata"]["finalizers"].as_array().into_iter().flatten().collect();
    finalizers.sort_by_key(|it| it.as_str());
    same!(finalizers, ["example.com/a", "example.com/b"]);
    Ok(())
}

async fn strategic_patch_retains_keys(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let patch = json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } });
    same!(strategic(&case, patch).await?["spec"]["strategy"], json!({ "type": "Recreate" }));
    Ok(())
}

async fn strategic_patch_merges_environment_by_name(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]);
    case.make("apps/v1 deployments", wanted).await?;
    let env = json!([{ "name": "B", "value": "3" }]);
    let patched = strategic(&case, spec(json!({ "containers": [{ "name": "main", "env": env }] }))).await?;
    same!(
        patched["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "3" }])
    );
    Ok(())
}

async fn strategic_patch_merges_service_ports_by_port(case: Case) -> Outcome {
    case.make("services", service("a")).await?;
    let patch =
        json!({ "spec": { "ports": [{ "port": 80, "name": "web" }, { "port": 81, "name": "more" }] } });
    let patched = case.patch(STRATEGIC, "services/a", patch).await?.is(200)?;
    let mut ports: Vec<_> = patched["spec"]["ports"].as_array().into_iter().flatten().collect();
    ports.sort_by_key(|it| it["port"].as_u64());
    same!(ports.iter().map(|it| it["name"].as_str()).collect::<Vec<_>>(), [Some("web"), Some("more")]);
    Ok(())
}

async fn strategic_patch_replaces_lists_without_a_key(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["a", "b"]);
    case.make("apps/v1 deployments", wanted).await?;
    let patch = spec(json!({ "containers": [{ "name": "main", "args": ["c"] }] }));
    same!(strategic(&case, patch).await?["spec"]["template"]["spec"]["containers"][0]["args"], json!(["c"]));
    Ok(())
}

async fn strategic_patch_merges_owner_references_by_uid(case: Case) -> Outcome {
    let owner = |uid: &str| json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid });
    let mut wanted = pod("a");
    wanted["metadata"]["ownerReferences"] = json!([owner("1")]);
    case.make("pods", wanted).await?;
    let patch = json!({ "metadata": { "ownerReferences": [owner("2")] } });
    let patched = case.patch(STRATEGIC, "pods/a", patch).await?.is(200)?;
    same!(patched["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(2));
    let release = json!({ "metadata": { "ownerReferences": [{ "$patch": "delete", "uid": "1" }] } });
    let patched = case.patch(STRATEGIC, "pods/a", release).await?.is(200)?;
    same!(patched["metadata"]["ownerReferences"], json!([owner("2")]));
    Ok(())
}

async fn strategic_patch_without_the_merge_key_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let patch = spec(json!({ "containers": [{ "image": "i" }] }));
    let answer = case.patch(STRATEGIC, "apps/v1 deployments/a", patch).await?;
    answer.expect_rejected_containing(500, "", "does not contain declared merge key: name")?;
    Ok(())
}

async fn strategic_patch_with_an_unknown_directive_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let patch = spec(json!({ "$patch": "other" }));
    let answer = case.patch(STRATEGIC, "apps/v1 deployments/a", patch).await?;
    answer.expect_rejected(500, "", "unknown patch type: other in map: map[$patch:other]")?;
    Ok(())
}

async fn unknown_patch_type_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch("application/json", "configmaps/a", json!({})).await?;
    answer.expect_rejected(415, "UnsupportedMediaType", "415: Unsupported Media Type")?;
    Ok(())
}

async fn patch_of_a_missing_object_is_rejected(case: Case) -> Outcome {
    for kind in [MERGE, STRATEGIC] {
        let answer = case.patch(kind, "configmaps/a", json!({})).await?;
        answer.expect_rejected(404, "NotFound", "configmaps \"a\" not found")?;
    }
    let answer = case.patch(JSON, "configmaps/a", json!([])).await?;
    answer.expect_rejected(404, "NotFound", "configmaps \"a\" not found")?;
    Ok(())
}

async fn patch_with_an_old_version_is_rejected(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "1" } })).await?;
    let patch = json!({ "metadata": { "resourceVersion": version(&made) }, "data": { "key": "2" } });
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply \
        your changes to the latest version and try again";
    case.patch(MERGE, "configmaps/a", patch).await?.expect_rejected(409, "Conflict", message)?;
    Ok(())
}

async fn patch_with_the_current_version_is_applied(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let patch = json!({ "metadata": { "resourceVersion": version(&made) }, "data": { "key": "2" } });
    same!(case.merge("configmaps/a", patch).await?["data"]["key"], "2");
    Ok(())
}

async fn patch_with_another_uid_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let patch = json!({ "metadata": { "uid": "other" }, "data": { "key": "2" } });
    let answer = case.patch(MERGE, "configmaps/a", patch).await?;
    let message = "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn empty_patch_keeps_the_version(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    same!(case.merge("configmaps/a", json!({})).await?, made);
    same!(case.patch(STRATEGIC, "configmaps/a", json!({})).await?.is(200)?, made);
    same!(case.patch(JSON, "configmaps/a", json!([])).await?.is(200)?, made);
    Ok(())
}

async fn patch_with_invalid_result_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let answer = case.patch(MERGE, "apps/v1 deployments/a", json!({ "spec": { "replicas": -1 } })).await?;
    let message = "Deployment.apps \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn patch_of_the_name_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch(MERGE, "configmaps/a", json!({ "metadata": { "name": "b" } })).await?;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn patch_with_invalid_json_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    for kind in [JSON, MERGE, STRATEGIC] {
        let answer =
            case.send(http::Method::PATCH, "configmaps/a", &[("content-type", kind)], "{\"a\":").await?;
        answer.expect_rejected_with_reason(400, "BadRequest")?;
    }
    Ok(())
}

async fn patch_of_the_kind_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch(MERGE, "configmaps/a", json!({ "kind": "Secret" })).await?;
    anyhow::ensure!((400..500).contains(&answer.status), "{answer:?}");
    Ok(())
}

async fn forced_patch_other_than_apply_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch(MERGE, "configmaps/a?force=true", json!({})).await?;
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
    answer.expect_rejected(422, "Invalid", message)?;
    case.patch(APPLY, "configmaps/a?force=true&fieldManager=m", config_map("a")).await?.is(200)?;
    Ok(())
}

async fn unknown_field_in_a_patch_is_dropped_with_a_warning(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    for kind in [MERGE, STRATEGIC] {
        let answer = case.patch(kind, "apps/v1 deployments/a", json!({ "spec": { "foo": 1 } })).await?;
        same!(answer.warnings(), ["unknown field \"spec.foo\""]);
        same!(answer.is(200)?["spec"]["foo"], Value::Null);
    }
    Ok(())
}

async fn unknown_field_in_a_strict_patch_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let path = "apps/v1 deployments/a?fieldValidation=Strict";
    let words = "strict decoding error: unknown field \"spec.foo\"";
    for kind in [MERGE, STRATEGIC] {
        let answer = case.patch(kind, path, json!({ "spec": { "foo": 1 } })).await?;
        answer.expect_rejected_containing(422, "Invalid", words)?;
    }
    Ok(())
}

async fn wrong_type_in_a_patch_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let answer =
        case.patch(MERGE, "apps/v1 deployments/a", json!({ "spec": { "replicas": "many" } })).await?;
    let words = "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn patch_of_status_through_the_object_is_ignored(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    same!(case.merge("apps/v1 deployments/a", json!({ "status": { "replicas": 3 } })).await?, made);
    Ok(())
}

async fn strategic_patch_with_empty_list_for_map_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch(STRATEGIC, "configmaps/a", json!({ "metadata": { "labels": [] } })).await?;
    let message = " \"\" is invalid: patch: Invalid value: \"map[metadata:map[labels:[]]]\": cannot restore map from slice";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn merge_patch_of_null_or_scalar_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.patch(MERGE, "configmaps/a", Value::Null).await?;
    answer.expect_rejected(400, "BadRequest", "Invalid JSON Patch")?;
    let answer = case.patch(MERGE, "configmaps/a?fieldValidation=Ignore", json!(1)).await?;
    answer.expect_rejected(400, "BadRequest", "Invalid JSON Patch")?;
    Ok(())
}

async fn malformed_json_patch_is_rejected_without_field_validation(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let cases = [
        (json!("x"), "string", "Patch"),
        (json!({}), "object", "Patch"),
        (json!([5]), "number", "Operation"),
    ];
    for (patch, given, of) in cases {
        let answer = case.patch(JSON, "configmaps/a?fieldValidation=Ignore", patch).await?;
        let message = format!("json: cannot unmarshal {given} into Go value of type jsonpatch.{of}");
        answer.expect_rejected(400, "BadRequest", &message)?;
    }
    Ok(())
}

async fn patch_that_removes_the_version_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let message = "the name of the object (a based on URL) was undeterminable: name must be provided";
    let unknown = ["unknown field \"data\"", "unknown field \"metadata\""];
    for version in [json!(null), json!("")] {
        let patch = json!({ "apiVersion": version });
        let answer = case.patch(MERGE, "configmaps/a", patch.clone()).await?;
        same!(answer.clone().warnings(), unknown);
        answer.expect_rejected(400, "BadRequest", message)?;
        let answer = case.patch(MERGE, "configmaps/a?fieldValidation=Ignore", patch.clone()).await?;
        same!(answer.clone().warnings(), Vec::<String>::new());
        answer.expect_rejected(400, "BadRequest", message)?;
        let answer = case.patch(MERGE, "configmaps/a?fieldValidation=Strict", patch).await?;
        let words = format!("strict decoding error: {}", unknown.join(", "));
        answer.expect_rejected_containing(422, "Invalid", &words)?;
    }
    let stripped = case.patch(STRATEGIC, "configmaps/a", json!({ "apiVersion": null })).await?;
    stripped.is(200)?;
    Ok(())
}
