//! Lists and watches of a range of hashes, by servers with upstream's feature gate `ShardedListAndWatch`. The behavior
//! without the gate is tested with lists and watches.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use windlass_object::shard::hash;

use super::{
    objects::{config_map, labeled},
    widgets::{self, WIDGETS},
};
use crate::{
    Behavior, Case, Outcome, behaviors,
    check::{names, version},
    has, same,
};

pub(super) const ALL: &[Behavior] = behaviors![
    list_contains_only_the_shard,
    list_from_cache_contains_only_the_shard,
    list_at_exact_version_contains_only_the_shard,
    list_returns_shard_in_canonical_form,
    list_without_shard_returns_no_shard,
    list_of_custom_objects_is_sharded_and_returns_no_shard,
    metadata_only_list_is_sharded_and_returns_no_shard,
    table_list_is_sharded_and_returns_no_shard,
    several_ranges_are_one_shard,
    shard_can_be_selected_by_uid,
    cluster_scoped_objects_are_in_shard_of_empty_namespace,
    all_pages_together_equal_the_shard,
    remaining_item_count_includes_other_shards,
    labels_and_shard_must_both_match,
    watch_sends_only_events_of_the_shard,
    watch_sends_deletion_of_object_in_shard,
    initial_events_contain_only_the_shard,
    watch_without_version_sends_shard_first,
    watch_of_events_ignores_shard_and_list_honors_it,
    collection_delete_is_limited_to_the_shard,
    get_by_name_ignores_shard,
    malformed_selector_of_a_list_is_rejected,
    malformed_selector_of_a_watch_is_rejected,
];

const HALF: u64 = 1 << 63;

/// Returns one requirement of a selector.
fn range(field: &str, start: u64, end: u128) -> String {
    format!("shardRange(object.metadata.{field}, '{start:#018x}', '{end:#018x}')")
}

/// Returns the selector of a shard with exactly one namespace.
fn only(namespace: &str) -> String {
    let hash = hash(namespace);
    range("namespace", hash, u128::from(hash) + 1)
}

/// Returns a selector as a query parameter.
fn parameter(selector: &str) -> String {
    let encoded = selector.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    format!("shardSelector={}", encoded.collect::<String>())
}

/// Creates another namespace, and objects of these names in both namespaces, each labeled by the case.
async fn elsewhere(case: &Case, mine: &[&str], theirs: &[&str]) -> Result<String> {
    let other = case.unique("x");
    case.make("/api/v1/namespaces", json!({ "metadata": { "name": other } })).await?;
    for (namespace, names) in [(&case.namespace, mine), (&other, theirs)] {
        for name in names {
            let object = labeled(name, json!({ "of": case.namespace }));
            case.make(&format!("/api/v1/namespaces/{namespace}/configmaps"), object).await?;
        }
    }
    Ok(other)
}

/// Lists both shards of the objects that [`elsewhere`] creates, with `version` as a further part of the query.
async fn each_shard_has_its_objects(case: &Case, other: &str, version: &str) -> Outcome {
    let place = format!("/api/v1/configmaps?labelSelector=of={{ns}}{version}");
    for (namespace, expected) in [(case.namespace.as_str(), vec!["a", "b"]), (other, vec!["c"])] {
        let list = case.read(&format!("{place}&{}", parameter(&only(namespace)))).await?;
        same!(names(&list), expected);
        same!(list["metadata"]["shardInfo"], json!({ "selector": only(namespace) }));
    }
    Ok(())
}

async fn list_contains_only_the_shard(case: Case) -> Outcome {
    let other = elsewhere(&case, &["a", "b"], &["c"]).await?;
    each_shard_has_its_objects(&case, &other, "").await
}

async fn list_from_cache_contains_only_the_shard(case: Case) -> Outcome {
    let other = elsewhere(&case, &["a", "b"], &["c"]).await?;
    // The newest write: a cache at its version contains all of them.
    let at = version(&case.make("configmaps", config_map("now")).await?);
    each_shard_has_its_objects(
        &case,
        &other,
        &format!("&resourceVersion={at}&resourceVersionMatch=NotOlderThan"),
    )
    .await
}

async fn list_at_exact_version_contains_only_the_shard(case: Case) -> Outcome {
    elsewhere(&case, &["a"], &["b"]).await?;
    let at = version(&case.make("configmaps", labeled("c", json!({ "of": case.namespace }))).await?);
    let place = format!(
        "/api/v1/configmaps?labelSelector=of={{ns}}&resourceVersion={at}&resourceVersionMatch=Exact&{}",
        parameter(&only(&case.namespace))
    );
    same!(names(&case.read(&place).await?), ["a", "c"]);
    Ok(())
}

