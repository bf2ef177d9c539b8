use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::storage::{MemoryOptions, Stored};

type Events = Pin<Box<dyn Stream<Item = WatchEvent> + Send>>;

fn from(resource_version: u64) -> WatchOptions {
    WatchOptions { resource_version: resource_version.to_string(), ..WatchOptions::default() }
}

fn list_watch(resource_version: &str) -> WatchOptions {
    WatchOptions {
        resource_version: resource_version.to_owned(),
        resource_version_match: "NotOlderThan".to_owned(),
        bookmarks: true,
        send_initial_events: Some(true),
        timeout: None,
    }
}

fn describe(event: WatchEvent) -> String {
    let object = |it: &Stored| {
        assert_eq!(it.value["metadata"]["resourceVersion"], it.revision.to_string());
        format!("{}@{}", it.key.name, it.revision)
    };
    match event {
        WatchEvent::Added(it) => format!("ADDED {}", object(&it)),
        WatchEvent::Modified(it) => format!("MODIFIED {}", object(&it)),
        WatchEvent::Deleted(it) => format!("DELETED {}", object(&it)),
        WatchEvent::Bookmark { revision, initial_end: false } => format!("BOOKMARK {revision}"),
        WatchEvent::Bookmark { revision, initial_end: true } => format!("END {revision}"),
        WatchEvent::Error(status) => format!("{} {} {}", status.code, status.reason, status.message),
    }
}

/// Returns the events that are available without waiting.
fn now(events: &mut Events) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(next) = events.next().now_or_never() {
        all.push(next.map_or_else(|| "end".to_owned(), describe));
        if all.last().is_some_and(|it| it == "end") {
            break;
        }
    }
    all
}

impl World {
    fn watch(&self, selection: Selection, options: &WatchOptions) -> Events {
        Box::pin(watch(&self.env, &self.view, &pods(), selection, options).unwrap())
    }

    /// Returns the events of the next `seconds`, each with the second of its arrival.
    async fn within(&self, events: &mut Events, seconds: u64) -> Vec<(u64, String)> {
        let (start, mut all) = (self.env.now(), Vec::new());
        let until = start + Duration::from_secs(seconds);
        while let Ok(next) = self.env.timeout(until - self.env.now(), events.next()).await {
            let at = (self.env.now() - start).as_secs();
            all.push((at, next.map_or_else(|| "end".to_owned(), describe)));
            if all.last().is_some_and(|(_, it)| it == "end") {
                break;
            }
        }
        all
    }
}

