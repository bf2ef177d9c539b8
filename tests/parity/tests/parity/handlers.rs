//! What handlers ask for beyond being told, and what a factory grants: periods of their own, an end that can be waited
//! for, informers that stop alone, selectors, transforms and budgets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use windlass::informer::{
    Cause, Event, KindAvailability, KindOptions, Resync, Selection, Selectors, UnsyncedReason,
};
use windlass::object::{Dynamic, Metadata, ResourceKind, Typed, Verb};
use windlass_informer::{FactoryOptions, HandlerOptions, InformerError, InformerFactory, SharedInformer};

use crate::world::{ReconcileLog, World, map};

fn every(seconds: u64) -> HandlerOptions {
    HandlerOptions { resync: Resync::Every(Duration::from_secs(seconds)), ..HandlerOptions::default() }
}

/// A handler that notes resyncs.
fn resyncs(informer: &SharedInformer<ConfigMap>, name: &str, options: HandlerOptions, diary: &ReconcileLog) {
    let (diary, noted) = (diary.clone(), name.to_owned());
    let handler = move |event: &Event<Arc<ConfigMap>>| {
        if event.cause() == Cause::Resync {
            diary.note(windlass::env::Instant::ORIGIN, &noted);
        }
    };
    informer.add_handler_with(name, options, handler).expect("not stopped");
}

/// `TestListenerResyncPeriods`, `TestListenerResyncPeriodsDelayed`, `TestResyncCheckPeriod`. client-go raises a period
/// that comes after the start to the one that it checks at, and to nothing if there is none.
// parity: with-resync-period, resync-periods-per-handler, with-custom-resync-config, test-listener-resync-periods
// parity: test-listener-resync-periods-delayed
#[tokio::test(start_paused = true)]
async fn each_handler_is_resynced_at_its_own_period_also_if_it_comes_late() {
    let world = World::new();
    world.put("a");
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let diary = ReconcileLog::default();
    resyncs(&informer, "never", HandlerOptions::default(), &diary);
    resyncs(&informer, "two", every(2), &diary);
    world.sync(&factory).await;
    resyncs(&informer, "late three", every(3), &diary);
    world.env.sleep(Duration::from_millis(12_500)).await;
    assert_eq!(diary.times("never").len(), 0);
    assert_eq!(diary.times("two").len(), 6);
    assert_eq!(diary.times("late three").len(), 4);
    let too_often =
        HandlerOptions { resync: Resync::Every(Duration::from_millis(999)), ..HandlerOptions::default() };
    let refused = informer.add_handler_with("hasty", too_often, |_: &Event<Arc<ConfigMap>>| {});
    assert!(matches!(refused, Err(InformerError::ResyncTooShort { .. })), "{refused:?}");
}

/// `TestShutDownEventHandler_Lifecycles`, `TestRemoveEventHandler_*`. client-go's variant that waits deadlocks when it is
/// called where its own handler runs.
// parity: shut-down-event-handler, test-event-panics, test-shared-informer-remove-foreign
#[tokio::test(start_paused = true)]
async fn end_of_a_handler_can_be_waited_for_in_every_phase_of_its_life() {
    let world = World::new();
    (0..200).for_each(|number| world.put(&format!("map-{number}")));
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let diary = ReconcileLog::default();
    let add = |name: &'static str| {
        let diary = diary.clone();
        let handler = move |_: &Event<Arc<ConfigMap>>| diary.note(windlass::env::Instant::ORIGIN, name);
        informer.add_handler(name, handler).expect("not stopped")
    };
    let (before, running) = (add("before"), add("running"));
    before.remove();
    before.removed().await.expect("it never ran");
    world.sync(&factory).await;
    assert!(running.synced().await);
    running.remove();
    running.removed().await.expect("nobody waits for itself");
    let panicking =
        informer.add_handler("panicking", |_: &Event<Arc<ConfigMap>>| panic!("a handler with a defect"));
    let panicking = panicking.expect("not stopped");
    assert!(panicking.synced().await);
    panicking.remove();
    panicking.removed().await.expect("a panic ends no handler, and a removal ends one that panicked");
    let told = diary.lines().len();
    world.put("later");
    world.pass(5).await;
    assert_eq!((diary.times("before").len(), diary.lines().len()), (0, told), "who is gone is told nothing");
    let last = add("last");
    factory.shutdown().await;
    last.removed().await.expect("it ended with its informer");
}

