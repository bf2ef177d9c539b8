//! GET of a collection: pages and versions.

use serde_json::{Value, json};

use super::objects::{config_map, deployment, labeled};
use crate::{
    Behavior, Case, Outcome, behaviors,
    check::{names, revision, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    list_has_its_kind_and_a_version,
    list_items_have_no_kind_and_api_version,
    empty_list_has_an_empty_list_of_items,
    list_is_ordered_by_name,
    list_of_all_namespaces_is_ordered_by_namespace,
    list_is_at_least_as_new_as_the_last_write,
    page_has_requested_size_and_remaining_item_count,
    last_page_has_no_continue_token,
    complete_page_has_no_continue_token,
    all_pages_together_equal_the_list,
    later_pages_are_consistent_with_first_page,
    all_pages_have_the_version_of_the_first,
    selector_omits_remaining_item_count,
    invalid_continue_token_is_rejected,
    continue_token_with_version_is_rejected,
    limit_of_zero_means_no_limit,
    negative_limit_means_no_limit,
    non_numeric_limit_is_rejected,
    not_older_than_list_is_served,
    exact_version_list_returns_past_state,
    list_with_limit_and_version_is_exact,
    list_at_version_zero_is_served,
    limit_at_version_zero_is_ignored,
    watch_and_a_list_agree_on_the_version,
    exact_match_of_version_zero_is_rejected,
    match_rule_without_a_version_is_rejected,
    unknown_match_rule_is_rejected,
    match_rule_with_continue_token_is_rejected,
    initial_events_of_a_list_are_rejected,
    list_at_future_version_is_rejected,
    list_at_non_numeric_version_is_rejected,
    metadata_only_list_is_served,
    namespaced_kind_is_listed_across_namespaces,
    list_ignores_shard_selector,
];

async fn make_three(case: &Case) -> anyhow::Result<()> {
    for name in ["b", "c", "a"] {
        case.make("configmaps", config_map(name)).await?;
    }
    Ok(())
}

async fn list_has_its_kind_and_a_version(case: Case) -> Outcome {
    case.make("apps/v1 deployments", deployment("a")).await?;
    let list = case.read("apps/v1 deployments").await?;
    has!(list, { "kind": "DeploymentList", "apiVersion": "apps/v1", "metadata": { "continue": null } });
    anyhow::ensure!(revision(&list) > 0, "no version: {list}");
    Ok(())
}

async fn list_items_have_no_kind_and_api_version(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    has!(list["items"][0], { "kind": null, "apiVersion": null, "metadata": { "name": "a" } });
    Ok(())
}

async fn empty_list_has_an_empty_list_of_items(case: Case) -> Outcome {
    let list = case.read("configmaps").await?;
    same!(list["items"], json!([]));
    Ok(())
}

async fn list_is_ordered_by_name(case: Case) -> Outcome {
    make_three(&case).await?;
    same!(names(&case.read("configmaps").await?), ["a", "b", "c"]);
    Ok(())
}

async fn list_of_all_namespaces_is_ordered_by_namespace(case: Case) -> Outcome {
    let (first, second) = (case.unique("x-one"), case.unique("x-two"));
    let labels = json!({ "in": case.namespace });
    for (namespace, name) in [(&second, "a"), (&first, "b")] {
        case.make("/api/v1/namespaces", json!({ "metadata": { "name": namespace } })).await?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        case.make(&path, labeled(name, labels.clone())).await?;
    }
    let list = case.read("/api/v1/configmaps?labelSelector=in={ns}").await?;
    same!(names(&list), ["b", "a"]);
    Ok(())
}

async fn list_is_at_least_as_new_as_the_last_write(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    anyhow::ensure!(revision(&list) >= revision(&made), "{} after {}", revision(&list), revision(&made));
    Ok(())
}

async fn page_has_requested_size_and_remaining_item_count(case: Case) -> Outcome {
    make_three(&case).await?;
    let page = case.read("configmaps?limit=1").await?;
    same!(names(&page), ["a"]);
    same!(page["metadata"]["remainingItemCount"], 2);
    anyhow::ensure!(
        page["metadata"]["continue"].as_str().is_some_and(|it| !it.is_empty()),
        "no continuation"
    );
    Ok(())
}

async fn last_page_has_no_continue_token(case: Case) -> Outcome {
    make_three(&case).await?;
    let page = case.read("configmaps?limit=2").await?;
    let page = case.read(&next(&page, 2)).await?;
    same!(names(&page), ["c"]);
    has!(page["metadata"], { "continue": null, "remainingItemCount": null });
    Ok(())
}

async fn complete_page_has_no_continue_token(case: Case) -> Outcome {
    make_three(&case).await?;
    let page = case.read("configmaps?limit=3").await?;
    same!(names(&page), ["a", "b", "c"]);
    has!(page["metadata"], { "continue": null, "remainingItemCount": null });
    Ok(())
}

fn next(page: &Value, limit: usize) -> String {
    let token = page["metadata"]["continue"].as_str().unwrap_or_default();
    format!("configmaps?limit={limit}&continue={token}")
}

async fn all_pages_together_equal_the_list(case: Case) -> Outcome {
    for name in ["a", "a-b", "a.b", "ab", "b", "b0", "c"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let whole = case.read("configmaps").await?;
    let mut page = case.read("configmaps?limit=2").await?;
    let mut together = names(&page);
    while page["metadata"]["continue"].is_string() {
        page = case.read(&next(&page, 2)).await?;
        together.extend(names(&page));
    }
    same!(together, names(&whole));
    Ok(())
}

async fn later_pages_are_consistent_with_first_page(case: Case) -> Outcome {
    make_three(&case).await?;
    let page = case.read("configmaps?limit=1").await?;
    case.delete("configmaps/b").await?.is(200)?;
    case.make("configmaps", config_map("d")).await?;
    let page = case.read(&next(&page, 9)).await?;
    same!(names(&page), ["b", "c"]);
    Ok(())
}

async fn all_pages_have_the_version_of_the_first(case: Case) -> Outcome {
    make_three(&case).await?;
    let first = case.read("configmaps?limit=1").await?;
    case.make("configmaps", config_map("d")).await?;
    let second = case.read(&next(&first, 1)).await?;
    same!(version(&second), version(&first));
    Ok(())
}

async fn selector_omits_remaining_item_count(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", labeled(name, json!({ "app": "web" }))).await?;
    }
    let page = case.read("configmaps?limit=1&labelSelector=app=web").await?;
    same!(page["metadata"]["remainingItemCount"], Value::Null);
    anyhow::ensure!(page["metadata"]["continue"].is_string(), "no continuation");
    Ok(())
}

async fn invalid_continue_token_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?limit=1&continue=%21").await?;
    answer.expect_rejected_containing(400, "BadRequest", "continue key is not valid")?;
    Ok(())
}

