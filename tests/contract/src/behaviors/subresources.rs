//! status and scale, and errors for missing subresources.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, job, pod, service, workload};
use crate::{Behavior, Case, Outcome, behaviors, case::patch, check::revision, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    status_update_changes_only_status,
    update_of_status_keeps_the_generation,
    status_update_ignores_labels,
    update_of_status_of_an_old_version_is_rejected,
    update_of_status_without_version_is_unconditional_for_a_deployment,
    status_update_without_change_keeps_version,
    status_can_be_merged,
    status_can_be_merged_strategically,
    conditions_are_merged_by_type,
    status_can_be_read,
    status_of_a_missing_object_is_rejected,
    config_map_has_no_status,
    status_fields_have_separate_manager_entry,
    pod_conditions_are_set_by_status,
    negative_number_in_a_status_is_rejected,
    ready_replicas_above_replicas_are_rejected,
    scale_shows_replicas_and_selector,
    scale_can_be_replaced,
    scale_raises_the_generation,
    scale_of_an_old_version_is_rejected,
    scale_can_be_merged,
    negative_scale_is_rejected,
    scale_of_a_missing_object_is_rejected,
    unknown_field_of_patched_scale_is_reported,
    patch_cannot_rename_scale,
    replica_set_stateful_set_and_replication_controller_scale,
    job_has_no_scale,
    scale_shows_the_status,
    unknown_subresource_is_rejected,
    service_status_accepts_load_balancer,
    job_status_accepts_start_time,
    node_status_accepts_addresses,
    status_of_missing_object_is_not_found,
    status_write_creates_missing_service,
];

async fn status_update_changes_only_status(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["spec"]["replicas"] = json!(9);
    made["status"] = json!({ "replicas": 1, "observedGeneration": 1 });
    let updated = case.replace("apps/v1 deployments/a/status", made).await?;
    has!(updated, { "spec": { "replicas": 2 }, "status": { "replicas": 1, "observedGeneration": 1 } });
    Ok(())
}

async fn update_of_status_keeps_the_generation(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    let updated = case.merge("apps/v1 deployments/a/status", json!({ "status": { "replicas": 1 } })).await?;
    same!(updated["metadata"]["generation"], 1);
    anyhow::ensure!(revision(&updated) > revision(&made), "the version stayed");
    Ok(())
}

async fn status_update_ignores_labels(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 deployments", deployment("a")).await?;
    made["metadata"]["labels"] = json!({ "a": "b" });
    let updated = case.replace("apps/v1 deployments/a/status", made).await?;
    same!(updated["metadata"]["labels"], Value::Null);
    Ok(())
}

async fn update_of_status_of_an_old_version_is_rejected(case: Case) -> Outcome {
    let mut made = case.make("pods", pod("a")).await?;
    case.merge("pods/a", json!({ "metadata": { "labels": { "a": "b" } } })).await?;
    made["status"]["phase"] = json!("Running");
    let message = "Operation cannot be fulfilled on pods \"a\": the object has been modified; please apply your \
        changes to the latest version and try again";
    case.put("pods/a/status", made).await?.expect_rejected(409, "Conflict", message)?;
    Ok(())
}

async fn update_of_status_without_version_is_unconditional_for_a_deployment(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    case.make("apps/v1 deployments", wanted.clone()).await?;
    wanted["status"] = json!({ "replicas": 1 });
    same!(case.replace("apps/v1 deployments/a/status", wanted).await?["status"]["replicas"], 1);
    Ok(())
}

async fn status_update_without_change_keeps_version(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let status = json!({ "status": { "replicas": 1 } });
    let first = case.merge("apps/v1 deployments/a/status", status.clone()).await?;
    same!(case.merge("apps/v1 deployments/a/status", status).await?, first);
    Ok(())
}

async fn status_can_be_merged(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let patch = json!({ "status": { "phase": "Running", "podIP": "10.1.1.1" }, "spec": { "hostname": "x" } });
    let merged = case.merge("pods/a/status", patch).await?;
    has!(merged, { "spec": { "hostname": null }, "status": { "phase": "Running", "podIP": "10.1.1.1" } });
    Ok(())
}

