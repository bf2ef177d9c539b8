//! Requests at versions that were compacted.

use super::objects::config_map;
use crate::{
    Behavior, Case, Outcome, behaviors,
    check::{names, revision, version},
    same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    list_at_compacted_version_is_expired,
    expired_continue_token_error_contains_new_token,
    current_version_is_never_compacted,
];

async fn list_at_compacted_version_is_expired(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    case.server.compact_history();
    let path = format!("configmaps?resourceVersionMatch=Exact&resourceVersion={}", version(&made));
    let answer = case.until(&path, |answer| answer.status != 200).await?;
    answer.expect_rejected(410, "Expired", "The resourceVersion for the provided list is too old.")?;
    Ok(())
}

async fn expired_continue_token_error_contains_new_token(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let page = case.read("configmaps?limit=1").await?;
    case.make("configmaps", config_map("c")).await?;
    case.server.compact_history();
    let token = page["metadata"]["continue"].as_str().unwrap_or_default();
    let path = format!("configmaps?limit=5&continue={token}");
    let answer = case.until(&path, |answer| answer.status != 200).await?;
    let offered = answer.body["metadata"]["continue"].clone();
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
        new list without the continue parameter, or use the continue token in this response to retrieve the \
        remainder of the results. Continuing with the provided token results in an inconsistent list - objects that \
        were created, modified, or deleted between the time the first chunk was returned and now may show up in the \
        list.";
    answer.expect_rejected(410, "Expired", message)?;
    let offered = offered.as_str().unwrap_or_default();
    let rest = case.read(&format!("configmaps?limit=5&continue={offered}")).await?;
    same!(names(&rest), ["b", "c"]);
    Ok(())
}

async fn current_version_is_never_compacted(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    case.server.compact_history();
    let mut watch = case.watch(&format!("configmaps?resourceVersion={}", revision(&list))).await?;
    case.make("configmaps", config_map("b")).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}
