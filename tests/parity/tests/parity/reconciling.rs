//! Behavior of a controller during faults and wrong use.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass::prelude::*;
use windlass::testing::FaultAction;
use windlass::testing::api_server::faults::RequestSummary;

use crate::world::{ReconcileLog, World, act, controller, map, noting, text};

fn maps_of(cx: &Context) -> Api<ConfigMap> {
    Api::namespaced(cx.client().clone(), "shop")
}

/// kube-rs merges all triggers and backs off the merged stream: with one watch forbidden, events every 20 s became
/// reconciles up to 44 s apart (stackabletech/trino-operator#936, measured on kube 5.0.0).
// parity: controller-merged, failing-watch-throttles-all
#[tokio::test(start_paused = true)]
async fn failing_watch_does_not_delay_other_watches() {
    let world = World::new();
    let log = ReconcileLog::default();
    let notes = log.clone();
    let watching_two = controller("two-kinds", move |setup| {
        setup.primary::<ConfigMap>();
        setup.primary::<Secret>();
        noting(&notes)
    });
    let _workers = world.run([watching_two]).await;
    world.pass(1).await;
    world.api.inject_fault(|request| (request.resource == "secrets").then_some(FaultAction::Unavailable));
    world.api.upsert("/api/v1/namespaces/shop/secrets/unseen", json!({}));
    world.api.inject_fault(|request| match (&*request.resource, request.is_watch()) {
        ("secrets", true) => Some(FaultAction::WatchReset),
        ("secrets", false) => Some(FaultAction::Unavailable),
        _ => None,
    });
    world.api.upsert("/api/v1/namespaces/shop/secrets/unseen-too", json!({}));
    let mut expected = Vec::new();
    for _ in 0..10 {
        world.pass(20).await;
        expected.push(world.env.now().since_origin());
        world.put("a");
    }
    world.pass(1).await;
    let times = log.times("a");
    assert_eq!(times.len(), 10, "{times:?}");
    let late = |(at, due): (&Duration, &Duration)| at.saturating_sub(*due) > Duration::from_millis(100);
    assert!(!times.iter().zip(&expected).any(late), "{times:?} were due at {expected:?}");
    assert!(world.sent_uris("secrets", |_| true).len() > 4, "the failing watch was retried meanwhile");
}

/// If the cache is late, a controller that creates an object missing from its cache creates it twice, which caused a
/// double disruption (opensearch-operator #1471; controller-runtime #1464, #3320, cluster-api #13720).
// parity: read-your-writes-0, stale-reads
#[tokio::test(start_paused = true)]
async fn create_with_generate_name_is_not_repeated_if_cache_is_late() {
    let world = World::new();
    world.put("owner");
    world.api.inject_fault(|_| Some(FaultAction::Coalesced { within_ms: 3000 }));
    let wants_a_secret = controller("wants-a-secret", |setup| {
        setup.uses::<Secret>([Verb::Create]);
        setup.primary::<ConfigMap>();
        let secrets =
            setup.watch::<Secret>().enqueue(|_| vec![ObjectKey::namespaced("shop", "owner")]).lister();
        act(move |_, cx| {
            let secrets = secrets.clone();
            async move {
                if secrets.is_empty() {
                    let drawn = json!({ "metadata": { "generateName": "secret-" } });
                    let drawn: Secret = serde_json::from_value(drawn).map_err(terminal)?;
                    let api = Api::<Secret>::namespaced(cx.client().clone(), "shop");
                    api.create(&PostParams::default(), &drawn).await?;
                }
                // Requeue long before the cache can reflect the write.
                Ok(Outcome::RequeueAfter(Duration::from_millis(10)))
            }
        })
    });
    let _workers = world.run([wants_a_secret]).await;
    world.pass(30).await;
    assert_eq!(world.api.all("/api/v1/namespaces/shop/secrets").len(), 1, "{:?}", world.written());
}

/// Keys of reconciles in progress, and their maximum number.
#[derive(Clone, Default)]
struct UnderWay(Arc<(Mutex<BTreeSet<String>>, AtomicUsize)>);

impl UnderWay {
    fn begin(&self, key: &ObjectKey) {
        let mut keys = self.0.0.lock().expect("no panic");
        assert!(keys.insert(key.to_string()), "{key} has two concurrent reconciles");
        self.0.1.fetch_max(keys.len(), Ordering::Relaxed);
    }

