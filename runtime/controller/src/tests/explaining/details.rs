//! Details of `explain`, and the state of keys after their release.

use windlass_client::OpenFence;

use super::*;
use crate::ReadYourWrites;

#[tokio::test(start_paused = true)]
async fn panic_outside_reconcile_is_reported_as_backoff_on_one_line() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| {
        setup.limit_concurrency(1, |_| panic!("no class\nat all"));
        watch_maps(setup);
    };
    let workers = world.watcher(wire).await;
    world.pass(12).await;
    let explanation = assert_says(&workers.inspector(), "m", "backing off: next attempt in ");
    let words = "panicked outside its reconcile: no class at all";
    assert!(first_line(&explanation).ends_with(words), "{explanation}");
    assert_eq!(explanation.last_error.map(|error| error.message).as_deref(), Some(words));
    let overview = workers.inspector().overview();
    assert_eq!((overview.failing, overview.failing_keys[0].error.as_str()), (1, words));
}

/// An ownership check that always panics.
struct Hopeless;

impl KeyOwnership for Hopeless {
    fn ownership(&self, _: &ObjectKey) -> Ownership {
        panic!("no verdict")
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_ownership_is_reported_and_does_not_fail_explain() {
    let world = World::with(&[]);
    let queue = Arc::new(OnceLock::new());
    let theirs = Arc::clone(&queue);
    let wire = move |setup: &mut Setup| {
        drop(setup.trigger("feed", 1));
        assert!(theirs.set(setup.queue()).is_ok() || theirs.get().is_some());
    };
    let registration = world.scripted(wire, |_, _| async { Ok(Outcome::Done) });
    let readied = world.ready_in(Arc::new(Hopeless), registration);
    let workers = readied.prepared.start(readied.resources).await.expect("started");
    queue.get().expect("set up").add(key("m"));
    world.pass(1).await;
    let explanation = assert_says(&workers.inspector(), "m", "backing off: next attempt in ");
    assert!(
        first_line(&explanation).ends_with("panicked outside its reconcile: no verdict"),
        "{explanation}"
    );
}

#[tokio::test(start_paused = true)]
async fn panic_message_is_reported_on_one_line() {
    let world = World::with(&["m"]);
    let act = |_, _| async { panic!("two\n  lines") };
    let workers = world.start_with(world.scripted(watch_maps, act)).await;
    world.pass(1).await;
    let explanation = assert_says(&workers.inspector(), "m", "backing off: ");
    assert_eq!(explanation.last_error.map(|error| error.message).as_deref(), Some("panicked: two lines"));
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_of_other_kind_is_reported_as_detail() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| {
        watch_maps(setup);
        setup.watch::<Secret>().enqueue(|_| Vec::new());
    };
    for name in ["m", "n"] {
        world.api.upsert(&format!("/api/v1/namespaces/shop/secrets/{name}"), json!({}));
    }
    let workers = world.watcher(wire).await;
    world.pass(1).await;
    for name in ["m", "n"] {
        let path = format!("/api/v1/namespaces/shop/secrets/{name}");
        world.api.overwrite_unchecked(&path, |object| object["data"] = json!({ "count": 17 }));
    }
    world.pass(1).await;
    let explanation = assert_says(&workers.inspector(), "m", "done: nothing to do until something changes");
    assert_eq!(explanation.undecoded.len(), 1);
    assert!(explanation.to_string().contains("\n  undecoded:  secrets.v1, version "), "{explanation}");
    assert_says(&workers.inspector(), "n", "undecodable object: secrets.v1 at version ");
}

#[tokio::test(start_paused = true)]
async fn worker_that_waits_for_the_cache_does_not_count_as_running() {
    let world = World::with(&["counter"]);
    world.api.inject_fault(|_| Some(FaultAction::Coalesced { within_ms: 8_000 }));
    let workers = start_blocking(&world, Arc::new(OwnsAllKeys)).await;
    for _ in 0..300 {
        world.env.sleep(Duration::from_millis(100)).await;
        if !world.work().is_empty() && !workers.busy().is_empty() {
            break;
        }
    }
    world.env.sleep(Duration::from_millis(100)).await;
    assert_eq!((world.work().len(), workers.busy().len()), (1, 1), "it waits");
    assert_says(&workers.inspector(), "counter", "waiting for its own write: the cache of configmaps");
}

/// Starts the obedient controller, whose workers wait for their caches.
async fn start_blocking(world: &World, scope: Arc<dyn KeyOwnership>) -> Workers {
    let registration =
        Registration::controller_with::<Obedient>(world.diary.clone()).with_settings(|setup| {
            setup.read_your_writes(ReadYourWrites::Block { at_most: Duration::from_secs(20) });
        });
    let readied = world.ready_in(scope, registration);
    readied.prepared.start(readied.resources).await.expect("started")
}

/// An ownership check that returns every key as owned, with the current fence.
#[derive(Clone)]
struct Passing(Arc<Mutex<Arc<dyn Fence>>>);

impl KeyOwnership for Passing {
    fn ownership(&self, _: &ObjectKey) -> Ownership {
        Ownership::Owned(Some(Arc::clone(&*self.0.lock().expect("whole"))))
    }
}

#[tokio::test(start_paused = true)]
async fn reconcile_uses_current_fence_after_waiting_for_cache() {
    let world = World::with(&["counter"]);
    world.api.inject_fault(|_| Some(FaultAction::Coalesced { within_ms: 8_000 }));
    let scope = Passing(Arc::new(Mutex::new(Arc::new(OpenFence))));
    let workers = start_blocking(&world, Arc::new(scope.clone())).await;
    for _ in 0..300 {
        world.env.sleep(Duration::from_millis(100)).await;
        if !world.work().is_empty() && !workers.busy().is_empty() {
            break;
        }
    }
    world.env.sleep(Duration::from_millis(100)).await;
    assert_eq!((world.work().len(), workers.busy().len()), (1, 1), "it waits");
    let closed = Gatekeeper::with('z');
    closed.shut();
    *scope.0.lock().expect("whole") = Arc::new(closed);
    world.pass(20).await;
    assert_eq!(world.work().len(), 1, "{:?}", world.work());
    let explanation = assert_says(&workers.inspector(), "counter", "backing off: ");
    assert!(first_line(&explanation).contains("leadership is not held"), "{explanation}");
}

#[tokio::test(start_paused = true)]
async fn released_key_leaves_no_state_when_its_last_reconcile_failed() {
    let world = World::with(&["z-panics", "z-fails"]);
    let scope = Gatekeeper::with('z');
    let act = |key: ObjectKey, cx: Context| async move {
        cx.env().sleep(Duration::from_secs(5)).await;
        assert_ne!(key.name(), "z-panics", "injected failure");
        Err(retry("injected failure"))
    };
    let trigger = world.feed(1);
    let wire = move |setup: &mut Setup| {
        setup.workers(2);
        setup.quarantine_after(Some(1));
        drop(setup.trigger("feed", 1));
        watch_maps(setup);
    };
    let workers = start_in(&world, &scope, world.scripted(wire, act)).await;
    world.pass(2).await;
    assert_eq!(workers.busy().len(), 2);
    scope.keep_up_to('m');
    workers.shard_handoff().drain_keys(|key| scope.is_gone(key)).await;
    assert_eq!(workers.inspector().overview().quarantined, Vec::<String>::new());
    let attempts = |name: &str| workers.inspector().explain(&key(name)).failures;
    assert_eq!((attempts("z-panics"), attempts("z-fails")), (0, 0));
    let overview = workers.inspector().overview();
    assert_eq!((overview.failing, overview.remembered, overview.depth), (0, 0, 0));
    trigger.try_send(key("a")).expect("there is room");
}
