//! Requests at versions that were compacted.

use super::objects::config_map;
use crate::{
    Behavior, Case, Outcome, behaviours,
    check::{names, revision, version},
    same,
};

pub(super) const ALL: &[Behavior] = behaviours![
    a_list_at_a_forgotten_version_is_gone,
    a_continuation_of_a_forgotten_version_is_gone_and_offers_another,
    the_present_is_never_forgotten,
];

async fn a_list_at_a_forgotten_version_is_gone(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    case.subject.forget_history();
    let path = format!("configmaps?resourceVersionMatch=Exact&resourceVersion={}", version(&made));
    let answer = case.until(&path, |answer| answer.status != 200).await?;
    answer.refused(410, "Expired", "The resourceVersion for the provided list is too old.")?;
    Ok(())
}

async fn a_continuation_of_a_forgotten_version_is_gone_and_offers_another(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let page = case.read("configmaps?limit=1").await?;
    case.make("configmaps", config_map("c")).await?;
    case.subject.forget_history();
    let token = page["metadata"]["continue"].as_str().unwrap_or_default();
    let path = format!("configmaps?limit=5&continue={token}");
    let answer = case.until(&path, |answer| answer.status != 200).await?;
    let offered = answer.body["metadata"]["continue"].clone();
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
        new list without the continue parameter, or use the continue token in this response to retrieve the \
        remainder of the results. Continuing with the provided token results in an inconsistent list - objects that \
        were created, modified, or deleted between the time the first chunk was returned and now may show up in the \
        list.";
    answer.refused(410, "Expired", message)?;
    let offered = offered.as_str().unwrap_or_default();
    let rest = case.read(&format!("configmaps?limit=5&continue={offered}")).await?;
    same!(names(&rest), ["b", "c"]);
    Ok(())
}

async fn the_present_is_never_forgotten(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    case.subject.forget_history();
    let mut watch = case.watch(&format!("configmaps?resourceVersion={}", revision(&list))).await?;
    case.make("configmaps", config_map("b")).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}
