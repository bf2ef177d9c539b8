//! A controller waits for the caches it needs: for no others, and not indefinitely unless configured so.

use k8s_openapi::api::core::v1::Secret;
use windlass_client::{FrameStream, RequestError};
use windlass_informer::{ListRequest, ListerWatcher, WatchRequest};
use windlass_object::{RawList, TypedObjects};

use super::*;
use crate::CacheSync;

/// A world in which Secrets cannot be read.
fn secretive() -> World {
    let world = World::with(&["m"]);
    world.api.inject_fault(|asked| (asked.resource == "secrets").then_some(FaultAction::Unavailable));
    world
}

fn needing_secrets(timeout: CacheSync) -> impl Fn(&mut Setup) + Send + Sync {
    move |setup| {
        setup.cache_sync(timeout);
        // Only read: a cache without handlers is required as well.
        setup.watch::<Secret>();
        setup.primary::<ConfigMap>();
    }
}

// parity: cache-sync-timeout, cache-sync-timeout-error
#[tokio::test(start_paused = true)]
async fn controller_fails_naming_caches_that_do_not_sync_in_time() {
    let world = secretive();
    let begun = world.env.now();
    let limit = Duration::from_secs(120);
    let wire = needing_secrets(CacheSync::Within(limit));
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let error = readied.prepared.start(readied.resources).await.expect_err("Secrets cannot be read");
    assert_eq!(world.env.now().saturating_duration_since(begun), limit);
    let text = error.to_string();
    assert!(matches!(error, SetupError::NotSynced { .. }), "{error:?}");
    assert!(text.contains("secrets") && text.contains("503") && !text.contains("configmaps"), "{text}");
    world.put("m");
    world.pass(60).await;
    assert_eq!(world.diary.names(), Vec::<String>::new(), "no part of the controller keeps running");
}

// parity: cache-sync-timeout-error
#[tokio::test(start_paused = true)]
async fn controller_without_sync_timeout_starts_once_its_caches_sync() {
    let world = secretive();
    let wire = needing_secrets(CacheSync::Forever);
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let caches = readied.prepared.caches();
    let starting = world.env.spawn("start", readied.prepared.start(readied.resources));
    world.pass(24 * 3600).await;
    assert!(!starting.is_finished());
    let error = caches().expect_err("a cache is missing").to_string();
    assert!(error.contains("secrets") && !error.contains("configmaps"), "{error}");
    world.api.inject_fault(|_| None);
    let _workers = starting.await.expect("ended").expect("started");
    world.pass(1).await;
    assert!(caches().is_ok());
    assert_eq!(world.diary.names(), ["m"]);
}

// parity: missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn unsynced_cache_does_not_delay_other_controllers() {
    let world = secretive();
    let blocked = needing_secrets(CacheSync::Forever);
    let readied = world.ready(world.scripted(blocked, |_, _| async { Ok(Outcome::Done) }));
    let other =
        world.scripted(|setup| drop(setup.primary::<ConfigMap>()), |_, _| async { Ok(Outcome::Done) });
    let other =
        other.prepare(Host::new(world.env.clone(), Metrics::new(), readied.factory.clone())).expect("set up");
    let blocked = world.env.spawn("blocked", readied.prepared.start(readied.resources.clone()));
    let begun = world.env.now();
    let _workers = other.start(readied.resources).await.expect("started");
    assert!(world.env.now().saturating_duration_since(begun) < Duration::from_secs(1));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"]);
    assert!(!blocked.is_finished());
}

#[tokio::test(start_paused = true)]
async fn queue_stays_empty_until_the_controller_starts() {
    let world = World::with(&["a", "b"]);
    let wire = |setup: &mut Setup| drop(setup.primary::<ConfigMap>());
    let Readied { prepared, factory, resources } =
        world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    assert!(factory.typed::<ConfigMap>().synced().await);
    for _ in 0..10 {
        world.put("a");
        world.pass(6).await;
    }
    let adds = || {
        world.metrics.update();
        world.metrics.workqueue("scripted").adds.get()
    };
    assert_eq!(adds(), 0, "a standby enqueues no keys");
    let _workers = prepared.start(resources).await.expect("started");
    world.pass(1).await;
    assert_eq!((world.diary.names(), adds()), (vec!["a".to_owned(), "b".to_owned()], 2));
}

// parity: no-reconcile-before-all
#[tokio::test(start_paused = true)]
async fn reconciles_start_after_every_handler_received_initial_list() {
    let world = World::with(&["m"]);
    world.api.upsert("/api/v1/namespaces/shop/secrets/s", json!({}));
    let (env, healed) = (world.env.clone(), world.env.now() + Duration::from_secs(20));
    world.api.inject_fault(move |asked| {
        (asked.resource == "secrets" && env.now() < healed).then_some(FaultAction::Unavailable)
    });
    let wire = |setup: &mut Setup| {
        setup.primary::<ConfigMap>();
        setup.primary::<Secret>();
    };
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let starting = world.env.spawn("start", readied.prepared.start(readied.resources));
    world.pass(15).await;
    assert_eq!(world.diary.names(), Vec::<String>::new());
    let _workers = starting.await.expect("ended").expect("started");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m", "s"]);
}

/// A source that never responds.
struct Mute;

#[async_trait::async_trait]
impl ListerWatcher for Mute {
    async fn list(&self, _: ListRequest) -> Result<RawList, RequestError> {
        std::future::pending().await
    }

    async fn watch(&self, _: WatchRequest) -> Result<FrameStream, RequestError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn custom_source_counts_for_readiness_once_its_controller_starts() {
    let world = World::with(&[]);
    let wire = |setup: &mut Setup| {
        setup.cache_sync(CacheSync::Forever);
        setup.watch_from(Arc::new(Mute), TypedObjects::<Secret>::new()).primary();
        setup.primary::<ConfigMap>();
    };
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let caches = readied.prepared.caches();
    world.pass(1).await;
    assert!(caches().is_ok(), "a standby does not depend on the source");
    let _starting = world.env.spawn("start", readied.prepared.start(readied.resources));
    world.pass(1).await;
    let error = caches().expect_err("the controller waits for its caches").to_string();
    assert!(error.contains("secrets") && !error.contains("configmaps"), "{error}");
}
