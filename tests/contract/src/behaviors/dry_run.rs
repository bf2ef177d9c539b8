//! Dry runs of writes.

use serde_json::{Value, json};

use super::objects::{config_map, deployment};
use crate::{Behavior, Case, Outcome, behaviors, check::version, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    dry_run_create_creates_nothing,
    dry_run_create_returns_resulting_object,
    dry_run_create_is_validated,
    dry_run_create_of_existing_name_is_rejected,
    dry_run_update_changes_nothing,
    dry_run_patch_changes_nothing,
    dry_run_delete_deletes_nothing,
    dry_run_status_update_changes_nothing,
    dry_run_write_sends_no_watch_event,
    dry_run_in_delete_options_is_honored,
    dry_run_patch_returns_self_link,
];

async fn dry_run_create_creates_nothing(case: Case) -> Outcome {
    case.make("configmaps?dryRun=All", config_map("a")).await?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn dry_run_create_returns_resulting_object(case: Case) -> Outcome {
    let shown = case.make("apps/v1 deployments?dryRun=All", deployment("a")).await?;
    has!(shown, { "spec": { "progressDeadlineSeconds": 600 }, "metadata": { "generation": 1, "resourceVersion": null } });
    anyhow::ensure!(shown["metadata"]["uid"].is_string(), "no uid");
    Ok(())
}

async fn dry_run_create_is_validated(case: Case) -> Outcome {
    case.post("configmaps?dryRun=All", config_map("A")).await?.expect_rejected_with_reason(422, "Invalid")?;
    Ok(())
}

async fn dry_run_create_of_existing_name_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.post("configmaps?dryRun=All", config_map("a"))
        .await?
        .expect_rejected_with_reason(409, "AlreadyExists")?;
    Ok(())
}

async fn dry_run_update_changes_nothing(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut other = made.clone();
    other["data"]["key"] = json!("new");
    let shown = case.replace("configmaps/a?dryRun=All", other).await?;
    same!(shown["data"]["key"], "new");
    same!(version(&shown), version(&made));
    same!(case.read("configmaps/a").await?, made);
    Ok(())
}

async fn dry_run_patch_changes_nothing(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let shown = case.merge("configmaps/a?dryRun=All", json!({ "data": { "key": "new" } })).await?;
    same!(shown["data"]["key"], "new");
    same!(case.read("configmaps/a").await?, made);
    Ok(())
}

async fn dry_run_delete_deletes_nothing(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    has!(case.delete("configmaps/a?dryRun=All").await?.is(200)?, { "kind": "Status", "status": "Success" });
    same!(case.read("configmaps/a").await?, made);
    Ok(())
}

async fn dry_run_status_update_changes_nothing(case: Case) -> Outcome {
    let made = case.make("apps/v1 deployments", deployment("a")).await?;
    case.merge("apps/v1 deployments/a/status?dryRun=All", json!({ "status": { "replicas": 1 } })).await?;
    same!(case.read("apps/v1 deployments/a").await?, made);
    Ok(())
}

async fn dry_run_write_sends_no_watch_event(case: Case) -> Outcome {
    let mut watch = case.watch("configmaps").await?;
    case.make("configmaps?dryRun=All", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn dry_run_in_delete_options_is_honored(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete_with("configmaps/a", json!({ "dryRun": ["All"] })).await?.is(200)?;
    same!(case.read("configmaps/a").await?["metadata"]["deletionTimestamp"], Value::Null);
    Ok(())
}

async fn dry_run_patch_returns_self_link(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let link = json!({ "metadata": { "selfLink": "/x" } });
    same!(case.merge("configmaps/a?dryRun=All", link.clone()).await?["metadata"]["selfLink"], "/x");
    same!(case.merge("configmaps/a", link).await?["metadata"]["selfLink"], Value::Null);
    Ok(())
}
