//! Dry runs of writes.

use serde_json::{Value, json};

use super::objects::{config_map, deployment};
use crate::{Behavior, Case, Outcome, behaviours, check::version, has, same};

pub(super) const ALL: &[Behavior] = behaviours![
    a_tried_creation_creates_nothing,
    a_tried_creation_shows_what_would_be,
    a_tried_creation_is_checked,
    a_tried_creation_of_a_taken_name_is_refused,
    a_tried_update_changes_nothing,
    a_tried_patch_changes_nothing,
    a_tried_deletion_deletes_nothing,
    a_tried_status_changes_nothing,
    a_tried_write_is_not_told,
    a_dry_run_in_the_options_of_deletion_is_honoured,
];

async fn a_tried_creation_creates_nothing(case: Case) -> Outcome {
    case.make("configmaps?dryRun=All", config_map("a")).await?;
    case.get("configmaps/a").await?.refused_for(404, "NotFound")?;
    Ok(())
}

async fn a_tried_creation_shows_what_would_be(case: Case) -> Outcome {
    let shown = case.make("apps/v1 deployments?dryRun=All", deployment("a")).await?;
    has!(shown, { "spec": { "progressDeadlineSeconds": 600 }, "metadata": { "generation": 1, "resourceVersion": null } });
    anyhow::ensure!(shown["metadata"]["uid"].is_string(), "no uid");
    Ok(())
}

async fn a_tried_creation_is_checked(case: Case) -> Outcome {
    case.post("configmaps?dryRun=All", config_map("A")).await?.refused_for(422, "Invalid")?;
    Ok(())
}

async fn a_tried_creation_of_a_taken_name_is_refused(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.post("configmaps?dryRun=All", config_map("a")).await?.refused_for(409, "AlreadyExists")?;
    Ok(())
}

async fn a_tried_update_changes_nothing(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut other = made.clone();
    other["data"]["key"] = json!("new");
    let shown = case.replace("configmaps/a?dryRun=All", other).await?;
    same!(shown["data"]["key"], "new");
    same!(version(&shown), version(&made));
    same!(case.read("configmaps/a").await?, made);
    Ok(())
}

async fn a_tried_patch_changes_nothing(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let shown = case.merge("configmaps/a?dryRun=All", json!({ "data": { "key": "new" } })).await?;
    same!(shown["data"]["key"], "new");
    same!(case.read("configmaps/a").await?, made);
    Ok(())
}

async fn a_tried_deletion_deletes_nothing(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    has!(case.delete("configmaps/a?dryRun=All").await?.is(200)?, { "kind": "Status", "status": "Success" });
    same!(case.read("configmaps/a").await?, made);
    Ok(())
}

async fn a_tried_status_changes_nothing(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    case.merge("apps/v1 deployments/a/status?dryRun=All", json!({ "status": { "replicas": 1 } })).await?;
    same!(case.read("apps/v1 deployments/a").await?, made);
    Ok(())
}

async fn a_tried_write_is_not_told(case: Case) -> Outcome {
    let mut watch = case.watch("configmaps").await?;
    case.make("configmaps?dryRun=All", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn a_dry_run_in_the_options_of_deletion_is_honoured(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete_with("configmaps/a", json!({ "dryRun": ["All"] })).await?.is(200)?;
    same!(case.read("configmaps/a").await?["metadata"]["deletionTimestamp"], Value::Null);
    Ok(())
}
