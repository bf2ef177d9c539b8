//! Namespaces: creation, deletion, and requests without a namespace.

use anyhow::Result;
use serde_json::{Value, json};

use super::objects::config_map;
use crate::{Behavior, Case, Outcome, behaviors, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    new_namespace_is_active_and_labeled,
    new_namespace_has_kubernetes_finalizer,
    deleted_namespace_is_terminating,
    terminating_namespace_rejects_new_objects,
    terminating_namespace_allows_updates_and_deletes,
    finalized_namespace_is_removed,
    finalize_does_not_remove_active_namespace,
    second_deletion_of_a_namespace_changes_nothing,
    default_namespace_cannot_be_deleted,
    default_namespaces_exist,
    namespace_label_follows_its_name,
    conditions_of_a_namespace_are_set_by_status,
];

async fn fresh(case: &Case) -> Result<(String, String)> {
    let name = case.unique("own");
    case.make("/api/v1/namespaces", json!({ "metadata": { "name": name } })).await?;
    Ok((name.clone(), format!("/api/v1/namespaces/{name}")))
}

async fn new_namespace_is_active_and_labeled(case: Case) -> Outcome {
    let found = case.read("/api/v1/namespaces/{ns}").await?;
    has!(found, { "status": { "phase": "Active" },
        "metadata": { "labels": { "kubernetes.io/metadata.name": case.namespace }, "namespace": null } });
    Ok(())
}

async fn new_namespace_has_kubernetes_finalizer(case: Case) -> Outcome {
    let found = case.read("/api/v1/namespaces/{ns}").await?;
    same!(found["spec"]["finalizers"], json!(["kubernetes"]));
    Ok(())
}

async fn deleted_namespace_is_terminating(case: Case) -> Outcome {
    let (_, path) = fresh(&case).await?;
    let marked = case.delete(&path).await?.is(200)?;
    has!(marked, { "kind": "Namespace", "status": { "phase": "Terminating" } });
    anyhow::ensure!(marked["metadata"]["deletionTimestamp"].is_string(), "not marked");
    same!(case.read(&path).await?, marked);
    Ok(())
}

async fn terminating_namespace_rejects_new_objects(case: Case) -> Outcome {
    let (name, path) = fresh(&case).await?;
    case.delete(&path).await?.is(200)?;
    let inside = format!("{path}/configmaps");
    let message = format!(
        "configmaps \"a\" is forbidden: unable to create new content in namespace {name} because it is being terminated"
    );
    // The real server uses a cache that can be slightly stale.
    let refused = async {
        loop {
            let answer = case.post(&inside, config_map("a")).await?;
            if answer.status == 403 {
                return anyhow::Ok(answer);
            }
            case.delete(&format!("{inside}/a")).await?;
        }
    };
    let answer = tokio::time::timeout(std::time::Duration::from_secs(30), refused).await??;
    let details = answer.expect_rejected(403, "Forbidden", &message)?;
    same!(
        details,
        json!({ "name": "a", "kind": "configmaps", "causes": [{ "reason": "NamespaceTerminating",
            "message": format!("namespace {name} is being terminated"), "field": "metadata.namespace" }] })
    );
    Ok(())
}

async fn terminating_namespace_allows_updates_and_deletes(case: Case) -> Outcome {
    let (_, path) = fresh(&case).await?;
    case.make(&format!("{path}/configmaps"), config_map("a")).await?;
    case.delete(&path).await?.is(200)?;
    case.merge(&format!("{path}/configmaps/a"), json!({ "data": { "key": "new" } })).await?;
    case.delete(&format!("{path}/configmaps/a")).await?.is(200)?;
    Ok(())
}

async fn finalized_namespace_is_removed(case: Case) -> Outcome {
    let (_, path) = fresh(&case).await?;
    let mut marked = case.delete(&path).await?.is(200)?;
    marked["spec"]["finalizers"] = json!([]);
    case.replace(&format!("{path}/finalize"), marked).await?;
    case.get(&path).await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn finalize_does_not_remove_active_namespace(case: Case) -> Outcome {
    let (_, path) = fresh(&case).await?;
    let mut found = case.read(&path).await?;
    found["spec"]["finalizers"] = json!([]);
    let done = case.replace(&format!("{path}/finalize"), found).await?;
    same!(done["spec"]["finalizers"], Value::Null);
    has!(case.read(&path).await?, { "status": { "phase": "Active" } });
    Ok(())
}

async fn second_deletion_of_a_namespace_changes_nothing(case: Case) -> Outcome {
    let (_, path) = fresh(&case).await?;
    let marked = case.delete(&path).await?.is(200)?;
    same!(case.delete(&path).await?.is(200)?, marked);
    Ok(())
}

async fn default_namespace_cannot_be_deleted(case: Case) -> Outcome {
    let answer = case.delete("/api/v1/namespaces/default").await?;
    let message = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    answer.expect_rejected(403, "Forbidden", message)?;
    Ok(())
}

async fn default_namespaces_exist(case: Case) -> Outcome {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        case.until(&format!("/api/v1/namespaces/{name}"), |answer| answer.status == 200).await?;
    }
    Ok(())
}

async fn namespace_label_follows_its_name(case: Case) -> Outcome {
    let (name, path) = fresh(&case).await?;
    let merged = case
        .merge(&path, json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": "other" } } }))
        .await?;
    same!(merged["metadata"]["labels"]["kubernetes.io/metadata.name"], name.as_str());
    Ok(())
}

async fn conditions_of_a_namespace_are_set_by_status(case: Case) -> Outcome {
    let condition = json!({ "type": "NamespaceContentRemaining", "status": "True" });
    let path = "/api/v1/namespaces/{ns}/status";
    let merged = case.merge(path, json!({ "status": { "conditions": [condition] } })).await?;
    has!(merged["status"], { "phase": "Active", "conditions": [{ "type": "NamespaceContentRemaining" }] });
    Ok(())
}
