//! What is said when the history asked for is gone.

use serde_json::json;

use super::objects::config_map;
use crate::{
    Behaviour, Case, Outcome, behaviours,
    check::{names, revision, version},
    same,
};

pub(super) const ALL: &[Behaviour] = behaviours![
    a_watch_from_a_forgotten_version_is_told_so_in_the_stream,
    a_list_at_a_forgotten_version_is_gone,
    a_continuation_of_a_forgotten_version_is_gone_and_offers_another,
    the_present_is_never_forgotten,
];

async fn a_watch_from_a_forgotten_version_is_told_so_in_the_stream(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.subject.forget_history();
    let mut watch = case.watch("configmaps?resourceVersion=1").await?;
    let Some(frame) = watch.frame().await? else { anyhow::bail!("ended without a word") };
    same!(frame.kind, "ERROR");
    let mut status = frame.object;
    let message = status["message"].take();
    anyhow::ensure!(
        message.as_str().is_some_and(|it| it.starts_with("too old resource version: 1 (")),
        "{message}"
    );
    same!(
        status,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": null,
            "reason": "Expired", "code": 410 })
    );
    same!(watch.frame().await?, None);
    Ok(())
}

async fn a_list_at_a_forgotten_version_is_gone(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    case.subject.forget_history();
    let path = format!("configmaps?resourceVersionMatch=Exact&resourceVersion={}", version(&made));
    let answer = case.until(&path, |answer| answer.status != 200).await?;
    let message = "The provided resource version is no longer available";
    let said = answer.body["message"].clone();
    answer.refused_for(410, "Expired")?;
    anyhow::ensure!(said.is_string(), "{said} instead of {message}");
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
