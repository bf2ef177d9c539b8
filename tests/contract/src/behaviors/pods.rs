//! Subresources of pods: eviction, binding, ephemeral containers; and tokens of their ServiceAccounts.

use serde_json::{Value, json};

use super::objects::{pod, pod_on_node};
use crate::{Behavior, Case, Outcome, TestResponse, behaviors, case::patch::MERGE, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    eviction_without_a_budget_deletes,
    eviction_honors_delete_options,
    eviction_against_the_budget_is_rejected_with_a_cause,
    eviction_within_budget_decrements_disruptions_allowed,
    eviction_under_two_budgets_is_rejected,
    eviction_of_a_pending_pod_ignores_the_budget,
    eviction_of_a_finished_pod_ignores_the_budget,
    eviction_of_a_missing_pod_is_rejected,
    eviction_of_another_name_is_rejected,
    eviction_in_a_dry_run_deletes_nothing,
    eviction_under_unobserved_budget_is_rejected,
    binding_assigns_node_to_pod,
    binding_of_a_bound_pod_is_rejected,
    binding_of_a_missing_pod_is_rejected,
    binding_without_a_target_is_rejected,
    binding_to_other_kind_than_node_is_rejected,
    binding_of_another_uid_is_rejected,
    binding_carries_annotations,
    binding_of_terminating_pod_is_rejected,
    legacy_binding_path_is_supported,
    ephemeral_container_is_added_by_subresource,
    token_is_issued_for_service_account,
    token_for_missing_service_account_is_rejected,
    token_lifetime_is_at_least_ten_minutes,
    token_request_returns_expiration_seconds,
    token_bound_to_a_missing_pod_is_rejected,
    address_and_list_of_addresses_are_set_together,
    new_scheduling_gate_is_reported_once,
];

fn eviction(name: &str) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } })
}

async fn running(case: &Case, name: &str) -> anyhow::Result<Value> {
    let mut wanted = pod_on_node(name);
    wanted["metadata"]["labels"] = json!({ "app": "web" });
    case.make("pods", wanted).await?;
    let status =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    case.merge(&format!("pods/{name}/status"), status).await
}