    fn end(&self, key: &ObjectKey) {
        self.0.0.lock().expect("no panic").remove(&key.to_string());
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// Returns a controller whose reconciles take one second. `None` keeps the default number of workers.
fn slow(workers: Option<usize>, under_way: &UnderWay) -> Registration {
    let under_way = under_way.clone();
    controller("slow", move |setup| {
        if let Some(workers) = workers {
            setup.workers(workers);
        }
        setup.primary::<ConfigMap>();
        let under_way = under_way.clone();
        act(move |key, cx| {
            let under_way = under_way.clone();
            async move {
                under_way.begin(&key);
                cx.env().sleep(Duration::from_secs(1)).await;
                under_way.end(&key);
                Ok(Outcome::Done)
            }
        })
    })
}

/// kube-rs does not limit concurrent reconciles by default (kube#1473, #1248; pgroles#209 was killed for memory 1709
/// times).
// parity: run-workers, max-concurrent-reconciles, concurrency-rate-limiter-logger, task-each-concurrent-reconcile
// parity: unbounded-concurrency-default
#[tokio::test(start_paused = true)]
async fn concurrent_reconciles_are_limited_and_default_to_one() {
    for (configured, most) in [(None, 1), (Some(1), 1), (Some(4), 4)] {
        let world = World::new();
        (0..20).for_each(|number| world.put(&format!("map-{number}")));
        let under_way = UnderWay::default();
        let _workers = world.run([slow(configured, &under_way)]).await;
        world.pass(25).await;
        assert_eq!(under_way.most(), most, "{configured:?}");
    }
}

/// "returns an item as soon as its unlocked", tested with a whole controller.
// parity: doesn-t-return-item
#[tokio::test(start_paused = true)]
async fn changing_key_runs_one_reconcile_at_a_time_and_ends_with_last_change() {
    let world = World::new();
    let (under_way, seen) = (UnderWay::default(), ReconcileLog::default());
    let (busy, notes) = (under_way.clone(), seen.clone());
    let slow = controller("slow", move |setup| {
        setup.workers(8);
        let maps = setup.primary::<ConfigMap>().lister();
        let (busy, notes) = (busy.clone(), notes.clone());
        act(move |key, cx| {
            let (busy, notes, maps) = (busy.clone(), notes.clone(), maps.clone());
            async move {
                busy.begin(&key);
                let put_at = maps
                    .get_lossy(&key)
                    .and_then(|map| map.metadata.annotations.clone()?.get("put-at").cloned());
                notes.note(cx.env().now(), &put_at.unwrap_or_default());
                cx.env().sleep(Duration::from_millis(700)).await;
                busy.end(&key);
                Ok(Outcome::Done)
            }
        })
    });
    let _workers = world.run([slow]).await;
    for _ in 0..50 {
        world.put("a");
        world.env.sleep(Duration::from_millis(100)).await;
    }
    world.pass(5).await;
    let last = world.api.object(&map("a")).expect("put");
    assert_eq!(seen.lines().last().map(String::as_str), Some(text(&last, "/metadata/annotations/put-at")));
    assert!(seen.lines().len() <= 12, "changes during a reconcile are merged: {}", seen.lines().len());
}

/// kube-rs has one error policy and no failure count per key (kube#1916, #297). In controller-runtime a terminal error
/// keeps the failure count.
// parity: terminal-error-keeps-back, no-reset-back-off, no-back-off-per
#[tokio::test(start_paused = true)]
async fn success_and_terminal_error_reset_backoff_of_key() {
    for end in ["succeed", "give up"] {
        let world = World::new();
        world.put("a");
        let (log, wish) = (ReconcileLog::default(), Arc::new(Mutex::new("fail")));
        let (notes, wished) = (log.clone(), Arc::clone(&wish));
        let moody = controller("moody", move |setup| {
            setup.primary::<ConfigMap>();
            let (notes, wished) = (notes.clone(), Arc::clone(&wished));
            act(move |key, cx| {
                notes.note(cx.env().now(), key.name());
                let wished = *wished.lock().expect("no panic");
                async move {
                    match wished {
                        "fail" => Err(retry("as planned")),
                        "give up" => Err(terminal("as planned")),
                        _ => Ok(Outcome::Done),
                    }
                }
            })
        });
        let _workers = world.run([moody]).await;
        world.pass(60).await;
        assert!((10..20).contains(&log.times("a").len()), "{:?}", log.times("a"));
        *wish.lock().expect("no panic") = end;
        world.pass(120).await;
        log.clear();
        *wish.lock().expect("no panic") = "fail";
        world.put("a");
        world.pass(1).await;
        let times = log.times("a");
        assert!(times.len() >= 6, "after {end} the backoff starts at milliseconds again: {times:?}");
    }
}

/// "should enqueue a Request for a owner that is cluster scoped".
// parity: for-owns
#[tokio::test(start_paused = true)]
async fn cluster_scoped_owner_is_reconciled_when_namespaced_child_changes() {
    let world = World::new();
    let namespace = world.api.object("/api/v1/namespaces/shop").expect("there");
    let log = ReconcileLog::default();
    let notes = log.clone();
    let of_namespaces = controller("of-namespaces", move |setup| {
        setup.watch::<ConfigMap>().enqueue(by_owner::<Namespace>);
        let notes = notes.clone();
        act(move |key, cx| {
            notes.note(cx.env().now(), &key.to_string());
            async { Ok(Outcome::Done) }
        })
    });
    let _workers = world.run([of_namespaces]).await;
    world.api.upsert(&map("child"), json!({ "metadata": { "ownerReferences": [owner(&namespace, true)] } }));
    world.pass(1).await;
    assert_eq!(log.lines(), ["shop"]);
}

fn owner(of: &Value, controller: bool) -> Value {
    json!({
        "apiVersion": of["apiVersion"], "kind": of["kind"], "controller": controller,
        "name": of["metadata"]["name"], "uid": of["metadata"]["uid"],
    })
}

/// "should enqueue a Request with the Owners of both objects in the UpdateEvent", and one Request if the owner is the
/// same.
// parity: for-owns, reconciles-owned-objects-every
#[tokio::test(start_paused = true)]
async fn changed_owner_reference_enqueues_old_and_new_owner_once() {
    let world = World::new();
    let parents = ["old", "new"].map(|name| {
        world.put(name);
        world.api.object(&map(name)).expect("put")
    });
    let log = ReconcileLog::default();
    let notes = log.clone();
    let of_secrets = controller("of-secrets", move |setup| {
        setup.watch::<Secret>().enqueue(by_owner::<ConfigMap>);
        noting(&notes)
    });
    let _workers = world.run([of_secrets]).await;
    let child = "/api/v1/namespaces/shop/secrets/child";
    world.api.upsert(child, json!({ "metadata": { "ownerReferences": [owner(&parents[0], true)] } }));
    world.pass(1).await;
    assert_eq!(log.lines(), ["old"]);
    world.api.upsert(child, json!({ "metadata": { "labels": { "only": "this" } } }));
    world.pass(1).await;
    assert_eq!(log.lines(), ["old", "old"], "one owner, one key");
    log.clear();
    world.api.upsert(child, json!({ "metadata": { "ownerReferences": [owner(&parents[1], true)] } }));
    world.pass(1).await;
    assert_eq!(log.lines(), ["old", "new"]);
    log.clear();
    world.api.upsert(child, json!({ "metadata": { "ownerReferences": [owner(&parents[1], false)] } }));
    world.pass(1).await;
    assert_eq!(log.lines(), ["new"], "the former controller is enqueued once");
    log.clear();
    world.api.upsert(child, json!({ "metadata": { "labels": { "only": "that" } } }));
    world.pass(1).await;
    assert_eq!(log.lines(), Vec::<String>::new(), "an owner that is not the controller is not enqueued");
}

/// kube-rs has a finalizer helper. Here the deletion timestamp and the final deletion enqueue the key like any other
/// change.
// parity: controllerutil-references, finalizer-helper
#[tokio::test(start_paused = true)]
async fn key_is_reconciled_after_its_finalizer_is_removed() {
    const HELD: &str = "example.com/held";
    let world = World::new();
    world.api.upsert(&map("a"), json!({ "metadata": { "finalizers": [HELD] } }));
    let log = ReconcileLog::default();
    let notes = log.clone();
    let cleans_up = controller("cleans-up", move |setup| {
        setup.uses::<ConfigMap>([Verb::Patch]);
        let maps = setup.primary::<ConfigMap>().lister();
        let notes = notes.clone();
        act(move |key, cx| {
            let (notes, maps) = (notes.clone(), maps.clone());
            async move {
                let map = maps.get_lossy(&key);
                let leaving = map.as_ref().map(|map| map.metadata.deletion_timestamp.is_some());
                let state = leaving.map_or("gone", |leaving| if leaving { "leaving" } else { "there" });
                notes.note(cx.env().now(), state);
                if leaving == Some(true) {
                    let none = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
                    maps_of(&cx).patch(key.name(), &PatchParams::default(), &none).await?;
                }
                Ok(Outcome::Done)
            }
        })
    });
    let _workers = world.run([cleans_up]).await;
    world.pass(1).await;
    world.api.delete(&map("a"));
    world.pass(5).await;
    assert_eq!(log.lines(), ["there", "leaving", "gone"]);
    assert_eq!(world.written().len(), 1, "{:?}", world.written());
    assert_eq!(world.api.object(&map("a")), None);
}

/// kube-rs's applier deadlocks if more keys wait than its channel can hold (kube#926).
// parity: applier-locks-itself
#[tokio::test(start_paused = true)]
async fn thousands_of_keys_and_one_worker_do_not_deadlock() {
    const MANY: usize = 1500;
    let world = World::new();
    let log = ReconcileLog::default();
    let notes = log.clone();
    let requeuing = controller("requeuing", move |setup| {
        setup.primary::<ConfigMap>();
        let notes = notes.clone();
        act(move |key, cx| {
            notes.note(cx.env().now(), "reconciled");
            if !key.name().ends_with("-again") {
                cx.queue().add(ObjectKey::namespaced("shop", &format!("{}-again", key.name())));
            }
            async { Ok(Outcome::Done) }
        })
    });
    let _workers = world.run([requeuing]).await;
    (0..MANY).for_each(|number| world.put(&format!("map-{number}")));
    world.pass(60).await;
    assert_eq!(log.lines().len(), 2 * MANY);
}

/// kube-rs exports no metrics of its queue (kube#1917).
// parity: metrics-controller-runtime-reconcile, doesn-t-include-non, metrics-results-times, no-view-queue
#[tokio::test(start_paused = true)]
async fn metrics_report_queue_depth_and_reconcile_results() {
    let world = World::new();
    ["ok", "fails", "later", "hopeless"].iter().for_each(|name| world.put(name));
    let obedient = controller("obedient", |setup| {
        setup.primary::<ConfigMap>();
        act(|key, cx| async move {
            match key.name() {
                "fails" if cx.attempts() < 3 => Err(retry("as planned")),
                "later" if cx.env().now().since_origin() < Duration::from_secs(5) => {
                    Ok(Outcome::RequeueAfter(Duration::from_secs(10)))
                }
                "hopeless" => {
                    cx.env().sleep(Duration::from_secs(2)).await;
                    Err(terminal("as planned"))
                }
                "slow" => {
                    cx.env().sleep(Duration::from_secs(100)).await;
                    Ok(Outcome::Done)
                }
                _ => Ok(Outcome::Done),
            }
        })
    });
    let _workers = world.run([obedient]).await;
    world.pass(20).await;
    world.put("slow");
    world.pass(1).await;
    ["ok", "other"].iter().for_each(|name| world.put(name));
    world.pass(1).await;
    let shown = world.metrics.encode();
    for line in [
        "workqueue_depth{name=\"obedient\"} 2",
        "workqueue_adds_total{name=\"obedient\"} 11",
        "workqueue_retries_total{name=\"obedient\"} 4",
        "windlass_reconcile_total{controller=\"obedient\",result=\"error\"} 3",
        "windlass_reconcile_total{controller=\"obedient\",result=\"terminal\"} 1",
        "windlass_reconcile_total{controller=\"obedient\",result=\"requeue_after\"} 1",
        "windlass_reconcile_total{controller=\"obedient\",result=\"success\"} 3",
        "windlass_active_workers{controller=\"obedient\"} 1",
        "windlass_max_concurrent_reconciles{controller=\"obedient\"} 1",
        "windlass_reconcile_panics_total{controller=\"obedient\"} 0",
        "windlass_reconcile_duration_seconds_count{controller=\"obedient\"} 8",
        "windlass_reconcile_duration_seconds_sum{controller=\"obedient\"} 2",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not among\n{}", of(&shown, "obedient"));
    }
}

fn of(shown: &str, name: &str) -> String {
    let lines: Vec<&str> =
        shown.lines().filter(|line| line.contains(name) && !line.contains("_bucket")).collect();
    lines.join("\n")
}

/// kube-rs logs an error if the object of a key is deleted (`ObjectNotFound`, kube#1167).
// parity: object-not-found
#[tokio::test(start_paused = true)]
async fn key_of_deleted_object_is_reconciled_without_error() {
    let world = World::new();
    world.put("a");
    let log = ReconcileLog::default();
    let notes = log.clone();
    let plain = controller("plain", move |setup| {
        setup.primary::<ConfigMap>();
        noting(&notes)
    });
    let _workers = world.run([plain]).await;
    world.pass(1).await;
    world.api.remove(&map("a"));
    world.pass(60).await;
    assert_eq!(log.lines(), ["a", "a"]);
    let shown = world.metrics.encode();
    assert!(
        shown.contains("windlass_reconcile_total{controller=\"plain\",result=\"success\"} 2"),
        "{}",
        of(&shown, "plain")
    );
}

/// A read of controller-runtime's client silently starts a cache of the whole kind (controller-runtime #2397, #1222).
// parity: reader-fail-on-missing-informer-off, delegating-client-reads-cache, implicit-informers
#[tokio::test(start_paused = true)]
async fn client_get_sends_one_request_and_starts_no_cache() {
    let world = World::new();
    world.put("a");
    world.api.upsert("/api/v1/namespaces/shop/secrets/one", json!({}));
    let reads = controller("reads", |setup| {
        setup.uses::<Secret>([Verb::Get]);
        setup.primary::<ConfigMap>();
        act(|_, cx| async move {
            Api::<Secret>::namespaced(cx.client().clone(), "shop").get("one").await?;
            Ok(Outcome::Done)
        })
    });
    let _workers = world.run([reads]).await;
    world.pass(60).await;
    assert_eq!(world.sent_uris("secrets", |_| true), ["/api/v1/namespaces/shop/secrets/one"]);
}

/// In controller-runtime a conflict is an error with the same backoff as any other (knative #3289 has its own patch).
// parity: conflicts-logged-errors
#[tokio::test(start_paused = true)]
async fn conflict_is_retried_within_milliseconds() {
    let world = World::new();
    world.put("a");
    world.inject_into_first(3, RequestSummary::is_work, FaultAction::Conflict);
    let log = ReconcileLog::default();
    let notes = log.clone();
    let writes = controller("writes", move |setup| {
        setup.uses::<ConfigMap>([Verb::Patch]);
        let maps = setup.primary::<ConfigMap>().lister();
        let notes = notes.clone();
        act(move |key, cx| {
            let done = maps.get_lossy(&key).is_some_and(|map| map.data.is_some());
            let notes = notes.clone();
            async move {
                if !done {
                    let patch = Patch::Merge(json!({ "data": { "done": "yes" } }));
                    let patched = maps_of(&cx).patch(key.name(), &PatchParams::default(), &patch).await;
                    let patched = patched.map_err(ReconcileError::from);
                    let conflict = patched.as_ref().err().map(ReconcileError::is_conflict);
                    notes.note(cx.env().now(), &format!("{conflict:?}"));
                    patched?;
                }
                Ok(Outcome::Done)
            }
        })
    });
    let _workers = world.run([writes]).await;
    world.pass(1).await;
    assert_eq!(world.written().len(), 4);
    assert_eq!(world.api.object(&map("a")).expect("there")["data"]["done"], "yes");
    assert_eq!(log.lines(), ["Some(true)", "Some(true)", "Some(true)", "None"]);
    assert_eq!(world.metrics.reconcile("writes").panics.get(), 0);
}

/// "should not call Reconcile until all event handlers have processed initial objects".
// parity: pods-synced, no-reconcile-before-all, owns-watches
#[tokio::test(start_paused = true)]
async fn reconciles_start_after_all_caches_of_controller_are_synced() {
    let world = World::new();
    (0..700).for_each(|number| world.put(&format!("map-{number}")));
    world.api.upsert("/api/v1/namespaces/shop/secrets/one", json!({}));
    world.inject_into_first(
        3,
        |request| request.resource == "secrets" && !request.is_watch(),
        FaultAction::Unavailable,
    );
    let log = ReconcileLog::default();
    let notes = log.clone();
    let of_both = controller("of-both", move |setup| {
        let maps = setup.primary::<ConfigMap>().lister();
        let secrets = setup.watch::<Secret>().lister();
        let notes = notes.clone();
        act(move |_, cx| {
            notes.note(cx.env().now(), &format!("{} {}", maps.len(), secrets.len()));
            async { Ok(Outcome::Done) }
        })
    });
    let _workers = world.run([of_both]).await;
    world.pass(10).await;
    let seen: BTreeSet<String> = log.lines().into_iter().collect();
    assert_eq!(seen, BTreeSet::from(["700 1".to_owned()]));
    assert_eq!(log.lines().len(), 700, "each object once");
}

/// "should support multiple controllers watching the same metadata kind", "should allow multiple controllers for the
/// same kind"; they share one watch.
// parity: several-controllers-kind
#[tokio::test(start_paused = true)]
async fn controllers_of_one_kind_share_watch_and_receive_all_events() {
    let world = World::new();
    world.put("a");
    let logs = ["first", "second", "third"].map(|name| (name, ReconcileLog::default()));
    let controllers = logs.clone().map(|(name, log)| {
        controller(name, move |setup| {
            setup.primary::<ConfigMap>();
            noting(&log)
        })
    });
    let _workers = world.run(controllers).await;
    world.pass(1).await;
    world.put("b");
    world.pass(1).await;
    for (name, log) in logs {
        assert_eq!(log.lines(), ["a", "b"], "{name}");
    }
    assert_eq!(world.sent_uris("configmaps", RequestSummary::is_watch).len(), 1);
}

/// A panic in a reconcile stops a kube-rs controller (`CancelableJoinHandle` unwraps), and a panic in a handler stops a
/// client-go process. A malformed annotation kept Argo Workflows in a crash loop (CVE-2026-40886).
// parity: recover-panic, panic-controller-down
#[tokio::test(start_paused = true)]
async fn panicking_reconcile_affects_only_its_key() {
    let world = World::new();
    ["a", "poison", "z"].iter().for_each(|name| world.put(name));
    let log = ReconcileLog::default();
    let notes = log.clone();
    let fragile = controller("fragile", move |setup| {
        setup.primary::<ConfigMap>();
        let notes = notes.clone();
        act(move |key, cx| {
            notes.note(cx.env().now(), key.name());
            assert_ne!(key.name(), "poison", "a reconcile with a defect");
            async { Ok(Outcome::Done) }
        })
    });
    let workers = world.run([fragile]).await;
    world.pass(600).await;
    ["a", "z"].iter().for_each(|name| world.put(name));
    world.pass(1).await;
    assert_eq!((log.times("a").len(), log.times("z").len()), (2, 2));
    let attempts = log.times("poison").len();
    assert!((10..25).contains(&attempts), "{attempts} attempts in ten minutes");
    assert!(workers[0].health(Duration::from_secs(60))().is_ok());
}

/// controller-runtime cancels running reconciles when it stops (controller-runtime #764, #1424, #3211).
// parity: shutdown-cancels-under-way
#[tokio::test(start_paused = true)]
async fn stop_waits_for_running_reconcile() {
    let world = World::new();
    world.put("a");
    let two_writes = controller("two-writes", |setup| {
        setup.uses::<ConfigMap>([Verb::Patch]);
        setup.primary::<ConfigMap>();
        act(|key, cx| async move {
            for step in ["one", "two"] {
                let patch = Patch::Merge(json!({ "data": { step: "done" } }));
                maps_of(&cx).patch(key.name(), &PatchParams::default(), &patch).await?;
                cx.env().sleep(Duration::from_secs(3)).await;
            }
            Ok(Outcome::Done)
        })
    });
    let mut workers = world.run([two_writes]).await;
    world.pass(1).await;
    workers[0].stop();
    workers[0].ended().await;
    assert_eq!(world.written().len(), 2);
    assert_eq!(world.api.object(&map("a")).expect("there")["data"], json!({ "one": "done", "two": "done" }));
}
