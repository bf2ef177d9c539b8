//! DELETE of an object: grace, preconditions, finalizers, propagation.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, job, pod, pod_on_node};
use crate::{
    Behavior, Case, Outcome, behaviors,
    check::{revision, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    delete_returns_status_with_uid,
    deletion_of_a_missing_object_is_rejected,
    deletion_with_another_uid_is_rejected,
    deletion_with_an_old_version_is_rejected,
    delete_with_matching_preconditions_succeeds,
    object_with_finalizer_becomes_terminating,
    second_delete_of_terminating_object_changes_nothing,
    object_is_removed_with_its_last_finalizer,
    object_remains_while_a_finalizer_is_left,
    finalizer_cannot_be_added_to_terminating_object,
    terminating_object_can_be_changed,
    deletion_time_cannot_be_removed,
    deletion_raises_the_generation,
    foreground_propagation_adds_its_finalizer,
    orphan_propagation_adds_its_finalizer,
    background_propagation_adds_no_finalizer,
    deprecated_orphan_dependents_is_supported,
    both_propagation_options_together_are_rejected,
    unknown_propagation_is_rejected,
    background_propagation_removes_the_foreground_finalizer,
    job_orphans_its_pods_by_default,
    unscheduled_pod_is_removed_immediately,
    scheduled_pod_gets_grace_period,
    finished_pod_is_removed_immediately,
    grace_period_of_pod_can_be_set,
    zero_grace_period_removes_pod_immediately,
    grace_of_a_pod_can_be_shortened_later,
    grace_of_a_pod_cannot_be_prolonged,
    second_deletion_of_a_pod_does_not_restart_its_grace,
    terminating_pod_is_removed_by_zero_grace_period,
    pod_with_finalizer_remains_after_grace_period,
    grace_period_can_be_a_query_parameter,
    propagation_can_be_a_query_parameter,
    config_map_ignores_grace,
    unscheduled_pod_with_a_finalizer_has_no_grace,
    name_of_deleted_object_can_be_reused,
    name_of_terminating_object_cannot_be_reused,
    deletion_with_a_body_of_another_kind_is_rejected,
    terminating_deployment_accepts_status_updates,
    deletion_event_has_version_of_deletion,
];

async fn delete_returns_status_with_uid(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    same!(
        case.delete("apps/v1 deployments/a").await?.is(200)?,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": { "name": "a", "group": "apps", "kind": "deployments", "uid": made["metadata"]["uid"] } })
    );
    Ok(())
}

async fn deletion_of_a_missing_object_is_rejected(case: Case) -> Outcome {
    case.delete("configmaps/a").await?.expect_rejected(404, "NotFound", "configmaps \"a\" not found")?;
    Ok(())
}

async fn deletion_with_another_uid_is_rejected(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let answer = case.delete_with("configmaps/a", json!({ "preconditions": { "uid": "other" } })).await?;
    let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID \
         in record ({uid}). The object might have been deleted and then recreated"
    );
    let details = answer.expect_rejected(409, "Conflict", &message)?;
    same!(details, json!({ "name": "a", "kind": "ConfigMap" }));
    Ok(())
}

async fn deletion_with_an_old_version_is_rejected(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let changed = case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    let old = json!({ "preconditions": { "resourceVersion": version(&made) } });
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition ({}) does not match \
         the ResourceVersion in record ({}). The object might have been modified",
        version(&made),
        version(&changed)
    );
    case.delete_with("configmaps/a", old).await?.expect_rejected(409, "Conflict", &message)?;
    Ok(())
}

