//! Mutating webhooks: the object that they receive, and the checks of the object that they change.

use serde_json::{Value, json};

use super::setup::{Type, allowed, denial, denied, install, patched, remove, rule, serve, webhook};
use crate::behaviors::objects::{config_map, deployment, lease, pod};
use crate::webhooks::Reply;
use crate::{Case, Outcome, has, same};

pub(super) async fn review_has_first_known_version(case: Case) -> Outcome {
    // Only the older version accepts a patch without type.
    let (client, _) =
        serve(&case, "color", |_| match patched(json!([{ "op": "remove", "path": "/data" }])) {
            Reply::Response(mut response) => {
                response["patchType"] = Value::Null;
                response["uid"] = json!("other");
                Reply::Response(response)
            }
            other => other,
        });
    let mut older = webhook(&case, "color", &client);
    older["admissionReviewVersions"] = json!(["v7", "v1beta1", "v1"]);
    let name = install(&case, Type::Mutating, "color", &[older]).await?;
    same!(case.make("configmaps", config_map("a")).await?["data"], Value::Null);
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn mutating_webhook_receives_update_as_written(case: Case) -> Outcome {
    let resources = ["deployments", "deployments/status"];
    let (client, early) = serve(&case, "early", allowed);
    let mut see = webhook(&case, "early", &client);
    see["rules"] = json!([rule("apps", "v1", &resources, &["UPDATE"])]);
    let first = install(&case, Type::Mutating, "early", &[see]).await?;
    let (client, late) = serve(&case, "late", allowed);
    let mut see = webhook(&case, "late", &client);
    see["rules"] = json!([rule("apps", "v1", &resources, &["UPDATE"])]);
    let second = install(&case, Type::Validating, "late", &[see]).await?;

    let mut changed = case.make("apps/v1 deployments", deployment("a")).await?;
    changed["metadata"]["resourceVersion"] = Value::Null;
    changed["spec"]["replicas"] = json!(7);
    changed["status"] = json!({ "replicas": 5 });
    case.replace("apps/v1 deployments/a", changed.clone()).await?;
    has!(early.last()?["object"], { "metadata": { "resourceVersion": null }, "spec": { "replicas": 7 },
        "status": { "replicas": 5 } });
    let reviewed = late.last()?["object"].clone();
    has!(reviewed, { "spec": { "replicas": 7 }, "status": { "replicas": null } });
    anyhow::ensure!(reviewed["metadata"]["resourceVersion"].is_string(), "{reviewed}");

    changed["spec"]["replicas"] = json!(9);
    case.replace("apps/v1 deployments/a/status", changed).await?;
    has!(early.last()?["object"], { "spec": { "replicas": 9 }, "status": { "replicas": 5 } });
    has!(late.last()?["object"], { "spec": { "replicas": 7 }, "status": { "replicas": 5 } });
    remove(&case, Type::Validating, &second).await?;
    remove(&case, Type::Mutating, &first).await
}

pub(super) async fn mutating_webhook_receives_status_of_creation(case: Case) -> Outcome {
    let (client, early) = serve(&case, "early", allowed);
    let mut see = webhook(&case, "early", &client);
    see["rules"] = json!([rule("apps", "v1", &["deployments"], &["CREATE"])]);
    let name = install(&case, Type::Mutating, "early", &[see]).await?;
    let mut new = deployment("a");
    new["status"] = json!({ "replicas": 5 });
    let made = case.make("apps/v1 deployments", new).await?;
    has!(early.last()?["object"], { "status": { "replicas": 5 } });
    same!(made["status"]["replicas"], Value::Null);
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn mutation_without_metadata_is_rejected(case: Case) -> Outcome {
    let (client, _) = serve(&case, "strip", |_| patched(json!([{ "op": "remove", "path": "/metadata" }])));
    let name = install(&case, Type::Mutating, "strip", &[webhook(&case, "strip", &client)]).await?;
    let answer = case.post("configmaps", config_map("a")).await?;
    let why = "metadata.name: Required value: name or generateName is required";
    answer.expect_rejected_containing(422, "Invalid", why)?;
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn eviction_is_reviewed_with_its_namespace(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "keep", |_| denied("it stays"));
    let mut keep = webhook(&case, "keep", &client);
    keep["rules"] = json!([rule("", "v1", &["pods/eviction"], &["CREATE"])]);
    let name = install(&case, Type::Validating, "keep", &[keep]).await?;
    case.make("pods", pod("a")).await?;
    let answer = case.post("pods/a/eviction", json!({ "metadata": { "name": "a" } })).await?;
    answer.expect_rejected(403, "Forbidden", &denial(&case, "keep", "it stays"))?;
    has!(requests.last()?, { "operation": "CREATE", "name": "a", "subResource": "eviction",
        "kind": { "group": "policy", "version": "v1", "kind": "Eviction" },
        "resource": { "group": "", "version": "v1", "resource": "pods" },
        "object": { "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": "a", "namespace": case.namespace } } });
    case.read("pods/a").await?;
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn mutation_can_rename_new_object(case: Case) -> Outcome {
    let (client, _) = serve(&case, "rename", |_| {
        patched(json!([{ "op": "replace", "path": "/metadata/name", "value": "b" }]))
    });
    let first = install(&case, Type::Mutating, "rename", &[webhook(&case, "rename", &client)]).await?;
    let (client, late) = serve(&case, "late", allowed);
    let second = install(&case, Type::Validating, "late", &[webhook(&case, "late", &client)]).await?;
    same!(case.make("configmaps", config_map("a")).await?["metadata"]["name"], "b");
    has!(late.last()?, { "name": "a", "object": { "metadata": { "name": "b" } } });
    case.read("configmaps/b").await?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    let answer = case.put("configmaps/b", config_map("b")).await?;
    answer.is(200)?;
    remove(&case, Type::Validating, &second).await?;
    remove(&case, Type::Mutating, &first).await
}

pub(super) async fn fields_of_webhook_have_no_manager(case: Case) -> Outcome {
    let (client, _) =
        serve(&case, "color", |_| patched(json!([{ "op": "add", "path": "/data/color", "value": "red" }])));
    let name = install(&case, Type::Mutating, "color", &[webhook(&case, "color", &client)]).await?;
    let applied = case.apply("me", "configmaps/a", config_map("a")).await?.is(201)?;
    same!(applied["data"]["color"], "red");
    let again = case.apply("me", "configmaps/a", config_map("a")).await?.is(200)?;
    same!(again["metadata"]["resourceVersion"], applied["metadata"]["resourceVersion"]);
    let merged = case.merge("configmaps/a?fieldManager=other", json!({ "data": { "more": "x" } })).await?;
    let managed = merged["metadata"]["managedFields"].to_string();
    anyhow::ensure!(managed.contains("f:more") && !managed.contains("f:color"), "{managed}");
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn creation_by_update_is_reviewed_as_creation(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["rules"] = json!([rule("coordination.k8s.io", "v1", &["leases"], &["*"])]);
    see["objectSelector"] = json!({ "matchLabels": { "mine": "yes" } });
    let name = install(&case, Type::Mutating, "see", &[see]).await?;
    let mut mine = lease("a");
    mine["metadata"]["labels"] = json!({ "mine": "yes" });
    case.put("coordination.k8s.io/v1 leases/a?fieldManager=me", mine).await?.is(201)?;
    has!(requests.last()?, { "operation": "CREATE", "name": "a", "oldObject": null,
        "options": { "kind": "CreateOptions", "fieldManager": "me" } });
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn mutation_cannot_move_object(case: Case) -> Outcome {
    let (client, _) = serve(&case, "move", |request| match request["object"]["data"]["key"].as_str() {
        Some("stays") => allowed(request),
        _ => patched(json!([{ "op": "replace", "path": "/metadata/namespace", "value": "default" }])),
    });
    let name = install(&case, Type::Mutating, "move", &[webhook(&case, "move", &client)]).await?;
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    let answer = case.post("configmaps", config_map("a")).await?;
    answer.expect_rejected(400, "BadRequest", why)?;
    let mut stays = config_map("a");
    stays["data"]["key"] = json!("stays");
    case.make("configmaps", stays).await?;
    let answer = case.put("configmaps/a", config_map("a")).await?;
    answer.expect_rejected(400, "BadRequest", why)?;
    remove(&case, Type::Mutating, &name).await
}

/// Admission sets the priority of a pod before the webhooks, and checks it again after them.
pub(super) async fn mutated_pod_is_admitted_again(case: Case) -> Outcome {
    // A real server reads priority classes from a cache. It contains this class before the server is ready.
    let (class, value) = ("system-cluster-critical", 2_000_000_000);
    let (client, _) = serve(&case, "rank", move |request| {
        let set = json!({ "op": "add", "path": "/spec/priorityClassName", "value": class });
        match request["name"].as_str() {
            Some("refused") => patched(json!([set])),
            _ => patched(json!([set, { "op": "remove", "path": "/spec/priority" }])),
        }
    });
    let mut rank = webhook(&case, "rank", &client);
    rank["rules"] = json!([rule("", "v1", &["pods"], &["CREATE"])]);
    let name = install(&case, Type::Mutating, "rank", &[rank]).await?;
    let answer = case.post("pods", pod("refused")).await?;
    let why = "pods \"refused\" is forbidden: the integer value of priority (0) must not be provided in pod spec; \
               priority admission controller computed 2000000000 from the given PriorityClass name";
    answer.expect_rejected(403, "Forbidden", why)?;
    let made = case.make("pods", pod("admitted")).await?;
    same!((&made["spec"]["priorityClassName"], &made["spec"]["priority"]), (&json!(class), &json!(value)));
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn invalid_managed_fields_of_webhook_are_reset(case: Case) -> Outcome {
    let (client, _) = serve(&case, "spoil", |_| {
        let path = "/metadata/managedFields/0/operation";
        patched(json!([{ "op": "replace", "path": path, "value": "Guess" }]))
    });
    let name = install(&case, Type::Mutating, "spoil", &[webhook(&case, "spoil", &client)]).await?;
    let answer = case.post("configmaps?fieldManager=me", config_map("a")).await?;
    let warning = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                   mutating admission controller; please fix your requests: operation must be `Apply` or `Update`";
    same!(answer.warnings(), [warning.to_owned()]);
    let made = answer.is(201)?;
    has!(made["metadata"]["managedFields"][0], { "manager": "me", "operation": "Update" });
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn scale_is_validated_as_it_would_be_stored(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["rules"] = json!([rule("apps", "v1", &["deployments/scale"], &["UPDATE"])]);
    let name = install(&case, Type::Validating, "see", &[see]).await?;
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    let scale = |replicas: i32| json!({ "metadata": { "name": "a", "namespace": case.namespace }, "spec": { "replicas": replicas } });
    let path = "apps/v1 deployments/a/scale";
    case.put(path, scale(-1)).await?.expect_rejected_with_reason(422, "Invalid")?;
    same!(requests.all().len(), 0);
    case.replace(path, scale(3)).await?;
    has!(requests.last()?["object"], { "spec": { "replicas": 3 }, "metadata": { "uid": made["metadata"]["uid"] } });
    remove(&case, Type::Validating, &name).await
}
