//! Requests of an informer to the API server after failures of lists and watches.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use windlass::object::Verb;
use windlass::testing::api_server::faults::RequestSummary;
use windlass::testing::{Fault, FaultAction};

use crate::world::{World, map};

fn is_list(request: &RequestSummary) -> bool {
    request.verb == Some(Verb::List)
}

/// Returns whether a request is a streaming list.
fn is_stream(request: &RequestSummary) -> bool {
    parameter(&request.uri, "sendInitialEvents") == Some("true")
}

/// Returns the value of a query parameter.
fn parameter<'a>(uri: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = uri.split_once('?')?;
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, it)| it)
}

/// kube-rs resets its backoff at the start of every list: a server that always failed received 103 requests in 120 s
/// (bitdriftlabs/pulse#52, measured on kube 5.0.0).
// parity: reflector-run, back-off-lists-never
#[tokio::test(start_paused = true)]
async fn requests_back_off_while_server_fails() {
    let world = World::new();
    world.api.inject_fault(|_| Some(FaultAction::InternalError));
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    factory.start(world.sources());
    world.pass(120).await;
    let count = world.sent_uris("configmaps", |_| true).len();
    assert!((4..=16).contains(&count), "{count} requests in two minutes");
    world.api.inject_fault(|_| None);
    world.pass(60).await;
    assert!(informer.has_synced(), "the informer must sync within a minute after the server recovers");
}

/// kube-rs repeats the same watch forever if its start is rejected with 410 (kube#1042; six identical requests and no
/// list, measured on kube 5.0.0).
// parity: 410-start-watch-loops
#[tokio::test(start_paused = true)]
async fn expired_version_is_not_requested_again() {
    let world = World::new();
    let (mover, mut refused) = (world.clone(), Vec::new());
    world.api.inject_fault(move |request| {
        if is_stream(request) {
            // Force paged lists, so that watches begin at a version.
            return Some(FaultAction::InternalError);
        }
        if !request.is_watch() || refused.len() == 3 {
            return None;
        }
        let version = parameter(&request.uri, "resourceVersion").unwrap_or_default().to_owned();
        assert!(!refused.contains(&version), "version {version} is requested again");
        refused.push(version);
        // Change the version, so that a new list has another version.
        mover.put("meanwhile");
        Some(FaultAction::Expired)
    });
    world.put("a");
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    factory.start(world.sources());
    world.pass(60).await;
    let lists = world.sent_uris("configmaps", is_list);
    let watches = world.sent_uris("configmaps", |request| request.is_watch() && !is_stream(request));
    assert_eq!(
        (lists.len(), watches.len()),
        (4, 4),
        "each rejection is followed by a list: {lists:?} {watches:?}"
    );
    world.put("b");
    world.pass(1).await;
    assert_eq!(informer.lister().len(), 3, "the informer follows changes afterwards");
}

/// client-go waits forever, and without backoff, for the bookmark that ends a streaming list (kubernetes#140890,
/// Teleport #64188, Antrea #8123).
// parity: stream-without-end-bookmark, watch-list-never-falls, streaming-list
#[tokio::test(start_paused = true)]
async fn informer_syncs_when_initial_events_end_bookmark_is_missing() {
    let day = Duration::from_secs(86_400);
    let world = World::with_faults(vec![Fault::until(day, FaultAction::EndBookmarkMissing)]);
    world.put("a");
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    factory.start(world.sources());
    factory.wait_for_sync(Some(Duration::from_secs(120))).await.expect("the informer falls back to a list");
    world.put("b");
    world.pass(5).await;
    assert_eq!(informer.lister().len(), 2, "the informer follows changes afterwards");
    assert!(world.sent_uris("configmaps", |_| true).len() < 20, "the number of requests is bounded");
}

/// A load balancer can drop a watch without closing it: kube-rs before 4.0 hangs forever, 5.0 receives no events for up
/// to 295 s (kube#1798, #2069; Azure/kars #456).
// parity: watches-last-5-10, idle-timeout-295-s, timeouts-stalls
#[tokio::test(start_paused = true)]
async fn watch_without_data_is_replaced_within_four_minutes() {
    let world = World::new();
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    world.sync(&factory).await;
    world.pass(1).await;
    world.api.inject_fault(|request| request.is_watch().then_some(FaultAction::WatchStalled));
    world.put("unseen");
    world.pass(1).await;
    assert_eq!(informer.lister().len(), 0, "the watch delivers no events");
    world.api.inject_fault(|_| None);
    world.pass(240).await;
    assert_eq!(informer.lister().len(), 1);
}

/// kube-rs drops the version of a list that has a limit, so that `any_semantic()` does not request what it documents
/// (kube#1743, #1728).
// parity: pages-only-without-version, test-reflector-paginating-non-consistent, test-reflector-watch-list-page-size
// parity: any-semantic
#[tokio::test(start_paused = true)]
async fn list_with_limit_does_not_specify_a_version() {
    let world = World::new();
    (0..1200).for_each(|number| world.put(&format!("map-{number}")));
    let strike = |also: Option<FaultAction>| {
        world.api.inject_fault(move |request| {
            // Force paged lists, which have limits.
            if is_stream(request) {
                Some(FaultAction::InternalError)
            } else {
                also.clone().filter(|_| request.is_watch())
            }
        });
    };
    strike(None);
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    world.sync(&factory).await;
    world.pass(1).await;
    // After an unknown watch error the informer lists at its current version.
    strike(Some(FaultAction::InternalError));
    world.api.link().partition();
    world.put("b");
    world.pass(1).await;
    world.api.link().heal();
    world.pass(3).await;
    strike(None);
    world.pass(120).await;
    assert_eq!(informer.lister().len(), 1201);
    let lists = world.sent_uris("configmaps", is_list);
    for list in &lists {
        let of = |name: &str| parameter(list, name).filter(|value| !value.is_empty());
        match (of("limit"), of("continue"), of("resourceVersion")) {
            (Some(_), _, Some(version)) => panic!("a list with a limit specifies version {version}: {list}"),
            (None, _, Some(_)) => assert_eq!(of("resourceVersionMatch"), Some("NotOlderThan"), "{list}"),
            _ => {}
        }
    }
    assert!(lists.iter().filter(|list| parameter(list, "continue").is_some()).count() >= 2, "{lists:?}");
}

/// An object that a broken proxy garbles must not make the watch lose its position: kube-rs reads such a line as an
/// empty `Status` and hides the error (kube#774, #1986).
// parity: store-error-logged-version, errors-store-transform-lose, bad-object-fails-list
#[tokio::test(start_paused = true)]
async fn undecodable_event_causes_no_reconnect_and_no_relist() {
    let day = Duration::from_secs(86_400);
    let world = World::with_faults(vec![Fault::until(day, FaultAction::Poison { name: "bad".into() })]);
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    world.sync(&factory).await;
    world.pass(1).await;
    let before = world.sent_uris("configmaps", |_| true).len();
    world.api.upsert(&map("bad"), json!({ "data": { "is": "bad" } }));
    world.put("good");
    world.pass(5).await;
    assert_eq!(informer.lister().len(), 1);
    assert_eq!(informer.lister().undecodable().len(), 1, "the undecodable object is listed");
    assert_eq!(world.sent_uris("configmaps", |_| true).len(), before, "no request is sent");
    world.api.upsert(&map("good"), json!({ "data": { "still": "followed" } }));
    world.pass(1).await;
    let good = informer.lister().list().pop().expect("the good one");
    assert!(good.data.is_some());
}
