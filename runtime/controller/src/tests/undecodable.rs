//! Keys whose own object cannot be decoded.

use windlass_workqueue::Priority;

use super::*;

const PAUSED: &str = "example.com/paused";

/// Replaces the data of a ConfigMap by a value of an invalid type.
fn break_map(world: &World, name: &str) {
    world.api.overwrite_unchecked(&path(name), |object| object["data"] = json!({ "count": 17 }));
}

fn fix_map(world: &World, name: &str) {
    world.api.overwrite_unchecked(&path(name), |object| object["data"] = json!({ "count": "17" }));
}

fn watch_maps(setup: &mut Setup) {
    setup.primary::<ConfigMap>();
}

/// A controller that waits for changes, and a trigger for its keys. The map `m` is reconciled, and then broken.
async fn broken_map(wire: fn(&mut Setup)) -> (World, Workers, Trigger) {
    let world = World::with(&["m", "n"]);
    let trigger = world.feed(10);
    let wire = move |setup: &mut Setup| {
        drop(setup.trigger("feed", 10));
        wire(setup);
    };
    let workers = world.watcher(wire).await;
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m", "n"]);
    break_map(&world, "m");
    world.pass(1).await;
    (world, workers, trigger)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("shop", name)
}

#[tokio::test(start_paused = true)]
async fn key_of_undecodable_object_is_reconciled_once_it_is_readable() {
    let (world, workers, trigger) = broken_map(watch_maps).await;
    for name in ["m", "n"] {
        trigger.try_send(key(name)).expect("room");
    }
    world.pass(3600).await;
    assert_eq!(world.diary.names(), ["n"], "no source can enqueue the key");
    let cause = workers.inspector().explain(&key("m")).cause;
    assert!(cause.starts_with("undecodable object: configmaps.v1 at version "), "{cause}");
    break_map(&world, "m");
    world.pass(3600).await;
    assert_eq!(world.diary.names(), Vec::<String>::new(), "another version that cannot be decoded");
    fix_map(&world, "m");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"]);
    assert_eq!(workers.inspector().explain(&key("m")).cause, "done: nothing to do until something changes");
}

#[tokio::test(start_paused = true)]
async fn key_of_undecodable_object_is_reconciled_once_it_is_deleted() {
    let (world, workers, _trigger) = broken_map(watch_maps).await;
    assert_eq!(world.diary.names(), Vec::<String>::new());
    world.api.remove(&path("m"));
    world.pass(3600).await;
    assert_eq!(world.diary.names(), ["m"], "once, as deleted");
    assert_eq!(
        workers.inspector().explain(&key("m")).cause,
        "done: nothing left to do, and no cache holds an object of that name"
    );
}

#[tokio::test(start_paused = true)]
async fn gauge_shows_how_many_keys_are_withheld() {
    let world = World::with(&["a", "b", "c"]);
    let mut workers = world.watcher(watch_maps).await;
    world.pass(1).await;
    let shown = || {
        let name = "windlass_undecodable_keys{";
        let encoded = world.metrics.encode();
        let line = encoded.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok())
    };
    assert_eq!(shown(), Some(0));
    ["a", "b", "c"].iter().for_each(|name| break_map(&world, name));
    world.pass(1).await;
    assert_eq!(shown(), Some(3));
    break_map(&world, "a");
    world.pass(1).await;
    assert_eq!(shown(), Some(3), "another version of a withheld object");
    fix_map(&world, "a");
    world.api.remove(&path("b"));
    world.pass(1).await;
    assert_eq!(shown(), Some(1));
    workers.stop();
    workers.ended().await;
    assert_eq!(shown(), Some(0), "after the controller has stopped");
}

#[tokio::test(start_paused = true)]
async fn deleting_unhandled_undecodable_object_enqueues_no_key() {
    let world = World::with(&["m", "n"]);
    break_map(&world, "m");
    let _workers = world.watcher(watch_maps).await;
    world.pass(1).await;
    world.api.remove(&path("m"));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["n"], "no handler receives its deletion");
}

#[tokio::test(start_paused = true)]
async fn key_failures_are_cleared_while_object_is_undecodable() {
    let world = World::with(&["fails"]);
    let workers = world.start().await;
    world.pass(60).await;
    assert!(workers.inspector().explain(&key("fails")).failures > 10);
    break_map(&world, "fails");
    world.pass(3600).await;
    world.diary.names();
    assert_eq!(workers.inspector().explain(&key("fails")).failures, 0);
    world.pass(3600).await;
    assert_eq!(world.diary.names(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn paused_object_stays_paused_when_it_becomes_undecodable() {
    fn pausable(setup: &mut Setup) {
        setup.primary::<ConfigMap>().paused_by(PAUSED);
    }
    let annotate = |value: Option<&str>| json!({ "metadata": { "annotations": { PAUSED: value } } });
    let (world, _workers, trigger) = broken_map(pausable).await;
    fix_map(&world, "m");
    world.api.upsert(&path("m"), annotate(Some("by hand")));
    world.pass(1).await;
    world.diary.names();
    break_map(&world, "m");
    trigger.try_send(key("m")).expect("room");
    world.pass(60).await;
    fix_map(&world, "m");
    world.pass(60).await;
    assert_eq!(world.diary.names(), Vec::<String>::new(), "paused before, meanwhile and after");
    world.api.upsert(&path("m"), annotate(None));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"]);
}

#[tokio::test(start_paused = true)]
async fn controller_that_asks_for_it_reconciles_undecodable_objects() {
    let (world, _workers, trigger) = broken_map(|setup| {
        setup.reconcile_undecodable(true);
        watch_maps(setup);
    })
    .await;
    assert_eq!(world.diary.names(), ["m"]);
    trigger.try_send(key("m")).expect("room");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"]);
}

#[tokio::test(start_paused = true)]
async fn custom_handler_watch_declares_its_objects_as_primary() {
    fn by_hand(setup: &mut Setup) {
        let watch = setup.watch::<ConfigMap>().primary();
        watch.on_event(|event, queue| queue.add(ObjectKey::of(&event.object().metadata)));
    }
    let (world, _workers, _trigger) = broken_map(by_hand).await;
    assert_eq!(world.diary.names(), Vec::<String>::new());
    world.api.remove(&path("m"));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"]);
}

#[tokio::test(start_paused = true)]
async fn withheld_key_is_requeued_with_its_priority() {
    let world = World::with(&["m"]);
    let seen: Arc<Mutex<Vec<Priority>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let wire = |setup: &mut Setup| {
        setup.primary::<ConfigMap>().priority(Priority(42));
    };
    let act = move |_, cx: Context| {
        noted.lock().expect("whole").push(cx.priority());
        async { Ok(Outcome::Done) }
    };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(1).await;
    break_map(&world, "m");
    world.pass(1).await;
    world.api.remove(&path("m"));
    world.pass(1).await;
    assert_eq!(*seen.lock().expect("whole"), [Priority(42), Priority(42)]);
}