async fn list_returns_shard_in_canonical_form(case: Case) -> Outcome {
    let plain = only(&case.namespace);
    let odd = plain.replace(' ', "").replace('\'', "\"");
    for written in [format!("  {plain}\n"), format!("(({odd}))"), odd.replace('.', " . ")] {
        let list = case.read(&format!("configmaps?{}", parameter(&written))).await?;
        same!(list["metadata"]["shardInfo"], json!({ "selector": plain }));
    }
    Ok(())
}

async fn list_without_shard_returns_no_shard(case: Case) -> Outcome {
    for query in ["", "?shardSelector="] {
        has!(case.read(&format!("configmaps{query}")).await?, { "metadata": { "shardInfo": null } });
    }
    Ok(())
}

async fn list_of_custom_objects_is_sharded_and_returns_no_shard(case: Case) -> Outcome {
    widgets::make(&case, json!({ "size": 1 })).await?;
    for (selector, expected) in [(only(&case.namespace), vec!["a"]), (only("elsewhere"), vec![])] {
        let list = case.read(&format!("{WIDGETS}?{}", parameter(&selector))).await?;
        same!(names(&list), expected);
        has!(list, { "metadata": { "shardInfo": null } });
    }
    Ok(())
}

async fn metadata_only_list_is_sharded_and_returns_no_shard(case: Case) -> Outcome {
    elsewhere(&case, &["a"], &["b"]).await?;
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let place = format!("/api/v1/configmaps?labelSelector=of={{ns}}&{}", parameter(&only(&case.namespace)));
    let list = case.get_as(accept, &place).await?.is(200)?;
    same!(names(&list), ["a"]);
    has!(list, { "metadata": { "shardInfo": null } });
    Ok(())
}

async fn table_list_is_sharded_and_returns_no_shard(case: Case) -> Outcome {
    elsewhere(&case, &["a"], &["b"]).await?;
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let place = format!("/api/v1/configmaps?labelSelector=of={{ns}}&{}", parameter(&only(&case.namespace)));
    let list = case.get_as(accept, &place).await?.is(200)?;
    same!(list["rows"].as_array().map(Vec::len), Some(1));
    has!(list, { "metadata": { "shardInfo": null } });
    Ok(())
}

async fn several_ranges_are_one_shard(case: Case) -> Outcome {
    let other = elsewhere(&case, &["a"], &["b"]).await?;
    let both = format!("{} || {}", only(&other), only(&case.namespace));
    let list = case.read(&format!("/api/v1/configmaps?{}", parameter(&both))).await?;
    let ours = |it: &&Value| it["metadata"]["labels"]["of"] == case.namespace.as_str();
    same!(list["items"].as_array().map(|items| items.iter().filter(ours).count()), Some(2));
    // In the order of writing.
    same!(list["metadata"]["shardInfo"], json!({ "selector": both }));
    Ok(())
}

/// Creates objects in the case's namespace, and returns those in the lower half of the ring by UID.
async fn halved(case: &Case) -> Result<(Vec<String>, Vec<String>)> {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    // Until the lower half has enough objects, and the upper half has one.
    for number in 10..60 {
        let name = format!("n{number}");
        let made = case.make("configmaps", config_map(&name)).await?;
        let uid = made["metadata"]["uid"].as_str().context("a uid")?;
        if hash(uid) < HALF {
            lower.push(name);
        } else {
            upper.push(name);
            if lower.len() >= 3 && upper.len() >= 2 {
                break;
            }
        }
    }
    Ok((lower, upper))
}

async fn shard_can_be_selected_by_uid(case: Case) -> Outcome {
    let (lower, upper) = halved(&case).await?;
    let list = case.read(&format!("configmaps?{}", parameter(&range("uid", 0, HALF.into())))).await?;
    same!(names(&list), lower);
    let list = case.read(&format!("configmaps?{}", parameter(&range("uid", HALF, 1 << 64)))).await?;
    same!(names(&list), upper);
    Ok(())
}

async fn cluster_scoped_objects_are_in_shard_of_empty_namespace(case: Case) -> Outcome {
    let place = "/api/v1/namespaces?fieldSelector=metadata.name={ns}";
    for (selector, expected) in [(only(""), vec![case.namespace.clone()]), (only(&case.namespace), vec![])] {
        same!(names(&case.read(&format!("{place}&{}", parameter(&selector))).await?), expected);
    }
    Ok(())
}

