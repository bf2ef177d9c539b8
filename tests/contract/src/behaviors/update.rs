//! PUT of an object.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, job, lease, pod, service};
use crate::{Behavior, Case, Outcome, behaviors, check::revision, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    update_replaces_the_object_and_raises_its_version,
    update_removes_omitted_fields,
    update_of_an_old_version_is_rejected,
    update_without_version_is_unconditional_for_a_config_map,
    update_without_version_is_rejected_for_a_lease,
    update_of_another_name_is_rejected,
    update_of_another_namespace_is_rejected,
    update_of_a_missing_object_is_rejected,
    update_of_a_missing_lease_creates_it,
    update_of_a_deleted_object_with_its_version_is_rejected,
    update_with_another_uid_is_rejected,
    write_that_changes_nothing_keeps_version_and_managed_fields,
    change_of_spec_raises_the_generation,
    change_of_labels_keeps_the_generation,
    generation_given_by_the_client_is_ignored,
    creation_time_cannot_be_changed,
    deletion_time_cannot_be_set,
    status_given_to_the_object_is_ignored,
    labels_and_annotations_can_be_changed,
    selector_of_a_deployment_cannot_be_changed,
    template_of_a_job_cannot_be_changed,
    most_fields_of_pod_spec_are_immutable,
    image_of_a_pod_can_be_changed,
    type_of_a_secret_cannot_be_changed,
    immutable_config_map_cannot_be_changed,
    immutable_config_map_cannot_be_made_mutable,
    address_of_a_service_cannot_be_changed,
    service_update_can_omit_cluster_ip,
    invalid_update_is_rejected,
    second_of_two_concurrent_updates_is_rejected,
    non_numeric_version_is_rejected,
    change_of_annotations_raises_the_generation_of_a_deployment,
    empty_selector_differs_from_missing_selector,
    empty_list_removes_managers,
];

const CHANGED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

async fn update_replaces_the_object_and_raises_its_version(case: Case) -> Outcome {
    let mut made = case.make("configmaps", config_map("a")).await?;
    made["data"] = json!({ "other": "x" });
    let updated = case.replace("configmaps/a", made.clone()).await?;
    same!(updated["data"], json!({ "other": "x" }));
    anyhow::ensure!(revision(&updated) > revision(&made), "the version stayed");
    same!(case.read("configmaps/a").await?, updated);
    Ok(())
}

async fn update_removes_omitted_fields(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["labels"] = json!({ "app": "web" });
    case.make("configmaps", wanted).await?;
    let updated = case.replace("configmaps/a", json!({ "metadata": { "name": "a" } })).await?;
    has!(updated, { "data": null, "metadata": { "labels": null } });
    Ok(())
}

async fn update_of_an_old_version_is_rejected(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    case.merge("apps/v1 deployments/a", json!({ "spec": { "replicas": 5 } })).await?;
    let answer = case.put("apps/v1 deployments/a", made).await?;
    let message = format!("Operation cannot be fulfilled on deployments.apps \"a\": {CHANGED}");
    let details = answer.expect_rejected(409, "Conflict", &message)?;
    same!(details, json!({ "name": "a", "group": "apps", "kind": "deployments" }));
    Ok(())
}

async fn update_without_version_is_unconditional_for_a_config_map(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    same!(case.replace("configmaps/a", config_map("a")).await?["data"]["key"], "value");
    Ok(())
}

