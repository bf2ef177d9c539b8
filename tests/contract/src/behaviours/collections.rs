//! DELETE of a collection.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, labelled, pod, pod_on_node};
use crate::{Behavior, Case, Outcome, behaviours, check::names, has, same};

pub(super) const ALL: &[Behavior] = behaviours![
    deleting_a_collection_answers_with_what_there_was,
    deleting_a_collection_leaves_none,
    deleting_a_collection_honours_labels,
    deleting_a_collection_honours_fields,
    deleting_a_collection_only_marks_what_has_finalizers,
    deleting_a_collection_honours_propagation,
    deleting_a_collection_gives_pods_their_grace,
    deleting_an_empty_collection_is_no_error,
    deleting_a_collection_in_a_dry_run_deletes_nothing,
    deleting_a_collection_leaves_other_namespaces_alone,
    deleting_a_collection_is_told_object_by_object,
    deleting_all_services_is_done_one_by_one,
];

async fn deleting_a_collection_answers_with_what_there_was(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let answered = case.delete("configmaps").await?.is(200)?;
    has!(answered, { "kind": "ConfigMapList", "apiVersion": "v1" });
    same!(names(&answered), ["a", "b"]);
    Ok(())
}

async fn deleting_a_collection_leaves_none(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    case.delete("configmaps").await?.is(200)?;
    same!(case.read("configmaps").await?["items"], json!([]));
    Ok(())
}

async fn deleting_a_collection_honours_labels(case: Case) -> Outcome {
    case.make("configmaps", labelled("a", json!({ "app": "web" }))).await?;
    case.make("configmaps", config_map("b")).await?;
    case.delete("configmaps?labelSelector=app=web").await?.is(200)?;
    same!(names(&case.read("configmaps").await?), ["b"]);
    Ok(())
}

async fn deleting_a_collection_honours_fields(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    case.delete("configmaps?fieldSelector=metadata.name=b").await?.is(200)?;
    same!(names(&case.read("configmaps").await?), ["a"]);
    Ok(())
}

async fn deleting_a_collection_only_marks_what_has_finalizers(case: Case) -> Outcome {
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

async fn deleting_a_collection_honours_propagation(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    case.delete_with("apps/v1 deployments", json!({ "propagationPolicy": "Foreground" })).await?.is(200)?;
    let left = case.read("apps/v1 deployments/a").await?;
    same!(left["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    Ok(())
}

async fn deleting_a_collection_gives_pods_their_grace(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    case.make("pods", pod_on_node("b")).await?;
    case.delete("pods").await?.is(200)?;
    let left = case.read("pods").await?;
    same!(names(&left), ["b"]);
    same!(left["items"][0]["metadata"]["deletionGracePeriodSeconds"], 30);
    Ok(())
}

async fn deleting_an_empty_collection_is_no_error(case: Case) -> Outcome {
    same!(case.delete("configmaps").await?.is(200)?["items"], json!([]));
    Ok(())
}

async fn deleting_a_collection_in_a_dry_run_deletes_nothing(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps?dryRun=All").await?.is(200)?;
    same!(names(&case.read("configmaps").await?), ["a"]);
    Ok(())
}

async fn deleting_a_collection_leaves_other_namespaces_alone(case: Case) -> Outcome {
    let name = case.unique("kept");
    case.make("/api/v1/namespaces/default/configmaps", config_map(&name)).await?;
    case.delete("configmaps").await?.is(200)?;
    case.read(&format!("/api/v1/namespaces/default/configmaps/{name}")).await?;
    Ok(())
}

async fn deleting_a_collection_is_told_object_by_object(case: Case) -> Outcome {
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

async fn deleting_all_services_is_done_one_by_one(case: Case) -> Outcome {
    case.make("services", super::objects::service("a")).await?;
    case.delete("services").await?.is(200)?;
    same!(case.read("services").await?["items"], Value::Array(Vec::new()));
    Ok(())
}
