//! DELETE of a collection.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, labeled, pod, pod_on_node};
use crate::{Behavior, Case, Outcome, behaviors, check::names, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    collection_delete_returns_previous_objects,
    collection_delete_removes_all_objects,
    collection_delete_honors_label_selector,
    collection_delete_honors_field_selector,
    collection_delete_marks_objects_with_finalizers,
    collection_delete_honors_propagation,
    collection_delete_honors_grace_of_pods,
    empty_collection_delete_succeeds,
    dry_run_collection_delete_deletes_nothing,
    collection_delete_does_not_affect_other_namespaces,
    collection_delete_sends_one_event_per_object,
    collection_delete_of_services_deletes_all,
];

async fn collection_delete_returns_previous_objects(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let answered = case.delete("configmaps").await?.is(200)?;
    has!(answered, { "kind": "ConfigMapList", "apiVersion": "v1" });
    same!(names(&answered), ["a", "b"]);
    Ok(())
}

async fn collection_delete_removes_all_objects(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    case.delete("configmaps").await?.is(200)?;
    same!(case.read("configmaps").await?["items"], json!([]));
    Ok(())
}

async fn collection_delete_honors_label_selector(case: Case) -> Outcome {
    case.make("configmaps", labeled("a", json!({ "app": "web" }))).await?;
    case.make("configmaps", config_map("b")).await?;
    case.delete("configmaps?labelSelector=app=web").await?.is(200)?;
    same!(names(&case.read("configmaps").await?), ["b"]);
    Ok(())
}

async fn collection_delete_honors_field_selector(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    case.delete("configmaps?fieldSelector=metadata.name=b").await?.is(200)?;
    same!(names(&case.read("configmaps").await?), ["a"]);
    Ok(())
}

async fn collection_delete_marks_objects_with_finalizers(case: Case) -> Outcome {
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    case.make("configmaps", held).await?;
    case.make("configmaps", config_map("b")).await?;
    case.delete("configmaps").await?.is(200)?;
    let left = case.read("configmaps").await?;
    same!(names(&left), ["a"]);
    anyhow::ensure!(left["items"][0]["metadata"]["deletionTimestamp"].is_string(), "not marked");
    Ok(())
}

async fn collection_delete_honors_propagation(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    case.delete_with("apps/v1 deployments", json!({ "propagationPolicy": "Foreground" })).await?.is(200)?;
    let left = case.read("apps/v1 deployments/a").await?;
    same!(left["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    Ok(())
}

async fn collection_delete_honors_grace_of_pods(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    case.make("pods", pod_on_node("b")).await?;
    case.delete("pods").await?.is(200)?;
    let left = case.read("pods").await?;
    same!(names(&left), ["b"]);
    same!(left["items"][0]["metadata"]["deletionGracePeriodSeconds"], 30);
    Ok(())
}

async fn empty_collection_delete_succeeds(case: Case) -> Outcome {
    same!(case.delete("configmaps").await?.is(200)?["items"], json!([]));
    Ok(())
}

async fn dry_run_collection_delete_deletes_nothing(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps?dryRun=All").await?.is(200)?;
    same!(names(&case.read("configmaps").await?), ["a"]);
    Ok(())
}

async fn collection_delete_does_not_affect_other_namespaces(case: Case) -> Outcome {
    let name = case.unique("kept");
    case.make("/api/v1/namespaces/default/configmaps", config_map(&name)).await?;
    case.delete("configmaps").await?.is(200)?;
    case.read(&format!("/api/v1/namespaces/default/configmaps/{name}")).await?;
    Ok(())
}

async fn collection_delete_sends_one_event_per_object(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let mut watch = case.watch("configmaps").await?;
    watch.expect("ADDED", "a").await?;
    watch.expect("ADDED", "b").await?;
    case.delete("configmaps").await?.is(200)?;
    let (first, second) = (watch.change().await?, watch.change().await?);
    let kinds = [first.kind, second.kind];
    same!(kinds, ["DELETED", "DELETED"]);
    Ok(())
}

async fn collection_delete_of_services_deletes_all(case: Case) -> Outcome {
    case.make("services", super::objects::service("a")).await?;
    case.delete("services").await?.is(200)?;
    same!(case.read("services").await?["items"], Value::Array(Vec::new()));
    Ok(())
}
