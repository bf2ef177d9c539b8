//! Options of handlers, informers and factories: resync periods, awaitable removal, single informers that stop,
//! selectors, transforms and byte budgets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use windlass::informer::{
    Cause, Event, KindAvailability, KindOptions, Resync, Selection, Selectors, UnsyncedReason,
};
use windlass::object::{DynamicObjects, MetadataObjects, ResourceKind, TypedObjects, Verb};
use windlass_informer::{FactoryOptions, HandlerOptions, InformerError, InformerFactory, SharedInformer};

use crate::world::{ReconcileLog, World, map};

fn every(seconds: u64) -> HandlerOptions {
    HandlerOptions { resync: Resync::Every(Duration::from_secs(seconds)), ..HandlerOptions::default() }
}

/// Adds a handler that records resyncs.
fn resyncs(informer: &SharedInformer<ConfigMap>, name: &str, options: HandlerOptions, log: &ReconcileLog) {
    let (log, noted) = (log.clone(), name.to_owned());
    let handler = move |event: &Event<Arc<ConfigMap>>| {
        if event.cause() == Cause::Resync {
            log.note(windlass::env::Instant::ORIGIN, &noted);
        }
    };
    informer.add_handler_with(name, options, handler).expect("not stopped");
}

/// `TestListenerResyncPeriods`, `TestListenerResyncPeriodsDelayed`, `TestResyncCheckPeriod`. If a handler is added
/// after the start, client-go raises its period to the check period, and disables its resync if there is no check
/// period.
// parity: with-resync-period, resync-periods-per-handler, with-custom-resync-config, test-listener-resync-periods
// parity: test-listener-resync-periods-delayed
#[tokio::test(start_paused = true)]
async fn each_handler_is_resynced_at_its_own_period() {
    let world = World::new();
    world.put("a");
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let log = ReconcileLog::default();
    resyncs(&informer, "never", HandlerOptions::default(), &log);
    resyncs(&informer, "two", every(2), &log);
    world.sync(&factory).await;
    resyncs(&informer, "late three", every(3), &log);
    world.env.sleep(Duration::from_millis(12_500)).await;
    assert_eq!(log.times("never").len(), 0);
    assert_eq!(log.times("two").len(), 6);
    assert_eq!(log.times("late three").len(), 4);
    let too_often =
        HandlerOptions { resync: Resync::Every(Duration::from_millis(999)), ..HandlerOptions::default() };
    let refused = informer.add_handler_with("hasty", too_often, |_: &Event<Arc<ConfigMap>>| {});
    assert!(matches!(refused, Err(InformerError::ResyncTooShort { .. })), "{refused:?}");
}

/// `TestShutDownEventHandler_Lifecycles`, `TestRemoveEventHandler_*`. In client-go a handler that waits for its own
/// removal deadlocks.
// parity: shut-down-event-handler, test-event-panics, test-shared-informer-remove-foreign
#[tokio::test(start_paused = true)]
async fn handler_removal_can_be_awaited_in_every_phase() {
    let world = World::new();
    (0..200).for_each(|number| world.put(&format!("map-{number}")));
    let factory = world.factory("caches");
    let informer = factory.typed::<ConfigMap>();
    let log = ReconcileLog::default();
    let add = |name: &'static str| {
        let log = log.clone();
        let handler = move |_: &Event<Arc<ConfigMap>>| log.note(windlass::env::Instant::ORIGIN, name);
        informer.add_handler(name, handler).expect("not stopped")
    };
    let (before, running) = (add("before"), add("running"));
    before.remove();
    before.removed().await.expect("it never ran");
    world.sync(&factory).await;
    assert!(running.synced().await);
    running.remove();
    running.removed().await.expect("the caller is not the handler");
    let panicking =
        informer.add_handler("panicking", |_: &Event<Arc<ConfigMap>>| panic!("a handler with a defect"));
    let panicking = panicking.expect("not stopped");
    assert!(panicking.synced().await);
    panicking.remove();
    panicking
        .removed()
        .await
        .expect("a panic does not remove a handler, and a handler that panicked can be removed");
    let received = log.lines().len();
    world.put("later");
    world.pass(5).await;
    assert_eq!(
        (log.times("before").len(), log.lines().len()),
        (0, received),
        "removed handlers receive no events"
    );
    let last = add("last");
    factory.shutdown().await;
    last.removed().await.expect("the handler was removed with its informer");
}

/// "should be able to stop and restart informers", `RemoveInformer`. A factory of client-go can only stop all
/// informers.
// parity: no-stop-single-informer, remove-informer, stop-restart-informers
#[tokio::test(start_paused = true)]
async fn stopped_informer_is_created_again_on_request() {
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
        "a stopped cache stays readable and unchanged"
    );
    assert!(maps.add_handler("late", |_: &Event<Arc<ConfigMap>>| {}).is_err());
    let again = factory.typed::<ConfigMap>();
    world.sync(&factory).await;
    world.put("c");
    world.pass(1).await;
    assert_eq!(again.lister().len(), 3);
}