#[tokio::test(start_paused = true)]
async fn watch_delivers_every_change_after_its_version_in_order() {
    let world = World::new();
    world.put("a", &json!({}));
    let start = world.put("b", &json!({}));
    world.put("a", &json!({"x": "1"}));
    world.elsewhere();
    let mut events = world.watch(Selection::default(), &from(start));
    assert_eq!(now(&mut events), ["MODIFIED a@4"]);
    world.put("c", &json!({}));
    world.delete("a");
    world.put("a", &json!({}));
    assert_eq!(now(&mut events), ["ADDED c@6", "DELETED a@7", "ADDED a@8"]);
    assert_eq!(now(&mut events), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn watch_without_version_begins_with_current_state() {
    let world = World::new();
    world.put("b", &json!({}));
    world.put("a", &json!({}));
    for version in ["", "0"] {
        let options = WatchOptions { resource_version: version.to_owned(), ..WatchOptions::default() };
        let mut events = world.watch(Selection::default(), &options);
        assert_eq!(now(&mut events), ["ADDED a@3", "ADDED b@2"]);
        // With bookmarks allowed, the initial state ends with a bookmark, as upstream since it supports WatchList.
        let options = WatchOptions { bookmarks: true, ..options };
        let mut events = world.watch(Selection::default(), &options);
        assert_eq!(now(&mut events), ["ADDED a@3", "ADDED b@2", "END 3"]);
    }
}

#[tokio::test(start_paused = true)]
async fn watch_list_delivers_current_state_end_bookmark_and_changes() {
    let world = World::new();
    world.put("a", &json!({}));
    world.elsewhere();
    for version in ["", "0", "2"] {
        let mut events = world.watch(Selection::default(), &list_watch(version));
        assert_eq!(now(&mut events), ["ADDED a@2", "END 3"], "from {version:?}");
    }
    let mut silent = world
        .watch(Selection::default(), &WatchOptions { send_initial_events: Some(false), ..list_watch("") });
    assert_eq!(now(&mut silent), [""; 0]);
    world.put("a", &json!({"x": "1"}));
    assert_eq!(now(&mut silent), ["MODIFIED a@4"]);
}

#[tokio::test(start_paused = true)]
async fn watch_list_of_future_version_fails_after_three_seconds() {
    let world = World::new();
    let mut events = world.watch(Selection::default(), &list_watch("2"));
    let refusal = "504 Timeout Timeout: Too large resource version: 2, current: 1".to_owned();
    assert_eq!(world.within(&mut events, 9).await, [(3, refusal), (3, "end".to_owned())]);
    let mut events = world.watch(Selection::default(), &list_watch("2"));
    assert_eq!(now(&mut events), [""; 0]);
    world.elsewhere();
    assert_eq!(now(&mut events), ["END 2"]);
}

#[tokio::test(start_paused = true)]
async fn selector_changes_are_delivered_as_added_and_deleted() {
    let world = World::new();
    let mut events = world.watch(labeled("tier=x"), &from(1));
    world.put("a", &json!({"tier": "y"}));
    world.put("a", &json!({"tier": "x"}));
    world.put("a", &json!({"tier": "x", "more": "1"}));
    world.put("a", &json!({"tier": "y"}));
    world.put("a", &json!({"tier": "z"}));
    world.delete("a");
    assert_eq!(now(&mut events), ["ADDED a@3", "MODIFIED a@4", "DELETED a@5"]);
}

#[tokio::test(start_paused = true)]
async fn deselected_object_is_delivered_in_its_last_selected_state() {
    let world = World::new();
    let mut events = world.watch(labeled("tier=x"), &from(1));
    world.put("a", &json!({"tier": "x"}));
    world.put("a", &json!({"tier": "y"}));
    let _added = events.next().await;
    let Some(WatchEvent::Deleted(last)) = events.next().await else { panic!("the event is not DELETED") };
    assert_eq!((last.revision, &last.value["metadata"]["labels"]["tier"]), (3, &json!("x")));
    assert!(std::str::from_utf8(&last.bytes).unwrap().contains(r#""resourceVersion":"3""#));
}

#[tokio::test(start_paused = true)]
async fn watches_of_namespace_or_name_get_no_other_events() {
    let world = World::new();
    let mut in_a = world.watch(in_namespace("a"), &from(1));
    let named = Selection { fields: FieldSelector::name("1"), ..in_namespace("a") };
    let mut one = world.watch(named, &from(1));
    for name in ["a/1", "b/1", "a/2", "ab/1"] {
        world.put(name, &json!({}));
    }
    assert_eq!(now(&mut in_a), ["ADDED 1@2", "ADDED 2@4"]);
    assert_eq!(now(&mut one), ["ADDED 1@2"]);
}

#[tokio::test(start_paused = true)]
async fn watch_of_compacted_version_fails_immediately_and_once() {
    let world = World::of(InMemoryStorage::new(MemoryOptions { history: 3 }));
    for _ in 0..5 {
        world.put("a", &json!({}));
    }
    let mut events = world.watch(Selection::default(), &from(2));
    assert_eq!(now(&mut events), ["410 Expired too old resource version: 2 (3)", "end"]);
    let mut events = world.watch(Selection::default(), &from(3));
    assert_eq!(now(&mut events), ["MODIFIED a@4", "MODIFIED a@5", "MODIFIED a@6"]);
}

#[tokio::test(start_paused = true)]
async fn compacted_version_is_accepted_if_no_change_was_missed() {
    let world = World::of(InMemoryStorage::new(MemoryOptions { history: 3 }));
    for _ in 0..9 {
        world.elsewhere();
    }
    let mut events = world.watch(Selection::default(), &from(2));
    world.put("a", &json!({}));
    assert_eq!(now(&mut events), ["ADDED a@11"]);
    for _ in 0..9 {
        world.elsewhere();
    }
    let mut events = world.watch(Selection::default(), &from(11));
    assert_eq!(now(&mut events), [""; 0]);
    let mut events = world.watch(Selection::default(), &from(10));
    assert_eq!(now(&mut events), ["410 Expired too old resource version: 10 (11)", "end"]);
}

#[tokio::test(start_paused = true)]
async fn slow_watch_fails_with_410_and_never_delays_a_write() {
    let world = World::of(InMemoryStorage::new(MemoryOptions { history: 3 }));
    let mut slow = world.watch(Selection::default(), &from(1));
    let mut quick = world.watch(Selection::default(), &from(1));
    for revision in 2..=9 {
        assert_eq!(world.put("a", &json!({})), revision);
        assert_eq!(now(&mut quick).len(), 1);
    }
    assert_eq!(now(&mut slow), ["410 Expired too old resource version: 1 (6)", "end"]);
}

#[tokio::test(start_paused = true)]
async fn idle_watch_survives_compaction_past_its_version() {
    let world = World::of(InMemoryStorage::new(MemoryOptions { history: 3 }));
    let mut events = world.watch(Selection::default(), &from(1));
    assert_eq!(now(&mut events), [""; 0]);
    for _ in 0..9 {
        world.elsewhere();
    }
    world.put("a", &json!({}));
    assert_eq!(now(&mut events), ["ADDED a@11"]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_every_minute_and_before_the_end() {
    let world = World::new();
    let options = WatchOptions { bookmarks: true, timeout: Some(Duration::from_secs(150)), ..from(1) };
    let mut events = world.watch(Selection::default(), &options);
    assert_eq!(world.within(&mut events, 59).await, []);
    world.elsewhere();
    let expected = [(1, "BOOKMARK 2"), (61, "BOOKMARK 2"), (89, "BOOKMARK 2"), (91, "end")];
    let expected: Vec<_> = expected.into_iter().map(|(at, it)| (at, it.to_owned())).collect();
    assert_eq!(world.within(&mut events, 200).await, expected);
    let options = WatchOptions { bookmarks: false, ..options };
    let mut events = world.watch(Selection::default(), &options);
    assert_eq!(world.within(&mut events, 200).await, [(150, "end".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn idle_watch_gets_bookmarks_unless_the_view_is_frozen() {
    let world = World::new();
    let options = WatchOptions { bookmarks: true, timeout: Some(Duration::from_secs(70)), ..from(1) };
    let mut events = world.watch(Selection::default(), &options);
    let expected = [(60, "BOOKMARK 1"), (68, "BOOKMARK 1"), (70, "end")];
    assert_eq!(world.within(&mut events, 90).await, expected.map(|(at, it)| (at, it.to_owned())));
    world.view.freeze();
    let mut events = world.watch(Selection::default(), &options);
    assert_eq!(world.within(&mut events, 90).await, [(70, "end".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn watch_duration_is_as_requested_or_30_to_60_minutes() {
    let world = World::new();
    let mut lengths = Vec::new();
    for timeout in [Some(Duration::from_secs(7)), None, None, Some(Duration::ZERO)] {
        let mut events = world.watch(Selection::default(), &WatchOptions { timeout, ..from(1) });
        let ended = world.within(&mut events, 7200).await;
        lengths.push(ended[0].0);
    }
    assert_eq!(lengths[0], 7);
    assert!(lengths[1..].iter().all(|it| (1800..3600).contains(it)), "{lengths:?}");
    assert_ne!(lengths[1], lengths[2]);
}

#[tokio::test(start_paused = true)]
async fn watch_from_future_version_waits_for_it() {
    let world = World::new();
    let options = WatchOptions { bookmarks: true, timeout: Some(Duration::from_secs(100)), ..from(4) };
    let mut events = world.watch(Selection::default(), &options);
    world.put("a", &json!({}));
    world.put("b", &json!({}));
    assert_eq!(world.within(&mut events, 61).await, []);
    world.put("c", &json!({}));
    assert_eq!(now(&mut events), [""; 0]);
    world.put("d", &json!({}));
    assert_eq!(now(&mut events), ["ADDED d@5"]);
}

#[tokio::test(start_paused = true)]
async fn thawed_view_delivers_events_missed_while_frozen() {
    let world = World::new();
    world.put("a", &json!({}));
    world.view.freeze();
    let mut running = world.watch(Selection::default(), &from(1));
    world.put("b", &json!({}));
    let mut present = world.watch(Selection::default(), &list_watch("0"));
    let mut ahead = world.watch(Selection::default(), &from(3));
    world.put("c", &json!({}));
    assert_eq!(now(&mut running), ["ADDED a@2"]);
    assert_eq!(now(&mut present), ["ADDED a@2", "END 2"]);
    assert_eq!(world.within(&mut ahead, 50).await, []);
    // A watch that requires the latest version fails on this stale server.
    let mut latest = world.watch(Selection::default(), &list_watch(""));
    let refusal = "504 Timeout Timeout: Too large resource version: 4, current: 2".to_owned();
    assert_eq!(world.within(&mut latest, 9).await[0], (3, refusal));
    world.view.thaw();
    assert_eq!(now(&mut running), ["ADDED b@3", "ADDED c@4"]);
    assert_eq!(now(&mut present), ["ADDED b@3", "ADDED c@4"]);
    assert_eq!(now(&mut ahead), ["ADDED c@4"]);
}

#[tokio::test(start_paused = true)]
async fn view_can_start_frozen_at_old_revision() {
    let world = World::new();
    world.put("a", &json!({}));
    world.put("b", &json!({}));
    let storage = Arc::clone(&world.storage) as Arc<dyn Storage>;
    let view = ReadView::frozen(storage, 2, world.env.rng("stale"));
    let mut events: Events =
        Box::pin(watch(&world.env, &view, &pods(), Selection::default(), &list_watch("0")).unwrap());
    assert_eq!(now(&mut events), ["ADDED a@2", "END 2"]);
    view.thaw();
    assert_eq!(now(&mut events), ["ADDED b@3"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_watch_options_get_upstream_messages() {
    let world = World::new();
    let of = r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: "#;
    let requires = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let unless =
        "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    let unknown = r#"Unsupported value: "Exact": supported values: "NotOlderThan""#;
    let field = "resourceVersionMatch: ";
    let cases = [
        (Some(true), "", "1", format!("{of}{requires}")),
        (Some(false), "", "1", format!("{of}{requires}")),
        (None, "NotOlderThan", "1", format!("{of}{unless}")),
        (
            None,
            "Exact",
            "1",
            format!(r#"ListOptions.meta.k8s.io "" is invalid: [{field}{unless}, {field}{unknown}]"#),
        ),
        (
            Some(true),
            "Exact",
            "1",
            format!(r#"ListOptions.meta.k8s.io "" is invalid: [{field}{requires}, {field}{unknown}]"#),
        ),
        (
            None,
            "",
            "one",
            "resourceVersion: Invalid value: \"one\": strconv.ParseUint: parsing \"one\": invalid syntax"
                .to_owned(),
        ),
    ];
    for (send_initial_events, matching, version, message) in cases {
        let options = WatchOptions {
            resource_version: version.to_owned(),
            resource_version_match: matching.to_owned(),
            send_initial_events,
            ..WatchOptions::default()
        };
        let status = watch(&world.env, &world.view, &pods(), Selection::default(), &options).err().unwrap();
        let code = if version == "one" { 500 } else { 422 };
        assert_eq!((status.code, status.message), (code, message), "{options:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn watch_that_lags_by_many_batches_delivers_all() {
    let world = World::new();
    let mut events = world.watch(Selection::default(), &from(1));
    for at in 0..300 {
        world.put(&format!("pod-{at:03}"), &json!({}));
        world.elsewhere();
    }
    let all = now(&mut events);
    assert_eq!((all.len(), &*all[299]), (300, "ADDED pod-299@600"));
}

#[tokio::test(start_paused = true)]
async fn watches_share_the_bytes_of_objects() {
    let world = World::new();
    let mut watches: Vec<_> = (0..3).map(|_| world.watch(labeled("tier=x"), &from(1))).collect();
    world.put("a", &json!({"tier": "x"}));
    world.put("a", &json!({"tier": "y"}));
    let mut bytes = Vec::new();
    for events in &mut watches {
        let (added, deleted) = (events.next().await, events.next().await);
        let (Some(WatchEvent::Added(added)), Some(WatchEvent::Deleted(deleted))) = (added, deleted) else {
            panic!("the events are not ADDED and DELETED");
        };
        bytes.push((added.bytes.as_ptr(), deleted.bytes.as_ptr()));
    }
    assert!(bytes.iter().all(|it| *it == bytes[0]));
}

/// A list that is updated by a watch, as in an informer.
#[derive(Default)]
struct Cache(BTreeMap<Key, u64>);

impl Cache {
    fn of(listed: &ListResponse) -> Cache {
        Cache(listed.items.iter().map(|it| (it.key.clone(), it.revision)).collect())
    }

    fn apply(&mut self, event: WatchEvent) {
        let (consistent, known) = match event {
            WatchEvent::Added(it) => (self.0.insert(it.key.clone(), it.revision).is_none(), Some(it)),
            WatchEvent::Modified(it) => (self.0.insert(it.key.clone(), it.revision).is_some(), Some(it)),
            WatchEvent::Deleted(it) => (self.0.remove(&it.key).is_some(), Some(it)),
            _ => (false, None),
        };
        assert!(consistent, "the event type does not match {known:?}");
    }
}

proptest! {
    #[test]
    fn watch_events_lead_from_any_list_to_the_current_state(
        writes in proptest::collection::vec((0..5u8, 0..4u8, any::<bool>()), 1..80),
        start in 0..80usize,
        namespaced in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let namespace = namespaced.then(|| "a".into());
            let selection = Selection { namespace, ..labeled("tier in (1,2)") };
            let listed = || list(&world.view, &pods(), &selection, &ListOptions::default()).unwrap();
            let mut following: Option<(Cache, Events)> = None;
            for (at, (name, tier, heard)) in writes.into_iter().enumerate() {
                if at == start {
                    let listed = listed();
                    let events = world.watch(selection.clone(), &from(listed.revision));
                    following = Some((Cache::of(&listed), events));
                }
                let name = format!("{}/pod", ["a", "b", "a-b", "c", "d"][usize::from(name)]);
                match (tier, world.storage.get(&pods(), &key(&name))) {
                    (0, Some(_)) => world.delete(&name),
                    _ => world.put(&name, &json!({"tier": tier.to_string()})),
                };
                if let (true, Some((cache, events))) = (heard, &mut following) {
                    while let Some(Some(event)) = events.next().now_or_never() {
                        cache.apply(event);
                    }
                    assert_eq!(cache.0, Cache::of(&listed()).0);
                }
            }
        });
    }
}
