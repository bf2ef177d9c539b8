//! Server-side apply: ownership of fields.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, pod, service};
use crate::{
    Behavior, Case, Outcome, behaviors,
    case::patch::{APPLY, MERGE},
    check::{revision, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    apply_creates_missing_object,
    apply_changes_existing_object,
    repeated_apply_changes_nothing,
    apply_requires_field_manager,
    applied_object_records_field_manager,
    conflict_names_manager_and_field,
    several_conflicts_are_listed,
    conflict_with_update_names_its_api_version,
    forced_apply_takes_over_field,
    two_managers_can_own_field_with_same_value,
    shared_field_can_be_released,
    field_no_longer_applied_is_removed,
    field_no_longer_applied_remains_if_owned_by_another,
    update_takes_ownership_without_a_conflict,
    list_elements_are_owned_by_key,
    elements_of_other_managers_are_kept,
    element_no_longer_applied_is_removed,
    service_ports_are_keyed_by_port_and_protocol,
    finalizers_are_a_set,
    atomic_list_is_owned_as_a_whole,
    atomic_map_is_owned_as_a_whole,
    defaults_have_no_owner,
    status_can_be_applied,
    status_applied_to_the_object_is_ignored,
    managed_fields_in_an_applied_object_are_rejected,
    another_name_in_an_applied_object_is_rejected,
    applied_object_without_kind_is_rejected,
    apply_with_unknown_field_is_rejected,
    wrong_type_in_an_applied_object_is_rejected,
    apply_with_old_version_is_rejected,
    apply_with_uid_of_missing_object_is_rejected,
    apply_accepts_yaml,
    empty_managed_fields_clear_them,
    update_that_changes_no_field_keeps_the_times,
    scale_update_takes_ownership_of_replicas,
    applied_scale_conflicts_with_other_owner_of_replicas,
    apply_of_spec_increments_generation,
    owner_reference_can_be_applied,
    dry_run_apply_changes_nothing,
    duplicate_key_in_an_applied_list_is_rejected,
    item_without_key_removes_managers,
    missing_key_of_item_has_its_default,
];

fn settings(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

async fn applied(case: &Case, manager: &str, data: Value) -> anyhow::Result<Value> {
    case.apply(manager, "configmaps/a", settings(data)).await?.is(200)
}

async fn first_applied(case: &Case, manager: &str, data: Value) -> anyhow::Result<Value> {
    case.apply(manager, "configmaps/a", settings(data)).await?.is(201)
}

fn entry<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().find(|it| it["manager"] == manager).unwrap_or(&Value::Null)
}

async fn apply_creates_missing_object(case: Case) -> Outcome {
    let made = first_applied(&case, "one", json!({ "a": "1" })).await?;
    has!(made, { "kind": "ConfigMap", "data": { "a": "1" }, "metadata": { "name": "a", "namespace": case.namespace } });
    anyhow::ensure!(made["metadata"]["uid"].is_string() && revision(&made) > 0, "{made}");
    Ok(())
}

async fn apply_changes_existing_object(case: Case) -> Outcome {
    let made = first_applied(&case, "one", json!({ "a": "1" })).await?;
    let changed = applied(&case, "one", json!({ "a": "2" })).await?;
    same!(changed["data"], json!({ "a": "2" }));
    anyhow::ensure!(revision(&changed) > revision(&made), "the version stayed");
    Ok(())
}

async fn repeated_apply_changes_nothing(case: Case) -> Outcome {
    let made = first_applied(&case, "one", json!({ "a": "1" })).await?;
    same!(applied(&case, "one", json!({ "a": "1" })).await?, made);
    Ok(())
}

async fn apply_requires_field_manager(case: Case) -> Outcome {
    let answer = case.patch(APPLY, "configmaps/a", config_map("a")).await?;
    let message =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    let details = answer.expect_rejected(422, "Invalid", message)?;
    same!(
        details,
        json!({ "group": "meta.k8s.io", "kind": "PatchOptions", "causes": [{ "reason": "FieldValueRequired",
            "message": "Required value: is required for apply patch", "field": "fieldManager" }] })
    );
    Ok(())
}

async fn applied_object_records_field_manager(case: Case) -> Outcome {
    let made = first_applied(&case, "one", json!({ "a": "1" })).await?;
    // kube-apiserver reads the clock twice: a second can end in between.
    let time = &made["metadata"]["managedFields"][0]["time"];
    same!(time.as_str() >= made["metadata"]["creationTimestamp"].as_str(), true);
    same!(
        made["metadata"]["managedFields"],
        json!([{ "manager": "one", "operation": "Apply", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": { "f:data": { "f:a": {} } } }])
    );
    Ok(())
}

async fn conflict_names_manager_and_field(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1" })).await?;
    let answer = case.apply("two", "configmaps/a", settings(json!({ "a": "2" }))).await?;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .data.a";
    let details = answer.expect_rejected(409, "Conflict", message)?;
    same!(
        details,
        json!({ "causes": [{ "reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a" }] })
    );
    Ok(())
}

async fn several_conflicts_are_listed(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1", "b": "1" })).await?;
    applied(&case, "two", json!({ "c": "1" })).await?;
    let answer =
        case.apply("three", "configmaps/a", settings(json!({ "a": "2", "b": "2", "c": "2" }))).await?;
    let message = "Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b\nconflicts with \
        \"two\":\n- .data.c";
    let details = answer.expect_rejected(409, "Conflict", message)?;
    same!(details["causes"].as_array().map(Vec::len), Some(3));
    Ok(())
}

async fn conflict_with_update_names_its_api_version(case: Case) -> Outcome {
    case.make("apps/v1 deployments?fieldManager=kubectl", deployment("a")).await?;
    let wanted = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
        "spec": { "replicas": 5 } });
    let answer = case.apply("one", "apps/v1 deployments/a", wanted).await?;
    let message = "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas";
    let details = answer.expect_rejected(409, "Conflict", message)?;
    has!(details["causes"], [{ "field": ".spec.replicas", "message": "conflict with \"kubectl\" using apps/v1" }]);
    Ok(())
}

async fn forced_apply_takes_over_field(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1", "b": "1" })).await?;
    let forced =
        case.apply("two&force=true", "configmaps/a", settings(json!({ "a": "2" }))).await?.is(200)?;
    same!(forced["data"], json!({ "a": "2", "b": "1" }));
    same!(entry(&forced, "one")["fieldsV1"], json!({ "f:data": { "f:b": {} } }));
    same!(entry(&forced, "two")["fieldsV1"], json!({ "f:data": { "f:a": {} } }));
    Ok(())
}

async fn two_managers_can_own_field_with_same_value(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1" })).await?;
    let both = applied(&case, "two", json!({ "a": "1" })).await?;
    same!(entry(&both, "one")["fieldsV1"], entry(&both, "two")["fieldsV1"]);
    Ok(())
}

async fn shared_field_can_be_released(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1" })).await?;
    applied(&case, "two", json!({ "a": "1", "b": "1" })).await?;
    let left = applied(&case, "two", json!({ "b": "1" })).await?;
    same!(left["data"], json!({ "a": "1", "b": "1" }));
    same!(entry(&left, "two")["fieldsV1"], json!({ "f:data": { "f:b": {} } }));
    Ok(())
}

async fn field_no_longer_applied_is_removed(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1", "b": "1" })).await?;
    same!(applied(&case, "one", json!({ "b": "1" })).await?["data"], json!({ "b": "1" }));
    Ok(())
}

async fn field_no_longer_applied_remains_if_owned_by_another(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1", "b": "1" })).await?;
    case.merge("configmaps/a?fieldManager=two", json!({ "data": { "a": "2" } })).await?;
    let left = applied(&case, "one", json!({ "b": "1" })).await?;
    same!(left["data"], json!({ "a": "2", "b": "1" }));
    Ok(())
}

async fn update_takes_ownership_without_a_conflict(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1" })).await?;
    let merged = case.merge("configmaps/a?fieldManager=two", json!({ "data": { "a": "2" } })).await?;
    has!(*entry(&merged, "two"), { "operation": "Update", "fieldsV1": { "f:data": { "f:a": {} } } });
    anyhow::ensure!(entry(&merged, "one")["fieldsV1"]["f:data"]["f:a"].is_null(), "{merged}");
    Ok(())
}

fn with_container(name: &str, image: &str) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
        "spec": { "template": { "spec": { "containers": [{ "name": name, "image": image }] } } } })
}