async fn all_pages_together_equal_the_shard(case: Case) -> Outcome {
    let (lower, _) = halved(&case).await?;
    let place = format!("configmaps?limit=2&{}", parameter(&range("uid", 0, HALF.into())));
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let page = case.read(&format!("{place}&continue={next}")).await?;
        found.extend(names(&page));
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            break;
        }
    }
    same!(found, lower);
    Ok(())
}

async fn remaining_item_count_includes_other_shards(case: Case) -> Outcome {
    let (lower, upper) = halved(&case).await?;
    let place = format!("configmaps?limit=1&{}", parameter(&range("uid", 0, HALF.into())));
    let page = case.read(&place).await?;
    same!(names(&page), lower[..1]);
    same!(page["metadata"]["remainingItemCount"], json!(lower.len() + upper.len() - 1));
    Ok(())
}

async fn labels_and_shard_must_both_match(case: Case) -> Outcome {
    elsewhere(&case, &["a"], &["b"]).await?;
    case.make("configmaps", config_map("without")).await?;
    let place = format!("/api/v1/configmaps?labelSelector=of={{ns}}&{}", parameter(&only(&case.namespace)));
    same!(names(&case.read(&place).await?), ["a"]);
    Ok(())
}

/// Starts a watch over all namespaces, of the case's shard, from now on.
async fn watched(case: &Case, resource: &str) -> Result<crate::Watch> {
    let place = format!("/api/v1/{resource}");
    let from = version(&case.read(&format!("{place}?limit=1")).await?);
    case.watch(&format!("{place}?resourceVersion={from}&{}", parameter(&only(&case.namespace)))).await
}

async fn watch_sends_only_events_of_the_shard(case: Case) -> Outcome {
    let mut watch = watched(&case, "configmaps").await?;
    elsewhere(&case, &["mine"], &["theirs"]).await?;
    case.make("configmaps", config_map("last")).await?;
    watch.expect("ADDED", "mine").await?;
    watch.expect("ADDED", "last").await?;
    Ok(())
}

async fn watch_sends_deletion_of_object_in_shard(case: Case) -> Outcome {
    let other = elsewhere(&case, &["mine"], &["theirs"]).await?;
    let mut watch = watched(&case, "configmaps").await?;
    case.delete(&format!("/api/v1/namespaces/{other}/configmaps/theirs")).await?.is(200)?;
    case.merge("configmaps/mine", json!({ "data": { "key": "changed" } })).await?;
    case.delete("configmaps/mine").await?.is(200)?;
    watch.expect("MODIFIED", "mine").await?;
    watch.expect("DELETED", "mine").await?;
    Ok(())
}

async fn initial_events_contain_only_the_shard(case: Case) -> Outcome {
    elsewhere(&case, &["mine"], &["theirs"]).await?;
    let selector = parameter(&only(&case.namespace));
    let place = "/api/v1/configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = case.watch(&format!("{place}&{selector}")).await?;
    watch.expect("ADDED", "mine").await?;
    let end = watch.frame().await?.context("a bookmark")?;
    same!(end.kind, "BOOKMARK");
    has!(end.object, { "metadata": { "annotations": { "k8s.io/initial-events-end": "true" }, "shardInfo": null } });
    Ok(())
}

async fn watch_without_version_sends_shard_first(case: Case) -> Outcome {
    elsewhere(&case, &["mine"], &["theirs"]).await?;
    let mut watch = case.watch(&format!("/api/v1/configmaps?{}", parameter(&only(&case.namespace)))).await?;
    watch.expect("ADDED", "mine").await?;
    case.make("configmaps", config_map("next")).await?;
    watch.expect("ADDED", "next").await?;
    Ok(())
}

/// Returns an event as stored in `namespace`.
fn event(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": { "kind": "ConfigMap", "namespace": namespace, "name": "a" },
        "reason": "Told", "type": "Normal", "message": "it happened",
    })
}

