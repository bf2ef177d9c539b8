//! Defaults of omitted fields.

use serde_json::{Value, json};

use super::objects::{deployment, job, pod, service, workload};
use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    pod_policies_are_defaulted,
    container_policies_are_defaulted,
    image_with_a_tag_is_pulled_if_absent,
    container_port_is_tcp,
    probe_times_are_defaulted,
    volume_modes_are_defaulted,
    pod_with_limits_gets_requests_and_qos_class,
    pod_tolerates_not_ready_nodes_for_five_minutes,
    pod_gets_a_priority,
    deployment_strategy_is_defaulted,
    deployment_replicas_default_to_one,
    replica_set_replicas_default_to_one,
    stateful_set_policies_are_defaulted,
    daemon_set_strategy_is_defaulted,
    job_limits_are_defaulted,
    job_gets_a_selector_by_its_uid,
    cron_job_policies_are_defaulted,
    service_type_and_affinity_are_defaulted,
    service_port_targets_itself,
    headless_service_has_no_address,
    secret_is_opaque,
    string_data_of_secret_becomes_data,
    autoscaler_gets_a_metric_and_a_minimum,
    persistent_volume_claim_volume_mode_is_defaulted,
    labels_of_a_replication_controller_come_from_its_template,
    endpoint_slice_port_is_tcp,
    network_policy_applies_to_ingress,
    defaults_do_not_overwrite_set_fields,
];

async fn pod_policies_are_defaulted(case: Case) -> Outcome {
    let made = case.make("pods", pod("a")).await?;
    has!(made["spec"], { "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": true });
    Ok(())
}

async fn container_policies_are_defaulted(case: Case) -> Outcome {
    let made = case.make("pods", pod("a")).await?;
    same!(
        made["spec"]["containers"][0],
        json!({ "name": "main", "image": "image", "imagePullPolicy": "Always", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" })
    );
    Ok(())
}

async fn image_with_a_tag_is_pulled_if_absent(case: Case) -> Outcome {
    for (image, policy) in [("i:1", "IfNotPresent"), ("i:latest", "Always"), ("host:5000/i", "Always")] {
        let mut wanted = pod("a");
        wanted["spec"]["containers"][0]["image"] = json!(image);
        same!(case.make("pods", wanted).await?["spec"]["containers"][0]["imagePullPolicy"], policy);
        case.delete("pods/a").await?.is(200)?;
    }
    Ok(())
}

async fn container_port_is_tcp(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80 }]);
    let made = case.make("pods", wanted).await?;
    same!(made["spec"]["containers"][0]["ports"], json!([{ "containerPort": 80, "protocol": "TCP" }]));
    Ok(())
}

async fn probe_times_are_defaulted(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["livenessProbe"] = json!({ "httpGet": { "port": 80 } });
    let made = case.make("pods", wanted).await?;
    same!(
        made["spec"]["containers"][0]["livenessProbe"],
        json!({ "httpGet": { "path": "/", "port": 80, "scheme": "HTTP" }, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3 })
    );
    Ok(())
}

async fn volume_modes_are_defaulted(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["volumes"] = json!([{ "name": "s", "secret": { "secretName": "s" } }, { "name": "e" }]);
    let made = case.make("pods", wanted).await?;
    same!(made["spec"]["volumes"][0]["secret"], json!({ "secretName": "s", "defaultMode": 420 }));
    same!(made["spec"]["volumes"][1]["emptyDir"], json!({}));
    Ok(())
}

async fn pod_with_limits_gets_requests_and_qos_class(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1", "memory": "1Gi" } });
    let made = case.make("pods", wanted).await?;
    same!(made["spec"]["containers"][0]["resources"]["requests"], json!({ "cpu": "1", "memory": "1Gi" }));
    same!(made["status"]["qosClass"], "Guaranteed");
    Ok(())
}

async fn pod_tolerates_not_ready_nodes_for_five_minutes(case: Case) -> Outcome {
    let made = case.make("pods", pod("a")).await?;
    let tolerated = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
    same!(
        made["spec"]["tolerations"],
        json!([tolerated("node.kubernetes.io/not-ready"), tolerated("node.kubernetes.io/unreachable")])
    );
    Ok(())
}

async fn pod_gets_a_priority(case: Case) -> Outcome {
    let made = case.make("pods", pod("a")).await?;
    has!(made["spec"], { "priority": 0, "preemptionPolicy": "PreemptLowerPriority" });
    Ok(())
}

async fn deployment_strategy_is_defaulted(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    has!(made["spec"], { "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } } });
    has!(made["spec"]["template"]["spec"], { "restartPolicy": "Always", "dnsPolicy": "ClusterFirst" });
    Ok(())
}

fn without_replicas(kind: &str) -> Value {
    let mut it = workload(kind, "a");
    it["spec"]["replicas"] = json!(null);
    it
}

async fn deployment_replicas_default_to_one(case: Case) -> Outcome {
    same!(case.make("apps/v1 deployments", without_replicas("Deployment")).await?["spec"]["replicas"], 1);
    Ok(())
}

async fn replica_set_replicas_default_to_one(case: Case) -> Outcome {
    let made = case.make("apps/v1 replicasets", without_replicas("ReplicaSet")).await?;
    same!(made["spec"]["replicas"], 1);
    same!(made["status"], json!({ "replicas": 0 }));
    Ok(())
}

async fn stateful_set_policies_are_defaulted(case: Case) -> Outcome {
    let made = case.make("apps/v1 statefulsets", without_replicas("StatefulSet")).await?;
    has!(made["spec"], { "replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
        "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain", "whenScaled": "Retain" } });
    Ok(())
}

async fn daemon_set_strategy_is_defaulted(case: Case) -> Outcome {
    let made = case.make("apps/v1 daemonsets", without_replicas("DaemonSet")).await?;
    has!(made["spec"], { "revisionHistoryLimit": 10,
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } } });
    Ok(())
}