async fn list_elements_are_owned_by_key(case: Case) -> Outcome {
    case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    let both = case.apply("two", "apps/v1 deployments/a", with_container("side", "x")).await?.is(200)?;
    same!(
        entry(&both, "two")["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"],
        json!({ "k:{\"name\":\"side\"}": { ".": {}, "f:image": {}, "f:name": {} } })
    );
    Ok(())
}

async fn elements_of_other_managers_are_kept(case: Case) -> Outcome {
    case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    case.apply("two", "apps/v1 deployments/a", with_container("side", "x")).await?.is(200)?;
    let again = case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(200)?;
    has!(again["spec"]["template"]["spec"]["containers"], [{ "name": "main" }, { "name": "side" }]);
    Ok(())
}

async fn element_no_longer_applied_is_removed(case: Case) -> Outcome {
    case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    case.apply("two", "apps/v1 deployments/a", with_container("side", "x")).await?.is(200)?;
    let other = case.apply("two", "apps/v1 deployments/a", with_container("other", "x")).await?.is(200)?;
    has!(other["spec"]["template"]["spec"]["containers"], [{ "name": "main" }, { "name": "other" }]);
    Ok(())
}

async fn service_ports_are_keyed_by_port_and_protocol(case: Case) -> Outcome {
    case.apply("one", "services/a", service("a")).await?.is(201)?;
    let more = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" },
        "spec": { "ports": [{ "name": "udp", "port": 80, "protocol": "UDP" }] } });
    let naming = json!([{ "op": "add", "path": "/spec/ports/0/name", "value": "tcp" }]);
    case.patch(crate::case::patch::JSON, "services/a", naming).await?.is(200)?;
    let both = case.apply("two", "services/a", more).await?.is(200)?;
    has!(both["spec"]["ports"], [{ "port": 80, "protocol": "TCP" }, { "port": 80, "protocol": "UDP" }]);
    let key = "k:{\"port\":80,\"protocol\":\"UDP\"}";
    anyhow::ensure!(entry(&both, "two")["fieldsV1"]["f:spec"]["f:ports"][key].is_object(), "{both}");
    Ok(())
}