async fn delete_with_matching_preconditions_succeeds(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let now =
        json!({ "preconditions": { "resourceVersion": version(&made), "uid": made["metadata"]["uid"] } });
    case.delete_with("configmaps/a", now).await?.is(200)?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

fn held(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object
}

async fn object_with_finalizer_becomes_terminating(case: Case) -> Outcome {
    let made = case.make("configmaps", held(config_map("a"))).await?;
    let marked = case.delete("configmaps/a").await?.is(200)?;
    has!(marked, { "kind": "ConfigMap", "metadata": { "deletionGracePeriodSeconds": 0,
        "finalizers": ["example.com/hold"] } });
    anyhow::ensure!(marked["metadata"]["deletionTimestamp"].is_string(), "not marked");
    anyhow::ensure!(revision(&marked) > revision(&made), "the version stayed");
    same!(case.read("configmaps/a").await?, marked);
    Ok(())
}

async fn second_delete_of_terminating_object_changes_nothing(case: Case) -> Outcome {
    case.make("configmaps", held(config_map("a"))).await?;
    let marked = case.delete("configmaps/a").await?.is(200)?;
    same!(case.delete("configmaps/a").await?.is(200)?, marked);
    Ok(())
}

async fn object_is_removed_with_its_last_finalizer(case: Case) -> Outcome {
    case.make("configmaps", held(config_map("a"))).await?;
    let mut marked = case.delete("configmaps/a").await?.is(200)?;
    marked["metadata"]["finalizers"] = json!(null);
    let last = case.replace("configmaps/a", marked).await?;
    same!(last["metadata"]["finalizers"], Value::Null);
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn object_remains_while_a_finalizer_is_left(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    case.make("configmaps", wanted).await?;
    case.delete("configmaps/a").await?.is(200)?;
    case.merge("configmaps/a", json!({ "metadata": { "finalizers": ["example.com/b"] } })).await?;
    same!(case.read("configmaps/a").await?["metadata"]["finalizers"], json!(["example.com/b"]));
    Ok(())
}

async fn finalizer_cannot_be_added_to_terminating_object(case: Case) -> Outcome {
    case.make("configmaps", held(config_map("a"))).await?;
    let mut marked = case.delete("configmaps/a").await?.is(200)?;
    marked["metadata"]["finalizers"] = json!(["example.com/hold", "example.com/more"]);
    let answer = case.put("configmaps/a", marked).await?;
    let message = "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
        object is being deleted, found new finalizers []string{\"example.com/more\"}";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn terminating_object_can_be_changed(case: Case) -> Outcome {
    case.make("configmaps", held(config_map("a"))).await?;
    case.delete("configmaps/a").await?.is(200)?;
    same!(case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?["data"]["key"], "new");
    Ok(())
}

async fn deletion_time_cannot_be_removed(case: Case) -> Outcome {
    case.make("configmaps", held(config_map("a"))).await?;
    let marked = case.delete("configmaps/a").await?.is(200)?;
    let mut other = marked.clone();
    other["metadata"]["deletionTimestamp"] = json!(null);
    other["metadata"]["deletionGracePeriodSeconds"] = json!(null);
    same!(case.replace("configmaps/a", other).await?, marked);
    Ok(())
}

async fn deletion_raises_the_generation(case: Case) -> Outcome {
    case.make("apps/v1 deployments", held(deployment("a"))).await?;
    same!(case.delete("apps/v1 deployments/a").await?.is(200)?["metadata"]["generation"], 2);
    Ok(())
}

async fn foreground_propagation_adds_its_finalizer(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let options = json!({ "propagationPolicy": "Foreground" });
    let marked = case.delete_with("apps/v1 deployments/a", options).await?.is(200)?;
    has!(marked["metadata"], { "finalizers": ["foregroundDeletion"], "deletionGracePeriodSeconds": 0 });
    same!(case.read("apps/v1 deployments/a").await?, marked);
    Ok(())
}

async fn orphan_propagation_adds_its_finalizer(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let options = json!({ "propagationPolicy": "Orphan" });
    let marked = case.delete_with("apps/v1 deployments/a", options).await?.is(200)?;
    same!(marked["metadata"]["finalizers"], json!(["orphan"]));
    Ok(())
}

async fn background_propagation_adds_no_finalizer(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let options = json!({ "propagationPolicy": "Background" });
    same!(case.delete_with("apps/v1 deployments/a", options).await?.is(200)?["kind"], "Status");
    case.get("apps/v1 deployments/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn deprecated_orphan_dependents_is_supported(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let marked =
        case.delete_with("apps/v1 deployments/a", json!({ "orphanDependents": true })).await?.is(200)?;
    same!(marked["metadata"]["finalizers"], json!(["orphan"]));
    Ok(())
}

async fn both_propagation_options_together_are_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let options = json!({ "orphanDependents": true, "propagationPolicy": "Foreground" });
    let answer = case.delete_with("configmaps/a", options).await?;
    let words = "propagationPolicy: Invalid value: \"Foreground\": orphanDependents and deletionPropagation cannot be both set";
    let details = answer.expect_rejected_containing(422, "Invalid", words)?;
    same!(details["kind"], "DeleteOptions");
    Ok(())
}

async fn unknown_propagation_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.delete_with("configmaps/a", json!({ "propagationPolicy": "Sideways" })).await?;
    let words = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": \
        supported values: ";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn background_propagation_removes_the_foreground_finalizer(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    case.delete_with("apps/v1 deployments/a", json!({ "propagationPolicy": "Foreground" })).await?.is(200)?;
    case.delete_with("apps/v1 deployments/a", json!({ "propagationPolicy": "Background" })).await?.is(200)?;
    case.get("apps/v1 deployments/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn job_orphans_its_pods_by_default(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let marked = case.delete("batch/v1 jobs/a").await?.is(200)?;
    same!(marked["metadata"]["finalizers"], json!(["orphan"]));
    let background = json!({ "propagationPolicy": "Background" });
    case.delete_with("batch/v1 jobs/a", background).await?.is(200)?;
    case.get("batch/v1 jobs/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn unscheduled_pod_is_removed_immediately(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let last = case.delete("pods/a").await?.is(200)?;
    has!(last, { "kind": "Pod", "metadata": { "deletionGracePeriodSeconds": 0 } });
    case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn scheduled_pod_gets_grace_period(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    let marked = case.delete("pods/a").await?.is(200)?;
    has!(marked["metadata"], { "deletionGracePeriodSeconds": 30 });
    anyhow::ensure!(marked["metadata"]["deletionTimestamp"].is_string(), "not marked");
    same!(case.read("pods/a").await?, marked);
    Ok(())
}

async fn finished_pod_is_removed_immediately(case: Case) -> Outcome {
    for phase in ["Succeeded", "Failed"] {
        case.make("pods", pod_on_node("a")).await?;
        case.merge("pods/a/status", json!({ "status": { "phase": phase } })).await?;
        case.delete("pods/a").await?.is(200)?;
        case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    }
    Ok(())
}

async fn grace_period_of_pod_can_be_set(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    let marked = case.delete_with("pods/a", json!({ "gracePeriodSeconds": 7 })).await?.is(200)?;
    same!(marked["metadata"]["deletionGracePeriodSeconds"], 7);
    let mut own = pod_on_node("b");
    own["spec"]["terminationGracePeriodSeconds"] = json!(5);
    case.make("pods", own).await?;
    same!(case.delete("pods/b").await?.is(200)?["metadata"]["deletionGracePeriodSeconds"], 5);
    Ok(())
}

async fn zero_grace_period_removes_pod_immediately(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    case.delete_with("pods/a", json!({ "gracePeriodSeconds": 0 })).await?.is(200)?;
    case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn grace_of_a_pod_can_be_shortened_later(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    case.delete("pods/a").await?.is(200)?;
    let shorter = case.delete_with("pods/a", json!({ "gracePeriodSeconds": 3 })).await?.is(200)?;
    same!(shorter["metadata"]["deletionGracePeriodSeconds"], 3);
    Ok(())
}

async fn grace_of_a_pod_cannot_be_prolonged(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    let marked = case.delete_with("pods/a", json!({ "gracePeriodSeconds": 3 })).await?.is(200)?;
    let again = case.delete_with("pods/a", json!({ "gracePeriodSeconds": 60 })).await?.is(200)?;
    same!(again, marked);
    Ok(())
}

async fn second_deletion_of_a_pod_does_not_restart_its_grace(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    let marked = case.delete("pods/a").await?.is(200)?;
    same!(case.delete("pods/a").await?.is(200)?, marked);
    Ok(())
}

async fn terminating_pod_is_removed_by_zero_grace_period(case: Case) -> Outcome {
    let made = case.make("pods", pod_on_node("a")).await?;
    case.delete("pods/a").await?.is(200)?;
    let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": made["metadata"]["uid"] } });
    case.delete_with("pods/a", options).await?.is(200)?;
    case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn pod_with_finalizer_remains_after_grace_period(case: Case) -> Outcome {
    case.make("pods", held(pod_on_node("a"))).await?;
    case.delete("pods/a").await?.is(200)?;
    case.delete_with("pods/a", json!({ "gracePeriodSeconds": 0 })).await?.is(200)?;
    let left = case.read("pods/a").await?;
    same!(left["metadata"]["deletionGracePeriodSeconds"], 0);
    case.merge("pods/a", json!({ "metadata": { "finalizers": null } })).await?;
    case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn grace_period_can_be_a_query_parameter(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    let marked = case.delete("pods/a?gracePeriodSeconds=4").await?.is(200)?;
    same!(marked["metadata"]["deletionGracePeriodSeconds"], 4);
    Ok(())
}

async fn propagation_can_be_a_query_parameter(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let marked = case.delete("apps/v1 deployments/a?propagationPolicy=Foreground").await?.is(200)?;
    same!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    Ok(())
}

async fn config_map_ignores_grace(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete_with("configmaps/a", json!({ "gracePeriodSeconds": 60 })).await?.is(200)?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn unscheduled_pod_with_a_finalizer_has_no_grace(case: Case) -> Outcome {
    case.make("pods", held(pod("a"))).await?;
    let marked = case.delete("pods/a").await?.is(200)?;
    same!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    same!(case.read("pods/a").await?, marked);
    Ok(())
}

async fn name_of_deleted_object_can_be_reused(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps/a").await?.is(200)?;
    case.make("configmaps", config_map("a")).await?;
    Ok(())
}

async fn name_of_terminating_object_cannot_be_reused(case: Case) -> Outcome {
    case.make("configmaps", held(config_map("a"))).await?;
    case.delete("configmaps/a").await?.is(200)?;
    let answer = case.post("configmaps", config_map("a")).await?;
    answer.expect_rejected_containing(409, "AlreadyExists", "configmaps \"a\" already exists")?;
    Ok(())
}

async fn deletion_with_a_body_of_another_kind_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let headers = [("content-type", "application/json")];
    let body = config_map("a").to_string();
    let answer = case.send(http::Method::DELETE, "configmaps/a", &headers, body).await?;
    answer.expect_rejected_with_reason(400, "BadRequest")?;
    Ok(())
}

async fn terminating_deployment_accepts_status_updates(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    case.delete_with("apps/v1 deployments/a", json!({ "propagationPolicy": "Foreground" })).await?.is(200)?;
    let patch = json!({ "status": { "observedGeneration": 2 } });
    let changed = case.merge("apps/v1 deployments/a/status", patch).await?;
    same!(changed["status"]["observedGeneration"], 2);
    Ok(())
}

async fn deletion_event_has_version_of_deletion(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    let mut watch = case.watch(&format!("configmaps?resourceVersion={}", version(&list))).await?;
    case.delete("configmaps/a").await?.is(200)?;
    let gone = watch.expect("DELETED", "a").await?;
    anyhow::ensure!(revision(&gone) > revision(&list), "{gone}");
    // A watch from that version receives no further event for it.
    let mut later = case.watch(&format!("configmaps?resourceVersion={}", version(&gone))).await?;
    case.make("configmaps", config_map("b")).await?;
    later.expect("ADDED", "b").await?;
    Ok(())
}