async fn update_without_version_is_rejected_for_a_lease(case: Case) -> Outcome {
    case.make("coordination.k8s.io/v1 leases", lease("a")).await?;
    let answer = case.put("coordination.k8s.io/v1 leases/a", lease("a")).await?;
    let message = "leases.coordination.k8s.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must \
        be specified for an update";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn update_of_another_name_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.put("configmaps/a", config_map("b")).await?;
    let message = "the name of the object (b) does not match the name on the URL (a)";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn update_of_another_namespace_is_rejected(case: Case) -> Outcome {
    let mut made = case.make("configmaps", config_map("a")).await?;
    made["metadata"]["namespace"] = json!("elsewhere");
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    case.put("configmaps/a", made).await?.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn update_of_a_missing_object_is_rejected(case: Case) -> Outcome {
    let answer = case.put("configmaps/a", config_map("a")).await?;
    answer.expect_rejected(404, "NotFound", "configmaps \"a\" not found")?;
    Ok(())
}

async fn update_of_a_missing_lease_creates_it(case: Case) -> Outcome {
    let made = case.put("coordination.k8s.io/v1 leases/a", lease("a")).await?.is(201)?;
    same!(made["spec"]["holderIdentity"], "me");
    Ok(())
}

async fn update_of_a_deleted_object_with_its_version_is_rejected(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps/a").await?.is(200)?;
    case.put("configmaps/a", made).await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn update_with_another_uid_is_rejected(case: Case) -> Outcome {
    let mut made = case.make("configmaps", config_map("a")).await?;
    let uid = made["metadata"]["uid"].take();
    made["metadata"]["uid"] = json!("other");
    let message = format!(
        "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: \
         /registry/configmaps/{}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
         precondition: other, UID in object meta: {}",
        case.namespace,
        uid.as_str().unwrap_or_default()
    );
    let details = case.put("configmaps/a", made).await?.expect_rejected(409, "Conflict", &message)?;
    same!(details, json!({ "name": "a", "kind": "configmaps" }));
    Ok(())
}

async fn write_that_changes_nothing_keeps_version_and_managed_fields(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    same!(case.replace("apps/v1 deployments/a", made.clone()).await?, made);
    same!(case.merge("apps/v1 deployments/a", json!({ "spec": { "replicas": 2 } })).await?, made);
    same!(case.replace("apps/v1 deployments/a/status", made.clone()).await?, made);
    Ok(())
}

async fn change_of_spec_raises_the_generation(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["spec"]["replicas"] = json!(3);
    same!(case.replace("apps/v1 deployments/a", made).await?["metadata"]["generation"], 2);
    Ok(())
}

async fn change_of_labels_keeps_the_generation(case: Case) -> Outcome {
    case.make("apps/v1 replicasets", super::objects::workload("ReplicaSet", "a")).await?;
    let merged =
        case.merge("apps/v1 replicasets/a", json!({ "metadata": { "labels": { "a": "b" } } })).await?;
    same!(merged["metadata"]["generation"], 1);
    Ok(())
}

async fn generation_given_by_the_client_is_ignored(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["metadata"]["generation"] = json!(17);
    same!(case.replace("apps/v1 deployments/a", made).await?["metadata"]["generation"], 1);
    Ok(())
}

async fn creation_time_cannot_be_changed(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut other = made.clone();
    other["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    same!(case.replace("configmaps/a", other).await?, made);
    Ok(())
}

async fn deletion_time_cannot_be_set(case: Case) -> Outcome {
    let mut made = case.make("configmaps", config_map("a")).await?;
    made["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let answer = case.put("configmaps/a", made).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "metadata.deletionTimestamp: Invalid value: \"2001-01-01T00:00:00Z\": field is immutable",
    )?;
    Ok(())
}

async fn status_given_to_the_object_is_ignored(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["status"] = json!({ "replicas": 5 });
    same!(case.replace("apps/v1 deployments/a", made).await?["status"], json!({}));
    Ok(())
}

async fn labels_and_annotations_can_be_changed(case: Case) -> Outcome {
    let mut made = case.make("configmaps", config_map("a")).await?;
    made["metadata"]["labels"] = json!({ "a": "b" });
    made["metadata"]["annotations"] = json!({ "c": "d" });
    let updated = case.replace("configmaps/a", made).await?;
    has!(updated["metadata"], { "labels": { "a": "b" }, "annotations": { "c": "d" } });
    Ok(())
}

async fn selector_of_a_deployment_cannot_be_changed(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["spec"]["selector"]["matchLabels"] = json!({ "app": "other" });
    made["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    let answer = case.put("apps/v1 deployments/a", made).await?;
    let message = "Deployment.apps \"a\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"other\"}}: field is immutable";
    let details = answer.expect_rejected(422, "Invalid", message)?;
    has!(details["causes"][0], { "field": "spec.selector", "reason": "FieldValueInvalid" });
    Ok(())
}

async fn template_of_a_job_cannot_be_changed(case: Case) -> Outcome {
    let mut made = case.make("batch/v1 jobs", job("a")).await?;
    made["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    let answer = case.put("batch/v1 jobs/a", made).await?;
    let details = answer.expect_rejected_containing(422, "Invalid", "field is immutable")?;
    has!(details, { "group": "batch", "kind": "Job" });
    same!(details["causes"][0]["field"], "spec.template");
    Ok(())
}

const POD_RULE: &str = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";

async fn most_fields_of_pod_spec_are_immutable(case: Case) -> Outcome {
    let mut made = case.make("pods", pod("a")).await?;
    made["spec"]["hostname"] = json!("other");
    let answer = case.put("pods/a", made).await?;
    let details = answer.expect_rejected_containing(
        422,
        "Invalid",
        &format!("Pod \"a\" is invalid: spec: {POD_RULE}"),
    )?;
    has!(details["causes"][0], { "field": "spec", "reason": "FieldValueForbidden" });
    Ok(())
}

async fn image_of_a_pod_can_be_changed(case: Case) -> Outcome {
    let mut made = case.make("pods", pod("a")).await?;
    made["spec"]["containers"][0]["image"] = json!("other");
    same!(case.replace("pods/a", made).await?["spec"]["containers"][0]["image"], "other");
    Ok(())
}

async fn type_of_a_secret_cannot_be_changed(case: Case) -> Outcome {
    let mut made = case.make("secrets", json!({ "metadata": { "name": "a" } })).await?;
    same!(made["type"], "Opaque");
    made["type"] = json!("other");
    let message = "Secret \"a\" is invalid: type: Invalid value: \"other\": field is immutable";
    case.put("secrets/a", made).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn immutable(case: &Case) -> anyhow::Result<Value> {
    let mut wanted = config_map("a");
    wanted["immutable"] = json!(true);
    case.make("configmaps", wanted).await
}

async fn immutable_config_map_cannot_be_changed(case: Case) -> Outcome {
    let mut made = immutable(&case).await?;
    made["data"]["key"] = json!("new");
    let message = "ConfigMap \"a\" is invalid: data: Forbidden: field is immutable when `immutable` is set";
    case.put("configmaps/a", made).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn immutable_config_map_cannot_be_made_mutable(case: Case) -> Outcome {
    let mut made = immutable(&case).await?;
    made["immutable"] = json!(false);
    let message =
        "ConfigMap \"a\" is invalid: immutable: Forbidden: field is immutable when `immutable` is set";
    case.put("configmaps/a", made).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn address_of_a_service_cannot_be_changed(case: Case) -> Outcome {
    let mut made = case.make("services", service("a")).await?;
    let address: std::net::Ipv4Addr = made["spec"]["clusterIP"].as_str().unwrap_or_default().parse()?;
    let other = std::net::Ipv4Addr::from_bits(address.to_bits() ^ 1).to_string();
    made["spec"]["clusterIP"] = json!(other);
    made["spec"]["clusterIPs"] = json!([other]);
    let answer = case.put("services/a", made).await?;
    let words = format!("spec.clusterIPs[0]: Invalid value: [\"{other}\"]: may not change once set");
    same!(answer.expect_rejected_containing(422, "Invalid", &words)?["kind"], "Service");
    Ok(())
}

async fn service_update_can_omit_cluster_ip(case: Case) -> Outcome {
    let made = case.make("services", service("a")).await?;
    let updated = case.replace("services/a", service("a")).await?;
    same!(updated["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    Ok(())
}

async fn invalid_update_is_rejected(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["spec"]["replicas"] = json!(-1);
    let answer = case.put("apps/v1 deployments/a", made).await?;
    let message = "Deployment.apps \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    let details = answer.expect_rejected(422, "Invalid", message)?;
    same!(
        details,
        json!({ "name": "a", "group": "apps", "kind": "Deployment", "causes": [{ "field": "spec.replicas",
            "reason": "FieldValueInvalid", "message": "Invalid value: -1: must be greater than or equal to 0" }] })
    );
    Ok(())
}

async fn second_of_two_concurrent_updates_is_rejected(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let with = |text: &str| {
        let mut it = made.clone();
        it["data"]["key"] = json!(text);
        it
    };
    let (first, second) = futures_util::future::try_join(
        case.put("configmaps/a", with("one")),
        case.put("configmaps/a", with("two")),
    )
    .await?;
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    same!(statuses, [200, 409]);
    Ok(())
}

async fn non_numeric_version_is_rejected(case: Case) -> Outcome {
    let mut made = case.make("configmaps", config_map("a")).await?;
    made["metadata"]["resourceVersion"] = json!("x");
    let answer = case.put("configmaps/a", made).await?;
    answer.expect_rejected(500, "", "strconv.ParseUint: parsing \"x\": invalid syntax")?;
    Ok(())
}

async fn change_of_annotations_raises_the_generation_of_a_deployment(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["metadata"]["annotations"] = json!({ "deployment.kubernetes.io/revision": "4" });
    let updated = case.replace("apps/v1 deployments/a", made).await?;
    same!(updated["metadata"]["generation"], 2);
    Ok(())
}

async fn empty_selector_differs_from_missing_selector(case: Case) -> Outcome {
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "a" },
        "spec": { "minAvailable": 1 } });
    case.make("policy/v1 poddisruptionbudgets", budget).await?;
    let path = "policy/v1 poddisruptionbudgets/a";
    for (selector, generation) in [(json!({}), 2), (json!({ "matchLabels": {} }), 2), (Value::Null, 3)] {
        let changed = case.merge(path, json!({ "spec": { "selector": selector } })).await?;
        same!(changed["metadata"]["generation"], generation);
    }
    Ok(())
}

async fn empty_list_removes_managers(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let reset = json!({ "metadata": { "managedFields": [] } });
    let changed = case.merge("configmaps/a", reset).await?;
    same!(changed["metadata"]["managedFields"], Value::Null);
    anyhow::ensure!(revision(&changed) > revision(&made), "the object has changed");
    Ok(())
}