async fn continue_token_with_version_is_rejected(case: Case) -> Outcome {
    make_three(&case).await?;
    let page = case.read("configmaps?limit=1").await?;
    let answer = case.get(&format!("{}&resourceVersion={}", next(&page, 1), version(&page))).await?;
    answer.expect_rejected(
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    )?;
    Ok(())
}

async fn limit_of_zero_means_no_limit(case: Case) -> Outcome {
    make_three(&case).await?;
    same!(names(&case.read("configmaps?limit=0").await?).len(), 3);
    Ok(())
}

async fn negative_limit_means_no_limit(case: Case) -> Outcome {
    make_three(&case).await?;
    same!(names(&case.read("configmaps?limit=-1").await?).len(), 3);
    Ok(())
}

async fn non_numeric_limit_is_rejected(case: Case) -> Outcome {
    case.get("configmaps?limit=x").await?.expect_rejected_with_reason(400, "BadRequest")?;
    Ok(())
}

async fn not_older_than_list_is_served(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let path = format!("configmaps?resourceVersionMatch=NotOlderThan&resourceVersion={}", version(&made));
    let list = case.read(&path).await?;
    same!(names(&list), ["a"]);
    anyhow::ensure!(revision(&list) >= revision(&made), "older");
    Ok(())
}

async fn exact_version_list_returns_past_state(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "later" } })).await?;
    case.make("configmaps", config_map("b")).await?;
    let path = format!("configmaps?resourceVersionMatch=Exact&resourceVersion={}", version(&made));
    let list = case.read(&path).await?;
    same!(names(&list), ["a"]);
    same!(version(&list), version(&made));
    same!(list["items"][0]["data"]["key"], "value");
    Ok(())
}

async fn list_with_limit_and_version_is_exact(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    let list = case.read(&format!("configmaps?limit=5&resourceVersion={}", version(&made))).await?;
    same!((names(&list), version(&list)), (vec!["a".to_owned()], version(&made)));
    Ok(())
}

