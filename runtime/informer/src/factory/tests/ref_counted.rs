//! Reference-counted informers.

use k8s_openapi::api::core::v1::ConfigMap;
use windlass_object::TypedObjects;

use super::*;
use crate::HandlerHandle;

fn used(rig: &Rig) -> RefCountedInformer<ConfigMap> {
    rig.factory.ref_counted_informer(TypedObjects::new(), Selection::in_namespace("default"))
}

/// Adds a handler that owns a lister, so it keeps the informer running.
fn add_holding_handler(one: &RefCountedInformer<ConfigMap>) -> HandlerHandle {
    let lister = one.lister();
    one.informer().add_handler("handler", move |_: &TestEvent| drop(lister.version())).expect("it lives")
}

/// Starts a rig whose own informer is permanent.
async fn running() -> (Rig, Arc<Server>, usize) {
    let (rig, server) = rig();
    rig.start(&server);
    rig.settle().await;
    let tasks = rig.env.tasks().len();
    (rig, server, tasks)
}

#[tokio::test(start_paused = true)]
async fn ref_counted_informer_runs_until_its_last_holder_is_dropped() {
    let (rig, server, tasks) = running().await;
    let one = used(&rig);
    let (other, lister) = (one.clone(), one.lister());
    let handle = add_holding_handler(&one);
    rig.settle().await;
    assert!(lister.has_synced() && server.watchers() == 2);
    drop((one, other, lister));
    rig.settle().await;
    assert_eq!(server.watchers(), 2, "its handler still holds a lister");
    handle.remove();
    rig.settle().await;
    assert_eq!((server.watchers(), rig.env.tasks().len()), (1, tasks));
    assert_eq!(rig.counts().objects.get(), 1, "its objects no longer count");
    rig.factory.wait_for_sync(None).await.expect("the stopped informer no longer belongs to the factory");
}

#[tokio::test(start_paused = true)]
async fn lister_keeps_ref_counted_informer_up_to_date() {
    let (rig, server, _) = running().await;
    let lister = used(&rig).lister();
    let copy = lister.clone();
    drop(lister);
    rig.settle().await;
    let version = server.set("a", "second");
    rig.settle().await;
    assert_eq!((copy.version(), copy.is_stopped()), (Some(at(version)), false));
    drop(copy);
    rig.settle().await;
    assert_eq!(server.watchers(), 1);
}

#[tokio::test(start_paused = true)]
async fn ref_counted_informer_is_shared_and_restarted_after_last_use() {
    let (rig, server, _) = running().await;
    let (one, other) = (used(&rig), used(&rig));
    assert!(Arc::ptr_eq(one.informer().erased(), other.informer().erased()));
    drop(one);
    rig.settle().await;
    assert_eq!(server.watchers(), 2);
    let old = other.informer().clone();
    drop(other);
    server.set("a", "second");
    let new = used(&rig);
    assert!(!Arc::ptr_eq(new.informer().erased(), old.erased()) && old.lister().is_stopped());
    assert!(new.informer().synced().await);
    assert_eq!((new.lister().version(), server.watchers()), (Some(at(2)), 2));
}

#[tokio::test(start_paused = true)]
async fn informer_is_freed_even_if_its_callbacks_hold_its_listers() {
    let (rig, _server, _) = running().await;
    let one = used(&rig);
    let lister = || one.informer().lister();
    let (observed, transformed, handled) = (lister(), lister(), lister());
    one.informer().on_watch_error(move |_: &crate::WatchFailure| drop(observed.version()));
    let stripped =
        rig.factory.ref_counted_informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("other"));
    let of_stripped = stripped.informer().lister();
    assert!(stripped.informer().set_transform(move |_| Err(format!("{:?}", of_stripped.version()))).is_err());
    one.informer().add_handler("handled", move |_: &TestEvent| drop(handled.version())).unwrap();
    let index = transformed.index(|_| ["x".to_owned()]);
    drop(transformed);
    let remains = one.informer().downgrade();
    drop((one, stripped, index));
    rig.settle().await;
    // Stopped informers are freed with the next release.
    drop(used(&rig));
    assert!(remains.upgrade().is_none(), "a reference keeps the informer in memory");
}

#[tokio::test(start_paused = true)]
async fn permanently_requested_informer_is_not_stopped_by_last_drop() {
    for before in [true, false] {
        let (rig, server, _) = running().await;
        let permanent = |rig: &Rig| {
            drop(rig.factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("default")));
        };
        if before {
            permanent(&rig);
        }
        let one = used(&rig);
        if !before {
            permanent(&rig);
        }
        drop(one);
        drop(used(&rig));
        rig.settle().await;
        assert_eq!(server.watchers(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn old_users_of_stopped_informer_do_not_stop_its_successor() {
    let (rig, server, _) = running().await;
    let (old, lister) = (used(&rig), used(&rig).lister());
    rig.factory.stop(old.informer()).await;
    assert!(lister.is_stopped());
    let new = used(&rig);
    drop((old, lister));
    rig.settle().await;
    assert!(new.informer().is_running() && server.watchers() == 2);
    drop(new);
    rig.settle().await;
    assert_eq!(server.watchers(), 1);
}

// parity: watches-controllers-cannot-removed, no-watches-added-removed
#[tokio::test(start_paused = true)]
async fn repeated_use_of_ref_counted_informer_leaks_nothing() {
    let (rig, server, tasks) = running().await;
    let (streams, mut remains) = (rig.env.rng_stream_count(), Vec::new());
    for _ in 0..1_000 {
        let one = used(&rig);
        let handle = add_holding_handler(&one);
        assert!(handle.synced().await);
        remains.push(one.informer().downgrade());
        handle.remove();
        drop(one);
        rig.settle().await;
    }
    assert_eq!((server.watchers(), rig.env.tasks().len()), (1, tasks));
    drop(used(&rig));
    rig.settle().await;
    let kept = remains.iter().filter(|remains| remains.strong_count() > 0).count();
    assert!(kept <= 1, "{kept} informers are still in memory");
    let state = rig.factory.inner.lock();
    assert!(state.stopping.len() <= 1 && state.references.is_empty() && state.stopped == 1_001);
    drop(state);
    assert_eq!(rig.env.rng_stream_count(), streams);
}

#[tokio::test(start_paused = true)]
async fn last_reference_can_be_dropped_in_handler_or_after_factory() {
    let (rig, server, _) = running().await;
    let one = used(&rig);
    // A handler of another informer that drops the last reference.
    let mut last = Some(one.lister());
    let drops = move |_: &TestEvent| drop(last.take());
    drop(one);
    rig.informer.add_handler("drops", drops).expect("it lives");
    rig.settle().await;
    assert_eq!(server.watchers(), 1);
    let late = used(&rig);
    rig.factory.shutdown().await;
    assert!(late.lister().is_stopped());
    let Rig { factory, .. } = rig;
    drop(factory);
    drop(late);
}
