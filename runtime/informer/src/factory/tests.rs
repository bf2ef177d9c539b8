//! Several informers of one factory.

use std::sync::mpsc as blocking;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use windlass_object::{DynamicObjects, TypedObjects};

use super::*;
use crate::error::{InformerError, UnsyncedReason};
use crate::testing::*;

mod crds;
mod namespaces;
mod recovery;
mod ref_counted;
mod selectors;
mod shards;
mod stop;
mod world;

fn rig() -> (Rig, Arc<Server>) {
    let server = Server::new();
    server.set("a", "first");
    (Rig::new(), server)
}

/// A server for ConfigMaps. Requests for other kinds go to the script.
struct Partly(Arc<Server>, Arc<Script>);

impl SourceProvider for Partly {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn crate::ListerWatcher> {
        match kind.plural.as_ref() {
            "configmaps" => Only(Arc::clone(&self.0)).source(kind, selection),
            _ => Only(Arc::clone(&self.1)).source(kind, selection),
        }
    }
}

// parity: shared-informer-factory, core-v1, informer-per-type, structured-unstructured-metadata-only
#[tokio::test(start_paused = true)]
async fn informers_are_shared_per_kind_selection_and_representation() {
    let (rig, server) = rig();
    let again = rig.factory.typed::<ConfigMap>();
    let filtered =
        rig.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("elsewhere"));
    let dynamic =
        rig.factory.informer(DynamicObjects::new(ResourceKind::of::<ConfigMap>()), Selection::default());
    let shared = again.lister().index(|_| ["x".to_owned()]);
    rig.start(&server);
    rig.settle().await;
    assert_eq!(shared.get(&"x".to_owned()).len(), 1, "both handles share one informer");
    assert_eq!((filtered.lister().len(), dynamic.lister().len()), (1, 1));
    assert_eq!(rig.counts().lists.get(), 3);
    assert_eq!(rig.factory.kinds().len(), 2, "kinds are listed once per selection");
}

// parity: start-again-later, start-again-later-informers, test-shared-informer-initialization-race
// parity: starting-cache-twice-error
#[tokio::test(start_paused = true)]
async fn starting_factory_twice_has_no_effect() {
    let (rig, server) = rig();
    rig.start(&server);
    rig.start(&server);
    rig.settle().await;
    assert_eq!((rig.counts().lists.get(), server.watchers()), (1, 1));
}

// parity: start-again-later, start-again-later-informers, caches-added-after-start
#[tokio::test(start_paused = true)]
async fn informer_requested_after_start_runs_with_handlers_and_indexes() {
    let (rig, server) = rig();
    rig.start(&server);
    rig.settle().await;
    let late = rig.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("default"));
    assert!(late.is_running() && !late.has_synced());
    let log = Log::default();
    log.attach(&late, "late");
    let index = late.lister().index(|_| ["x".to_owned()]);
    rig.factory.wait_for_sync(None).await.unwrap();
    rig.settle().await;
    assert_eq!((log.take(), server.watchers()), (vec!["+a@1=first InitialList".to_owned()], 2));
    assert_eq!(index.count(&"x".to_owned()), 1);
}

// parity: parts-articles-wait-for-cache-sync, has-synced-checker, wait-for-cache-sync-sync, test-wait-for
// parity: errors-several-caches-all, error-if-syncing-fails
#[tokio::test(start_paused = true)]
async fn sync_wait_names_each_unsynced_informer_and_the_reason() {
    let (rig, server) = rig();
    rig.factory.typed::<Secret>();
    rig.factory.typed::<Namespace>();
    let behind = rig.factory.wait_for_sync(None).await.unwrap_err();
    assert!(
        behind.unsynced.iter().all(|it| it.reason == UnsyncedReason::NotStarted)
            && behind.unsynced.len() == 3
    );
    let answers = (0..100).map(|_| Answer::List(Err(refusal(500, "InternalError"))));
    let failing = Script::new(&rig.env, answers);
    rig.factory.start(Arc::new(Partly(server, failing)));
    let behind = rig.factory.wait_for_sync(Some(Duration::from_secs(10))).await.unwrap_err();
    let lags: Vec<_> =
        behind.unsynced.iter().map(|it| (it.kind.plural.as_ref(), it.reason.clone())).collect();
    let [("namespaces", UnsyncedReason::Failing { .. }), ("secrets", UnsyncedReason::Failing { last_error })] =
        lags.as_slice()
    else {
        panic!("{lags:?}");
    };
    assert!(last_error.contains("500"), "{last_error}");
    assert!(behind.to_string().contains("secrets.v1 (all): last error: list: "), "{behind}");
}