/// `WithTweakListOptions`; `DefaultLabelSelector`, `DefaultFieldSelector`, `ByObject`: "type-level label selector ...
/// overrides global selector".
// parity: with-tweak-list-options, default-label-selector, table-label-field-namespace
#[tokio::test(start_paused = true)]
async fn factory_selectors_combine_with_selection_of_informer() {
    let world = World::new();
    let labeled = |labels: serde_json::Value| json!({ "metadata": { "labels": labels } });
    for (name, labels) in
        [("front", json!({ "tier": "front" })), ("back", json!({ "tier": "back" })), ("none", json!({}))]
    {
        world.api.upsert(&map(name), labeled(labels.clone()));
        world.api.upsert(&format!("/api/v1/namespaces/shop/secrets/{name}"), labeled(labels));
    }
    let labels = |labels: &str| Selectors { labels: Some(labels.to_owned()), fields: None };
    let mut options = FactoryOptions { selectors: labels("tier"), ..FactoryOptions::default() };
    let mut of_secrets = KindOptions::<Secret>::new();
    of_secrets.selectors = Some(labels("!tier"));
    options.kinds.set(of_secrets);
    let factory = InformerFactory::new(world.env.clone(), world.metrics.clone(), options);
    let (maps, secrets) = (factory.typed::<ConfigMap>().lister(), factory.typed::<Secret>().lister());
    let front = Selection { labels: Some("tier=front".into()), ..Selection::default() };
    let front = factory.informer(TypedObjects::<ConfigMap>::new(), front).lister();
    world.sync(&factory).await;
    assert_eq!((maps.len(), secrets.len(), front.len()), (2, 1, 1));
    assert_eq!(secrets.list()[0].metadata.name.as_deref(), Some("none"));
}

/// `WithTransform`; "should apply transformers to explicitly specified GVKS". In client-go a failing transform fails
/// the whole relist, or loses the event permanently (kubernetes#134928).
// parity: set-transform, with-transform, errors-store-transform-lose, transformers-per-kind-default
#[tokio::test(start_paused = true)]
async fn failing_transform_excludes_only_its_object() {
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
    let received = seen.clone();
    let handler = move |event: &Event<Arc<ConfigMap>>| {
        let data = event.object().data.clone().unwrap_or_default();
        received.note(windlass::env::Instant::ORIGIN, &data.into_keys().collect::<Vec<_>>().join(","));
    };
    informer.add_handler("received", handler).expect("not stopped");
    world.sync(&factory).await;
    world.pass(1).await;
    assert_eq!(seen.lines(), ["name", "name"]);
    let undecodable = informer.lister().undecodable();
    assert_eq!(undecodable.len(), 1);
    world.api.upsert(&map("odd"), json!({ "data": { "name": "even" } }));
    world.pass(1).await;
    assert_eq!(informer.lister().len(), 3, "an undecodable object is retried when it changes");
}

/// "should apply transformers to explicitly specified GVKS", also to unstructured objects and to metadata.
// parity: transformers-per-kind-default
#[tokio::test(start_paused = true)]
async fn transform_applies_to_dynamic_and_metadata_caches() {
    let world = World::new();
    world.api.upsert(&map("a"), json!({ "metadata": { "annotations": { "large": "x", "small": "y" } } }));
    let factory = world.factory("caches");
    let maps = ResourceKind::of::<ConfigMap>();
    let dynamic = factory.informer(DynamicObjects::new(maps.clone()), Selection::default());
    let metadata = factory.informer(MetadataObjects::new(maps), Selection::default());
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

/// An unfiltered cache can run a process out of memory: 30,000 Secrets took 8 GB (cert-manager #4722;
/// controller-runtime #1491, #2570; kubewarden/policy-server #716).
// parity: memory-caches-selector-per, memory-22-7-k
#[tokio::test(start_paused = true)]
async fn cache_over_byte_budget_reports_it_and_others_sync() {
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
    assert!(matches!(refused.unsynced[0].reason, UnsyncedReason::OverBudget(_)), "{refused}");
    maps.set_byte_budget(Some(1_000_000));
    world.pass(150).await;
    assert_eq!(maps.lister().len(), 20, "the cache syncs once the budget allows it");
}

/// client-go only logs one line per attempt if a permission is missing (controller-runtime #550).
// parity: parts-articles-watch-error-handler, set-transform, missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn forbidden_informer_reports_missing_rbac_rule() {
    let world = World::new();
    world.forbid("secrets", true);
    let factory = world.factory("caches");
    let secrets = factory.typed::<Secret>();
    factory.start(world.sources());
    world.pass(5).await;
    let KindAvailability::Forbidden(denial) = secrets.availability() else {
        panic!("{:?}", secrets.availability())
    };
    assert_eq!(denial.verb, Verb::List);
    let rule = denial.rule.to_yaml();
    assert!(rule.contains("secrets") && rule.contains("list") && rule.contains("watch"), "{rule}");
    let last = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&last);
    secrets.on_watch_error(move |failure: &windlass_informer::WatchFailure| {
        *seen.lock().expect("no panic") = Some(format!("{failure:?}"));
    });
    world.pass(120).await;
    assert!(last.lock().expect("no panic").is_some(), "the watch error handler is called for every failure");
}
