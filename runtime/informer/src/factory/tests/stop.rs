//! Stopping single informers of a factory.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use windlass_object::TypedObjects;

use super::*;

// parity: no-stop-single-informer, test-state-shared-informer, remove-informer
#[tokio::test(start_paused = true)]
async fn stopping_one_informer_keeps_it_readable_and_others_running() {
    let (rig, server) = rig();
    let (log, other) = (
        Log::default(),
        rig.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("default")),
    );
    let handle = log.attach(&rig.informer, "log");
    rig.start(&server);
    rig.settle().await;
    assert_eq!(rig.counts().objects.get(), 2, "each of the two counts its objects");
    rig.factory.stop(&rig.informer).await;
    assert_eq!(rig.counts().objects.get(), 1, "its objects no longer count");
    assert_eq!(server.watchers(), 1, "its watch is closed");
    assert!(!rig.informer.is_running() && rig.lister.is_stopped() && !other.lister().is_stopped());
    assert!(!handle.synced().await, "its handlers have stopped");
    server.set("a", "second");
    rig.settle().await;
    assert_eq!(
        (rig.held(), log.take()),
        (vec!["a@1=first".to_owned()], vec!["+a@1=first InitialList".to_owned()])
    );
    assert_eq!(other.version(), Some(at(2)));
    assert!(matches!(
        rig.informer.add_handler("late", |_: &TestEvent| {}),
        Err(InformerError::Stopped { .. })
    ));
    rig.factory.wait_for_sync(None).await.expect("the stopped informer no longer belongs to the factory");
    assert_eq!(rig.factory.dead_informers(), []);
}

#[tokio::test(start_paused = true)]
async fn urgent_relist_of_stopped_informer_returns() {
    let (rig, server) = rig();
    rig.start(&server);
    rig.settle().await;
    rig.factory.stop(&rig.informer).await;
    assert!(rig.relisted_within(Duration::from_secs(60)).await);
}

// parity: stop-restart-informers
#[tokio::test(start_paused = true)]
async fn request_after_stop_returns_a_new_running_informer() {
    let (rig, server) = rig();
    rig.start(&server);
    rig.settle().await;
    for round in 2..5 {
        let old = rig.factory.typed::<ConfigMap>();
        rig.factory.stop(&old).await;
        rig.factory.stop(&old).await;
        let new = rig.factory.typed::<ConfigMap>();
        assert!(!Arc::ptr_eq(new.erased(), old.erased()));
        assert!(Arc::ptr_eq(new.erased(), rig.factory.typed::<ConfigMap>().erased()));
        server.set("a", &round.to_string());
        assert!(new.synced().await);
        assert_eq!((new.version(), server.watchers()), (Some(at(round)), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn stop_ignores_informer_of_another_factory() {
    let (rig, server) = rig();
    let options = FactoryOptions { name: "second".to_owned(), ..FactoryOptions::default() };
    let second = InformerFactory::new(rig.env.clone(), rig.metrics.clone(), options);
    rig.start(&server);
    second.stop(&rig.informer).await;
    assert!(rig.informer.is_running());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_informers_with_abandoned_stop() {
    let (rig, server) = rig();
    let log = Log::default();
    log.attach(&rig.informer, "log");
    rig.start(&server);
    rig.settle().await;
    {
        let mut stop = pin!(rig.factory.stop(&rig.informer));
        assert_eq!(futures_util::FutureExt::now_or_never(stop.as_mut()), None);
    }
    assert!(!rig.informer.is_running() && !rig.env.tasks().is_empty());
    rig.factory.shutdown().await;
    assert_eq!(rig.env.tasks(), Vec::<String>::new());
    assert_eq!(log.take(), ["+a@1=first InitialList"]);
}

#[tokio::test(start_paused = true)]
async fn sync_wait_fails_when_informer_is_stopped() {
    let rig = Rig::new();
    let script = Script::new(&rig.env, []);
    rig.start(&script);
    let secrets = rig.factory.typed::<Secret>();
    let (waited, ()) = future::join(rig.informer.wait_for_sync(None), rig.factory.stop(&rig.informer)).await;
    assert_eq!(waited.unwrap_err().unsynced[0].reason, UnsyncedReason::Stopped);
    assert!(secrets.is_running());
}
