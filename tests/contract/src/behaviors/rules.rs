//! Validation of single kinds: immutable fields, and consistency of specs and statuses.

use serde_json::{Value, json};

use super::objects::{config_map, job, pod, service, template, workload};
use crate::{
    Behavior, Case, Outcome, behaviors,
    case::patch::{JSON, MERGE, STRATEGIC},
    check::{revision, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    selector_of_a_replica_set_cannot_be_changed,
    selector_of_a_daemon_set_cannot_be_changed,
    most_fields_of_stateful_set_are_immutable,
    stateful_set_can_be_scaled_and_its_template_changed,
    parallelism_of_a_job_can_be_changed,
    completions_of_a_job_cannot_be_changed,
    template_of_a_suspended_job_can_be_changed,
    complete_job_requires_success_criteria_met,
    complete_job_needs_a_completion_time,
    finished_job_cannot_be_reopened,
    job_completes_in_two_steps,
    address_type_of_a_slice_cannot_be_changed,
    most_fields_of_persistent_volume_claim_are_immutable,
    finalizers_of_persistent_volume_claim_can_be_removed,
    service_is_assigned_node_port,
    external_name_service_has_no_cluster_ip,
    two_services_cannot_share_an_address,
    kubernetes_service_exists,
    autoscaler_is_read_in_both_versions,
    tolerations_of_a_pod_can_be_added,
    container_cannot_be_added_to_a_pod,
    pod_remains_until_grace_period_is_zero,
    foreground_after_orphan_replaces_its_finalizer,
    apply_in_missing_namespace_is_rejected,
    watch_from_future_version_is_opened,
    initial_events_are_sent_from_version_zero,
    initial_events_honor_selectors,
    scale_accepts_json_and_strategic_patches,
    scale_of_a_stateful_set_cannot_be_negative,
    names_with_dots_sort_as_text,
    cron_job_accepts_time_zone,
    replica_set_name_can_contain_dots,
    pod_quota_ignores_finished_pods,
    generated_name_is_stable_across_updates,
    events_v1_event_requires_reporting_controller,
    immutable_fields_of_a_volume_cannot_be_changed,
    apply_entry_has_version_of_request,
];

async fn selector_of_a_replica_set_cannot_be_changed(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 replicasets", workload("ReplicaSet", "a")).await?;
    made["spec"]["selector"]["matchLabels"] = json!({ "app": "other" });
    made["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    let answer = case.put("apps/v1 replicasets/a", made).await?;
    let message = "ReplicaSet.apps \"a\" is invalid: spec.selector: Invalid value: \
        {\"matchLabels\":{\"app\":\"other\"}}: field is immutable";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn selector_of_a_daemon_set_cannot_be_changed(case: Case) -> Outcome {
    let mut wanted = workload("DaemonSet", "a");
    wanted["spec"]["replicas"] = Value::Null;
    let mut made = case.make("apps/v1 daemonsets", wanted).await?;
    made["spec"]["selector"]["matchLabels"] = json!({ "app": "other" });
    made["spec"]["template"]["metadata"]["labels"] = json!({ "app": "other" });
    let answer = case.put("apps/v1 daemonsets/a", made).await?;
    answer.expect_rejected_containing(422, "Invalid", "spec.selector: Invalid value: ")?;
    Ok(())
}

async fn most_fields_of_stateful_set_are_immutable(case: Case) -> Outcome {
    case.make("apps/v1 statefulsets", workload("StatefulSet", "a")).await?;
    let answer =
        case.patch(MERGE, "apps/v1 statefulsets/a", json!({ "spec": { "serviceName": "b" } })).await?;
    let message = "StatefulSet.apps \"a\" is invalid: spec: Forbidden: updates to statefulset spec for fields other \
        than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', \
        'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn stateful_set_can_be_scaled_and_its_template_changed(case: Case) -> Outcome {
    let mut made = case.make("apps/v1 statefulsets", workload("StatefulSet", "a")).await?;
    made["spec"]["replicas"] = json!(5);
    made["spec"]["template"]["spec"]["containers"][0]["image"] = json!("new");
    has!(case.replace("apps/v1 statefulsets/a", made).await?, { "spec": { "replicas": 5 }, "metadata": { "generation": 2 } });
    Ok(())
}

async fn parallelism_of_a_job_can_be_changed(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    same!(
        case.merge("batch/v1 jobs/a", json!({ "spec": { "parallelism": 3 } })).await?["spec"]["parallelism"],
        3
    );
    Ok(())
}

async fn completions_of_a_job_cannot_be_changed(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let answer = case.patch(MERGE, "batch/v1 jobs/a", json!({ "spec": { "completions": 3 } })).await?;
    answer.expect_rejected(
        422,
        "Invalid",
        "Job.batch \"a\" is invalid: spec.completions: Invalid value: 3: field is immutable",
    )?;
    Ok(())
}

async fn template_of_a_suspended_job_can_be_changed(case: Case) -> Outcome {
    let mut wanted = job("a");
    wanted["spec"]["suspend"] = json!(true);
    case.make("batch/v1 jobs", wanted).await?;
    let patch = json!({ "spec": { "template": { "spec": { "nodeSelector": { "a": "b" } } } } });
    let merged = case.merge("batch/v1 jobs/a", patch).await?;
    same!(merged["spec"]["template"]["spec"]["nodeSelector"], json!({ "a": "b" }));
    Ok(())
}

const START: &str = "2026-01-01T00:00:00Z";

fn condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "True", "lastTransitionTime": START })
}