async fn budget(case: &Case, name: &str, allowed: u32) -> anyhow::Result<Value> {
    let wanted = json!({ "metadata": { "name": name },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
    case.make("policy/v1 poddisruptionbudgets", wanted).await?;
    let status = json!({ "status": { "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
        "desiredHealthy": 1, "expectedPods": 1 } });
    case.merge(&format!("policy/v1 poddisruptionbudgets/{name}/status"), status).await
}

async fn evict(case: &Case, name: &str) -> anyhow::Result<TestResponse> {
    case.post(&format!("pods/{name}/eviction"), eviction(name)).await
}

async fn eviction_without_a_budget_deletes(case: Case) -> Outcome {
    running(&case, "a").await?;
    let answered = evict(&case, "a").await?.is(201)?;
    has!(answered, { "kind": "Status", "status": "Success" });
    let marked = case.read("pods/a").await?;
    same!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    Ok(())
}

async fn eviction_honors_delete_options(case: Case) -> Outcome {
    running(&case, "a").await?;
    let mut wanted = eviction("a");
    wanted["deleteOptions"] = json!({ "gracePeriodSeconds": 0 });
    case.post("pods/a/eviction", wanted).await?.is(201)?;
    case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn eviction_against_the_budget_is_rejected_with_a_cause(case: Case) -> Outcome {
    running(&case, "a").await?;
    budget(&case, "b", 0).await?;
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let details = evict(&case, "a").await?.expect_rejected(429, "TooManyRequests", message)?;
    same!(
        details,
        json!({ "causes": [{ "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 1 healthy pods and has 1 currently" }] })
    );
    same!(case.read("pods/a").await?["metadata"]["deletionTimestamp"], Value::Null);
    Ok(())
}

async fn eviction_within_budget_decrements_disruptions_allowed(case: Case) -> Outcome {
    running(&case, "a").await?;
    budget(&case, "b", 1).await?;
    evict(&case, "a").await?.is(201)?;
    let status = case.read("policy/v1 poddisruptionbudgets/b").await?["status"].clone();
    same!(status["disruptionsAllowed"], 0);
    anyhow::ensure!(status["disruptedPods"]["a"].is_string(), "{status}");
    Ok(())
}

async fn eviction_under_two_budgets_is_rejected(case: Case) -> Outcome {
    running(&case, "a").await?;
    budget(&case, "b", 1).await?;
    budget(&case, "c", 1).await?;
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    evict(&case, "a").await?.expect_rejected(500, "", message)?;
    Ok(())
}

async fn eviction_of_a_pending_pod_ignores_the_budget(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["metadata"]["labels"] = json!({ "app": "web" });
    case.make("pods", wanted).await?;
    budget(&case, "b", 0).await?;
    evict(&case, "a").await?.is(201)?;
    case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn eviction_of_a_finished_pod_ignores_the_budget(case: Case) -> Outcome {
    running(&case, "a").await?;
    case.merge("pods/a/status", json!({ "status": { "phase": "Succeeded" } })).await?;
    budget(&case, "b", 0).await?;
    evict(&case, "a").await?.is(201)?;
    case.get("pods/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn eviction_of_a_missing_pod_is_rejected(case: Case) -> Outcome {
    evict(&case, "a").await?.expect_rejected(404, "NotFound", "pods \"a\" not found")?;
    Ok(())
}

async fn eviction_of_another_name_is_rejected(case: Case) -> Outcome {
    running(&case, "a").await?;
    let answer = case.post("pods/a/eviction", eviction("b")).await?;
    let message = "name in URL does not match name in Eviction object";
    answer.expect_rejected(400, "BadRequest", message)?;
    Ok(())
}

async fn eviction_in_a_dry_run_deletes_nothing(case: Case) -> Outcome {
    running(&case, "a").await?;
    case.post("pods/a/eviction?dryRun=All", eviction("a")).await?.is(201)?;
    same!(case.read("pods/a").await?["metadata"]["deletionTimestamp"], Value::Null);
    Ok(())
}

async fn eviction_under_unobserved_budget_is_rejected(case: Case) -> Outcome {
    running(&case, "a").await?;
    let wanted = json!({ "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
    case.make("policy/v1 poddisruptionbudgets", wanted).await?;
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let details = evict(&case, "a").await?.expect_rejected(429, "TooManyRequests", message)?;
    has!(details, { "retryAfterSeconds": 10, "causes": [{ "reason": "DisruptionBudget",
        "message": "The disruption budget b is still being processed by the server." }] });
    Ok(())
}

fn binding(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "node" } })
}

async fn binding_assigns_node_to_pod(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let answered = case.make("pods/a/binding", binding("a")).await?;
    has!(answered, { "kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201 });
    let bound = case.read("pods/a").await?;
    same!(bound["spec"]["nodeName"], "node");
    has!(bound["status"]["conditions"], [{ "type": "PodScheduled", "status": "True" }]);
    Ok(())
}

async fn binding_of_a_bound_pod_is_rejected(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    let answer = case.post("pods/a/binding", binding("a")).await?;
    let message =
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"node\"";
    let details = answer.expect_rejected(409, "Conflict", message)?;
    same!(details, json!({ "name": "a", "kind": "pods/binding" }));
    Ok(())
}

async fn binding_of_a_missing_pod_is_rejected(case: Case) -> Outcome {
    let answer = case.post("pods/a/binding", binding("a")).await?;
    answer.expect_rejected(404, "NotFound", "pods \"a\" not found")?;
    Ok(())
}

async fn binding_without_a_target_is_rejected(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["target"]["name"] = json!("");
    let answer = case.post("pods/a/binding", wanted).await?;
    answer.expect_rejected(500, "", "target.name: Required value")?;
    Ok(())
}

async fn binding_to_other_kind_than_node_is_rejected(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["target"]["kind"] = json!("Pod");
    let answer = case.post("pods/a/binding", wanted).await?;
    let message = "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"";
    answer.expect_rejected(500, "", message)?;
    Ok(())
}

async fn binding_of_another_uid_is_rejected(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["metadata"]["uid"] = json!("other");
    let answer = case.post("pods/a/binding", wanted).await?;
    answer.expect_rejected_containing(
        409,
        "Conflict",
        "Precondition failed: UID in precondition: other, UID in object meta: ",
    )?;
    Ok(())
}

async fn binding_carries_annotations(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["metadata"]["annotations"] = json!({ "a": "b" });
    case.make("pods/a/binding", wanted).await?;
    same!(case.read("pods/a").await?["metadata"]["annotations"], json!({ "a": "b" }));
    Ok(())
}

async fn binding_of_terminating_pod_is_rejected(case: Case) -> Outcome {
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    case.make("pods", held).await?;
    case.delete("pods/a").await?.is(200)?;
    let answer = case.post("pods/a/binding", binding("a")).await?;
    let message = "Operation cannot be fulfilled on pods/binding \"a\": pod a is being deleted, cannot be assigned to a host";
    answer.expect_rejected(409, "Conflict", message)?;
    Ok(())
}

async fn legacy_binding_path_is_supported(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    case.make("bindings", binding("a")).await?;
    same!(case.read("pods/a").await?["spec"]["nodeName"], "node");
    Ok(())
}

async fn ephemeral_container_is_added_by_subresource(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let patch = json!({ "spec": { "ephemeralContainers": [{ "name": "debug", "image": "i" }] } });
    let kind = crate::case::patch::STRATEGIC;
    let patched = case.patch(kind, "pods/a/ephemeralcontainers", patch).await?.is(200)?;
    has!(patched["spec"]["ephemeralContainers"], [{ "name": "debug" }]);
    Ok(())
}

async fn token(case: &Case, spec: Value) -> anyhow::Result<TestResponse> {
    case.post("serviceaccounts", json!({ "metadata": { "name": "a" } })).await?;
    let wanted = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
    case.post("serviceaccounts/a/token", wanted).await
}

async fn token_is_issued_for_service_account(case: Case) -> Outcome {
    let given = token(&case, json!({})).await?.is(201)?;
    has!(given, { "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "name": "a", "namespace": case.namespace } });
    let text = given["status"]["token"].as_str().unwrap_or_default();
    same!(text.split('.').count(), 3);
    anyhow::ensure!(given["status"]["expirationTimestamp"].is_string(), "never expires");
    Ok(())
}

async fn token_for_missing_service_account_is_rejected(case: Case) -> Outcome {
    let wanted = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let answer = case.post("serviceaccounts/a/token", wanted).await?;
    answer.expect_rejected(404, "NotFound", "serviceaccounts \"a\" not found")?;
    Ok(())
}

async fn token_lifetime_is_at_least_ten_minutes(case: Case) -> Outcome {
    let answer = token(&case, json!({ "expirationSeconds": 10 })).await?;
    let words = "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes";
    answer.expect_rejected_containing(422, "Invalid", words)?;
    Ok(())
}

async fn token_request_returns_expiration_seconds(case: Case) -> Outcome {
    let given = token(&case, json!({})).await?.is(201)?;
    same!(given["spec"]["expirationSeconds"], 3600);
    let longer = token(&case, json!({ "expirationSeconds": 7200 })).await?.is(201)?;
    same!(longer["spec"]["expirationSeconds"], 7200);
    Ok(())
}

async fn token_bound_to_a_missing_pod_is_rejected(case: Case) -> Outcome {
    let to = json!({ "kind": "Pod", "apiVersion": "v1", "name": "gone", "uid": "u" });
    let answer = token(&case, json!({ "boundObjectRef": to })).await?;
    answer.expect_rejected_containing(404, "NotFound", "pods \"gone\" not found")?;
    Ok(())
}

async fn address_and_list_of_addresses_are_set_together(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let cases = [
        (json!({ "podIP": "10.0.0.1" }), "10.0.0.1", json!([{ "ip": "10.0.0.1" }])),
        (json!({ "podIP": "10.0.0.2" }), "10.0.0.2", json!([{ "ip": "10.0.0.2" }])),
        (
            json!({ "podIP": null, "podIPs": [{ "ip": "10.0.0.3" }, { "ip": "fd00::1" }] }),
            "10.0.0.3",
            json!([{ "ip": "10.0.0.3" }, { "ip": "fd00::1" }]),
        ),
    ];
    for (status, address, addresses) in cases {
        let changed = case.merge("pods/a/status", json!({ "status": status })).await?;
        same!((&changed["status"]["podIP"], &changed["status"]["podIPs"]), (&json!(address), &addresses));
    }
    Ok(())
}

async fn new_scheduling_gate_is_reported_once(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let gates = json!({ "spec": { "schedulingGates": [{ "name": "a" }, { "name": "a" }] } });
    let answer = case.patch(MERGE, "pods/a", gates).await?;
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let fields: Vec<_> = causes.iter().filter_map(|it| it["field"].as_str()).collect();
    same!((answer.status, fields), (422, vec!["spec.schedulingGates[1]", "spec.schedulingGates[1].name"]));
    Ok(())
}