/// "should be able to stop and restart informers", `RemoveInformer`; client-go's factory can stop all of them only.
// parity: no-stop-single-informer, remove-informer, stop-restart-informers
#[tokio::test(start_paused = true)]
async fn one_informer_is_stopped_alone_and_made_anew_when_it_is_asked_for() {
    let world = World::new();
    world.put("a");
    let factory = world.factory("caches");
    let (maps, secrets) = (factory.typed::<ConfigMap>(), factory.typed::<Secret>());
    world.sync(&factory).await;
    factory.stop(&maps).await;
    world.put("b");
    world.api.upsert("/api/v1/namespaces/shop/secrets/one", json!({}));
    world.pass(5).await;
    assert_eq!(
        (maps.lister().len(), secrets.lister().len()),
        (1, 1),
        "what is stopped stays readable, as it was"
    );
    assert!(maps.add_handler("late", |_: &Event<Arc<ConfigMap>>| {}).is_err());
    let anew = factory.typed::<ConfigMap>();
    world.sync(&factory).await;
    world.put("c");
    world.pass(1).await;
    assert_eq!(anew.lister().len(), 3);
}

/// `WithTweakListOptions`; `DefaultLabelSelector`, `DefaultFieldSelector`, `ByObject`: "type-level label selector ...
/// overrides global selector".
// parity: with-tweak-list-options, default-label-selector, table-label-field-namespace
#[tokio::test(start_paused = true)]
async fn selectors_of_a_factory_hold_for_all_kinds_or_for_one_and_beside_what_is_asked_for() {
    let world = World::new();
    let labelled = |labels: serde_json::Value| json!({ "metadata": { "labels": labels } });
    for (name, labels) in
        [("front", json!({ "tier": "front" })), ("back", json!({ "tier": "back" })), ("none", json!({}))]
    {
        world.api.upsert(&map(name), labelled(labels.clone()));
        world.api.upsert(&format!("/api/v1/namespaces/shop/secrets/{name}"), labelled(labels));
    }
    let labels = |labels: &str| Selectors { labels: Some(labels.to_owned()), fields: None };
    let mut options = FactoryOptions { selectors: labels("tier"), ..FactoryOptions::default() };
    let mut of_secrets = KindOptions::<Secret>::new();
    of_secrets.selectors = Some(labels("!tier"));
    options.kinds.set(of_secrets);
    let factory = InformerFactory::new(world.env.clone(), world.metrics.clone(), options);
    let (maps, secrets) = (factory.typed::<ConfigMap>().lister(), factory.typed::<Secret>().lister());
    let front = Selection { labels: Some("tier=front".into()), ..Selection::default() };
    let front = factory.informer(Typed::<ConfigMap>::new(), front).lister();
    world.sync(&factory).await;
    assert_eq!((maps.len(), secrets.len(), front.len()), (2, 1, 1));
    assert_eq!(secrets.list()[0].metadata.name.as_deref(), Some("none"));
}

/// `WithTransform`; "should apply transformers to explicitly specified GVKS". A transform that fails costs client-go the
/// whole re-list, and the event for good (kubernetes#134928).
// parity: set-transform, with-transform, errors-store-transform-lose, transformers-per-kind-default
#[tokio::test(start_paused = true)]
async fn transform_changes_what_everybody_sees_and_its_failure_costs_one_object() {
    let world = World::new();
    for name in ["a", "odd", "z"] {
        world.api.upsert(&map(name), json!({ "data": { "large": "x", "name": name } }));
    }
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let dropping = |object: &mut ConfigMap| {
        let data = object.data.get_or_insert_default();
        data.remove("large");
        if data.get("name").is_some_and(|name| name == "odd") { Err("it is odd") } else { Ok(()) }
    };
    informer.set_transform(dropping).expect("not started");
    let seen = ReconcileLog::default();
    let told = seen.clone();
    let handler = move |event: &Event<Arc<ConfigMap>>| {
        let data = event.object().data.clone().unwrap_or_default();
        told.note(windlass::env::Instant::ORIGIN, &data.into_keys().collect::<Vec<_>>().join(","));
    };
    informer.add_handler("told", handler).expect("not stopped");
    world.sync(&factory).await;
    world.pass(1).await;
    assert_eq!(seen.lines(), ["name", "name"]);
    let quarantined = informer.lister().undecodable();
    assert_eq!(quarantined.len(), 1);
    world.api.upsert(&map("odd"), json!({ "data": { "name": "even" } }));
    world.pass(1).await;
    assert_eq!(informer.lister().len(), 3, "it is tried again when it changes");
}