async fn watch_of_events_ignores_shard_and_list_honors_it(case: Case) -> Outcome {
    let other = elsewhere(&case, &[], &[]).await?;
    let mut watch = watched(&case, "events").await?;
    let theirs = case.unique("theirs");
    case.make(&format!("/api/v1/namespaces/{other}/events"), event(&other, &theirs)).await?;
    case.make("events", event(&case.namespace, "mine")).await?;
    let mut seen = Vec::new();
    while !seen.contains(&json!("mine")) {
        seen.push(watch.change().await?.object["metadata"]["name"].clone());
    }
    anyhow::ensure!(seen.contains(&json!(theirs)), "only {seen:?} was delivered");
    let list = case.read(&format!("/api/v1/events?{}", parameter(&only(&case.namespace)))).await?;
    same!(names(&list), ["mine"]);
    Ok(())
}

async fn collection_delete_is_limited_to_the_shard(case: Case) -> Outcome {
    let (_, upper) = halved(&case).await?;
    case.delete(&format!("configmaps?{}", parameter(&range("uid", 0, HALF.into())))).await?.is(200)?;
    same!(names(&case.read("configmaps").await?), upper);
    Ok(())
}

async fn get_by_name_ignores_shard(case: Case) -> Outcome {
    case.make("configmaps", config_map("a")).await?;
    case.read(&format!("configmaps/a?{}", parameter(&only("elsewhere")))).await?;
    Ok(())
}

/// Invalid selectors and their error messages.
fn malformed() -> Vec<(String, &'static str)> {
    let (uid, namespace) = ("object.metadata.uid", "object.metadata.namespace");
    let call = |field: &str, start: &str, end: &str| format!("shardRange({field}, {start}, {end})");
    let (zero, half) = ("'0x0000000000000000'", "'0x8000000000000000'");
    vec![
        (" ".into(), "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        (
            call(uid, "'0x0'", half),
            "hexStart must be a 0x-prefixed 16-digit hex value, got \"0x0\" (did you mean \"0x0000000000000000\"?)",
        ),
        (
            call(uid, zero, "'0xff'"),
            "hexEnd must be a 0x-prefixed 16-digit hex value, got \"0xff\" (did you mean \"0x00000000000000ff\"?)",
        ),
        (call(uid, "'0'", half), "hexStart must have '0x' prefix, got \"0\""),
        (call(uid, "'0x'", half), "hexStart: hex value is required after '0x'"),
        (call(uid, "'0xAB'", half), "hexStart: invalid hex character \"A\" in \"0xAB\""),
        (
            call(uid, zero, "'0x20000000000000000'"),
            "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
        ),
        (
            call(uid, zero, "'0x000000000000000000'"),
            "hexEnd: hex value too long (18 chars, max 17): \"000000000000000000\"",
        ),
        (call(uid, "0", "8"), "hexStart must be a string literal, got int64"),
        (call(uid, "hex(0)", half), "hexStart must be a string literal (e.g. '0xff'), got expression kind 1"),
        (
            call(uid, half, half),
            "shard range start 0x8000000000000000 must be less than end 0x8000000000000000",
        ),
        (
            call("object.metadata.name", zero, half),
            "unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, object.metadata.namespace",
        ),
        (
            call("'uid'", zero, half),
            "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind 5",
        ),
        (format!("shardRange({uid}, {zero})"), "shardRange() requires exactly 3 arguments, got 2"),
        (format!("other({uid})"), "unsupported function \"other\"; only shardRange() and || are allowed"),
        (
            format!("{0} && {0}", call(uid, zero, half)),
            "unsupported function \"_&&_\"; only shardRange() and || are allowed",
        ),
        (uid.to_owned(), "unexpected expression kind 7; expected shardRange() call or || operator"),
        (
            format!("{} || {}", call(uid, zero, half), call(namespace, zero, half)),
            "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\"",
        ),
    ]
}

async fn malformed_selector_of_a_list_is_rejected(case: Case) -> Outcome {
    for (selector, why) in malformed() {
        let answer = case.get(&format!("configmaps?{}", parameter(&selector))).await?;
        answer.expect_rejected(500, "", &format!("invalid shard selector: {why}"))?;
    }
    let answer = case.get(&format!("configmaps?{}", parameter("shardRange("))).await?;
    answer.expect_rejected_containing(500, "", "invalid shard selector: CEL parse error: Syntax error: ")?;
    Ok(())
}

async fn malformed_selector_of_a_watch_is_rejected(case: Case) -> Outcome {
    let (selector, why) = malformed().swap_remove(1);
    let answer = case.get(&format!("configmaps?watch=true&{}", parameter(&selector))).await?;
    answer.expect_rejected(500, "", &format!("invalid shard selector: {why}"))?;
    Ok(())
}
