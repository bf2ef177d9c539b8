//! POST to a collection.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, pod, service};
use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    create_returns_201_and_whole_object,
    create_assigns_random_uid,
    creation_timestamp_has_whole_seconds,
    create_assigns_numeric_resource_version,
    object_with_a_spec_starts_at_generation_one,
    object_without_a_spec_has_no_generation,
    generated_name_is_the_prefix_and_five_characters,
    long_prefix_of_a_generated_name_is_cut_to_63_characters,
    name_takes_precedence_over_generate_name,
    object_without_a_name_is_rejected,
    existing_name_is_rejected,
    resource_version_at_creation_is_rejected,
    namespace_that_differs_from_path_is_rejected,
    omitted_namespace_is_set_from_path,
    uid_given_by_the_client_is_replaced,
    creation_time_given_by_the_client_is_replaced,
    deletion_time_given_by_the_client_is_dropped,
    create_in_missing_namespace_is_rejected,
    kind_and_version_are_optional_in_body,
    another_kind_in_the_body_is_rejected,
    another_version_in_the_body_is_rejected,
    empty_body_is_rejected,
    body_with_invalid_json_is_rejected,
    status_at_creation_is_dropped,
    new_pod_is_pending_regardless_of_its_status,
    owner_references_are_stored_unchanged,
    owner_reference_without_uid_is_rejected,
    two_controlling_owners_are_rejected,
    self_link_is_dropped,
    body_of_more_than_three_megabytes_is_rejected,
    new_object_is_readable_immediately,
    default_field_manager_is_user_agent,
    field_manager_can_be_named,
    field_manager_of_more_than_128_characters_is_rejected,
    service_is_assigned_cluster_ip,
];

async fn create_returns_201_and_whole_object(case: Case) -> Outcome {
    let made = case.post("configmaps", config_map("a")).await?.is(201)?;
    has!(made, { "kind": "ConfigMap", "apiVersion": "v1", "data": { "key": "value" },
        "metadata": { "name": "a", "namespace": case.namespace, "selfLink": null, "deletionTimestamp": null } });
    Ok(())
}

async fn create_assigns_random_uid(case: Case) -> Outcome {
    let first = case.make("configmaps", config_map("a")).await?;
    let second = case.make("configmaps", config_map("b")).await?;
    let uid = first["metadata"]["uid"].as_str().unwrap_or_default();
    let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
    same!(lengths, [8, 4, 4, 4, 12]);
    same!(&uid[14..15], "4");
    anyhow::ensure!(first["metadata"]["uid"] != second["metadata"]["uid"], "one uid for two");
    Ok(())
}

async fn creation_timestamp_has_whole_seconds(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let time = made["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
    same!((time.len(), time.ends_with('Z')), (20, true));
    Ok(())
}

async fn create_assigns_numeric_resource_version(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    anyhow::ensure!(version.parse::<u64>().is_ok_and(|it| it > 0), "version {version:?}");
    Ok(())
}

async fn object_with_a_spec_starts_at_generation_one(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["metadata"]["generation"] = json!(7);
    let made = case.make("apps/v1 deployments", wanted).await?;
    same!(made["metadata"]["generation"], 1);
    Ok(())
}

async fn object_without_a_spec_has_no_generation(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    same!(made["metadata"]["generation"], Value::Null);
    Ok(())
}

async fn generated_name_is_the_prefix_and_five_characters(case: Case) -> Outcome {
    let made = case.make("configmaps", json!({ "metadata": { "generateName": "a-" } })).await?;
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    same!((name.len(), &name[..2]), (7, "a-"));
    anyhow::ensure!(name[2..].chars().all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it)), "name {name}");
    same!(made["metadata"]["generateName"], "a-");
    Ok(())
}

async fn long_prefix_of_a_generated_name_is_cut_to_63_characters(case: Case) -> Outcome {
    let prefix = "a".repeat(100);
    let made = case.make("configmaps", json!({ "metadata": { "generateName": prefix } })).await?;
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    same!(name.len(), 63);
    Ok(())
}