async fn complete_job_requires_success_criteria_met(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let status = json!({ "status": { "startTime": START, "completionTime": START, "succeeded": 1,
        "conditions": [condition("Complete")] } });
    let answer = case.patch(MERGE, "batch/v1 jobs/a/status", status).await?;
    let message = "Job.batch \"a\" is invalid: status.conditions: Invalid value: cannot set Complete=True condition \
        without the SuccessCriteriaMet=true condition";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn complete_job_needs_a_completion_time(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let status = json!({ "status": { "startTime": START, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")] } });
    let answer = case.patch(MERGE, "batch/v1 jobs/a/status", status).await?;
    answer.expect_rejected(422, "Invalid", "Job.batch \"a\" is invalid: status.completionTime: Required value: completionTime is required for Complete jobs")?;
    Ok(())
}

async fn finished_job_cannot_be_reopened(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let status = json!({ "status": { "startTime": START, "completionTime": START, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")] } });
    case.merge("batch/v1 jobs/a/status", status).await?;
    let answer =
        case.patch(MERGE, "batch/v1 jobs/a/status", json!({ "status": { "conditions": [] } })).await?;
    answer.expect_rejected_with_reason(422, "Invalid")?;
    Ok(())
}

async fn job_completes_in_two_steps(case: Case) -> Outcome {
    case.make("batch/v1 jobs", job("a")).await?;
    let first = json!({ "status": { "startTime": START, "conditions": [condition("SuccessCriteriaMet")] } });
    case.merge("batch/v1 jobs/a/status", first).await?;
    let second = json!({ "status": { "completionTime": START, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")] } });
    same!(case.merge("batch/v1 jobs/a/status", second).await?["status"]["succeeded"], 1);
    Ok(())
}

async fn address_type_of_a_slice_cannot_be_changed(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "addressType": "IPv4", "endpoints": [] });
    case.make("discovery.k8s.io/v1 endpointslices", wanted).await?;
    let path = "discovery.k8s.io/v1 endpointslices/a";
    let answer = case.patch(MERGE, path, json!({ "addressType": "IPv6" })).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "addressType: Invalid value: \"IPv6\": field is immutable",
    )?;
    Ok(())
}

fn claim() -> Value {
    json!({ "metadata": { "name": "a" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } })
}

async fn most_fields_of_persistent_volume_claim_are_immutable(case: Case) -> Outcome {
    case.make("persistentvolumeclaims", claim()).await?;
    let patch = json!({ "spec": { "accessModes": ["ReadWriteMany"] } });
    let answer = case.patch(MERGE, "persistentvolumeclaims/a", patch).await?;
    answer.expect_rejected_containing(422, "Invalid", "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")?;
    Ok(())
}

async fn finalizers_of_persistent_volume_claim_can_be_removed(case: Case) -> Outcome {
    case.make("persistentvolumeclaims", claim()).await?;
    case.delete("persistentvolumeclaims/a").await?.is(200)?;
    case.merge("persistentvolumeclaims/a", json!({ "metadata": { "finalizers": null } })).await?;
    case.get("persistentvolumeclaims/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn service_is_assigned_node_port(case: Case) -> Outcome {
    let mut wanted = service("a");
    wanted["spec"]["type"] = json!("NodePort");
    let made = case.make("services", wanted).await?;
    let port = made["spec"]["ports"][0]["nodePort"].as_u64().unwrap_or_default();
    anyhow::ensure!((30_000..=32_767).contains(&port), "{made}");
    same!(made["spec"]["externalTrafficPolicy"], "Cluster");
    Ok(())
}

async fn external_name_service_has_no_cluster_ip(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "spec": { "type": "ExternalName", "externalName": "example.com" } });
    same!(case.make("services", wanted).await?["spec"]["clusterIP"], Value::Null);
    Ok(())
}

async fn two_services_cannot_share_an_address(case: Case) -> Outcome {
    let made = case.make("services", service("a")).await?;
    let address = made["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let mut wanted = service("b");
    wanted["spec"]["clusterIP"] = json!(address);
    let answer = case.post("services", wanted).await?;
    let message = format!(
        "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: \
         provided IP is already allocated"
    );
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn kubernetes_service_exists(case: Case) -> Outcome {
    let there = |it: &crate::TestResponse| it.status == 200;
    let found = case.until("/api/v1/namespaces/default/services/kubernetes", there).await?.body;
    has!(found["spec"], { "type": "ClusterIP", "ports": [{ "name": "https", "port": 443 }] });
    Ok(())
}

async fn autoscaler_is_read_in_both_versions(case: Case) -> Outcome {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" });
    let wanted = json!({ "metadata": { "name": "a" },
        "spec": { "maxReplicas": 2, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50 } });
    case.make("autoscaling/v1 horizontalpodautoscalers", wanted).await?;
    let found = case.read("autoscaling/v2 horizontalpodautoscalers/a").await?;
    has!(found["spec"]["metrics"], [{ "type": "Resource", "resource": { "name": "cpu",
        "target": { "type": "Utilization", "averageUtilization": 50 } } }]);
    Ok(())
}

async fn tolerations_of_a_pod_can_be_added(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let patch = json!([{ "op": "add", "path": "/spec/tolerations/-", "value": { "key": "k", "operator": "Exists" } }]);
    same!(
        case.patch(JSON, "pods/a", patch).await?.is(200)?["spec"]["tolerations"].as_array().map(Vec::len),
        Some(3)
    );
    Ok(())
}

async fn container_cannot_be_added_to_a_pod(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let patch = json!({ "spec": { "containers": [{ "name": "more", "image": "i" }] } });
    let answer = case.patch(STRATEGIC, "pods/a", patch).await?;
    answer.expect_rejected(
        422,
        "Invalid",
        "Pod \"a\" is invalid: spec.containers: Forbidden: pod updates may not add or remove containers",
    )?;
    Ok(())
}

async fn pod_remains_until_grace_period_is_zero(case: Case) -> Outcome {
    let mut held = super::objects::pod_on_node("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    case.make("pods", held).await?;
    case.delete("pods/a").await?.is(200)?;
    case.merge("pods/a", json!({ "metadata": { "finalizers": null } })).await?;
    // The node still runs the pod.
    same!(case.read("pods/a").await?["metadata"]["deletionGracePeriodSeconds"], 30);
    Ok(())
}

async fn foreground_after_orphan_replaces_its_finalizer(case: Case) -> Outcome {
    case.make("apps/v1 deployments", super::objects::deployment("a")).await?;
    let path = "apps/v1 deployments/a";
    case.delete_with(path, json!({ "propagationPolicy": "Orphan" })).await?.is(200)?;
    case.delete_with(path, json!({ "propagationPolicy": "Foreground" })).await?.is(200)?;
    same!(case.read(path).await?["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    Ok(())
}

async fn apply_in_missing_namespace_is_rejected(case: Case) -> Outcome {
    let answer = case.apply("one", "/api/v1/namespaces/not-there/configmaps/a", config_map("a")).await?;
    answer.expect_rejected(404, "NotFound", "namespaces \"not-there\" not found")?;
    Ok(())
}

async fn watch_from_future_version_is_opened(case: Case) -> Outcome {
    let mut watch = case.watch("configmaps?resourceVersion=900000000&timeoutSeconds=1").await?;
    case.make("configmaps", config_map("a")).await?;
    same!(watch.rest().await?, []);
    Ok(())
}

const INITIAL: &str = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

async fn initial_events_are_sent_from_version_zero(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.until("configmaps/a?resourceVersion=0", |it| it.status == 200).await?;
    let mut watch = case.watch(&format!("configmaps?{INITIAL}&resourceVersion=0")).await?;
    watch.expect("ADDED", "a").await?;
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    same!(end.object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    Ok(())
}

async fn initial_events_honor_selectors(case: Case) -> Outcome {
    case.make("configmaps", super::objects::labeled("a", json!({ "app": "web" }))).await?;
    case.make("configmaps", config_map("b")).await?;
    let mut watch = case.watch(&format!("configmaps?{INITIAL}&labelSelector=app=web")).await?;
    watch.expect("ADDED", "a").await?;
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    same!(end.kind, "BOOKMARK");
    Ok(())
}

async fn scale_accepts_json_and_strategic_patches(case: Case) -> Outcome {
    case.make("apps/v1 deployments", super::objects::deployment("a")).await?;
    let path = "apps/v1 deployments/a/scale";
    let patch = json!([{ "op": "replace", "path": "/spec/replicas", "value": 4 }]);
    same!(case.patch(JSON, path, patch).await?.is(200)?["spec"]["replicas"], 4);
    let patch = json!({ "spec": { "replicas": 5 } });
    same!(case.patch(STRATEGIC, path, patch).await?.is(200)?["spec"]["replicas"], 5);
    Ok(())
}

async fn scale_of_a_stateful_set_cannot_be_negative(case: Case) -> Outcome {
    case.make("apps/v1 statefulsets", workload("StatefulSet", "a")).await?;
    let mut scale = case.read("apps/v1 statefulsets/a/scale").await?;
    scale["spec"]["replicas"] = json!(-2);
    case.put("apps/v1 statefulsets/a/scale", scale).await?.expect_rejected_containing(
        422,
        "Invalid",
        "spec.replicas: Invalid value: -2",
    )?;
    Ok(())
}

async fn names_with_dots_sort_as_text(case: Case) -> Outcome {
    for name in ["a.b", "a-b", "ab", "a"] {
        case.make("configmaps", config_map(name)).await?;
    }
    same!(crate::check::names(&case.read("configmaps").await?), ["a", "a-b", "a.b", "ab"]);
    Ok(())
}

async fn cron_job_accepts_time_zone(case: Case) -> Outcome {
    let with = |zone: &str| {
        json!({ "metadata": { "name": "a" }, "spec": { "schedule": "@daily", "timeZone": zone,
            "jobTemplate": { "spec": job("a")["spec"] } } })
    };
    let answer = case.post("batch/v1 cronjobs", with("Nowhere/There")).await?;
    let message = "CronJob.batch \"a\" is invalid: spec.timeZone: Invalid value: \"Nowhere/There\": unknown time zone Nowhere/There";
    answer.expect_rejected(422, "Invalid", message)?;
    case.make("batch/v1 cronjobs", with("Etc/UTC")).await?;
    Ok(())
}

async fn replica_set_name_can_contain_dots(case: Case) -> Outcome {
    case.make("apps/v1 replicasets", workload("ReplicaSet", "a.b")).await?;
    Ok(())
}

async fn pod_quota_ignores_finished_pods(case: Case) -> Outcome {
    case.make("resourcequotas", json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "5" } } }))
        .await?;
    let status = json!({ "status": { "hard": { "pods": "5" }, "used": { "pods": "5" } } });
    case.merge("resourcequotas/q/status", status).await?;
    for number in 0..200 {
        let answer = case.post("pods", pod(&format!("n-{number}"))).await?;
        if answer.status == 201 {
            // The real server observes a new quota with a delay.
            continue;
        }
        let words = "is forbidden: exceeded quota: q, requested: pods=1, used: pods=";
        answer.expect_rejected_containing(403, "Forbidden", words)?;
        return Ok(());
    }
    anyhow::bail!("never refused")
}

async fn generated_name_is_stable_across_updates(case: Case) -> Outcome {
    let made = case
        .make("pods", json!({ "metadata": { "generateName": "p-" }, "spec": template()["spec"] }))
        .await?;
    let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let again =
        case.merge(&format!("pods/{name}"), json!({ "metadata": { "labels": { "a": "b" } } })).await?;
    same!(again["metadata"]["name"], name.as_str());
    anyhow::ensure!(revision(&again) > revision(&made));
    Ok(())
}

async fn events_v1_event_requires_reporting_controller(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "e" }, "eventTime": "2026-01-02T03:04:05.678901Z",
        "regarding": { "kind": "Pod", "namespace": case.namespace, "name": "a" } });
    let answer = case.post("events.k8s.io/v1 events", wanted).await?;
    let words = "reportingController: Required value";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn immutable_fields_of_a_volume_cannot_be_changed(case: Case) -> Outcome {
    let name = case.unique("volume");
    let wanted = json!({ "metadata": { "name": name }, "spec": { "capacity": { "storage": "1Gi" },
        "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" } } });
    case.make("/api/v1/persistentvolumes", wanted).await?;
    let path = format!("/api/v1/persistentvolumes/{name}");
    let answer = case.patch(MERGE, &path, json!({ "spec": { "hostPath": { "path": "/y" } } })).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
    )?;
    case.delete(&path).await?.is(200)?;
    Ok(())
}

async fn apply_entry_has_version_of_request(case: Case) -> Outcome {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" });
    let wanted = |api: &str, max: u32| {
        json!({ "apiVersion": api, "kind": "HorizontalPodAutoscaler", "metadata": { "name": "a" },
            "spec": { "maxReplicas": max, "scaleTargetRef": target } })
    };
    let made = case
        .apply("one", "autoscaling/v1 horizontalpodautoscalers/a", wanted("autoscaling/v1", 2))
        .await?
        .is(201)?;
    same!(made["metadata"]["managedFields"][0]["apiVersion"], "autoscaling/v1");
    let changed = case
        .apply("one", "autoscaling/v2 horizontalpodautoscalers/a", wanted("autoscaling/v2", 3))
        .await?
        .is(200)?;
    same!(changed["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
    has!(changed["metadata"]["managedFields"][0], { "apiVersion": "autoscaling/v2", "operation": "Apply" });
    anyhow::ensure!(!version(&changed).is_empty());
    Ok(())
}
