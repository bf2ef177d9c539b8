//! Subresources of pods: eviction, binding, ephemeral containers; and tokens of their ServiceAccounts.

use serde_json::{Value, json};

use super::objects::{pod, pod_on_node};
use crate::{Behavior, Case, Outcome, TestResponse, behaviours, has, same};

pub(super) const ALL: &[Behavior] = behaviours![
    an_eviction_without_a_budget_deletes,
    an_eviction_honours_the_options_of_deletion,
    an_eviction_against_the_budget_is_refused_with_a_cause,
    an_eviction_within_the_budget_takes_from_it,
    an_eviction_under_two_budgets_is_refused,
    an_eviction_of_a_pending_pod_ignores_the_budget,
    an_eviction_of_a_finished_pod_ignores_the_budget,
    an_eviction_of_a_missing_pod_is_refused,
    an_eviction_of_another_name_is_refused,
    an_eviction_in_a_dry_run_deletes_nothing,
    an_eviction_from_a_budget_not_yet_observed_is_refused,
    a_binding_puts_a_pod_on_a_node,
    a_binding_of_a_bound_pod_is_refused,
    a_binding_of_a_missing_pod_is_refused,
    a_binding_without_a_target_is_refused,
    a_binding_to_something_else_than_a_node_is_refused,
    a_binding_of_another_uid_is_refused,
    a_binding_carries_annotations,
    a_binding_of_a_marked_pod_is_refused,
    the_old_path_of_bindings_is_understood,
    an_ephemeral_container_can_be_added_by_its_own_path,
    a_token_is_given_for_an_account,
    a_token_of_a_missing_account_is_refused,
    a_token_lives_ten_minutes_at_least,
    a_token_says_how_long_it_lives,
    a_token_bound_to_a_missing_pod_is_refused,
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

async fn an_eviction_without_a_budget_deletes(case: Case) -> Outcome {
    running(&case, "a").await?;
    let answered = evict(&case, "a").await?.is(201)?;
    has!(answered, { "kind": "Status", "status": "Success" });
    let marked = case.read("pods/a").await?;
    same!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    Ok(())
}

async fn an_eviction_honours_the_options_of_deletion(case: Case) -> Outcome {
    running(&case, "a").await?;
    let mut wanted = eviction("a");
    wanted["deleteOptions"] = json!({ "gracePeriodSeconds": 0 });
    case.post("pods/a/eviction", wanted).await?.is(201)?;
    case.get("pods/a").await?.refused_for(404, "NotFound")?;
    Ok(())
}

async fn an_eviction_against_the_budget_is_refused_with_a_cause(case: Case) -> Outcome {
    running(&case, "a").await?;
    budget(&case, "b", 0).await?;
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let details = evict(&case, "a").await?.refused(429, "TooManyRequests", message)?;
    same!(
        details,
        json!({ "causes": [{ "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 1 healthy pods and has 1 currently" }] })
    );
    same!(case.read("pods/a").await?["metadata"]["deletionTimestamp"], Value::Null);
    Ok(())
}

async fn an_eviction_within_the_budget_takes_from_it(case: Case) -> Outcome {
    running(&case, "a").await?;
    budget(&case, "b", 1).await?;
    evict(&case, "a").await?.is(201)?;
    let status = case.read("policy/v1 poddisruptionbudgets/b").await?["status"].clone();
    same!(status["disruptionsAllowed"], 0);
    anyhow::ensure!(status["disruptedPods"]["a"].is_string(), "{status}");
    Ok(())
}

async fn an_eviction_under_two_budgets_is_refused(case: Case) -> Outcome {
    running(&case, "a").await?;
    budget(&case, "b", 1).await?;
    budget(&case, "c", 1).await?;
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    evict(&case, "a").await?.refused(500, "", message)?;
    Ok(())
}

async fn an_eviction_of_a_pending_pod_ignores_the_budget(case: Case) -> Outcome {
    let mut wanted = pod("a");
    wanted["metadata"]["labels"] = json!({ "app": "web" });
    case.make("pods", wanted).await?;
    budget(&case, "b", 0).await?;
    evict(&case, "a").await?.is(201)?;
    case.get("pods/a").await?.refused_for(404, "NotFound")?;
    Ok(())
}

async fn an_eviction_of_a_finished_pod_ignores_the_budget(case: Case) -> Outcome {
    running(&case, "a").await?;
    case.merge("pods/a/status", json!({ "status": { "phase": "Succeeded" } })).await?;
    budget(&case, "b", 0).await?;
    evict(&case, "a").await?.is(201)?;
    case.get("pods/a").await?.refused_for(404, "NotFound")?;
    Ok(())
}

async fn an_eviction_of_a_missing_pod_is_refused(case: Case) -> Outcome {
    evict(&case, "a").await?.refused(404, "NotFound", "pods \"a\" not found")?;
    Ok(())
}

async fn an_eviction_of_another_name_is_refused(case: Case) -> Outcome {
    running(&case, "a").await?;
    let answer = case.post("pods/a/eviction", eviction("b")).await?;
    let message = "name in URL does not match name in Eviction object";
    answer.refused(400, "BadRequest", message)?;
    Ok(())
}

async fn an_eviction_in_a_dry_run_deletes_nothing(case: Case) -> Outcome {
    running(&case, "a").await?;
    case.post("pods/a/eviction?dryRun=All", eviction("a")).await?.is(201)?;
    same!(case.read("pods/a").await?["metadata"]["deletionTimestamp"], Value::Null);
    Ok(())
}

async fn an_eviction_from_a_budget_not_yet_observed_is_refused(case: Case) -> Outcome {
    running(&case, "a").await?;
    let wanted = json!({ "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
    case.make("policy/v1 poddisruptionbudgets", wanted).await?;
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let details = evict(&case, "a").await?.refused(429, "TooManyRequests", message)?;
    has!(details, { "retryAfterSeconds": 10, "causes": [{ "reason": "DisruptionBudget",
        "message": "The disruption budget b is still being processed by the server." }] });
    Ok(())
}

fn binding(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "node" } })
}

