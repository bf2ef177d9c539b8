//! Validation errors of each kind.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, job, labeled, lease, pod, service, workload};
use crate::{Behavior, Case, Outcome, behaviors, same};

pub(super) const ALL: &[Behavior] = behaviors![
    name_with_upper_case_is_rejected,
    name_that_is_too_long_is_rejected,
    namespace_name_is_a_label,
    service_name_is_a_label,
    label_value_that_is_too_long_is_rejected,
    invalid_label_key_is_rejected,
    annotations_of_more_than_256_kilobytes_are_rejected,
    finalizer_without_a_domain_is_rejected,
    pod_without_containers_is_rejected,
    container_without_an_image_is_rejected,
    containers_with_the_same_name_are_rejected,
    restart_policy_that_does_not_exist_is_rejected,
    deployment_whose_selector_does_not_match_is_rejected,
    deployment_without_a_selector_is_rejected,
    deployment_whose_pods_do_not_restart_is_rejected,
    negative_number_of_replicas_is_rejected,
    replica_set_whose_selector_does_not_match_is_rejected,
    job_whose_pods_restart_always_is_rejected,
    service_without_ports_is_rejected,
    port_out_of_range_is_rejected,
    two_ports_without_names_are_rejected,
    config_map_key_with_a_space_is_rejected,
    secret_with_invalid_base64_is_rejected,
    cron_job_with_a_malformed_schedule_is_rejected,
    lease_with_a_negative_duration_is_rejected,
    several_errors_are_listed_in_one_response,
    budget_with_both_bounds_is_rejected,
    autoscaler_whose_minimum_exceeds_its_maximum_is_rejected,
    event_in_another_namespace_is_rejected,
    resource_quota_with_a_negative_amount_is_rejected,
    request_above_its_limit_is_rejected,
    config_map_of_more_than_a_megabyte_is_rejected,
    invalid_rules_of_role_are_rejected,
    invalid_role_binding_is_rejected,
    reference_of_role_binding_is_immutable,
];

const RBAC: &str = "rbac.authorization.k8s.io/v1";

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

