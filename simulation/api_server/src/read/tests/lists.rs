use std::time::Duration;

use serde_json::json;

use super::*;
use crate::storage::MemoryOptions;

fn options(resource_version: &str, matching: &str, limit: u64) -> ListOptions {
    ListOptions {
        limit,
        resource_version: resource_version.to_owned(),
        resource_version_match: matching.to_owned(),
        ..ListOptions::default()
    }
}

fn continued(token: &str, limit: u64) -> ListOptions {
    ListOptions { limit, continue_: token.to_owned(), ..ListOptions::default() }
}

fn names(listed: &ListResponse) -> Vec<String> {
    listed.items.iter().map(|it| it.key.to_string()).collect()
}

fn listed(world: &World, options: &ListOptions) -> ListResponse {
    list(&world.view, &pods(), &Selection::default(), options).unwrap()
}

fn refused(world: &World, options: &ListOptions) -> crate::Status {
    list(&world.view, &pods(), &Selection::default(), options).unwrap_err()
}

/// Creates pods a to e, at the revisions 2 to 6.
fn five() -> World {
    let world = World::new();
    for name in ["a", "b", "c", "d", "e"] {
        world.put(name, &json!({"name": name}));
    }
    world
}

#[tokio::test(start_paused = true)]
async fn version_and_match_determine_the_listed_revision() {
    let world = five();
    world.elsewhere();
    // (version, match, limit) and (revision, number of items, whether there is more)
    let cases = [
        (("", "", 0), (7, 5, false)),
        (("", "", 2), (7, 2, true)),
        (("0", "", 0), (7, 5, false)),
        (("0", "", 2), (7, 5, false)),
        (("0", "NotOlderThan", 2), (7, 5, false)),
        (("3", "", 0), (7, 5, false)),
        (("3", "", 1), (3, 1, true)),
        (("3", "NotOlderThan", 0), (7, 5, false)),
        (("3", "NotOlderThan", 2), (7, 2, true)),
        (("3", "Exact", 0), (3, 2, false)),
        (("1", "Exact", 0), (1, 0, false)),
        (("7", "Exact", 5), (7, 5, false)),
    ];
    for ((version, matching, limit), expected) in cases {
        let listed = listed(&world, &options(version, matching, limit));
        let found = (listed.revision, listed.items.len(), listed.continue_.is_some());
        assert_eq!(found, expected, "version {version:?}, match {matching:?}, limit {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_list_options_get_upstream_messages() {
    let world = five();
    let token = listed(&world, &options("", "", 2)).continue_.unwrap();
    let of = r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: "#;
    let cases = [
        (
            options("", "Exact", 0),
            422,
            format!("{of}Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ),
        (
            options("0", "Exact", 0),
            422,
            format!(r#"{of}Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#),
        ),
        (
            options("3", "Newest", 0),
            422,
            format!(r#"{of}Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", """#),
        ),
        (
            ListOptions { continue_: token.clone(), ..options("3", "Exact", 0) },
            422,
            format!("{of}Forbidden: resourceVersionMatch is forbidden when continue is provided"),
        ),
        (
            ListOptions { send_initial_events: Some(false), ..ListOptions::default() },
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
                .to_owned(),
        ),
        (
            ListOptions { continue_: token, ..options("3", "", 0) },
            400,
            "specifying resource version is not allowed when using continue".to_owned(),
        ),
        (
            options("x", "", 0),
            400,
            "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": \
             invalid syntax"
                .to_owned(),
        ),
        (
            options("99999999999999999999", "", 0),
            400,
            "invalid resource version: resourceVersion: Invalid value: \"99999999999999999999\": \
             strconv.ParseUint: parsing \"99999999999999999999\": value out of range"
                .to_owned(),
        ),
        (
            continued("%", 0),
            400,
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0".to_owned(),
        ),
    ];
    for (options, code, message) in cases {
        let status = refused(&world, &options);
        assert_eq!((status.code, status.message), (code, message), "{options:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn future_version_is_rejected_with_retry_after() {
    let world = five();
    for options in [options("9", "", 0), options("9", "Exact", 0), options("9", "NotOlderThan", 3)] {
        let status = refused(&world, &options);
        assert_eq!((status.code, &*status.reason), (504, "Timeout"));
        assert_eq!(status.message, "Timeout: Too large resource version: 9, current: 6");
        let details = status.details.unwrap();
        assert_eq!(details.retry_after_seconds, 1);
        assert_eq!(details.causes[0].reason, "ResourceVersionTooLarge");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_have_one_revision_despite_concurrent_writes() {
    let world = five();
    let first = listed(&world, &options("", "", 2));
    assert_eq!((names(&first), first.remaining), (vec!["default/a".into(), "default/b".into()], Some(3)));
    world.delete("c");
    world.put("bb", &json!({}));
    world.put("d", &json!({"new": "yes"}));
    let second = listed(&world, &continued(&first.continue_.unwrap(), 2));
    assert_eq!(names(&second), ["default/c", "default/d"]);
    assert_eq!((second.revision, second.remaining), (6, Some(1)));
    assert_eq!(second.items[1].value["metadata"]["labels"], json!({"name": "d"}));
    let third = listed(&world, &continued(&second.continue_.unwrap(), 2));
    assert_eq!((names(&third), third.continue_, third.remaining), (vec!["default/e".into()], None, None));
}

#[tokio::test(start_paused = true)]
async fn list_continues_inconsistently_after_compaction() {
    let world = five();
    let token = listed(&world, &options("", "", 2)).continue_.unwrap();
    world.delete("c");
    world.put("cc", &json!({}));
    world.storage.compact(7);
    let status = refused(&world, &continued(&token, 2));
    assert_eq!((status.code, &*status.reason), (410, "Expired"));
    assert!(
        status.message.starts_with("The provided continue parameter is too old to display a consistent list")
    );
    let wire = serde_json::to_value(&status).unwrap();
    let token = wire["metadata"]["continue"].as_str().unwrap();
    let rest = listed(&world, &continued(token, 0));
    assert_eq!(names(&rest), ["default/cc", "default/d", "default/e"]);
    assert_eq!(rest.revision, 8);
    let exact = refused(&world, &options("6", "Exact", 0));
    assert_eq!((exact.code, &*exact.reason), (410, "Expired"));
    assert_eq!(exact.message, "The resourceVersion for the provided list is too old.");
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_listed_and_paged_separately() {
    let world = World::new();
    for name in ["a/1", "a-b/1", "a/2", "b/1", "a/3"] {
        world.put(name, &json!({}));
    }
    let all = listed(&world, &ListOptions::default());
    assert_eq!(names(&all), ["a-b/1", "a/1", "a/2", "a/3", "b/1"]);
    let (a, page) = (in_namespace("a"), options("", "", 2));
    let first = list(&world.view, &pods(), &a, &page).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a/1".into(), "a/2".into()], Some(1)));
    let second = list(&world.view, &pods(), &a, &continued(&first.continue_.unwrap(), 2)).unwrap();
    assert_eq!((names(&second), second.continue_), (vec!["a/3".to_owned()], None));
    let none = list(&world.view, &pods(), &in_namespace("c"), &ListOptions::default()).unwrap();
    assert!(none.items.is_empty());
    // Without a namespace, the token continues in the next namespace.
    let mut seen = Vec::new();
    let mut page = options("", "", 1);
    loop {
        let listed = listed(&world, &page);
        seen.extend(names(&listed));
        let Some(token) = listed.continue_ else { break };
        page = continued(&token, 1);
    }
    assert_eq!(seen, names(&all));
}

#[tokio::test(start_paused = true)]
async fn lists_with_selectors_have_no_remaining_count() {
    let world = World::new();
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"), ("e", "x"), ("f", "y")] {
        world.put(name, &json!({"tier": tier}));
    }
    let mut page = options("", "", 2);
    let mut seen = Vec::new();
    loop {
        let listed = list(&world.view, &pods(), &labeled("tier=x"), &page).unwrap();
        assert_eq!(listed.remaining, None);
        seen.push(names(&listed));
        let Some(token) = listed.continue_ else { break };
        page = continued(&token, 2);
    }
    assert_eq!(seen, [vec!["default/a".to_owned(), "default/c".to_owned()], vec!["default/e".to_owned()]]);
    // A full page does not check whether more selected objects follow; as upstream, the next page can be empty.
    let full = list(&world.view, &pods(), &labeled("tier=x"), &options("", "", 3)).unwrap();
    let rest =
        list(&world.view, &pods(), &labeled("tier=x"), &continued(&full.continue_.unwrap(), 3)).unwrap();
    assert_eq!((names(&rest), rest.continue_), (Vec::new(), None));
}

#[tokio::test(start_paused = true)]
async fn foreign_continue_tokens_are_rejected() {
    use base64::Engine;
    let world = five();
    let cases = [
        (r#"{"v":"v2","rv":3,"start":"a"}"#, "server does not recognize this encoded version v2"),
        (
            r#"{"v":"meta.k8s.io/v1","start":"a"}"#,
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (r#"{"v":"meta.k8s.io/v1","rv":3}"#, "encoded start key empty (version meta.k8s.io/v1)"),
        (r#"{"v":"meta.k8s.io/v1","rv":3,"start":"../secrets/a"}"#, "../secrets/a"),
        (r#"{"v":"meta.k8s.io/v1","rv":3,"start":"default//a"}"#, "default//a"),
        ("7", "invalid type"),
    ];
    for (token, why) in cases {
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
        let status = refused(&world, &continued(&token, 2));
        assert_eq!(status.code, 400);
        assert!(
            status.message.starts_with("invalid continue token: continue key is not valid: "),
            "{status:?}"
        );
        assert!(status.message.contains(why), "{:?} does not say {why:?}", status.message);
    }
}

#[tokio::test(start_paused = true)]
async fn frozen_view_serves_stale_data_to_requests_that_accept_it() {
    let world = five();
    world.view.freeze();
    world.delete("a");
    world.put("f", &json!({}));
    assert_eq!((world.view.revision(), world.storage.revision()), (6, 8));
    for (version, revision) in [("0", 6), ("3", 6), ("", 8)] {
        assert_eq!(listed(&world, &options(version, "", 0)).revision, revision, "version {version:?}");
    }
    assert_eq!(names(&listed(&world, &options("0", "", 0)))[0], "default/a");
    for too_new in [options("7", "", 0), options("7", "Exact", 0), options("8", "NotOlderThan", 0)] {
        let status = refused(&world, &too_new);
        assert!(status.message.ends_with("current: 6"), "{too_new:?}: {}", status.message);
    }
    let found = |version: &str| get(&world.view, &pods(), &key("a"), version).unwrap().is_some();
    assert!(found("0") && found("6") && !found(""));
    assert_eq!(get(&world.view, &pods(), &key("a"), "7").unwrap_err().code, 504);
    world.view.thaw();
    assert!(!found("0") && !found("8"));
}

#[tokio::test(start_paused = true)]
async fn lag_of_frozen_view_is_bounded_by_limit_and_history() {
    let world = World::of(InMemoryStorage::new(MemoryOptions { history: 4 }));
    world.view.freeze_within(2);
    for _ in 0..3 {
        world.put("a", &json!({}));
    }
    assert_eq!((world.view.revision(), world.storage.revision()), (2, 4));
    world.view.freeze();
    for _ in 0..3 {
        world.put("a", &json!({}));
    }
    assert_eq!(
        (world.view.revision(), world.storage.revision()),
        (3, 7),
        "the history keeps only four writes"
    );
    assert_eq!(listed(&world, &options("0", "", 0)).revision, 3);
}

#[tokio::test(start_paused = true)]
async fn read_waits_three_seconds_for_future_version() {
    let world = five();
    let start = world.env.now();
    settle(&world.env, &world.view, "9").await;
    assert_eq!(world.env.now() - start, Duration::from_secs(3));
    world.view.freeze();
    world.put("f", &json!({}));
    let (env, view) = (world.env.clone(), world.view.clone());
    let thaw = world.env.spawn("thaw", async move {
        env.sleep(Duration::from_secs(1)).await;
        view.thaw();
    });
    let start = world.env.now();
    settle(&world.env, &world.view, "7").await;
    assert_eq!(world.env.now() - start, Duration::from_secs(1));
    assert!(thaw.await.is_ok());
}

#[test]
fn lists_and_gets_keep_objects_unparsed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let before = World::new();
    for name in ["a", "b", "c"] {
        before.put(name, &json!({"name": name}));
    }
    before.storage.snapshot_to(&path).unwrap();
    let world = World::of(InMemoryStorage::restore_from(&path, MemoryOptions::default()).unwrap());
    let table = FieldTable::metadata().with_path("status.phase");
    let fields = FieldSelector::parse("status.phase=Running", &table).unwrap();
    let selection = Selection { fields, ..labeled("name in (a, c)") };
    let listed = list(&world.view, &pods(), &selection, &ListOptions::default()).unwrap();
    assert_eq!(listed.items.iter().map(|it| &*it.key.name).collect::<Vec<_>>(), ["a", "c"]);
    let got = get(&world.view, &pods(), &key("b"), "").unwrap().unwrap();
    assert_eq!(got.value["metadata"]["labels"]["name"], "b");
    let kept = world.storage.read(&pods(), None).unwrap().objects;
    assert!(kept.values().all(|it| it.value.is_unparsed()));
}
