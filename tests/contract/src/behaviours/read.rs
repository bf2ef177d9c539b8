//! GET of one object.

use http::Method;
use serde_json::json;

use super::objects::{config_map, deployment};
use crate::{Behavior, Case, Outcome, behaviours, check::revision, has, same};

pub(super) const ALL: &[Behavior] = behaviours![
    an_object_is_read_with_kind_and_version,
    a_missing_object_is_refused_by_resource_and_name,
    a_missing_object_of_a_group_is_refused_with_the_group,
    an_object_of_another_namespace_is_missing,
    reading_in_a_namespace_that_does_not_exist_finds_nothing,
    an_object_is_read_from_the_cache_at_version_zero,
    an_object_is_read_at_least_as_new_as_a_version,
    a_version_that_is_no_number_is_refused,
    a_version_from_the_future_is_refused,
    only_metadata_can_be_asked_for,
    a_media_type_nobody_speaks_is_refused,
    the_first_media_type_spoken_is_taken,
    an_answer_is_json,
    a_deleted_object_is_missing,
    a_deleted_and_created_object_has_another_uid,
];

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

async fn an_object_is_read_with_kind_and_version(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    has!(case.read("apps/v1 deployments/a").await?, { "kind": "Deployment", "apiVersion": "apps/v1" });
    Ok(())
}

async fn a_missing_object_is_refused_by_resource_and_name(case: Case) -> Outcome {
    let answer = case.get("configmaps/a").await?;
    same!(
        answer.body,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "configmaps \"a\" not found", "reason": "NotFound",
            "details": { "name": "a", "kind": "configmaps" }, "code": 404 })
    );
    Ok(())
}

async fn a_missing_object_of_a_group_is_refused_with_the_group(case: Case) -> Outcome {
    let answer = case.get("apps/v1 deployments/a").await?;
    let details = answer.refused(404, "NotFound", "deployments.apps \"a\" not found")?;
    same!(details, json!({ "name": "a", "group": "apps", "kind": "deployments" }));
    Ok(())
}

async fn an_object_of_another_namespace_is_missing(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.get("/api/v1/namespaces/default/configmaps/a").await?.refused_for(404, "NotFound")?;
    Ok(())
}

async fn reading_in_a_namespace_that_does_not_exist_finds_nothing(case: Case) -> Outcome {
    let answer = case.get("/api/v1/namespaces/not-there/configmaps/a").await?;
    answer.refused(404, "NotFound", "configmaps \"a\" not found")?;
    let list = case.read("/api/v1/namespaces/not-there/configmaps").await?;
    same!(list["items"], json!([]));
    Ok(())
}

async fn an_object_is_read_from_the_cache_at_version_zero(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let found = case.until("configmaps/a?resourceVersion=0", |answer| answer.status == 200).await?;
    same!(found.body["metadata"]["name"], "a");
    Ok(())
}

async fn an_object_is_read_at_least_as_new_as_a_version(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let found = case.read(&format!("configmaps/a?resourceVersion={}", revision(&made))).await?;
    same!(found, made);
    Ok(())
}

async fn a_version_that_is_no_number_is_refused(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.get("configmaps/a?resourceVersion=x").await?;
    let message = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    answer.refused(500, "", message)?;
    Ok(())
}

async fn a_version_from_the_future_is_refused(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.get("configmaps/a?resourceVersion=900000000").await?;
    same!(answer.headers.get("retry-after").and_then(|it| it.to_str().ok()), Some("1"));
    let details = answer.refused_with(504, "Timeout", "Too large resource version: 900000000, current: ")?;
    same!(
        details,
        json!({ "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1 })
    );
    Ok(())
}

async fn only_metadata_can_be_asked_for(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let found = case.get_as(METADATA, "configmaps/a").await?.is(200)?;
    has!(found, { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": { "name": "a" },
        "data": null });
    Ok(())
}

async fn a_media_type_nobody_speaks_is_refused(case: Case) -> Outcome {
    let answer = case.get_as("text/html", "configmaps").await?;
    answer.refused_with(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json",
    )?;
    Ok(())
}

async fn the_first_media_type_spoken_is_taken(case: Case) -> Outcome {
    let answer = case.get_as("text/html, application/json;q=0.9, */*;q=0.1", "configmaps").await?;
    same!((answer.status, answer.media_type()), (200, "application/json"));
    Ok(())
}

async fn an_answer_is_json(case: Case) -> Outcome {
    let answer = case.send(Method::GET, "configmaps", &[("accept", "*/*")], Vec::new()).await?;
    same!((answer.status, answer.media_type()), (200, "application/json"));
    Ok(())
}

async fn a_deleted_object_is_missing(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps/a").await?.is(200)?;
    case.get("configmaps/a").await?.refused_for(404, "NotFound")?;
    Ok(())
}

async fn a_deleted_and_created_object_has_another_uid(case: Case) -> Outcome {
    let first = case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps/a").await?.is(200)?;
    let second = case.make("configmaps", config_map("a")).await?;
    anyhow::ensure!(first["metadata"]["uid"] != second["metadata"]["uid"], "the same uid again");
    anyhow::ensure!(revision(&second) > revision(&first), "versions went back");
    Ok(())
}