async fn name_with_upper_case_is_rejected(case: Case) -> Outcome {
    let answer = case.post("configmaps", config_map("A")).await?;
    let message = format!("ConfigMap \"A\" is invalid: metadata.name: Invalid value: \"A\": {SUBDOMAIN}");
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn name_that_is_too_long_is_rejected(case: Case) -> Outcome {
    let name = "a".repeat(254);
    let answer = case.post("configmaps", config_map(&name)).await?;
    let message = format!(
        "ConfigMap \"{name}\" is invalid: metadata.name: Invalid value: \"{name}\": must be no more than 253 characters"
    );
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn namespace_name_is_a_label(case: Case) -> Outcome {
    let answer = case.post("/api/v1/namespaces", json!({ "metadata": { "name": "a.b" } })).await?;
    let message =
        "Namespace \"a.b\" is invalid: metadata.name: Invalid value: \"a.b\": must not contain dots";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn service_name_is_a_label(case: Case) -> Outcome {
    let answer = case.post("services", service("a.b")).await?;
    let message = "Service \"a.b\" is invalid: metadata.name: Invalid value: \"a.b\": must not contain dots";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn label_value_that_is_too_long_is_rejected(case: Case) -> Outcome {
    let value = "v".repeat(64);
    let answer = case.post("configmaps", labeled("a", json!({ "k": value }))).await?;
    let message = format!(
        "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"{value}\": must be no more than 63 bytes"
    );
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn invalid_label_key_is_rejected(case: Case) -> Outcome {
    let answer = case.post("configmaps", labeled("a", json!({ "a b": "c" }))).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters",
    )?;
    Ok(())
}

async fn annotations_of_more_than_256_kilobytes_are_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["annotations"] = json!({ "a": "x".repeat(256 * 1024) });
    let message =
        "ConfigMap \"a\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes";
    case.post("configmaps", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn finalizer_without_a_domain_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["metadata"]["finalizers"] = json!(["hold"]);
    let message = "metadata.finalizers[0]: Invalid value: \"hold\": name is neither a standard finalizer name nor is it fully qualified";
    case.post("configmaps", wanted).await?.expect_rejected_containing(422, "Invalid", message)?;
    Ok(())
}

async fn pod_without_containers_is_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"] = json!([]);
    let message = "Pod \"a\" is invalid: spec.containers: Required value";
    case.post("pods", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn container_without_an_image_is_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["image"] = json!("");
    let message = "Pod \"a\" is invalid: spec.containers[0].image: Required value";
    case.post("pods", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn containers_with_the_same_name_are_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"] = json!([{ "name": "x", "image": "i" }, { "name": "x", "image": "i" }]);
    let message = "Pod \"a\" is invalid: spec.containers[1].name: Duplicate value: \"x\"";
    case.post("pods", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn restart_policy_that_does_not_exist_is_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["restartPolicy"] = json!("Sometimes");
    let message = "Pod \"a\" is invalid: spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \
        \"Always\", \"OnFailure\", \"Never\"";
    case.post("pods", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn deployment_whose_selector_does_not_match_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["selector"]["matchLabels"]["app"] = json!("other");
    let message = "Deployment.apps \"a\" is invalid: spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: \
        `selector` does not match template `labels`";
    case.post("apps/v1 deployments", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn deployment_without_a_selector_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["selector"] = json!(null);
    let answer = case.post("apps/v1 deployments", wanted).await?;
    answer.expect_rejected_containing(422, "Invalid", "spec.selector: Required value")?;
    Ok(())
}

async fn deployment_whose_pods_do_not_restart_is_rejected(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let message = "Deployment.apps \"a\" is invalid: spec.template.spec.restartPolicy: Unsupported value: \"Never\": \
        supported values: \"Always\"";
    case.post("apps/v1 deployments", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn negative_number_of_replicas_is_rejected(case: Case) -> Outcome {
    let mut wanted = workload("StatefulSet", "a");
    wanted["spec"]["replicas"] = json!(-1);
    let message = "StatefulSet.apps \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    case.post("apps/v1 statefulsets", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn replica_set_whose_selector_does_not_match_is_rejected(case: Case) -> Outcome {
    let mut wanted = workload("ReplicaSet", "a");
    wanted["spec"]["selector"]["matchLabels"]["app"] = json!("other");
    let message = "ReplicaSet.apps \"a\" is invalid: spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: \
        `selector` does not match template `labels`";
    case.post("apps/v1 replicasets", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn job_whose_pods_restart_always_is_rejected(case: Case) -> Outcome {
    let mut wanted = job("a");
    wanted["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    let message = "Job.batch \"a\" is invalid: spec.template.spec.restartPolicy: Required value: valid values: \
        \"OnFailure\", \"Never\"";
    case.post("batch/v1 jobs", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn service_without_ports_is_rejected(case: Case) -> Outcome {
    let mut wanted = service("a");
    wanted["spec"]["ports"] = json!([]);
    let message = "Service \"a\" is invalid: spec.ports: Required value";
    case.post("services", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn port_out_of_range_is_rejected(case: Case) -> Outcome {
    let mut wanted = service("a");
    wanted["spec"]["ports"] = json!([{ "port": 70000 }]);
    let words = "spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive";
    case.post("services", wanted).await?.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn two_ports_without_names_are_rejected(case: Case) -> Outcome {
    let mut wanted = service("a");
    wanted["spec"]["ports"] = json!([{ "port": 80 }, { "port": 81 }]);
    let message =
        "Service \"a\" is invalid: [spec.ports[0].name: Required value, spec.ports[1].name: Required value]";
    case.post("services", wanted).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn config_map_key_with_a_space_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["data"] = json!({ "a b": "c" });
    let answer = case.post("configmaps", wanted).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters",
    )?;
    Ok(())
}

async fn secret_with_invalid_base64_is_rejected(case: Case) -> Outcome {
    let answer = case.post("secrets", json!({ "metadata": { "name": "a" }, "data": { "a": "?" } })).await?;
    let message =
        "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

fn cron_job(schedule: &str) -> Value {
    json!({ "metadata": { "name": "a" },
        "spec": { "schedule": schedule, "jobTemplate": { "spec": job("a")["spec"] } } })
}

async fn cron_job_with_a_malformed_schedule_is_rejected(case: Case) -> Outcome {
    let answer = case.post("batch/v1 cronjobs", cron_job("every day")).await?;
    let words = "CronJob.batch \"a\" is invalid: spec.schedule: Invalid value: \"every day\": ";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    case.make("batch/v1 cronjobs", cron_job("*/5 * * * *")).await?;
    let message = "CronJob.batch \"a\" is invalid: spec.schedule: Invalid value: \"TZ=UTC * * * * *\": cannot use TZ or \
        CRON_TZ in schedule, use timeZone field instead";
    let answer = case.post("batch/v1 cronjobs", cron_job("TZ=UTC * * * * *")).await?;
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn lease_with_a_negative_duration_is_rejected(case: Case) -> Outcome {
    let mut wanted = lease("a");
    wanted["spec"]["leaseDurationSeconds"] = json!(0);
    let answer = case.post("coordination.k8s.io/v1 leases", wanted).await?;
    let message = "Lease.coordination.k8s.io \"a\" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0";
    answer.expect_rejected(422, "Invalid", message)?;
    Ok(())
}

async fn several_errors_are_listed_in_one_response(case: Case) -> Outcome {
    let mut wanted = deployment("a");
    wanted["spec"]["replicas"] = json!(-1);
    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = json!("");
    let answer = case.post("apps/v1 deployments", wanted).await?;
    let message = "Deployment.apps \"a\" is invalid: [spec.replicas: Invalid value: -1: must be greater than or equal to \
        0, spec.template.spec.containers[0].image: Required value]";
    let details = answer.expect_rejected(422, "Invalid", message)?;
    same!(details["causes"].as_array().map(Vec::len), Some(2));
    Ok(())
}

async fn budget_with_both_bounds_is_rejected(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "spec": { "minAvailable": 1, "maxUnavailable": 1 } });
    let answer = case.post("policy/v1 poddisruptionbudgets", wanted).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "minAvailable and maxUnavailable cannot be both set",
    )?;
    Ok(())
}

async fn autoscaler_whose_minimum_exceeds_its_maximum_is_rejected(case: Case) -> Outcome {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" });
    let wanted = json!({ "metadata": { "name": "a" },
        "spec": { "minReplicas": 5, "maxReplicas": 2, "scaleTargetRef": target } });
    let answer = case.post("autoscaling/v2 horizontalpodautoscalers", wanted).await?;
    let words = "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn event_in_another_namespace_is_rejected(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" },
        "involvedObject": { "kind": "Pod", "namespace": "elsewhere", "name": "a" } });
    let answer = case.post("events", wanted).await?;
    let words = "involvedObject.namespace: Invalid value: \"elsewhere\": does not match event.namespace";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn resource_quota_with_a_negative_amount_is_rejected(case: Case) -> Outcome {
    let wanted = json!({ "metadata": { "name": "a" }, "spec": { "hard": { "pods": "-1" } } });
    let answer = case.post("resourcequotas", wanted).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
    )?;
    Ok(())
}

async fn request_above_its_limit_is_rejected(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } });
    let words = "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1";
    case.post("pods", wanted).await?.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn config_map_of_more_than_a_megabyte_is_rejected(case: Case) -> Outcome {
    let mut wanted = config_map("a");
    wanted["data"]["key"] = json!("x".repeat(1024 * 1024 + 1));
    let answer = case.post("configmaps", wanted).await?;
    answer.expect_rejected_containing(422, "Invalid", "Too long: may not be more than 1048576 bytes")?;
    Ok(())
}

async fn invalid_rules_of_role_are_rejected(case: Case) -> Outcome {
    let role = |rules: Value| json!({ "metadata": { "name": "a" }, "rules": rules });
    let (verbs, group, resource) = (
        "rules[0].verbs: Required value: verbs must contain at least one value",
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        "rules[0].resources: Required value: resource rules must supply at least one resource",
    );
    for (rules, why) in [
        (json!([{}]), format!("[{verbs}, {group}, {resource}]")),
        (json!([{ "verbs": ["get"], "apiGroups": [""] }]), resource.to_owned()),
        (
            json!([{ "verbs": ["get"], "apiGroups": [""], "nonResourceURLs": ["/a"] }]),
            "[rules[0].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply to non-resource URLs, \
             rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and \
             non-resource URLs]"
                .to_owned(),
        ),
    ] {
        let message = format!("Role.rbac.authorization.k8s.io \"a\" is invalid: {why}");
        let answer = case.post(&format!("{RBAC} roles"), role(rules)).await?;
        answer.expect_rejected(422, "Invalid", &message)?;
    }
    let name = case.unique("empty");
    let empty = json!({ "metadata": { "name": name }, "aggregationRule": {} });
    let answer = case.post(&format!("/apis/{RBAC}/clusterroles"), empty).await?;
    let words =
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn invalid_role_binding_is_rejected(case: Case) -> Outcome {
    let answer = case
        .post(
            &format!("{RBAC} rolebindings"),
            json!({ "metadata": { "name": "a" }, "roleRef": { "kind": "Pod" }, "subjects": [
                { "kind": "User" }, { "kind": "ServiceAccount", "name": "A", "apiGroup": "x" }, { "kind": "X", "name": "b" }] }),
        )
        .await?;
    let message = format!(
        "RoleBinding.rbac.authorization.k8s.io \"a\" is invalid: [roleRef.kind: Unsupported value: \"Pod\": supported \
         values: \"Role\", \"ClusterRole\", roleRef.name: Required value, subjects[0].name: Required value, \
         subjects[1].name: Invalid value: \"A\": {SUBDOMAIN}, subjects[1].apiGroup: Unsupported value: \"x\": supported \
         values: \"\", subjects[2].kind: Unsupported value: \"X\": supported values: \"ServiceAccount\", \"User\", \
         \"Group\"]"
    );
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn reference_of_role_binding_is_immutable(case: Case) -> Outcome {
    let binding = json!({ "metadata": { "name": "a" }, "roleRef": { "kind": "Role", "name": "a" },
        "subjects": [{ "kind": "User", "name": "u" }] });
    let mut made = case.make(&format!("{RBAC} rolebindings"), binding).await?;
    same!(made["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    same!(made["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    made["roleRef"]["name"] = json!("b");
    let message = "RoleBinding.rbac.authorization.k8s.io \"a\" is invalid: roleRef: Invalid value: \
        {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"b\"}: cannot change roleRef";
    case.put(&format!("{RBAC} rolebindings/a"), made).await?.expect_rejected(422, "Invalid", message)?;
    Ok(())
}