async fn finalizers_are_a_set(case: Case) -> Outcome {
    let with = |finalizer: &str| {
        let mut it = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        it["metadata"]["finalizers"] = json!([finalizer]);
        it
    };
    case.apply("one", "configmaps/a", with("example.com/one")).await?.is(201)?;
    let both = case.apply("two", "configmaps/a", with("example.com/two")).await?.is(200)?;
    same!(both["metadata"]["finalizers"], json!(["example.com/one", "example.com/two"]));
    same!(
        entry(&both, "two")["fieldsV1"]["f:metadata"]["f:finalizers"],
        json!({ "v:\"example.com/two\"": {} })
    );
    Ok(())
}

async fn atomic_list_is_owned_as_a_whole(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["a"]);
    let made = case.apply("one", "apps/v1 deployments/a", wanted.clone()).await?.is(201)?;
    let containers = &entry(&made, "one")["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"];
    same!(containers["k:{\"name\":\"main\"}"]["f:args"], json!({}));
    wanted["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["b"]);
    let answer = case.apply("two", "apps/v1 deployments/a", wanted).await?;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .spec.template.spec.containers[name=\"main\"].args";
    answer.expect_rejected(409, "Conflict", message)?;
    Ok(())
}

async fn atomic_map_is_owned_as_a_whole(case: Case) -> Outcome {
    let made = case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    same!(entry(&made, "one")["fieldsV1"]["f:spec"]["f:selector"], json!({}));
    Ok(())
}

async fn defaults_have_no_owner(case: Case) -> Outcome {
    let made = case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    same!(made["spec"]["progressDeadlineSeconds"], 600);
    same!(entry(&made, "one")["fieldsV1"]["f:spec"]["f:progressDeadlineSeconds"], Value::Null);
    Ok(())
}

async fn status_can_be_applied(case: Case) -> Outcome {
    case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    let status = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
        "status": { "replicas": 1, "conditions": [{ "type": "Available", "status": "True" }] } });
    let both = case.apply("two", "apps/v1 deployments/a/status", status).await?.is(200)?;
    has!(both["status"], { "replicas": 1 });
    has!(*entry(&both, "two"), { "operation": "Apply", "subresource": "status" });
    same!(
        entry(&both, "two")["fieldsV1"]["f:status"]["f:conditions"],
        json!({ "k:{\"type\":\"Available\"}": { ".": {}, "f:status": {}, "f:type": {} } })
    );
    Ok(())
}

async fn status_applied_to_the_object_is_ignored(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["status"] = json!({ "replicas": 3 });
    let made = case.apply("one", "apps/v1 deployments/a", wanted).await?.is(201)?;
    same!(made["status"], json!({}));
    same!(entry(&made, "one")["fieldsV1"]["f:status"], Value::Null);
    Ok(())
}