async fn job_limits_are_defaulted(case: Case) -> Outcome {
    let made = case.make("batch/v1 jobs", job("a")).await?;
    has!(made["spec"], { "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
        "suspend": false, "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed" });
    Ok(())
}

async fn job_gets_a_selector_by_its_uid(case: Case) -> Outcome {
    let made = case.make("batch/v1 jobs", job("a")).await?;
    let uid = &made["metadata"]["uid"];
    same!(made["spec"]["selector"], json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } }));
    same!(
        made["spec"]["template"]["metadata"]["labels"],
        json!({ "app": "web", "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "a",
            "controller-uid": uid, "job-name": "a" })
    );
    Ok(())
}

async fn cron_job_policies_are_defaulted(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": job("a")["spec"] } } });
    let made = case.make("batch/v1 cronjobs", wanted).await?;
    has!(made["spec"], { "concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1 });
    Ok(())
}

async fn service_type_and_affinity_are_defaulted(case: Case) -> Outcome {
    let made = case.make("services", service("a")).await?;
    has!(made["spec"], { "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack" });
    same!(made["status"], json!({ "loadBalancer": {} }));
    Ok(())
}

async fn service_port_targets_itself(case: Case) -> Outcome {
    let made = case.make("services", service("a")).await?;
    same!(made["spec"]["ports"], json!([{ "port": 80, "protocol": "TCP", "targetPort": 80 }]));
    Ok(())
}

async fn headless_service_has_no_address(case: Case) -> Outcome {
    let mut wanted = service("a");
    wanted["spec"]["clusterIP"] = json!("None");
    let made = case.make("services", wanted).await?;
    has!(made["spec"], { "clusterIP": "None", "clusterIPs": ["None"] });
    Ok(())
}

async fn secret_is_opaque(case: Case) -> Outcome {
    same!(case.make("secrets", json!({ "metadata": { "name": "a" } })).await?["type"], "Opaque");
    Ok(())
}

async fn string_data_of_secret_becomes_data(case: Case) -> Outcome {
    let made =
        case.make("secrets", json!({ "metadata": { "name": "a" }, "stringData": { "a": "b" } })).await?;
    has!(made, { "data": { "a": "Yg==" }, "stringData": null });
    Ok(())
}

async fn autoscaler_gets_a_metric_and_a_minimum(case: Case) -> Outcome {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" });
    let wanted =
        json!({ "metadata": { "name": "a" }, "spec": { "maxReplicas": 2, "scaleTargetRef": target } });
    let made = case.make("autoscaling/v2 horizontalpodautoscalers", wanted).await?;
    has!(made["spec"], { "minReplicas": 1, "metrics": [{ "type": "Resource", "resource": { "name": "cpu",
        "target": { "type": "Utilization", "averageUtilization": 80 } } }] });
    Ok(())
}

async fn persistent_volume_claim_volume_mode_is_defaulted(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    let made = case.make("persistentvolumeclaims", wanted).await?;
    has!(made, { "spec": { "volumeMode": "Filesystem" }, "status": { "phase": "Pending" },
        "metadata": { "finalizers": ["kubernetes.io/pvc-protection"] } });
    Ok(())
}

async fn labels_of_a_replication_controller_come_from_its_template(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "spec": { "template": super::objects::template() } });
    let made = case.make("replicationcontrollers", wanted).await?;
    has!(made, { "metadata": { "labels": { "app": "web" } }, "spec": { "selector": { "app": "web" }, "replicas": 1 } });
    Ok(())
}

async fn endpoint_slice_port_is_tcp(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "addressType": "IPv4", "endpoints": [], "ports": [{ "port": 80 }] });
    let made = case.make("discovery.k8s.io/v1 endpointslices", wanted).await?;
    same!(made["ports"], json!([{ "name": "", "port": 80, "protocol": "TCP" }]));
    Ok(())
}

async fn network_policy_applies_to_ingress(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "spec": { "podSelector": {} } });
    let made = case.make("networking.k8s.io/v1 networkpolicies", wanted).await?;
    same!(made["spec"]["policyTypes"], json!(["Ingress"]));
    Ok(())
}

async fn defaults_do_not_overwrite_set_fields(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["restartPolicy"] = json!("Never");
    wanted["spec"]["terminationGracePeriodSeconds"] = json!(0);
    wanted["spec"]["enableServiceLinks"] = json!(false);
    let made = case.make("pods", wanted).await?;
    has!(made["spec"], { "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "enableServiceLinks": false });
    Ok(())
}
