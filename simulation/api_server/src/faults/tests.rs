use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_env::Env;

use super::*;
use crate::body::Body;
use crate::{ApiServer, ApiServerOptions};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server, a network with faults, and a process on one of its links.
struct World {
    env: Env,
    sender: Env,
    network: Network,
    link: Link,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns one fault that lasts an hour.
fn hour_of(action: FaultAction) -> Vec<Fault> {
    vec![Fault::until(seconds(3600), action)]
}

impl World {
    fn with(faults: Vec<Fault>) -> Self {
        Self::seeded(7, faults)
    }

    fn seeded(seed: u64, faults: Vec<Fault>) -> Self {
        let env = Env::virtual_time(seed);
        let server = ApiServer::new(&env.with_incarnation("server", 0), ApiServerOptions::default());
        let journal = Journal::new(usize::MAX, None);
        let network = Network::new(&env, Arc::new(server), FaultPlan { seed, faults }, journal);
        let sender = env.with_incarnation("a", 0);
        let link = network.link(&sender);
        World { env, sender, network, link }
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Result<Response<Body>, LinkError> {
        let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(Full::new(bytes)).expect("a request");
        self.link.clone().oneshot(request).await
    }

    async fn code(&self, method: &str, path: &str, body: Value) -> u16 {
        self.send(method, path, body).await.expect("an answer").status().as_u16()
    }

    async fn create(&self, name: &str) -> u16 {
        self.code("POST", MAPS, map(name)).await
    }

    async fn apply(&self, path: &str, name: &str) -> u16 {
        let request = Request::patch(format!("{path}?fieldManager=a"));
        let request = request.header("content-type", "application/apply-patch+yaml");
        let request = request.body(Full::new(Bytes::from(map(name).to_string()))).expect("a request");
        self.link.clone().oneshot(request).await.expect("an answer").status().as_u16()
    }

    fn exists(&self, name: &str) -> bool {
        let objects = self.network.server().objects();
        objects.iter().any(|it| it["kind"] == "ConfigMap" && it["metadata"]["name"] == name)
    }

    /// Watches without bookmarks.
    async fn watch(&self, during: Duration) -> (Vec<String>, Option<bool>) {
        self.watch_with("", during).await
    }

    /// Watches from the first revision for the given time. Returns the events, and whether and how the watch ended.
    async fn watch_with(&self, query: &str, during: Duration) -> (Vec<String>, Option<bool>) {
        let (received, end) = self.follow(query, during).await;
        (received.into_iter().map(|(_, event)| event).collect(), end)
    }

    /// Watches like [`World::watch_with`] and also returns the time of each event.
    async fn follow(&self, query: &str, during: Duration) -> (Vec<(Duration, String)>, Option<bool>) {
        let response = self.send("GET", &format!("{MAPS}?watch=true{query}"), Value::Null).await;
        let mut frames = response.expect("a watch").into_body().into_data_stream();
        let (mut received, mut end) = (Vec::new(), None);
        let collect = async {
            loop {
                match frames.next().await {
                    Some(Ok(frame)) => {
                        let event: Value = serde_json::from_slice(&frame).expect("one event per frame");
                        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
                        let event = format!("{} {name}", event["type"].as_str().unwrap_or("?"));
                        received.push((self.env.now().since_origin(), event));
                    }
                    Some(Err(_)) => return end = Some(false),
                    None => return end = Some(true),
                }
            }
        };
        let _in_time = self.env.timeout(during, collect).await;
        (received, end)
    }
}

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

async fn body(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&bytes).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn link_without_faults_takes_a_few_milliseconds() {
    let world = World::with(Vec::new());
    assert_eq!(world.create("one").await, 201);
    let took = world.env.now().since_origin();
    assert!((Duration::from_millis(2)..=Duration::from_millis(6)).contains(&took), "{took:?}");
    assert_eq!(world.watch(seconds(1)).await, (vec!["ADDED one".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn injected_errors_have_server_messages_and_no_effect() {
    let one = format!("{MAPS}/one");
    let cases = [
        (FaultAction::Conflict, "PUT", 409, "Conflict"),
        (FaultAction::TooManyRequests { retry_after_seconds: 3 }, "POST", 429, "TooManyRequests"),
        (FaultAction::InternalError, "POST", 500, "InternalError"),
        (FaultAction::Unavailable, "GET", 503, "ServiceUnavailable"),
        (FaultAction::NamespaceTerminating, "POST", 403, "Forbidden"),
        (FaultAction::QuotaExceeded, "POST", 403, "Forbidden"),
    ];
    for (action, method, code, reason) in cases {
        let world = World::with(hour_of(action.clone()));
        let (path, name) = if method == "PUT" { (&*one, "one") } else { (MAPS, "two") };
        let body_sent = if method == "GET" { Value::Null } else { map(name) };
        if method == "PUT" {
            assert_eq!(world.create("one").await, 201, "a conflict needs an object");
        }
        let response = world.send(method, path, body_sent).await.expect("an answer");
        let after = response.headers().get("retry-after").cloned();
        assert_eq!(after.is_some(), code == 429, "{action:?}");
        let status = body(response).await;
        assert_eq!((&status["code"], &status["reason"]), (&json!(code), &json!(reason)), "{action:?}");
        assert!(!world.exists("two"), "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_object_gets_no_conflict() {
    let world = World::with(hour_of(FaultAction::Conflict));
    let (one, two) = (format!("{MAPS}/one"), format!("{MAPS}/two"));
    assert_eq!(world.code("DELETE", &one, Value::Null).await, 404);
    assert_eq!(world.apply(&one, "one").await, 201, "an apply creates the object");
    assert_eq!(world.apply(&one, "one").await, 409);
    assert_eq!(world.apply(&two, "two").await, 201);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_is_reported_as_cause() {
    let world = World::with(hour_of(FaultAction::NamespaceTerminating));
    let status = body(world.send("POST", MAPS, map("one")).await.expect("an answer")).await;
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
}

#[tokio::test(start_paused = true)]
async fn lost_request_has_no_effect_but_lost_response_has() {
    let cases = [
        (FaultAction::RequestLost { silently: false }, false),
        (FaultAction::RequestLost { silently: true }, false),
        (FaultAction::ResponseLost { silently: false }, true),
        (FaultAction::ResponseLost { silently: true }, true),
        (FaultAction::Partition, false),
    ];
    for (action, took_effect) in cases {
        let world = World::with(hour_of(action.clone()));
        let answer = world.env.timeout(seconds(60), world.send("POST", MAPS, map("one"))).await;
        assert!(!matches!(answer, Ok(Ok(_))), "{action:?}");
        let silent = matches!(action, FaultAction::Partition) || format!("{action:?}").contains("true");
        assert_eq!(answer.is_err(), silent, "{action:?}");
        assert_eq!(world.exists("one"), took_effect, "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_timeout_is_returned_after_the_effect() {
    let world = World::with(hour_of(FaultAction::TimedOut));
    assert_eq!(world.create("one").await, 504);
    assert!(world.exists("one"));
}

#[tokio::test(start_paused = true)]
async fn rejected_write_gets_its_own_error_instead_of_server_timeout() {
    let world = World::with(hour_of(FaultAction::TimedOut));
    assert_eq!(world.create("Not_A_Name").await, 422);
    let injected = |it: &Record| matches!(it.kind, RecordKind::FaultInjected { .. });
    assert!(!world.network.journal().records().iter().any(injected), "the fault had no effect");
}

/// Returns whether a create takes effect under this fault when its sender drops it after `dropped_after`.
async fn takes_effect(fault: FaultAction, path: &str, dropped_after: Duration) -> bool {
    let world = World::with(hour_of(fault));
    let sending = world.send("POST", path, map("one"));
    assert!(world.env.timeout(dropped_after, sending).await.is_err(), "no response arrives by then");
    world.env.sleep(seconds(60)).await;
    world.exists("one")
}

#[tokio::test(start_paused = true)]
async fn reset_stops_request_unless_it_left_the_send_buffer() {
    let delayed = FaultAction::RequestDelayed { by_ms: 20_000 };
    let arrives = arrival(&delayed).await;
    let almost = arrives - Duration::from_millis(90);
    assert!(!takes_effect(delayed.clone(), MAPS, Duration::from_millis(1)).await);
    assert!(takes_effect(delayed, MAPS, almost).await);
}

#[tokio::test(start_paused = true)]
async fn reset_stops_processing_that_lasts_over_half_a_second() {
    let slow = FaultAction::SlowServer { by_ms: 5_000 };
    let effect = arrival(&slow).await;
    assert!(!takes_effect(slow.clone(), MAPS, effect - Duration::from_millis(600)).await);
    assert!(takes_effect(slow, MAPS, effect - Duration::from_millis(400)).await);
}

#[tokio::test(start_paused = true)]
async fn reset_of_a_half_open_connection_stops_nothing() {
    assert!(takes_effect(FaultAction::HalfOpen, MAPS, Duration::from_millis(1)).await);
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_connect_in_time_sends_nothing() {
    let slow = FaultAction::SlowConnect { by_ms: 5_000 };
    let arrives = arrival(&slow).await;
    assert!(!takes_effect(slow, MAPS, arrives - Duration::from_millis(50)).await);
}

/// Returns the time at which a create takes effect under this fault, if its sender waits.
async fn arrival(fault: &FaultAction) -> Duration {
    let world = World::with(hour_of(fault.clone()));
    assert_eq!(world.create("one").await, 201);
    let served = |record: &Record| matches!(record.kind, RecordKind::Served { .. }).then_some(record.at);
    let at = world.network.journal().records().iter().find_map(served).expect("the request was served");
    assert!((seconds(1)..seconds(50)).contains(&at), "the seed draws a long time: {at:?}");
    at
}

#[tokio::test(start_paused = true)]
async fn killed_sender_leaves_only_requests_in_the_network() {
    let world = World::with(hour_of(FaultAction::RequestDelayed { by_ms: 5_000 }));
    let (link, request) =
        (world.link.clone(), Request::post(MAPS).header("content-type", "application/json"));
    let request = request.body(Full::new(Bytes::from(map("one").to_string()))).expect("a request");
    drop(world.sender.spawn("sends", link.oneshot(request)));
    world.env.sleep(Duration::from_millis(1)).await;
    world.sender.kill();
    world.env.sleep(seconds(6)).await;
    assert!(!world.exists("one"), "{}", world.network.journal().lines());
    assert!(
        world.env.timeout(seconds(60), world.create("two")).await.is_err(),
        "a dead process sends nothing"
    );
    assert!(!world.exists("two"));
}

#[tokio::test(start_paused = true)]
async fn paused_sender_resets_nothing() {
    let world = World::with(hour_of(FaultAction::RequestDelayed { by_ms: 5_000 }));
    let (link, request) =
        (world.link.clone(), Request::post(MAPS).header("content-type", "application/json"));
    let request = request.body(Full::new(Bytes::from(map("one").to_string()))).expect("a request");
    drop(world.sender.spawn("sends", link.oneshot(request)));
    world.env.sleep(Duration::from_millis(1)).await;
    let _pause = world.sender.pause();
    world.env.sleep(seconds(6)).await;
    assert!(world.exists("one"), "{}", world.network.journal().lines());
}

#[tokio::test(start_paused = true)]
async fn write_times_out_without_effect_when_processing_outlasts_its_timeout() {
    let world = World::with(hour_of(FaultAction::SlowServer { by_ms: 5_000 }));
    let (_, sent) = (world.env.now(), world.env.now());
    assert_eq!(world.code("POST", &format!("{MAPS}?timeout=500ms"), map("one")).await, 504);
    let took = world.env.now().saturating_duration_since(sent);
    assert!((Duration::from_millis(500)..Duration::from_millis(510)).contains(&took), "{took:?}");
    assert!(!world.exists("one"));
}

#[tokio::test(start_paused = true)]
async fn write_with_timeout_arrives_within_tcp_user_timeout() {
    let world = World::with(hour_of(FaultAction::RequestDelayed { by_ms: 600_000 }));
    let sent = world.env.now();
    assert_eq!(world.code("POST", &format!("{MAPS}?timeout=10s"), map("one")).await, 201);
    assert!(world.env.now().saturating_duration_since(sent) < seconds(3));
}

#[tokio::test(start_paused = true)]
async fn transfer_time_grows_with_response_size() {
    let took = async |ms_per_megabyte| {
        let world = World::with(hour_of(FaultAction::SlowTransfer { ms_per_megabyte }));
        let mut large = map("large");
        large["data"] = json!({ "value": "x".repeat(500_000) });
        let sent = world.env.now();
        assert_eq!(world.code("POST", MAPS, large).await, 201);
        world.env.now().saturating_duration_since(sent)
    };
    assert!(took(0).await < seconds(1));
    assert!((seconds(5)..seconds(6)).contains(&took(10_000).await));
}

#[tokio::test(start_paused = true)]
async fn dead_server_loses_responses_and_stalls_watches() {
    let dies = Fault::until(seconds(30), FaultAction::ServerDies).from(seconds(10));
    let world = World::with(vec![dies]);
    let others = world.network.reliable_link(&world.env.with_incarnation("user", 0));
    let changes = async {
        world.env.sleep(seconds(20)).await;
        let answer = world.env.timeout(seconds(5), world.create("one")).await;
        assert!(answer.is_err() && world.exists("one"), "{answer:?}");
        let request = Request::post(MAPS).header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(map("two").to_string()))).expect("a request");
        others.clone().oneshot(request).await.expect("an answer");
    };
    let ((), (received, end)) = tokio::join!(changes, world.watch(seconds(600)));
    assert_eq!((received, end), (Vec::new(), None), "a stalled watch delivers no event");
    assert_eq!(world.create("three").await, 201, "another server answers");
}

#[tokio::test(start_paused = true)]
async fn held_watch_delivers_late_while_requests_are_answered() {
    let held = Fault::until(seconds(240), FaultAction::WatchHeld).for_resource("configmaps");
    let world = World::with(vec![held]);
    let changes = async {
        world.env.sleep(seconds(10)).await;
        assert_eq!(world.create("one").await, 201);
    };
    let ((), (received, end)) = tokio::join!(changes, world.follow("", seconds(300)));
    let [(at, event)] = &*received else { panic!("not one event: {received:?}") };
    assert_eq!((&**event, end), ("ADDED one", None));
    assert!((seconds(240)..seconds(241)).contains(at), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn process_dies_exactly_at_its_nth_write_before_or_after_the_effect() {
    for after_effect in [false, true] {
        let world = World::with(hour_of(FaultAction::CrashAtWrite { write: 2, after_effect }));
        assert_eq!(world.create("one").await, 201);
        assert!(world.env.timeout(seconds(1), world.create("two")).await.is_err());
        assert!(!world.sender.is_alive());
        assert_eq!(world.exists("two"), after_effect);
        assert_eq!(world.network.writes(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn process_dies_at_nth_write_even_if_another_fault_drops_it() {
    let thieves = [
        FaultAction::RequestLost { silently: false },
        FaultAction::RequestLost { silently: true },
        FaultAction::Partition,
        FaultAction::Unavailable,
        FaultAction::QuotaExceeded,
    ];
    for thief in thieves {
        let mut faults = hour_of(thief.clone());
        faults.extend(hour_of(FaultAction::CrashAtWrite { write: 1, after_effect: true }));
        let world = World::with(faults);
        let answer = world.env.timeout(seconds(1), world.create("one")).await;
        assert!(answer.is_err() && !world.sender.is_alive(), "{thief:?}: {answer:?}");
        assert!(!world.exists("one"), "{thief:?}");
        let lines = world.network.journal().lines();
        assert!(lines.contains("dies without any effect of #0"), "{thief:?}: {lines}");
    }
}

#[tokio::test(start_paused = true)]
async fn faults_affect_only_their_instance_resource_and_window() {
    let unavailable = || Fault::until(seconds(100), FaultAction::Unavailable);
    let cases = [
        (unavailable().for_instance("a"), 503),
        (unavailable().for_instance("b"), 201),
        (unavailable().for_resource("configmaps"), 503),
        (unavailable().for_resource("pods"), 201),
        (unavailable().from(seconds(50)), 201),
        (unavailable().permille(0), 201),
    ];
    for (fault, code) in cases {
        assert_eq!(World::with(vec![fault.clone()]).create("one").await, code, "{fault}");
    }
    let world = World::with(vec![unavailable()]);
    world.env.sleep(seconds(101)).await;
    assert_eq!(world.create("one").await, 201);
}

#[tokio::test(start_paused = true)]
async fn watch_faults_end_reset_expire_or_stall_watches() {
    let cases = [
        (FaultAction::WatchClosed, "ADDED one", Some(true)),
        (FaultAction::WatchReset, "ADDED one", Some(false)),
        (FaultAction::WatchExpired, "ERROR -", Some(true)),
        (FaultAction::WatchStalled, "ADDED one", None),
    ];
    for (action, last, end) in cases {
        let world = World::with(hour_of(action.clone()));
        world.create("one").await;
        let (received, ended) = world.watch(seconds(900)).await;
        assert_eq!(
            (received.last().map(String::as_str), ended),
            (Some(last), end),
            "{action:?}: {received:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_watch_sends_no_more_events() {
    let world = World::with(hour_of(FaultAction::WatchStalled));
    let changes = async {
        world.env.sleep(seconds(400)).await;
        world.create("late").await;
        std::future::pending::<()>().await;
    };
    let watch = world.watch(seconds(800));
    let (received, end) =
        tokio::select! { biased; received = watch => received, () = changes => unreachable!("never ends") };
    assert!(!received.contains(&"ADDED late".to_owned()) && end.is_none(), "{received:?} {end:?}");
}

#[tokio::test(start_paused = true)]
async fn duplicated_event_is_delivered_twice() {
    let world = World::with(hour_of(FaultAction::EventDuplicated));
    world.create("one").await;
    assert_eq!(world.watch(seconds(5)).await.0, ["ADDED one", "ADDED one"]);
}

/// Each event has its own random delay: unordered delivery would not keep the order of eight events by chance.
#[tokio::test(start_paused = true)]
async fn delayed_events_arrive_in_order() {
    const NAMES: [&str; 8] = ["c", "a", "d", "b", "h", "f", "g", "e"];
    let world = World::with(hour_of(FaultAction::WatchDelayed { by_ms: 10_000 }));
    let changes = async {
        world.env.sleep(seconds(1)).await;
        for name in NAMES {
            world.create(name).await;
        }
        let made_by = world.env.now().since_origin();
        world.env.sleep(seconds(200)).await;
        made_by
    };
    let (made_by, (received, _)) = tokio::join!(changes, world.follow("", seconds(150)));
    let (times, events): (Vec<Duration>, Vec<&str>) =
        received.iter().map(|(at, event)| (*at, &**event)).unzip();
    assert_eq!(events, NAMES.map(|name| format!("ADDED {name}")));
    assert!(times.iter().any(|at| *at > made_by + seconds(1)), "nothing was late: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn coalescing_replaces_short_lived_object_with_bookmark() {
    let world = World::with(hour_of(FaultAction::Coalesced { within_ms: 2_000 }));
    let changes = async {
        world.env.sleep(seconds(1)).await;
        world.create("stays").await;
        world.create("brief").await;
        world.code("DELETE", &format!("{MAPS}/brief"), Value::Null).await;
        std::future::pending::<()>().await;
    };
    let watch = world.watch_with("&allowWatchBookmarks=true", seconds(30));
    let (received, _) =
        tokio::select! { biased; received = watch => received, () = changes => unreachable!("never ends") };
    assert!(
        received.contains(&"ADDED stays".to_owned()) && !received.iter().any(|it| it.ends_with("brief")),
        "{received:?}"
    );
    assert_eq!(received.last().map(String::as_str), Some("BOOKMARK -"));
}

#[tokio::test(start_paused = true)]
async fn end_bookmark_of_initial_list_can_be_omitted() {
    let initial = format!(
        "{MAPS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    for (faults, bookmarks) in [(Vec::new(), 1), (hour_of(FaultAction::EndBookmarkMissing), 0)] {
        let world = World::with(faults);
        let response = world.send("GET", &initial, Value::Null).await.expect("a watch");
        let frames = response.into_body().into_data_stream().take_until(world.env.sleep(seconds(5)));
        let received: Vec<_> = frames.collect().await;
        let ends =
            received.iter().flatten().filter(|frame| frame.windows(18).any(|it| it == b"initial-events-end"));
        assert_eq!(ends.count(), bookmarks);
    }
}

#[tokio::test(start_paused = true)]
async fn poisoned_object_has_numeric_spec_and_keeps_its_name() {
    let world = World::with(hour_of(FaultAction::Poison { name: "bad".into() }));
    world.create("bad").await;
    world.create("good").await;
    let list = body(world.send("GET", MAPS, Value::Null).await.expect("a list")).await;
    let specs: Vec<_> =
        list["items"].as_array().expect("items").iter().map(|it| it["spec"].clone()).collect();
    assert!(specs.contains(&json!(7)), "{list}");
    assert_eq!(
        specs.iter().filter(|it| it.is_null()).count(),
        list["items"].as_array().map_or(0, Vec::len) - 1
    );
    assert_eq!(world.watch(seconds(1)).await.0.iter().filter(|it| it.ends_with(" bad")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn stale_replica_lists_and_watches_old_state() {
    let world = World::with(vec![Fault::until(seconds(100), FaultAction::StaleReplica).from(seconds(10))]);
    world.create("old").await;
    world.env.sleep(seconds(20)).await;
    world.create("new").await;
    let cached = format!("{MAPS}?resourceVersion=0");
    let names = |list: Value| {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|it| it["metadata"]["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let old = names(body(world.send("GET", &cached, Value::Null).await.expect("a list")).await);
    assert!(old.contains(&"old".to_owned()) && !old.contains(&"new".to_owned()), "{old:?}");
    let newest = names(body(world.send("GET", MAPS, Value::Null).await.expect("a list")).await);
    assert!(newest.contains(&"new".to_owned()), "a consistent list does not come from the cache: {newest:?}");
    world.env.sleep(seconds(100)).await;
    let healed = names(body(world.send("GET", &cached, Value::Null).await.expect("a list")).await);
    assert!(healed.contains(&"new".to_owned()), "{healed:?}");
}

#[tokio::test(start_paused = true)]
async fn partition_delays_events_of_open_watch_until_it_heals() {
    let world = World::with(vec![Fault::until(seconds(70), FaultAction::Partition).from(seconds(10))]);
    let others = world.network.reliable_link(&world.env.with_incarnation("user", 0));
    let changes = async {
        world.env.sleep(seconds(30)).await;
        let request = Request::post(MAPS).header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(map("one").to_string()))).expect("a request");
        others.clone().oneshot(request).await.expect("an answer");
    };
    let ((), (received, end)) = tokio::join!(changes, world.follow("", seconds(80)));
    let [(at, event)] = &*received else { panic!("not one event: {received:?}") };
    assert_eq!((&**event, end), ("ADDED one", None));
    assert!((seconds(70)..seconds(71)).contains(at), "{at:?}");
}

async fn history(seed: u64, faults: Vec<Fault>) -> String {
    let world = World::seeded(seed, faults);
    for number in 0..40 {
        drop(world.send("POST", MAPS, map(&format!("map-{number}"))).await);
    }
    drop(world.send("GET", MAPS, Value::Null).await);
    world.network.journal().lines()
}

#[tokio::test(start_paused = true)]
async fn equal_seed_reproduces_history_and_removed_fault_changes_no_other() {
    let unavailable = Fault::until(seconds(600), FaultAction::Unavailable).permille(300);
    let broken = Fault::until(seconds(600), FaultAction::RequestLost { silently: false })
        .permille(300)
        .for_resource("configmaps");
    let both = || vec![broken.clone(), unavailable.clone()];
    assert_eq!(history(3, both()).await, history(3, both()).await);
    assert_ne!(history(3, both()).await, history(4, both()).await);
    let struck = |lines: String| -> Vec<String> {
        let refused = lines.lines().filter(|link| link.contains("rejected with 503"));
        refused.filter_map(|link| link.split('#').nth(1).map(str::to_owned)).collect()
    };
    let (together, alone) = (struck(history(3, both()).await), struck(history(3, vec![unavailable]).await));
    assert!(
        together.len() > 3 && together.iter().all(|number| alone.contains(number)),
        "{together:?} {alone:?}"
    );
}

#[test]
fn request_summary_matches_the_api_server() {
    let cases = [
        ("GET", "/api/v1/pods?watch=true", "Some(Watch)  pods   "),
        ("GET", "/api/v1/pods?limit=1", "Some(List)  pods   "),
        ("GET", "/api/v1/watch/namespaces/web/pods/a", "Some(Watch)  pods web a "),
        ("DELETE", "/api/v1/watch/pods", "None     "),
        ("POST", "/api/v1/namespaces/web/pods", "Some(Create)  pods web  "),
        (
            "PUT",
            "/apis/apps/v1/namespaces/web/replicasets/a/status",
            "Some(Update) apps replicasets web a status",
        ),
        ("PATCH", "/api/v1/namespaces/web", "Some(Patch)  namespaces  web "),
        ("PUT", "/api/v1/namespaces/web/finalize", "Some(Update)  namespaces  web finalize"),
        ("DELETE", "/api/v1/namespaces/web/pods", "Some(DeleteCollection)  pods web  "),
        ("GET", "/healthz", "None     "),
        ("GET", "/apis/apps/v1", "None     "),
    ];
    for (method, uri, expected) in cases {
        let (parts, ()) =
            Request::builder().method(method).uri(uri).body(()).expect("a request").into_parts();
        let it = RequestSummary::of(&parts);
        let found = format!(
            "{:?} {} {} {} {} {}",
            it.verb, it.group, it.resource, it.namespace, it.name, it.subresource
        );
        assert_eq!(found, expected, "{method} {uri}");
    }
}

#[test]
fn fault_plan_displays_as_a_line_of_rust() {
    let fault = Fault::until(seconds(9), FaultAction::RequestDelayed { by_ms: 7 })
        .for_instance("a")
        .for_resource("pods")
        .permille(50);
    let plan = FaultPlan { seed: 3, faults: vec![fault, Fault::until(seconds(1), FaultAction::Crash)] };
    let text = plan.to_string();
    let json = text
        .strip_prefix("FaultPlan::from_json(r##\"")
        .and_then(|it| it.strip_suffix("\"##).expect(\"a printed plan\")"));
    assert_eq!(FaultPlan::from_json(json.expect("a call")).expect("a plan"), plan);
    assert_eq!(plan.end(), seconds(9));
}