async fn managed_fields_in_an_applied_object_are_rejected(case: Case) -> Outcome {
    let made = first_applied(&case, "one", json!({ "a": "1" })).await?;
    let mut wanted = settings(json!({ "a": "1" }));
    wanted["metadata"]["managedFields"] = made["metadata"]["managedFields"].clone();
    let answer = case.apply("one", "configmaps/a", wanted).await?;
    answer.expect_rejected(400, "BadRequest", "metadata.managedFields must be nil")?;
    Ok(())
}

async fn another_name_in_an_applied_object_is_rejected(case: Case) -> Outcome {
    let answer = case.apply("one", "configmaps/a", config_map("b")).await?;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn applied_object_without_kind_is_rejected(case: Case) -> Outcome {
    let answer = case.apply("one", "configmaps/a", json!({ "metadata": { "name": "a" } })).await?;
    answer.expect_rejected(400, "BadRequest", "invalid object type: /, Kind=")?;
    Ok(())
}

async fn apply_with_unknown_field_is_rejected(case: Case) -> Outcome {
    let mut wanted = settings(json!({ "a": "1" }));
    wanted["foo"] = json!(1);
    let answer = case.apply("one", "configmaps/a", wanted).await?;
    let words = "failed to create typed patch object";
    answer.expect_rejected_containing(500, "", words)?;
    Ok(())
}

async fn wrong_type_in_an_applied_object_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["replicas"] = json!("many");
    let answer = case.apply("one", "apps/v1 deployments/a", wanted).await?;
    answer.expect_rejected_containing(
        500,
        "",
        ".spec.replicas: expected numeric (int or float), got string",
    )?;
    Ok(())
}

async fn apply_with_old_version_is_rejected(case: Case) -> Outcome {
    let made = first_applied(&case, "one", json!({ "a": "1" })).await?;
    applied(&case, "one", json!({ "a": "2" })).await?;
    let mut wanted = settings(json!({ "a": "3" }));
    wanted["metadata"]["resourceVersion"] = json!(version(&made));
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply \
        your changes to the latest version and try again";
    case.apply("one", "configmaps/a", wanted).await?.expect_rejected(409, "Conflict", message)?;
    Ok(())
}

async fn apply_with_uid_of_missing_object_is_rejected(case: Case) -> Outcome {
    let mut wanted = settings(json!({}));
    wanted["metadata"]["uid"] = json!("11111111-1111-4111-8111-111111111111");
    let answer = case.apply("one", "configmaps/a", wanted).await?;
    let words = "uid mismatch: the provided object specified uid 11111111-1111-4111-8111-111111111111, and no existing object was found";
    answer.expect_rejected_containing(409, "Conflict", words)?;
    Ok(())
}

async fn apply_accepts_yaml(case: Case) -> Outcome {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: \"1\"\n";
    let headers = [("content-type", APPLY)];
    let answer = case.send(http::Method::PATCH, "configmaps/a?fieldManager=one", &headers, yaml).await?;
    same!(answer.is(201)?["data"], json!({ "a": "1" }));
    Ok(())
}

async fn empty_managed_fields_clear_them(case: Case) -> Outcome {
    first_applied(&case, "one", json!({ "a": "1" })).await?;
    let cleared = case.merge("configmaps/a", json!({ "metadata": { "managedFields": [{}] } })).await?;
    same!(cleared["metadata"]["managedFields"], Value::Null);
    Ok(())
}