// parity: no-pluggable-source
#[tokio::test(start_paused = true)]
async fn hanging_or_failing_source_delays_only_its_own_informer() {
    for answers in [vec![], vec![Answer::List(Err(refusal(500, "InternalError")))]] {
        let (rig, server) = rig();
        let (stuck, log) = (rig.factory.typed::<Secret>(), Log::default());
        log.attach(&rig.informer, "log");
        let source = Script::new(&rig.env, answers);
        rig.factory.start(Arc::new(Partly(Arc::clone(&server), source)));
        rig.settle().await;
        for round in 0..20 {
            let version = server.set("a", &round.to_string());
            rig.settle().await;
            assert_eq!(rig.informer.version(), Some(at(version)));
        }
        assert_eq!((log.events().len(), stuck.has_synced()), (21, false));
    }
}

/// A healthy server for the first informer, and a defective source for all later informers.
struct FirstOnly(Arc<Server>, Arc<Script>, Mutex<bool>);

impl SourceProvider for FirstOnly {
    fn source(&self, kind: &ResourceKind, selection: &Selection) -> Arc<dyn crate::ListerWatcher> {
        match std::mem::replace(&mut *self.2.lock().unwrap(), true) {
            false => Only(Arc::clone(&self.0)).source(kind, selection),
            true => Only(Arc::clone(&self.1)).source(kind, selection),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_reflector_is_found_among_informers_of_same_kind() {
    let (rig, server) = rig();
    let kind = ResourceKind::of::<ConfigMap>();
    let dynamic = rig.factory.informer(DynamicObjects::new(kind.clone()), Selection::default());
    assert!(!rig.informer.is_following(), "the informer has not been started");
    // The script has a watch where the reflector requests a list, so the reflector panics.
    let defect = Script::new(&rig.env, [Answer::Watch(Ok(vec![]))]);
    rig.factory.start(Arc::new(FirstOnly(server, defect, Mutex::new(false))));
    rig.settle().await;
    assert_eq!(rig.factory.dead_informers(), [(kind, Selection::default())]);
    assert!(rig.informer.is_following() != dynamic.is_following());
    rig.factory.shutdown().await;
    assert_eq!(rig.factory.dead_informers(), []);
}

// parity: deadlocks-start
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn liveness_is_available_while_informer_processes_a_batch() {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let factory = InformerFactory::new(Env::system("test"), Metrics::new(), FactoryOptions::default());
    let (informer, server) = (factory.typed::<ConfigMap>(), Server::new());
    server.set("a", "first");
    let (began, busy) = blocking::channel();
    let (release, gate) = blocking::channel::<()>();
    let (ended, outcome) = blocking::channel();
    let gate = Mutex::new(gate);
    let slow = move |_: &ConfigMap| {
        began.send(()).unwrap();
        ended.send(gate.lock().unwrap().recv_timeout(TIMEOUT)).unwrap();
        None::<String>
    };
    let _index = informer.lister().index(slow);
    factory.start(Arc::new(Only(server)));
    busy.recv_timeout(TIMEOUT).unwrap();
    assert!(informer.is_running() && informer.is_following() && factory.dead_informers().is_empty());
    release.send(()).unwrap();
    assert_eq!(
        outcome.recv_timeout(TIMEOUT),
        Ok(Ok(())),
        "the state was available without waiting for the batch"
    );
    factory.shutdown().await;
}

// parity: closing-stop-ch, run-once, shutdown-blocks, test-shutdown
#[tokio::test(start_paused = true)]
async fn shutdown_stops_every_task_and_keeps_objects_readable() {
    let (rig, server) = rig();
    let handle = Log::default().attach(&rig.informer, "log");
    rig.factory.typed::<Secret>();
    rig.start(&server);
    rig.settle().await;
    assert!(!rig.env.tasks().is_empty());
    rig.factory.shutdown().await;
    assert_eq!((rig.env.tasks(), server.watchers()), (vec![], 0));
    assert_eq!(rig.held(), ["a@1=first"]);
    assert!(rig.lister.is_stopped());
    let stopped = rig.informer.add_handler("late", |_: &TestEvent| {}).unwrap_err();
    assert!(matches!(stopped, InformerError::Stopped { .. }));
    rig.start(&server);
    assert!(!rig.informer.is_running() && !handle.synced().await);
    rig.factory.shutdown().await;
}

/// Upstream does not interrupt its backoff sleep when it is stopped.
// parity: lister-watcher-without, test-run-until, sleep-back-off-ignores
#[tokio::test(start_paused = true)]
async fn shutdown_interrupts_list_watch_and_backoff() {
    let refused = Answer::List(Err(refusal(500, "InternalError")));
    for answers in [vec![], vec![Answer::List(Ok(page(1, &[])))], vec![refused]] {
        let rig = Rig::new();
        let script = Script::new(&rig.env, answers);
        rig.start(&script);
        rig.settle().await;
        let began = rig.env.now();
        rig.factory.shutdown().await;
        assert_eq!((rig.env.now(), rig.env.tasks()), (began, vec![]));
    }
}

// parity: error-when-context-cancelled
#[tokio::test(start_paused = true)]
async fn sync_wait_fails_when_informer_is_shut_down() {
    let rig = Rig::new();
    let script = Script::new(&rig.env, []);
    rig.start(&script);
    let (waited, ()) = future::join(rig.factory.wait_for_sync(None), rig.factory.shutdown()).await;
    assert_eq!(waited.unwrap_err().unsynced[0].reason, UnsyncedReason::Stopped);
}

#[tokio::test(start_paused = true)]
async fn informer_reports_trouble_until_it_follows_again() {
    let (rig, server) = rig();
    rig.start(&server);
    rig.settle().await;
    assert_eq!(rig.informer.problem(), None);
    server.cut(Some(refusal(500, "InternalError")));
    server.fail_next(refusal(503, "ServiceUnavailable"));
    rig.settle().await;
    let trouble = rig.informer.problem().expect("it failed");
    assert!(trouble.contains("50"), "{trouble}");
    server.heal();
    rig.env.sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.informer.problem(), None);
    rig.env.kill();
    rig.settle().await;
    assert!(rig.informer.problem().is_some(), "a stopped informer does not follow its source");
}

// parity: test-new-informer-name, several-clusters
#[tokio::test(start_paused = true)]
async fn two_factories_with_different_names_can_share_an_env() {
    let (rig, server) = rig();
    let options = FactoryOptions { name: "second".to_owned(), ..FactoryOptions::default() };
    let second = InformerFactory::new(rig.env.clone(), rig.metrics.clone(), options);
    second.typed::<ConfigMap>();
    rig.start(&server);
    second.start(Arc::new(Only(Arc::clone(&server))));
    second.wait_for_sync(None).await.unwrap();
    rig.factory.wait_for_sync(None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn informer_without_progress_for_two_watch_timeouts_is_stalled() {
    let (rig, server) = rig();
    let _secrets = rig.factory.typed::<Secret>();
    let script = Script::new(&rig.env, []);
    rig.factory.start(Arc::new(Partly(Arc::clone(&server), script)));
    for minute in 0..6 {
        server.set("a", &minute.to_string());
        rig.env.sleep(Duration::from_secs(60)).await;
        assert_eq!(rig.factory.stalled(), [], "an informer that waits for a response is not stuck yet");
    }
    rig.env.sleep(Duration::from_secs(60)).await;
    server.set("a", "observed");
    let stalled: Vec<String> =
        rig.factory.stalled().iter().map(|(kind, _)| kind.plural.to_string()).collect();
    assert_eq!((stalled, rig.factory.dead_informers()), (vec!["secrets".to_owned()], Vec::new()));
}
