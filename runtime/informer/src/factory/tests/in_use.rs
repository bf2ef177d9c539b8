//! Informers that last as long as they are used.

use k8s_openapi::api::core::v1::ConfigMap;
use windlass_object::Typed;

use super::*;

fn used(rig: &Rig) -> RefCountedInformer<ConfigMap> {
    rig.factory.ref_counted_informer(Typed::new(), Selection::in_namespace("default"))
}

/// A rig whose own informer is there for good, and runs.
async fn running() -> (Rig, Arc<Server>, usize) {
    let (rig, server) = rig();
    rig.start(&server);
    rig.settle().await;
    let tasks = rig.env.tasks().len();
    (rig, server, tasks)
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_as_long_as_anybody_uses_it_and_stops_with_the_last() {
    let (rig, server, tasks) = running().await;
    let one = used(&rig);
    let (other, lister) = (one.clone(), one.lister());
    let handle = one.add_handler("handler", |_: &Told| {}).expect("it lives");
    rig.settle().await;
    assert!(lister.has_synced() && server.watchers() == 2);
    drop((one, other, lister));
    rig.settle().await;
    assert_eq!(server.watchers(), 2, "its handler uses it");
    handle.remove();
    rig.settle().await;
    assert_eq!((server.watchers(), rig.env.tasks().len()), (1, tasks));
    assert_eq!(rig.counts().objects.get(), 1, "what it held counts no more");
    rig.factory.wait_for_sync(None).await.expect("it is none of the factory's any more");
}

#[tokio::test(start_paused = true)]
async fn lister_that_somebody_holds_is_kept_in_step() {
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
async fn used_again_it_starts_anew_and_shared_it_is_one() {
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
async fn informer_is_freed_although_its_callbacks_hold_its_listers() {
    let (rig, _server, _) = running().await;
    let one = used(&rig);
    let lister = || one.informer().lister();
    let (told, transformed, handled) = (lister(), lister(), lister());
    one.informer().on_watch_error(move |_: &crate::WatchFailure| drop(told.version()));
    let stripped =
        rig.factory.ref_counted_informer(Typed::<ConfigMap>::new(), Selection::in_namespace("other"));
    let of_stripped = stripped.informer().lister();
    assert!(stripped.informer().set_transform(move |_| Err(format!("{:?}", of_stripped.version()))).is_err());
    one.informer().add_handler("handled", move |_: &Told| drop(handled.version())).unwrap();
    let index = transformed.index(|_| ["x".to_owned()]);
    drop(transformed);
    let remains = one.informer().downgrade();
    drop((one, stripped, index));
    rig.settle().await;
    // Those that have ended are let go with the next one.
    drop(used(&rig));
    assert!(remains.upgrade().is_none(), "something keeps it");
}

#[tokio::test(start_paused = true)]
async fn one_that_was_asked_for_for_good_before_or_after_stays() {
    for before in [true, false] {
        let (rig, server, _) = running().await;
        let for_good = |rig: &Rig| {
            drop(rig.factory.informer(Typed::<ConfigMap>::new(), Selection::in_namespace("default")));
        };
        if before {
            for_good(&rig);
        }
        let one = used(&rig);
        if !before {
            for_good(&rig);
        }
        drop(one);
        drop(used(&rig));
        rig.settle().await;
        assert_eq!(server.watchers(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stopped_by_name_is_stopped_for_all_and_its_old_users_do_not_stop_the_next() {
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
async fn added_and_removed_a_thousand_times_it_leaves_neither_tasks_nor_watches_nor_memory() {
    let (rig, server, tasks) = running().await;
    let (streams, mut remains) = (rig.env.rng_stream_count(), Vec::new());
    for _ in 0..1_000 {
        let one = used(&rig);
        let handle = one.add_handler("handler", |_: &Told| {}).expect("it lives");
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
    assert!(state.ending.len() <= 1 && state.holds.is_empty() && state.stopped == 1_001);
    drop(state);
    assert_eq!(rig.env.rng_stream_count(), streams);
}

#[tokio::test(start_paused = true)]
async fn last_user_may_go_at_any_time_also_in_a_handler_and_after_the_factory() {
    let (rig, server, _) = running().await;
    let one = used(&rig);
    // A handler of another informer that has the last word.
    let mut last = Some(one.lister());
    let drops = move |_: &Told| drop(last.take());
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