async fn list_at_version_zero_is_served(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let there = |it: &crate::TestResponse| names(&it.body) == ["a"];
    let list = case.until("configmaps?resourceVersion=0", there).await?.body;
    anyhow::ensure!(revision(&list) > 0, "no version");
    Ok(())
}

async fn limit_at_version_zero_is_ignored(case: Case) -> Outcome {
    make_three(&case).await?;
    let whole = |it: &crate::TestResponse| names(&it.body).len() == 3;
    let list = case.until("configmaps?resourceVersion=0&limit=1", whole).await?.body;
    same!(list["metadata"]["continue"], Value::Null);
    Ok(())
}

async fn watch_and_a_list_agree_on_the_version(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    same!(version(&list["items"][0]), version(&made));
    let mut watch = case.watch("configmaps").await?;
    same!(version(&watch.expect("ADDED", "a").await?), version(&made));
    Ok(())
}

const MATCH: &str = "resourceVersionMatch";

fn invalid_options(field: &str, message: &str) -> (String, Value) {
    let whole = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {message}");
    let reason =
        if message.starts_with("Forbidden") { "FieldValueForbidden" } else { "FieldValueNotSupported" };
    let cause = json!({ "reason": reason, "message": message, "field": field });
    (whole, json!({ "group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause] }))
}

async fn exact_match_of_version_zero_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?resourceVersionMatch=Exact&resourceVersion=0").await?;
    let rule = "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
    let (message, details) = invalid_options(MATCH, rule);
    same!(answer.expect_rejected(422, "Invalid", &message)?, details);
    Ok(())
}

async fn match_rule_without_a_version_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?resourceVersionMatch=NotOlderThan").await?;
    let rule = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    let (message, details) = invalid_options(MATCH, rule);
    same!(answer.expect_rejected(422, "Invalid", &message)?, details);
    Ok(())
}

async fn unknown_match_rule_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?resourceVersionMatch=Like&resourceVersion=5").await?;
    let rule = "Unsupported value: \"Like\": supported values: \"Exact\", \"NotOlderThan\", \"\"";
    let (message, _) = invalid_options(MATCH, rule);
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn match_rule_with_continue_token_is_rejected(case: Case) -> Outcome {
    make_three(&case).await?;
    let page = case.read("configmaps?limit=1").await?;
    let path = format!("{}&resourceVersionMatch=Exact&resourceVersion=5", next(&page, 1));
    let rule = "Forbidden: resourceVersionMatch is forbidden when continue is provided";
    let (message, _) = invalid_options(MATCH, rule);
    case.get(&path).await?.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn initial_events_of_a_list_are_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?sendInitialEvents=true").await?;
    let (message, _) =
        invalid_options("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list");
    answer.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn list_at_future_version_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?resourceVersion=900000000").await?;
    let details = answer.expect_rejected_containing(
        504,
        "Timeout",
        "Too large resource version: 900000000, current: ",
    )?;
    has!(details, { "retryAfterSeconds": 1 });
    Ok(())
}

async fn list_at_non_numeric_version_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?resourceVersion=x").await?;
    answer.expect_rejected_containing(400, "BadRequest", "resourceVersion: Invalid value: \"x\"")?;
    Ok(())
}

async fn metadata_only_list_is_served(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = case.get_as(accept, "configmaps").await?.is(200)?;
    has!(list, { "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1" });
    has!(list["items"][0], { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "data": null,
        "metadata": { "name": "a" } });
    Ok(())
}

async fn namespaced_kind_is_listed_across_namespaces(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let list = case.read("/api/v1/configmaps").await?;
    let own = |it: &&Value| it["metadata"]["namespace"] == case.namespace.as_str();
    same!(list["items"].as_array().map(|items| items.iter().filter(own).count()), Some(1));
    Ok(())
}

async fn list_ignores_shard_selector(case: Case) -> Outcome {
    make_three(&case).await?;
    for selector in ["shardRange(object.metadata.uid,'0x0000000000000000','0x0000000000000001')", "nonsense"]
    {
        let list = case.read(&format!("configmaps?shardSelector={selector}")).await?;
        same!(names(&list), ["a", "b", "c"]);
        has!(list, { "metadata": { "shardInfo": null } });
    }
    Ok(())
}
