//! Watches: start, events and end.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::objects::{config_map, labeled, pod, pod_on_node};
use crate::{
    Behavior, Case, Outcome, Watch, behaviors,
    check::{revision, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    watch_from_version_sends_later_events,
    watch_without_version_sends_existing_objects_first,
    watch_from_version_zero_sends_existing_objects_first,
    events_are_sent_in_version_order,
    watch_frames_contain_whole_objects,
    deletion_event_has_last_state_and_version_of_deletion,
    deletion_event_has_higher_version_than_last_change,
    write_without_change_sends_no_event,
    object_that_starts_to_match_sends_added_event,
    object_that_stops_matching_sends_deleted_event,
    deselection_event_has_old_state_and_new_version,
    object_that_never_matches_sends_no_event,
    object_crossing_field_selector_sends_added_and_deleted,
    single_object_can_be_watched_by_name,
    deprecated_watch_path_of_object_is_supported,
    deprecated_watch_path_is_supported,
    watch_of_all_namespaces_sends_events_of_each,
    watch_of_namespace_sends_no_events_of_others,
    watch_ends_after_its_timeout,
    bookmarks_are_sent_when_requested,
    bookmarks_are_not_sent_unless_requested,
    bookmark_contains_only_version,
    initial_events_end_with_a_terminating_bookmark,
    initial_events_can_be_disabled,
    initial_events_of_empty_collection_are_only_a_bookmark,
    bookmark_after_initial_events_is_not_older_than_last_write,
    initial_events_are_followed_by_changes,
    metadata_only_initial_events_end_with_metadata_bookmark,
    initial_events_require_match_rule,
    initial_events_require_not_older_than,
    match_rule_requires_initial_events,
    watch_from_non_numeric_version_is_rejected,
    metadata_only_watch_is_served,
    watch_of_tables_is_served,
    watch_frames_are_json_lines,
    status_change_sends_event,
    watch_from_the_version_of_a_list_misses_nothing,
    watch_of_missing_resource_is_rejected,
    watch_ignores_shard_selector,
];

/// Checks that no event precedes: the next frame is for an object that is created now.
async fn nothing_before(case: &Case, watch: &mut Watch, mark: &str) -> Outcome {
    case.make("configmaps", labeled(mark, json!({ "app": "web" }))).await?;
    watch.expect("ADDED", mark).await?;
    Ok(())
}

async fn from_now(case: &Case, query: &str) -> anyhow::Result<Watch> {
    let now = version(&case.read("configmaps").await?);
    case.watch(&format!("configmaps?resourceVersion={now}{query}")).await
}

async fn watch_from_version_sends_later_events(case: Case) -> Outcome {
    let first = case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    let mut watch = case.watch(&format!("configmaps?resourceVersion={}", version(&first))).await?;
    watch.expect("ADDED", "b").await?;
    watch.expect("MODIFIED", "a").await?;
    case.delete("configmaps/a").await?.is(200)?;
    watch.expect("DELETED", "a").await?;
    Ok(())
}

async fn watch_without_version_sends_existing_objects_first(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    let mut watch = case.watch("configmaps").await?;
    same!(watch.expect("ADDED", "a").await?["data"]["key"], "new");
    nothing_before(&case, &mut watch, "mark").await
}

async fn watch_from_version_zero_sends_existing_objects_first(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.until("configmaps/a?resourceVersion=0", |it| it.status == 200).await?;
    let mut watch = case.watch("configmaps?resourceVersion=0").await?;
    watch.expect("ADDED", "a").await?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn events_are_sent_in_version_order(case: Case) -> Outcome {
    let mut watch = from_now(&case, "").await?;
    for name in ["c", "a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let (c, a, b) = (
        watch.expect("ADDED", "c").await?,
        watch.expect("ADDED", "a").await?,
        watch.expect("ADDED", "b").await?,
    );
    anyhow::ensure!(revision(&c) < revision(&a) && revision(&a) < revision(&b), "out of order");
    Ok(())
}

async fn watch_frames_contain_whole_objects(case: Case) -> Outcome {
    let mut watch = from_now(&case, "").await?;
    let made = case.make("configmaps", config_map("a")).await?;
    same!(watch.expect("ADDED", "a").await?, made);
    Ok(())
}

async fn deletion_event_has_last_state_and_version_of_deletion(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut watch = from_now(&case, "").await?;
    case.delete("configmaps/a").await?.is(200)?;
    let after = case.make("configmaps", config_map("b")).await?;
    let gone = watch.expect("DELETED", "a").await?;
    has!(gone, { "data": { "key": "value" }, "metadata": { "uid": made["metadata"]["uid"] } });
    anyhow::ensure!(revision(&made) < revision(&gone) && revision(&gone) < revision(&after), "{gone}");
    Ok(())
}

async fn deletion_event_has_higher_version_than_last_change(case: Case) -> Outcome {
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    case.make("configmaps", held).await?;
    let mut watch = from_now(&case, "").await?;
    case.delete("configmaps/a").await?.is(200)?;
    let marked = watch.expect("MODIFIED", "a").await?;
    case.merge("configmaps/a", json!({ "metadata": { "finalizers": null } })).await?;
    let gone = watch.expect("DELETED", "a").await?;
    anyhow::ensure!(revision(&marked) < revision(&gone), "{marked} {gone}");
    same!(gone["metadata"]["finalizers"], json!(["example.com/hold"]));
    Ok(())
}

async fn write_without_change_sends_no_event(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut watch = from_now(&case, "").await?;
    same!(version(&case.replace("configmaps/a", made.clone()).await?), version(&made));
    nothing_before(&case, &mut watch, "mark").await
}

const WEB: &str = "&labelSelector=app=web";

async fn object_that_starts_to_match_sends_added_event(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = from_now(&case, WEB).await?;
    let merged = case.merge("configmaps/a", json!({ "metadata": { "labels": { "app": "web" } } })).await?;
    same!(watch.expect("ADDED", "a").await?, merged);
    Ok(())
}

async fn object_that_stops_matching_sends_deleted_event(case: Case) -> Outcome {
    case.make("configmaps", labeled("a", json!({ "app": "web" }))).await?;
    let mut watch = from_now(&case, WEB).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    case.merge("configmaps/a", json!({ "metadata": { "labels": { "app": "db" } } })).await?;
    watch.expect("MODIFIED", "a").await?;
    watch.expect("DELETED", "a").await?;
    Ok(())
}

async fn deselection_event_has_old_state_and_new_version(case: Case) -> Outcome {
    case.make("configmaps", labeled("a", json!({ "app": "web" }))).await?;
    let mut watch = from_now(&case, WEB).await?;
    let patch = json!({ "metadata": { "labels": { "app": "db" } }, "data": { "key": "new" } });
    let merged = case.merge("configmaps/a", patch).await?;
    let gone = watch.expect("DELETED", "a").await?;
    has!(gone, { "metadata": { "labels": { "app": "web" } }, "data": { "key": "value" } });
    same!(version(&gone), version(&merged));
    Ok(())
}

async fn object_that_never_matches_sends_no_event(case: Case) -> Outcome {
    let mut watch = from_now(&case, WEB).await?;
    case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    case.delete("configmaps/a").await?.is(200)?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn object_crossing_field_selector_sends_added_and_deleted(case: Case) -> Outcome {
    let now = version(&case.read("pods").await?);
    let path = format!("pods?resourceVersion={now}&fieldSelector=status.phase=Running");
    let mut watch = case.watch(&path).await?;
    case.make("pods", pod_on_node("a")).await?;
    case.merge("pods/a/status", json!({ "status": { "phase": "Running" } })).await?;
    watch.expect("ADDED", "a").await?;
    case.merge("pods/a/status", json!({ "status": { "phase": "Succeeded" } })).await?;
    watch.expect("DELETED", "a").await?;
    Ok(())
}

async fn single_object_can_be_watched_by_name(case: Case) -> Outcome {
    let mut watch = from_now(&case, "&fieldSelector=metadata.name=b").await?;
    case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn deprecated_watch_path_of_object_is_supported(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let mut watch = case.watch("/api/v1/watch/namespaces/{ns}/configmaps/b").await?;
    watch.expect("ADDED", "b").await?;
    case.delete("configmaps/a").await?.is(200)?;
    case.delete("configmaps/b").await?.is(200)?;
    watch.expect("DELETED", "b").await?;
    Ok(())
}

async fn deprecated_watch_path_is_supported(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch("/api/v1/watch/namespaces/{ns}/configmaps").await?;
    watch.expect("ADDED", "a").await?;
    Ok(())
}

async fn watch_of_all_namespaces_sends_events_of_each(case: Case) -> Outcome {
    let mut watch = case.watch("/api/v1/configmaps?labelSelector=in={ns}").await?;
    case.make("configmaps", labeled("a", json!({ "in": case.namespace }))).await?;
    let other = labeled("b", json!({ "in": case.namespace }));
    let path = format!("/api/v1/namespaces/{}/configmaps", case.unique("other"));
    case.make("/api/v1/namespaces", json!({ "metadata": { "name": case.unique("other") } })).await?;
    case.make(&path, other).await?;
    watch.expect("ADDED", "a").await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn watch_of_namespace_sends_no_events_of_others(case: Case) -> Outcome {
    let mut watch = from_now(&case, "").await?;
    let name = case.unique("a");
    case.make("/api/v1/namespaces/default/configmaps", config_map(&name)).await?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn watch_ends_after_its_timeout(case: Case) -> Outcome {
    let begun = Instant::now();
    let mut watch = from_now(&case, "&timeoutSeconds=1").await?;
    same!(watch.rest().await?, []);
    anyhow::ensure!(begun.elapsed() >= Duration::from_secs(1), "after {:?}", begun.elapsed());
    Ok(())
}

async fn bookmarks_are_sent_when_requested(case: Case) -> Outcome {
    // A bookmark arrives shortly before the timeout. kube-apiserver aims at two seconds before it, and a busy machine
    // can need longer to start.
    let mut watch = from_now(&case, "&allowWatchBookmarks=true&timeoutSeconds=10").await?;
    let made = case.make("configmaps", config_map("a")).await?;
    let frames = watch.rest().await?;
    let bookmark = frames.iter().rev().find(|frame| frame.kind == "BOOKMARK");
    anyhow::ensure!(bookmark.is_some_and(|it| revision(&it.object) >= revision(&made)), "{frames:?}");
    Ok(())
}

async fn bookmarks_are_not_sent_unless_requested(case: Case) -> Outcome {
    let mut watch = from_now(&case, "&timeoutSeconds=10").await?;
    case.make("configmaps", config_map("a")).await?;
    let kinds: Vec<String> = watch.rest().await?.into_iter().map(|frame| frame.kind).collect();
    same!(kinds, ["ADDED"]);
    Ok(())
}

async fn bookmark_contains_only_version(case: Case) -> Outcome {
    let mut watch = from_now(&case, "&allowWatchBookmarks=true&timeoutSeconds=10").await?;
    // The bookmark reports only the progress of other writes: without any write, none might be sent.
    case.make("/api/v1/namespaces/default/configmaps", config_map(&case.unique("mark"))).await?;
    let frames = watch.rest().await?;
    let Some(bookmark) = frames.last() else { anyhow::bail!("no bookmark") };
    let version = version(&bookmark.object);
    let expected = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "resourceVersion": version, "creationTimestamp": null } });
    let mut object = bookmark.object.clone();
    object["metadata"]["creationTimestamp"] = json!(null);
    same!(object, expected);
    Ok(())
}

const INITIAL: &str = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

async fn initial_events_end_with_a_terminating_bookmark(case: Case) -> Outcome {
    for name in ["a", "b"] {
        case.make("configmaps", config_map(name)).await?;
    }
    let mut watch = case.watch(&format!("configmaps?{INITIAL}")).await?;
    watch.expect("ADDED", "a").await?;
    watch.expect("ADDED", "b").await?;
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    same!(end.kind, "BOOKMARK");
    same!(end.object["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    Ok(())
}

async fn initial_events_can_be_disabled(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let query = "sendInitialEvents=false&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = case.watch(&format!("configmaps?{query}")).await?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn initial_events_of_empty_collection_are_only_a_bookmark(case: Case) -> Outcome {
    let mut watch = case.watch(&format!("configmaps?{INITIAL}")).await?;
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    same!(end.object["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    has!(end.object, { "kind": "ConfigMap", "apiVersion": "v1" });
    Ok(())
}

async fn bookmark_after_initial_events_is_not_older_than_last_write(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch(&format!("configmaps?{INITIAL}")).await?;
    watch.expect("ADDED", "a").await?;
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    anyhow::ensure!(revision(&end.object) >= revision(&made), "{end:?}");
    Ok(())
}

async fn initial_events_are_followed_by_changes(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch(&format!("configmaps?{INITIAL}")).await?;
    watch.expect("ADDED", "a").await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    watch.expect("MODIFIED", "a").await?;
    Ok(())
}

async fn metadata_only_initial_events_end_with_metadata_bookmark(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch_as(METADATA, &format!("configmaps?{INITIAL}")).await?;
    has!(watch.expect("ADDED", "a").await?, { "kind": "PartialObjectMetadata", "data": null });
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    has!(end.object, { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "annotations": { "k8s.io/initial-events-end": "true" } } });
    Ok(())
}

fn invalid_options(rest: &str) -> String {
    format!("ListOptions.meta.k8s.io \"\" is invalid: {rest}")
}

async fn initial_events_require_match_rule(case: Case) -> Outcome {
    let answer = case.get("configmaps?watch=true&sendInitialEvents=true").await?;
    let rule = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    answer.expect_rejected(422, "Invalid", &invalid_options(rule))?;
    Ok(())
}

async fn initial_events_require_not_older_than(case: Case) -> Outcome {
    let path = "configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5";
    let rule = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let message = invalid_options(&format!(
        "[{rule}, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]"
    ));
    case.get(path).await?.expect_rejected(422, "Invalid", &message)?;
    Ok(())
}

async fn match_rule_requires_initial_events(case: Case) -> Outcome {
    let answer =
        case.get("configmaps?watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=5").await?;
    let rule = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    answer.expect_rejected(422, "Invalid", &invalid_options(rule))?;
    Ok(())
}

async fn watch_from_non_numeric_version_is_rejected(case: Case) -> Outcome {
    let answer = case.get("configmaps?watch=true&resourceVersion=x").await?;
    let message = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    answer.expect_rejected(500, "", message)?;
    Ok(())
}

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

async fn metadata_only_watch_is_served(case: Case) -> Outcome {
    let mut watch = case.watch_as(METADATA, "configmaps").await?;
    case.make("configmaps", config_map("a")).await?;
    has!(watch.expect("ADDED", "a").await?, { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "data": null });
    Ok(())
}

async fn watch_of_tables_is_served(case: Case) -> Outcome {
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let mut watch = case.watch_as(accept, "pods").await?;
    case.make("pods", pod("a")).await?;
    case.make("pods", pod("b")).await?;
    let first = watch.change().await?.object;
    has!(first, { "kind": "Table", "apiVersion": "meta.k8s.io/v1" });
    same!(first["rows"][0]["cells"][0], "a");
    anyhow::ensure!(first["columnDefinitions"][0]["name"] == "Name", "no columns in {first}");
    let second = watch.change().await?.object;
    same!(second["rows"][0]["cells"][0], "b");
    same!(second["columnDefinitions"], json!(null));
    Ok(())
}

async fn watch_frames_are_json_lines(case: Case) -> Outcome {
    let watch = case.watch("configmaps").await?;
    same!(watch.headers.get("content-type").and_then(|it| it.to_str().ok()), Some("application/json"));
    Ok(())
}

async fn status_change_sends_event(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let now = version(&case.read("pods").await?);
    let mut watch = case.watch(&format!("pods?resourceVersion={now}")).await?;
    case.merge("pods/a/status", json!({ "status": { "phase": "Running" } })).await?;
    same!(watch.expect("MODIFIED", "a").await?["status"]["phase"], "Running");
    Ok(())
}

async fn watch_from_the_version_of_a_list_misses_nothing(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    case.make("configmaps", config_map("b")).await?;
    case.delete("configmaps/b").await?.is(200)?;
    let mut watch = case.watch(&format!("configmaps?resourceVersion={}", version(&list))).await?;
    watch.expect("ADDED", "b").await?;
    watch.expect("DELETED", "b").await?;
    Ok(())
}

async fn watch_of_missing_resource_is_rejected(case: Case) -> Outcome {
    case.get("nothings?watch=true").await?.is(404)?;
    Ok(())
}

async fn watch_ignores_shard_selector(case: Case) -> Outcome {
    for (selector, name) in [
        ("shardRange(object.metadata.uid,'0x0000000000000000','0x0000000000000001')", "a"),
        ("nonsense", "b"),
    ] {
        let from = version(&case.read("configmaps").await?);
        let mut watch =
            case.watch(&format!("configmaps?resourceVersion={from}&shardSelector={selector}")).await?;
        case.make("configmaps", config_map(name)).await?;
        watch.expect("ADDED", name).await?;
    }
    Ok(())
}