async fn a_binding_puts_a_pod_on_a_node(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let answered = case.make("pods/a/binding", binding("a")).await?;
    has!(answered, { "kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201 });
    let bound = case.read("pods/a").await?;
    same!(bound["spec"]["nodeName"], "node");
    has!(bound["status"]["conditions"], [{ "type": "PodScheduled", "status": "True" }]);
    Ok(())
}

async fn a_binding_of_a_bound_pod_is_refused(case: Case) -> Outcome {
    case.make("pods", pod_on_node("a")).await?;
    let answer = case.post("pods/a/binding", binding("a")).await?;
    let message =
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"node\"";
    let details = answer.refused(409, "Conflict", message)?;
    same!(details, json!({ "name": "a", "kind": "pods/binding" }));
    Ok(())
}

async fn a_binding_of_a_missing_pod_is_refused(case: Case) -> Outcome {
    let answer = case.post("pods/a/binding", binding("a")).await?;
    answer.refused(404, "NotFound", "pods \"a\" not found")?;
    Ok(())
}

async fn a_binding_without_a_target_is_refused(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["target"]["name"] = json!("");
    let answer = case.post("pods/a/binding", wanted).await?;
    answer.refused(500, "", "target.name: Required value")?;
    Ok(())
}

async fn a_binding_to_something_else_than_a_node_is_refused(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["target"]["kind"] = json!("Pod");
    let answer = case.post("pods/a/binding", wanted).await?;
    let message = "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"";
    answer.refused(500, "", message)?;
    Ok(())
}

async fn a_binding_of_another_uid_is_refused(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["metadata"]["uid"] = json!("other");
    let answer = case.post("pods/a/binding", wanted).await?;
    answer.refused_with(
        409,
        "Conflict",
        "Precondition failed: UID in precondition: other, UID in object meta: ",
    )?;
    Ok(())
}

async fn a_binding_carries_annotations(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let mut wanted = binding("a");
    wanted["metadata"]["annotations"] = json!({ "a": "b" });
    case.make("pods/a/binding", wanted).await?;
    same!(case.read("pods/a").await?["metadata"]["annotations"], json!({ "a": "b" }));
    Ok(())
}

async fn a_binding_of_a_marked_pod_is_refused(case: Case) -> Outcome {
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    case.make("pods", held).await?;
    case.delete("pods/a").await?.is(200)?;
    let answer = case.post("pods/a/binding", binding("a")).await?;
    let message = "Operation cannot be fulfilled on pods/binding \"a\": pod a is being deleted, cannot be assigned to a host";
    answer.refused(409, "Conflict", message)?;
    Ok(())
}

async fn the_old_path_of_bindings_is_understood(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    case.make("bindings", binding("a")).await?;
    same!(case.read("pods/a").await?["spec"]["nodeName"], "node");
    Ok(())
}

async fn an_ephemeral_container_can_be_added_by_its_own_path(case: Case) -> Outcome {
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

async fn a_token_is_given_for_an_account(case: Case) -> Outcome {
    let given = token(&case, json!({})).await?.is(201)?;
    has!(given, { "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "name": "a", "namespace": case.namespace } });
    let text = given["status"]["token"].as_str().unwrap_or_default();
    same!(text.split('.').count(), 3);
    anyhow::ensure!(given["status"]["expirationTimestamp"].is_string(), "never expires");
    Ok(())
}

async fn a_token_of_a_missing_account_is_refused(case: Case) -> Outcome {
    let wanted = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let answer = case.post("serviceaccounts/a/token", wanted).await?;
    answer.refused(404, "NotFound", "serviceaccounts \"a\" not found")?;
    Ok(())
}

async fn a_token_lives_ten_minutes_at_least(case: Case) -> Outcome {
    let answer = token(&case, json!({ "expirationSeconds": 10 })).await?;
    let words = "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes";
    answer.refused_with(422, "Invalid", words)?;
    Ok(())
}

async fn a_token_says_how_long_it_lives(case: Case) -> Outcome {
    let given = token(&case, json!({})).await?.is(201)?;
    same!(given["spec"]["expirationSeconds"], 3600);
    let longer = token(&case, json!({ "expirationSeconds": 7200 })).await?.is(201)?;
    same!(longer["spec"]["expirationSeconds"], 7200);
    Ok(())
}

async fn a_token_bound_to_a_missing_pod_is_refused(case: Case) -> Outcome {
    let to = json!({ "kind": "Pod", "apiVersion": "v1", "name": "gone", "uid": "u" });
    let answer = token(&case, json!({ "boundObjectRef": to })).await?;
    answer.refused_with(404, "NotFound", "pods \"gone\" not found")?;
    Ok(())
}