async fn name_takes_precedence_over_generate_name(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "b", "generateName": "a-" } });
    let made = case.make("configmaps", wanted).await?;
    same!(made["metadata"]["name"], "b");
    Ok(())
}

async fn object_without_a_name_is_rejected(case: Case) -> Outcome {
    let answer = case.post("configmaps", json!({ "metadata": {} })).await?;
    let message =
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    let details = answer.expect_rejected(422, "Invalid", message)?;
    same!(
        details,
        json!({ "kind": "ConfigMap", "causes": [{ "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required", "field": "metadata.name" }] })
    );
    Ok(())
}

async fn existing_name_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let answer = case.post("apps/v1 deployments", deployment("a")).await?;
    let details = answer.expect_rejected(409, "AlreadyExists", "deployments.apps \"a\" already exists")?;
    same!(details, json!({ "name": "a", "group": "apps", "kind": "deployments" }));
    Ok(())
}

async fn resource_version_at_creation_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["resourceVersion"] = json!("1");
    let answer = case.post("configmaps", wanted).await?;
    answer.expect_rejected(500, "", "resourceVersion should not be set on objects to be created")?;
    Ok(())
}

async fn namespace_that_differs_from_path_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["namespace"] = json!("elsewhere");
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    case.post("configmaps", wanted).await?.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn omitted_namespace_is_set_from_path(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    same!(made["metadata"]["namespace"], case.namespace);
    Ok(())
}

async fn uid_given_by_the_client_is_replaced(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["uid"] = json!("mine");
    let made = case.make("configmaps", wanted).await?;
    same!(made["metadata"]["uid"].as_str().map(str::len), Some(36));
    Ok(())
}

async fn creation_time_given_by_the_client_is_replaced(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let made = case.make("configmaps", wanted).await?;
    anyhow::ensure!(made["metadata"]["creationTimestamp"] != "2001-01-01T00:00:00Z", "kept");
    Ok(())
}

async fn deletion_time_given_by_the_client_is_dropped(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    wanted["metadata"]["deletionGracePeriodSeconds"] = json!(3);
    let made = case.make("configmaps", wanted).await?;
    has!(made["metadata"], { "deletionTimestamp": null, "deletionGracePeriodSeconds": null });
    Ok(())
}

async fn create_in_missing_namespace_is_rejected(case: Case) -> Outcome {
    let answer = case.post("/api/v1/namespaces/not-there/configmaps", config_map("a")).await?;
    let details = answer.expect_rejected(404, "NotFound", "namespaces \"not-there\" not found")?;
    same!(details, json!({ "name": "not-there", "kind": "namespaces" }));
    Ok(())
}

async fn kind_and_version_are_optional_in_body(case: Case) -> Outcome {
    let made = case.make("configmaps", json!({ "metadata": { "name": "a" } })).await?;
    has!(made, { "kind": "ConfigMap", "apiVersion": "v1" });
    Ok(())
}

async fn another_kind_in_the_body_is_rejected(case: Case) -> Outcome {
    let answer = case.post("configmaps", pod("a")).await?;
    answer.expect_rejected_containing(
        400,
        "BadRequest",
        "Pod in version \"v1\" cannot be handled as a ConfigMap",
    )?;
    Ok(())
}

async fn another_version_in_the_body_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["apiVersion"] = json!("v7");
    let answer = case.post("configmaps", wanted).await?;
    let message = "ConfigMap in version \"v7\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is \
        registered for version \"v7\"";
    answer.expect_rejected_containing(400, "BadRequest", message)?;
    Ok(())
}

/// Returns the message prefix. The rest of the message is the parser's own text.
const NO_JSON: &str = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json \
    parse error: ";

async fn empty_body_is_rejected(case: Case) -> Outcome {
    let headers = [("content-type", "application/json")];
    let answer = case.send(http::Method::POST, "configmaps", &headers, Vec::new()).await?;
    answer.expect_rejected_containing(400, "BadRequest", NO_JSON)?;
    Ok(())
}