/// "should apply transformers to explicitly specified GVKS", to unstructured objects and to metadata too.
// parity: transformers-per-kind-default
#[tokio::test(start_paused = true)]
async fn transform_of_kinds_known_at_run_time_and_of_metadata_changes_what_everybody_sees() {
    let world = World::new();
    world.api.upsert(&map("a"), json!({ "metadata": { "annotations": { "large": "x", "small": "y" } } }));
    let factory = world.factory("caches");
    let maps = ResourceKind::of::<ConfigMap>();
    let dynamic = factory.informer(Dynamic::new(maps.clone()), Selection::default());
    let metadata = factory.informer(Metadata::new(maps), Selection::default());
    let smaller = |annotations: &mut Option<BTreeMap<String, String>>| {
        if let Some(annotations) = annotations {
            annotations.remove("large");
        }
        Ok::<(), String>(())
    };
    dynamic.set_transform(move |object| smaller(&mut object.metadata.annotations)).expect("new");
    metadata.set_transform(move |object| smaller(&mut object.metadata.annotations)).expect("new");
    world.sync(&factory).await;
    let seen = [
        dynamic.lister().list()[0].metadata.annotations.clone(),
        metadata.lister().list()[0].metadata.annotations.clone(),
    ];
    let keys: Vec<Vec<String>> =
        seen.into_iter().map(|it| it.unwrap_or_default().into_keys().collect()).collect();
    assert_eq!(keys, [["small"], ["small"]]);
}

/// An unfiltered cache of what others fill is a way to have a process killed: 30,000 Secrets made 8 GB (cert-manager
/// #4722; controller-runtime #1491, #2570; kubewarden/policy-server #716).
// parity: memory-caches-selector-per, memory-22-7-k
#[tokio::test(start_paused = true)]
async fn cache_that_would_pass_its_budget_says_so_and_others_go_on() {
    let world = World::new();
    let large = "x".repeat(10_000);
    for number in 0..20 {
        world.api.upsert(&map(&format!("map-{number}")), json!({ "data": { "large": large } }));
    }
    world.api.upsert("/api/v1/namespaces/shop/secrets/one", json!({}));
    let factory = world.factory("caches");
    let (maps, secrets) = (factory.typed::<ConfigMap>(), factory.typed::<Secret>());
    maps.set_byte_budget(Some(100_000));
    factory.start(world.sources());
    assert!(secrets.wait_for_sync(Some(Duration::from_secs(5))).await.is_ok());
    let refused = maps.wait_for_sync(Some(Duration::from_secs(5))).await.expect_err("too large");
    assert!(matches!(refused.laggards[0].lag, UnsyncedReason::OverBudget(_)), "{refused}");
    maps.set_byte_budget(Some(1_000_000));
    world.pass(150).await;
    assert_eq!(maps.lister().len(), 20, "and is filled once it may be");
}

/// Of a missing right client-go tells a log line per attempt (controller-runtime #550).
// parity: parts-articles-watch-error-handler, set-transform, missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn informer_that_may_not_read_says_which_rule_a_role_lacks() {
    let world = World::new();
    world.forbid("secrets", true);
    let factory = world.factory("caches");
    let secrets = factory.typed::<Secret>();
    factory.start(world.sources());
    world.pass(5).await;
    let KindAvailability::Forbidden(denial) = secrets.presence() else { panic!("{:?}", secrets.presence()) };
    assert_eq!(denial.verb, Verb::List);
    let rule = denial.rule.to_yaml();
    assert!(rule.contains("secrets") && rule.contains("list") && rule.contains("watch"), "{rule}");
    let last = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&last);
    secrets.on_watch_error(move |failure: &windlass_informer::WatchFailure| {
        *seen.lock().expect("no panic") = Some(format!("{failure:?}"));
    });
    world.pass(120).await;
    assert!(last.lock().expect("no panic").is_some(), "and the user's own handler is told of every failure");
}