async fn status_can_be_merged_strategically(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let patch = json!({ "status": { "phase": "Running" } });
    let merged = case.patch(patch::STRATEGIC, "pods/a/status", patch).await?.is(200)?;
    has!(merged["status"], { "phase": "Running", "qosClass": "BestEffort" });
    Ok(())
}

async fn conditions_are_merged_by_type(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    for (kind, status) in [("Ready", "False"), ("Initialized", "True"), ("Ready", "True")] {
        let patch = json!({ "status": { "conditions": [{ "type": kind, "status": status }] } });
        case.patch(patch::STRATEGIC, "pods/a/status", patch).await?.is(200)?;
    }
    let found = case.read("pods/a").await?;
    let conditions: Vec<_> = found["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| (it["type"].as_str().unwrap_or_default(), it["status"].as_str().unwrap_or_default()))
        .collect();
    same!(conditions.len(), 2);
    anyhow::ensure!(conditions.contains(&("Ready", "True")) && conditions.contains(&("Initialized", "True")));
    Ok(())
}

async fn status_can_be_read(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    same!(case.read("apps/v1 deployments/a/status").await?, made);
    Ok(())
}

async fn status_of_a_missing_object_is_rejected(case: Case) -> Outcome {
    let answer = case.put("apps/v1 deployments/a/status", deployment("a")).await?;
    answer.expect_rejected(404, "NotFound", "deployments.apps \"a\" not found")?;
    Ok(())
}

async fn config_map_has_no_status(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.put("configmaps/a/status", config_map("a")).await?;
    answer.expect_rejected(404, "NotFound", "the server could not find the requested resource")?;
    Ok(())
}

async fn status_fields_have_separate_manager_entry(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let path = "apps/v1 deployments/a/status?fieldManager=controller";
    let updated = case.merge(path, json!({ "status": { "replicas": 1 } })).await?;
    has!(updated["metadata"]["managedFields"][1], { "manager": "controller", "operation": "Update",
        "subresource": "status", "apiVersion": "apps/v1", "fieldsV1": { "f:status": { "f:replicas": {} } } });
    Ok(())
}

async fn pod_conditions_are_set_by_status(case: Case) -> Outcome {
    let mut made = case.make("pods", pod("a")).await?;
    let condition =
        json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    made["status"]["conditions"] = json!([condition]);
    let updated = case.replace("pods/a/status", made).await?;
    has!(updated["status"]["conditions"][0], { "type": "Ready", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    Ok(())
}

async fn negative_number_in_a_status_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 replicasets", workload("ReplicaSet", "a")).await?;
    let answer = case
        .patch(patch::MERGE, "apps/v1 replicasets/a/status", json!({ "status": { "replicas": -1 } }))
        .await?;
    let first = "status.replicas: Invalid value: -1: must be greater than or equal to 0";
    let rest = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
        .map(|field| format!("status.{field}: Invalid value: 0: cannot be greater than status.replicas"));
    let message = format!("ReplicaSet.apps \"a\" is invalid: [{first}, {}]", rest.join(", "));
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn ready_replicas_above_replicas_are_rejected(case: Case) -> Outcome {
    case.make("apps/v1 replicasets", workload("ReplicaSet", "a")).await?;
    let status = json!({ "status": { "replicas": 1, "readyReplicas": 2 } });
    let answer = case.patch(patch::MERGE, "apps/v1 replicasets/a/status", status).await?;
    let message = "ReplicaSet.apps \"a\" is invalid: status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn scale_shows_replicas_and_selector(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    let metadata = &made["metadata"];
    same!(
        case.read("apps/v1 deployments/a/scale").await?,
        json!({ "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": { "name": "a", "namespace": case.namespace, "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"] },
            "spec": { "replicas": 2 }, "status": { "replicas": 0, "selector": "app=web" } })
    );
    Ok(())
}

async fn scale_can_be_replaced(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let mut scale = case.read("apps/v1 deployments/a/scale").await?;
    scale["spec"]["replicas"] = json!(7);
    let answered = case.replace("apps/v1 deployments/a/scale", scale).await?;
    has!(answered, { "kind": "Scale", "spec": { "replicas": 7 } });
    same!(case.read("apps/v1 deployments/a").await?["spec"]["replicas"], 7);
    Ok(())
}

async fn scale_raises_the_generation(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    case.merge("apps/v1 deployments/a/scale", json!({ "spec": { "replicas": 7 } })).await?;
    same!(case.read("apps/v1 deployments/a").await?["metadata"]["generation"], 2);
    Ok(())
}

async fn scale_of_an_old_version_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let scale = case.read("apps/v1 deployments/a/scale").await?;
    case.merge("apps/v1 deployments/a", json!({ "metadata": { "labels": { "a": "b" } } })).await?;
    let answer = case.put("apps/v1 deployments/a/scale", scale).await?;
    answer.expect_rejected_containing(
        409,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version and try again",
    )?;
    Ok(())
}

async fn scale_can_be_merged(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let merged = case.merge("apps/v1 deployments/a/scale", json!({ "spec": { "replicas": 0 } })).await?;
    same!(merged["spec"], json!({}));
    same!(case.read("apps/v1 deployments/a").await?["spec"]["replicas"], 0);
    Ok(())
}

async fn negative_scale_is_rejected(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let answer = case
        .patch(patch::MERGE, "apps/v1 deployments/a/scale", json!({ "spec": { "replicas": -1 } }))
        .await?;
    let message = "Scale.autoscaling \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn unknown_field_of_patched_scale_is_reported(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let object = json!({ "spec": { "replicas": 3, "other": 1 }, "more": { "a": 1 } });
    let operations = json!([{ "op": "add", "path": "/spec/other", "value": 1 }]);
    let both: &[&str] = &["unknown field \"more\"", "unknown field \"spec.other\""];
    for (kind, body, warnings) in [
        (patch::MERGE, &object, both),
        (patch::STRATEGIC, &object, both),
        (patch::JSON, &operations, &both[1..]),
    ] {
        let path = |validation: &str| format!("apps/v1 deployments/a/scale?fieldValidation={validation}");
        let answer = case.patch(kind, &path("Warn"), body.clone()).await?;
        same!(
            (answer.status, answer.warnings()),
            (200, warnings.iter().map(|it| (*it).to_owned()).collect())
        );
        let answer = case.patch(kind, &path("Ignore"), body.clone()).await?;
        same!((answer.status, answer.warnings()), (200, Vec::<String>::new()));
        let why = format!("strict decoding error: {}", warnings.join(", "));
        let answer = case.patch(kind, &path("Strict"), body.clone()).await?;
        answer.expect_rejected_containing(422, "Invalid", &why)?;
    }
    let mut applied = object;
    applied["apiVersion"] = json!("autoscaling/v1");
    applied["kind"] = json!("Scale");
    let answer = case.apply("me", "apps/v1 deployments/a/scale", applied).await?;
    let why = "failed to create typed patch object (/; autoscaling/v1, Kind=Scale): ";
    answer.expect_rejected_containing(500, "", why)?;
    Ok(())
}

async fn patch_cannot_rename_scale(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let renamed = json!({ "metadata": { "name": "b" }, "spec": { "replicas": 3 } });
    let answer = case.patch(patch::MERGE, "apps/v1 deployments/a/scale", renamed).await?;
    let why = "the name of the object (b) does not match the name on the URL (a)";
    answer.expect_rejected(400, "BadRequest", why)?;
    same!(case.read("apps/v1 deployments/a").await?["spec"]["replicas"], 2);
    Ok(())
}

async fn scale_of_a_missing_object_is_rejected(case: Case) -> Outcome {
    let answer = case.get("apps/v1 deployments/a/scale").await?;
    answer.expect_rejected(404, "NotFound", "deployments.apps \"a\" not found")?;
    Ok(())
}

async fn replica_set_stateful_set_and_replication_controller_scale(case: Case) -> Outcome {
    for (kind, plural) in [("ReplicaSet", "replicasets"), ("StatefulSet", "statefulsets")] {
        case.make(&format!("apps/v1 {plural}"), workload(kind, "a")).await?;
        let scaled =
            case.merge(&format!("apps/v1 {plural}/a/scale"), json!({ "spec": { "replicas": 4 } })).await?;
        has!(scaled, { "kind": "Scale", "spec": { "replicas": 4 }, "status": { "selector": "app=web" } });
    }
    let mut controller = workload("ReplicationController", "a");
    controller["apiVersion"] = json!("v1");
    controller["spec"]["selector"] = json!({ "app": "web" });
    case.make("replicationcontrollers", controller).await?;
    let scaled = case.merge("replicationcontrollers/a/scale", json!({ "spec": { "replicas": 4 } })).await?;
    has!(scaled, { "kind": "Scale", "apiVersion": "autoscaling/v1", "spec": { "replicas": 4 } });
    Ok(())
}

async fn job_has_no_scale(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let answer = case.get("batch/v1 jobs/a/scale").await?;
    answer.expect_rejected(404, "NotFound", "the server could not find the requested resource")?;
    Ok(())
}

async fn scale_shows_the_status(case: Case) -> Outcome {
    case.make("apps/v1 replicasets", workload("ReplicaSet", "a")).await?;
    case.merge("apps/v1 replicasets/a/status", json!({ "status": { "replicas": 3 } })).await?;
    same!(case.read("apps/v1 replicasets/a/scale").await?["status"]["replicas"], 3);
    Ok(())
}

async fn unknown_subresource_is_rejected(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let answer = case.get("pods/a/nothing").await?;
    let details =
        answer.expect_rejected(404, "NotFound", "the server could not find the requested resource")?;
    same!(details, json!({}));
    Ok(())
}

async fn service_status_accepts_load_balancer(case: Case) -> Outcome {
    case.make("services", service("a")).await?;
    case.merge("services/a", json!({ "spec": { "type": "LoadBalancer" } })).await?;
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } });
    let merged = case.merge("services/a/status", status).await?;
    same!(merged["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    Ok(())
}

async fn job_status_accepts_start_time(case: Case) -> Outcome {
    let made = case.make("batch/v1 jobs", job("a")).await?;
    let start = made["metadata"]["creationTimestamp"].clone();
    let status = json!({ "status": { "active": 1, "startTime": start } });
    let merged = case.merge("batch/v1 jobs/a/status", status).await?;
    has!(merged["status"], { "active": 1, "startTime": start });
    Ok(())
}

async fn node_status_accepts_addresses(case: Case) -> Outcome {
    let name = case.unique("node");
    case.make("/api/v1/nodes", json!({ "metadata": { "name": name } })).await?;
    let address = json!({ "type": "InternalIP", "address": "192.0.2.1" });
    let path = format!("/api/v1/nodes/{name}/status");
    let merged = case.merge(&path, json!({ "status": { "addresses": [address] } })).await?;
    same!(merged["status"]["addresses"], json!([address]));
    case.delete(&format!("/api/v1/nodes/{name}")).await?.is(200)?;
    Ok(())
}

async fn status_of_missing_object_is_not_found(case: Case) -> Outcome {
    for path in ["services/a/status", "pods/a/status"] {
        let resource = path.split('/').next().unwrap_or_default();
        let message = format!("{resource} \"a\" not found");
        case.get(path).await?.expect_rejected(404, "NotFound", &message)?;
        let answer = case.patch(patch::MERGE, path, json!({ "status": {} })).await?;
        answer.expect_rejected(404, "NotFound", &message)?;
    }
    Ok(())
}

async fn status_write_creates_missing_service(case: Case) -> Outcome {
    let made = case.put("services/a/status", service("a")).await?.is(201)?;
    has!(made, { "metadata": { "managedFields": null }, "spec": { "clusterIP": null, "ports": [{ "port": 80 }] } });
    Ok(())
}