async fn body_with_invalid_json_is_rejected(case: Case) -> Outcome {
    let headers = [("content-type", "application/json")];
    let answer = case.send(http::Method::POST, "configmaps", &headers, "{\"metadata\": ").await?;
    answer.expect_rejected_containing(400, "BadRequest", NO_JSON)?;
    Ok(())
}

async fn status_at_creation_is_dropped(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["status"] = json!({ "replicas": 5, "observedGeneration": 3 });
    let made = case.make("apps/v1 deployments", wanted).await?;
    same!(made["status"], json!({}));
    Ok(())
}

async fn new_pod_is_pending_regardless_of_its_status(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["status"] = json!({ "phase": "Running", "podIP": "10.0.0.1" });
    let made = case.make("pods", wanted).await?;
    same!(made["status"], json!({ "phase": "Pending", "qosClass": "BestEffort" }));
    Ok(())
}

async fn owner_references_are_stored_unchanged(case: Case) -> Outcome {
    let owners = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true,
        "blockOwnerDeletion": true }]);
    let mut wanted = config_map("a");
    wanted["metadata"]["ownerReferences"] = owners.clone();
    let made = case.make("configmaps", wanted).await?;
    same!(made["metadata"]["ownerReferences"], owners);
    Ok(())
}

async fn owner_reference_without_uid_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "" }]);
    let message =
        "ConfigMap \"a\" is invalid: metadata.ownerReferences.uid: Invalid value: \"\": must not be empty";
    case.post("configmaps", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn two_controlling_owners_are_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    let owner = |name: &str| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true });
    wanted["metadata"]["ownerReferences"] = json!([owner("p"), owner("q")]);
    let answer = case.post("configmaps", wanted).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "Only one reference can have Controller set to true.",
    )?;
    Ok(())
}

async fn self_link_is_dropped(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["selfLink"] = json!("/here");
    let made = case.make("configmaps", wanted).await?;
    same!(made["metadata"]["selfLink"], Value::Null);
    Ok(())
}

async fn body_of_more_than_three_megabytes_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["data"]["key"] = json!("x".repeat(3 * 1024 * 1024));
    let answer = case.post("configmaps", wanted).await?;
    answer.expect_rejected(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")?;
    Ok(())
}

async fn new_object_is_readable_immediately(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    same!(case.read("configmaps/a").await?, made);
    Ok(())
}

async fn default_field_manager_is_user_agent(case: Case) -> Outcome {
    let mut made = case.make("configmaps", config_map("a")).await?;
    has!(made["metadata"]["managedFields"], [{ "manager": "contract", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { ".": {}, "f:key": {} } } }]);
    let is_same =
        |made: &Value| made["metadata"]["managedFields"][0]["time"] == made["metadata"]["creationTimestamp"];
    // The server reads its clock twice, so a full second can lie between the two times.
    for again in ["b", "c"] {
        if !is_same(&made) {
            made = case.make("configmaps", config_map(again)).await?;
        }
    }
    same!(made["metadata"]["managedFields"][0]["time"], made["metadata"]["creationTimestamp"]);
    Ok(())
}

async fn field_manager_can_be_named(case: Case) -> Outcome {
    let made = case.make("configmaps?fieldManager=me", config_map("a")).await?;
    same!(made["metadata"]["managedFields"][0]["manager"], "me");
    Ok(())
}

async fn field_manager_of_more_than_128_characters_is_rejected(case: Case) -> Outcome {
    let path = format!("configmaps?fieldManager={}", "m".repeat(129));
    let answer = case.post(&path, config_map("a")).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "fieldManager: Too long: may not be more than 128 bytes",
    )?;
    Ok(())
}

async fn service_is_assigned_cluster_ip(case: Case) -> Outcome {
    let made = case.make("services", service("a")).await?;
    let address = made["spec"]["clusterIP"].as_str().unwrap_or_default();
    same!(address.split('.').count(), 4);
    same!(made["spec"]["clusterIPs"], json!([address]));
    Ok(())
}
