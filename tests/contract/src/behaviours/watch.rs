//! Watches: start, events and end.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::objects::{config_map, labelled, pod, pod_on_node};
use crate::{
    Behavior, Case, Outcome, Watch, behaviours,
    check::{revision, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviours![
    a_watch_from_a_version_tells_what_came_after,
    a_watch_without_a_version_begins_with_what_is_there,
    a_watch_from_version_zero_begins_with_what_is_there,
    changes_come_in_the_order_of_their_versions,
    frames_have_whole_objects,
    a_deletion_has_the_version_of_the_deletion_and_the_last_state,
    a_deletion_has_a_higher_version_than_the_last_change,
    a_write_that_changes_nothing_is_not_told,
    an_object_that_begins_to_match_is_added,
    an_object_that_ceases_to_match_is_deleted,
    an_object_that_ceases_to_match_is_told_as_it_was_with_the_new_version,
    an_object_that_never_matches_is_not_told,
    an_object_that_crosses_a_field_selector_is_added_and_deleted,
    one_object_can_be_watched_by_name,
    the_old_watch_path_of_an_object_is_understood,
    the_old_watch_path_is_understood,
    a_watch_of_all_namespaces_tells_of_each,
    a_watch_of_a_namespace_tells_of_no_other,
    a_watch_ends_when_its_timeout_is_over,
    bookmarks_come_when_asked_for,
    no_bookmarks_come_unasked,
    a_bookmark_has_a_version_and_nothing_else,
    initial_events_end_with_a_marked_bookmark,
    initial_events_may_be_declined,
    initial_events_of_an_empty_collection_are_the_bookmark,
    the_bookmark_after_initial_events_is_at_least_as_new_as_the_last_write,
    initial_events_go_on_with_changes,
    initial_events_of_metadata_only_end_with_a_bookmark_of_metadata,
    initial_events_need_a_match_rule,
    initial_events_match_only_not_older_than,
    a_match_rule_needs_initial_events,
    a_watch_from_a_version_that_is_no_number_is_refused,
    a_watch_of_metadata_only,
    a_watch_of_tables,
    a_watch_speaks_json_in_lines,
    a_change_of_status_is_told,
    a_watch_from_the_version_of_a_list_misses_nothing,
    a_watch_by_post_path_that_does_not_exist_is_refused,
    a_shard_is_passed_over_by_a_watch,
];

/// Checks that no event precedes: the next frame is for an object that is created now.
async fn nothing_before(case: &Case, watch: &mut Watch, mark: &str) -> Outcome {
    case.make("configmaps", labelled(mark, json!({ "app": "web" }))).await?;
    watch.expect("ADDED", mark).await?;
    Ok(())
}

async fn from_now(case: &Case, query: &str) -> anyhow::Result<Watch> {
    let now = version(&case.read("configmaps").await?);
    case.watch(&format!("configmaps?resourceVersion={now}{query}")).await
}

async fn a_watch_from_a_version_tells_what_came_after(case: Case) -> Outcome {
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

async fn a_watch_without_a_version_begins_with_what_is_there(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    let mut watch = case.watch("configmaps").await?;
    same!(watch.expect("ADDED", "a").await?["data"]["key"], "new");
    nothing_before(&case, &mut watch, "mark").await
}

async fn a_watch_from_version_zero_begins_with_what_is_there(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.until("configmaps/a?resourceVersion=0", |it| it.status == 200).await?;
    let mut watch = case.watch("configmaps?resourceVersion=0").await?;
    watch.expect("ADDED", "a").await?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn changes_come_in_the_order_of_their_versions(case: Case) -> Outcome {
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

async fn frames_have_whole_objects(case: Case) -> Outcome {
    let mut watch = from_now(&case, "").await?;
    let made = case.make("configmaps", config_map("a")).await?;
    same!(watch.expect("ADDED", "a").await?, made);
    Ok(())
}

async fn a_deletion_has_the_version_of_the_deletion_and_the_last_state(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut watch = from_now(&case, "").await?;
    case.delete("configmaps/a").await?.is(200)?;
    let after = case.make("configmaps", config_map("b")).await?;
    let gone = watch.expect("DELETED", "a").await?;
    has!(gone, { "data": { "key": "value" }, "metadata": { "uid": made["metadata"]["uid"] } });
    anyhow::ensure!(revision(&made) < revision(&gone) && revision(&gone) < revision(&after), "{gone}");
    Ok(())
}

async fn a_deletion_has_a_higher_version_than_the_last_change(case: Case) -> Outcome {
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

async fn a_write_that_changes_nothing_is_not_told(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut watch = from_now(&case, "").await?;
    same!(version(&case.replace("configmaps/a", made.clone()).await?), version(&made));
    nothing_before(&case, &mut watch, "mark").await
}

const WEB: &str = "&labelSelector=app=web";

async fn an_object_that_begins_to_match_is_added(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = from_now(&case, WEB).await?;
    let merged = case.merge("configmaps/a", json!({ "metadata": { "labels": { "app": "web" } } })).await?;
    same!(watch.expect("ADDED", "a").await?, merged);
    Ok(())
}

async fn an_object_that_ceases_to_match_is_deleted(case: Case) -> Outcome {
    case.make("configmaps", labelled("a", json!({ "app": "web" }))).await?;
    let mut watch = from_now(&case, WEB).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    case.merge("configmaps/a", json!({ "metadata": { "labels": { "app": "db" } } })).await?;
    watch.expect("MODIFIED", "a").await?;
    watch.expect("DELETED", "a").await?;
    Ok(())
}

async fn an_object_that_ceases_to_match_is_told_as_it_was_with_the_new_version(case: Case) -> Outcome {
    case.make("configmaps", labelled("a", json!({ "app": "web" }))).await?;
    let mut watch = from_now(&case, WEB).await?;
    let patch = json!({ "metadata": { "labels": { "app": "db" } }, "data": { "key": "new" } });
    let merged = case.merge("configmaps/a", patch).await?;
    let gone = watch.expect("DELETED", "a").await?;
    has!(gone, { "metadata": { "labels": { "app": "web" } }, "data": { "key": "value" } });
    same!(version(&gone), version(&merged));
    Ok(())
}

async fn an_object_that_never_matches_is_not_told(case: Case) -> Outcome {
    let mut watch = from_now(&case, WEB).await?;
    case.make("configmaps", config_map("a")).await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    case.delete("configmaps/a").await?.is(200)?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn an_object_that_crosses_a_field_selector_is_added_and_deleted(case: Case) -> Outcome {
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

async fn one_object_can_be_watched_by_name(case: Case) -> Outcome {
    let mut watch = from_now(&case, "&fieldSelector=metadata.name=b").await?;
    case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn the_old_watch_path_of_an_object_is_understood(case: Case) -> Outcome {
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

async fn the_old_watch_path_is_understood(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch("/api/v1/watch/namespaces/{ns}/configmaps").await?;
    watch.expect("ADDED", "a").await?;
    Ok(())
}

async fn a_watch_of_all_namespaces_tells_of_each(case: Case) -> Outcome {
    let mut watch = case.watch("/api/v1/configmaps?labelSelector=in={ns}").await?;
    case.make("configmaps", labelled("a", json!({ "in": case.namespace }))).await?;
    let other = labelled("b", json!({ "in": case.namespace }));
    let path = format!("/api/v1/namespaces/{}/configmaps", case.unique("other"));
    case.make("/api/v1/namespaces", json!({ "metadata": { "name": case.unique("other") } })).await?;
    case.make(&path, other).await?;
    watch.expect("ADDED", "a").await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn a_watch_of_a_namespace_tells_of_no_other(case: Case) -> Outcome {
    let mut watch = from_now(&case, "").await?;
    let name = case.unique("a");
    case.make("/api/v1/namespaces/default/configmaps", config_map(&name)).await?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn a_watch_ends_when_its_timeout_is_over(case: Case) -> Outcome {
    let begun = Instant::now();
    let mut watch = from_now(&case, "&timeoutSeconds=1").await?;
    same!(watch.rest().await?, []);
    anyhow::ensure!(begun.elapsed() >= Duration::from_secs(1), "after {:?}", begun.elapsed());
    Ok(())
}

async fn bookmarks_come_when_asked_for(case: Case) -> Outcome {
    // A bookmark arrives shortly before the timeout. kube-apiserver aims at two seconds before it, and a busy machine
    // can need longer to start.
    let mut watch = from_now(&case, "&allowWatchBookmarks=true&timeoutSeconds=10").await?;
    let made = case.make("configmaps", config_map("a")).await?;
    let frames = watch.rest().await?;
    let bookmark = frames.iter().rev().find(|frame| frame.kind == "BOOKMARK");
    anyhow::ensure!(bookmark.is_some_and(|it| revision(&it.object) >= revision(&made)), "{frames:?}");
    Ok(())
}

async fn no_bookmarks_come_unasked(case: Case) -> Outcome {
    let mut watch = from_now(&case, "&timeoutSeconds=10").await?;
    case.make("configmaps", config_map("a")).await?;
    let kinds: Vec<String> = watch.rest().await?.into_iter().map(|frame| frame.kind).collect();
    same!(kinds, ["ADDED"]);
    Ok(())
}

async fn a_bookmark_has_a_version_and_nothing_else(case: Case) -> Outcome {
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

async fn initial_events_end_with_a_marked_bookmark(case: Case) -> Outcome {
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

async fn initial_events_may_be_declined(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let query = "sendInitialEvents=false&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = case.watch(&format!("configmaps?{query}")).await?;
    nothing_before(&case, &mut watch, "mark").await
}

async fn initial_events_of_an_empty_collection_are_the_bookmark(case: Case) -> Outcome {
    let mut watch = case.watch(&format!("configmaps?{INITIAL}")).await?;
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    same!(end.object["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    has!(end.object, { "kind": "ConfigMap", "apiVersion": "v1" });
    Ok(())
}

async fn the_bookmark_after_initial_events_is_at_least_as_new_as_the_last_write(case: Case) -> Outcome {
    let made = case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch(&format!("configmaps?{INITIAL}")).await?;
    watch.expect("ADDED", "a").await?;
    let Some(end) = watch.frame().await? else { anyhow::bail!("ended") };
    anyhow::ensure!(revision(&end.object) >= revision(&made), "{end:?}");
    Ok(())
}

async fn initial_events_go_on_with_changes(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let mut watch = case.watch(&format!("configmaps?{INITIAL}")).await?;
    watch.expect("ADDED", "a").await?;
    case.merge("configmaps/a", json!({ "data": { "key": "new" } })).await?;
    watch.expect("MODIFIED", "a").await?;
    Ok(())
}

async fn initial_events_of_metadata_only_end_with_a_bookmark_of_metadata(case: Case) -> Outcome {
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

async fn initial_events_need_a_match_rule(case: Case) -> Outcome {
    let answer = case.get("configmaps?watch=true&sendInitialEvents=true").await?;
    let rule = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    answer.refused(422, "Invalid", &invalid_options(rule))?;
    Ok(())
}

async fn initial_events_match_only_not_older_than(case: Case) -> Outcome {
    let path = "configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5";
    let rule = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let message = invalid_options(&format!(
        "[{rule}, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]"
    ));
    case.get(path).await?.refused(422, "Invalid", &message)?;
    Ok(())
}

async fn a_match_rule_needs_initial_events(case: Case) -> Outcome {
    let answer =
        case.get("configmaps?watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=5").await?;
    let rule = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    answer.refused(422, "Invalid", &invalid_options(rule))?;
    Ok(())
}

async fn a_watch_from_a_version_that_is_no_number_is_refused(case: Case) -> Outcome {
    let answer = case.get("configmaps?watch=true&resourceVersion=x").await?;
    let message = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    answer.refused(500, "", message)?;
    Ok(())
}

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

async fn a_watch_of_metadata_only(case: Case) -> Outcome {
    let mut watch = case.watch_as(METADATA, "configmaps").await?;
    case.make("configmaps", config_map("a")).await?;
    has!(watch.expect("ADDED", "a").await?, { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "data": null });
    Ok(())
}

async fn a_watch_of_tables(case: Case) -> Outcome {
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

async fn a_watch_speaks_json_in_lines(case: Case) -> Outcome {
    let watch = case.watch("configmaps").await?;
    same!(watch.headers.get("content-type").and_then(|it| it.to_str().ok()), Some("application/json"));
    Ok(())
}

async fn a_change_of_status_is_told(case: Case) -> Outcome {
    case.make("pods", pod("a")).await?;
    let now = version(&case.read("pods").await?);
    let mut watch = case.watch(&format!("pods?resourceVersion={now}")).await?;
    case.merge("pods/a/status", json!({ "status": { "phase": "Running" } })).await?;
    same!(watch.expect("MODIFIED", "a").await?["status"]["phase"], "Running");
    Ok(())
}

async fn a_watch_from_the_version_of_a_list_misses_nothing(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    let list = case.read("configmaps").await?;
    case.make("configmaps", config_map("b")).await?;
    case.delete("configmaps/b").await?.is(200)?;
    let mut watch = case.watch(&format!("configmaps?resourceVersion={}", version(&list))).await?;
    watch.expect("ADDED", "b").await?;
    watch.expect("DELETED", "b").await?;
    Ok(())
}

async fn a_watch_by_post_path_that_does_not_exist_is_refused(case: Case) -> Outcome {
    case.get("nothings?watch=true").await?.is(404)?;
    Ok(())
}

async fn a_shard_is_passed_over_by_a_watch(case: Case) -> Outcome {
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
