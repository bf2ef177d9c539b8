//! GET of one object.

use http::Method;
use serde_json::json;

use super::objects::{config_map, deployment};
use crate::{Behavior, Case, Outcome, behaviors, check::revision, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    object_is_read_with_kind_and_version,
    missing_object_error_names_resource_and_name,
    missing_object_error_names_group,
    object_of_another_namespace_is_not_found,
    reads_in_missing_namespace_find_nothing,
    object_is_read_from_the_cache_at_version_zero,
    object_is_read_at_least_as_new_as_a_version,
    non_numeric_version_is_rejected,
    version_from_the_future_is_rejected,
    metadata_only_get_is_supported,
    unsupported_media_type_is_rejected,
    first_supported_media_type_is_used,
    response_is_json,
    deleted_object_is_not_found,
    deleted_and_created_object_has_another_uid,
    non_numeric_version_of_event_is_rejected_with_400,
];

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

async fn object_is_read_with_kind_and_version(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    has!(case.read("apps/v1 deployments/a").await?, { "kind": "Deployment", "apiVersion": "apps/v1" });
    Ok(())
}

async fn missing_object_error_names_resource_and_name(case: Case) -> Outcome {
    let answer = case.get("configmaps/a").await?;
    same!(
        answer.body,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "configmaps \"a\" not found", "reason": "NotFound",
            "details": { "name": "a", "kind": "configmaps" }, "code": 404 })
    );
    Ok(())
}

async fn missing_object_error_names_group(case: Case) -> Outcome {
    let answer = case.get("apps/v1 deployments/a").await?;
    let details = answer.expect_rejected(404, "NotFound", "deployments.apps \"a\" not found")?;
    same!(details, json!({ "name": "a", "group": "apps", "kind": "deployments" }));
    Ok(())
}

async fn object_of_another_namespace_is_not_found(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.get("/api/v1/namespaces/default/configmaps/a")
        .await?
        .expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn reads_in_missing_namespace_find_nothing(case: Case) -> Outcome {
    let answer = case.get("/api/v1/namespaces/not-there/configmaps/a").await?;
    answer.expect_rejected(404, "NotFound", "configmaps \"a\" not found")?;
    let list = case.read("/api/v1/namespaces/not-there/configmaps").await?;
    same!(list["items"], json!([]));
    Ok(())
}

async fn object_is_read_from_the_cache_at_version_zero(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let found = case.until("configmaps/a?resourceVersion=0", |answer| answer.status == 200).await?;
    same!(found.body["metadata"]["name"], "a");
    Ok(())
}

async fn object_is_read_at_least_as_new_as_a_version(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let found = case.read(&format!("configmaps/a?resourceVersion={}", revision(&made))).await?;
    same!(found, made);
    Ok(())
}

async fn non_numeric_version_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.get("configmaps/a?resourceVersion=x").await?;
    let message = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    answer.expect_rejected(500, "", message)?;
    Ok(())
}

async fn version_from_the_future_is_rejected(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let answer = case.get("configmaps/a?resourceVersion=900000000").await?;
    same!(answer.headers.get("retry-after").and_then(|it| it.to_str().ok()), Some("1"));
    let details = answer.expect_rejected_containing(
        504,
        "Timeout",
        "Too large resource version: 900000000, current: ",
    )?;
    same!(
        details,
        json!({ "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1 })
    );
    Ok(())
}

async fn metadata_only_get_is_supported(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let found = case.get_as(METADATA, "configmaps/a").await?.is(200)?;
    has!(found, { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": { "name": "a" },
        "data": null });
    Ok(())
}

async fn unsupported_media_type_is_rejected(case: Case) -> Outcome {
    let answer = case.get_as("text/html", "configmaps").await?;
    answer.expect_rejected_containing(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json",
    )?;
    Ok(())
}

async fn first_supported_media_type_is_used(case: Case) -> Outcome {
    let answer = case.get_as("text/html, application/json;q=0.9, */*;q=0.1", "configmaps").await?;
    same!((answer.status, answer.media_type()), (200, "application/json"));
    Ok(())
}

async fn response_is_json(case: Case) -> Outcome {
    let answer = case.send(Method::GET, "configmaps", &[("accept", "*/*")], Vec::new()).await?;
    same!((answer.status, answer.media_type()), (200, "application/json"));
    Ok(())
}

async fn deleted_object_is_not_found(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps/a").await?.is(200)?;
    case.get("configmaps/a").await?.expect_rejected_with_reason(404, "NotFound")?;
    Ok(())
}

async fn deleted_and_created_object_has_another_uid(case: Case) -> Outcome {
    let first = case.make("configmaps", config_map("a")).await?;
    case.delete("configmaps/a").await?.is(200)?;
    let second = case.make("configmaps", config_map("a")).await?;
    anyhow::ensure!(first["metadata"]["uid"] != second["metadata"]["uid"], "the same uid again");
    anyhow::ensure!(revision(&second) > revision(&first), "versions went back");
    Ok(())
}

async fn non_numeric_version_of_event_is_rejected_with_400(case: Case) -> Outcome {
    let message = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
                   invalid syntax";
    for path in ["events/a", "events", "events.k8s.io/v1 events/a", "events.k8s.io/v1 events"] {
        let answer = case.get(&format!("{path}?resourceVersion=abc")).await?;
        answer.expect_rejected(400, "BadRequest", message)?;
    }
    Ok(())
}