async fn update_that_changes_no_field_keeps_the_times(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let patched =
        case.patch(MERGE, "configmaps/a?fieldManager=other", json!({ "data": { "key": "value" } })).await?;
    same!(patched.is(200)?["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    Ok(())
}

async fn scale_update_takes_ownership_of_replicas(case: Case) -> Outcome {
    case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    case.merge("apps/v1 deployments/a/scale?fieldManager=scaler", json!({ "spec": { "replicas": 5 } }))
        .await?;
    let found = case.read("apps/v1 deployments/a").await?;
    has!(*entry(&found, "scaler"), { "operation": "Update", "subresource": "scale",
        "fieldsV1": { "f:spec": { "f:replicas": {} } } });
    let answer = case.apply("one", "apps/v1 deployments/a", deployment("a")).await?;
    let words = "Apply failed with 1 conflict: conflict with \"scaler\" with subresource \"scale\" using apps/v1: .spec.replicas";
    answer.expect_rejected(409, "Conflict", words)?;
    Ok(())
}

async fn applied_scale_conflicts_with_other_owner_of_replicas(case: Case) -> Outcome {
    let (one, scaled) = ("apps/v1 deployments/a", "apps/v1 deployments/a/scale");
    let scale = |replicas: i32| {
        json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "a" },
            "spec": { "replicas": replicas } })
    };
    case.apply("one", one, deployment("a")).await?.is(201)?;
    let words = "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas";
    case.apply("two", scaled, scale(5)).await?.expect_rejected(409, "Conflict", words)?;
    case.apply("two&force=true", scaled, scale(5)).await?.is(200)?;
    let found = case.read(one).await?;
    let replicas = json!({ "f:spec": { "f:replicas": {} } });
    has!(*entry(&found, "two"), { "operation": "Apply", "subresource": "scale", "apiVersion": "apps/v1",
        "fieldsV1": replicas });
    same!(entry(&found, "one")["fieldsV1"]["f:spec"]["f:replicas"], Value::Null);
    case.apply("three", scaled, scale(5)).await?.is(200)?;
    case.merge(&format!("{scaled}?fieldManager=four"), json!({ "spec": { "replicas": 6 } })).await?;
    let words = "Apply failed with 1 conflict: conflict with \"four\" with subresource \"scale\" using autoscaling/v1: \
         .spec.replicas";
    case.apply("two", scaled, scale(5)).await?.expect_rejected(409, "Conflict", words)?;
    let found = case.read(one).await?;
    has!(*entry(&found, "four"), { "operation": "Update", "subresource": "scale", "fieldsV1": replicas });
    same!(*entry(&found, "two"), Value::Null);
    Ok(())
}

async fn apply_of_spec_increments_generation(case: Case) -> Outcome {
    case.apply("one", "apps/v1 deployments/a", deployment("a")).await?.is(201)?;
    let mut wanted = deployment("a");
    wanted["spec"]["replicas"] = json!(9);
    let changed = case.apply("one", "apps/v1 deployments/a", wanted).await?.is(200)?;
    same!(changed["metadata"]["generation"], 2);
    Ok(())
}

async fn owner_reference_can_be_applied(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut wanted = settings(json!({}));
    wanted["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u" }]);
    let owned = case.apply("one", "configmaps/a", wanted).await?.is(200)?;
    same!(
        entry(&owned, "one")["fieldsV1"]["f:metadata"]["f:ownerReferences"],
        json!({ "k:{\"uid\":\"u\"}": {} })
    );
    Ok(())
}

async fn dry_run_apply_changes_nothing(case: Case) -> Outcome {
    case.apply("one&dryRun=All", "configmaps/a", settings(json!({ "a": "1" }))).await?.is(201)?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn duplicate_key_in_an_applied_list_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["template"]["spec"]["containers"] =
        json!([{ "name": "main", "image": "a" }, { "name": "main", "image": "b" }]);
    let answer = case.apply("one", "apps/v1 deployments/a", wanted).await?;
    answer.expect_rejected_containing(500, "", "duplicate entries for key [name=\"main\"]")?;
    Ok(())
}

async fn item_without_key_removes_managers(case: Case) -> Outcome {
    let account = |secrets: Value| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "a" }, "secrets": secrets });
    let made = case.make("serviceaccounts", account(json!([{ "name": "x" }]))).await?;
    has!(made["metadata"]["managedFields"], [{ "manager": "contract" }]);
    for secrets in [json!([{ "name": "x" }, {}]), json!([{ "name": "x" }])] {
        let changed = case.merge("serviceaccounts/a", json!({ "secrets": secrets })).await?;
        same!(changed["metadata"]["managedFields"], Value::Null);
    }
    let answer = case.apply("me", "serviceaccounts/a", account(json!([{}]))).await?;
    answer.expect_rejected_containing(500, "", "omits all key fields")?;
    case.merge("serviceaccounts/a", json!({ "secrets": [{}] })).await?;
    let answer = case.apply("me", "serviceaccounts/a", account(json!(null))).await?;
    let words = format!(
        "failed to create manager for existing fields: failed to convert new object ({}/a; /v1, Kind=ServiceAccount) to \
         smd typed: .secrets: element 0: associative list with keys has an element that omits all key fields",
        case.namespace
    );
    answer.expect_rejected_containing(500, "", &words)?;
    Ok(())
}

async fn missing_key_of_item_has_its_default(case: Case) -> Outcome {
    let mut pod = pod("a");
    pod["spec"]["imagePullSecrets"] = json!([{}, { "name": "x" }]);
    let made = case.make("pods", pod).await?;
    let expected = json!({ ".": {}, "k:{\"name\":\"\"}": {}, "k:{\"name\":\"x\"}": {} });
    same!(made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:imagePullSecrets"], expected);
    Ok(())
}
