//! Writes and tasks of a reconcile end with the reconcile.

use windlass_client::{ClientOptions, ReconcileEndedError, reconcile_ended};
use windlass_env::TaskError;

use super::*;

/// The outcomes of the tasks that the reconciles of a world started.
type Ends = Arc<Mutex<Vec<&'static str>>>;

fn patches_maps(setup: &mut Setup) {
    setup.uses::<ConfigMap>([Verb::Patch]);
    setup.workers(1);
    setup.primary::<ConfigMap>();
}

/// Patches the ConfigMap `m`.
async fn write(api: Api<ConfigMap>) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({ "data": { "late": "yes" } }));
    api.patch("m", &PatchParams::default(), &patch).await.map(drop)
}

/// A controller whose first reconcile starts a task and returns. The task writes 2 s later; returns the outcome.
async fn stray_writer(world: &World) -> (Workers, Arc<Mutex<Option<ReconcileEndedError>>>) {
    let end: Arc<Mutex<Option<ReconcileEndedError>>> = Arc::default();
    let noted = Arc::clone(&end);
    let act = move |_, cx: Context| {
        let (env, api, noted) = (cx.env().clone(), api_of(&cx), Arc::clone(&noted));
        async move {
            drop(cx.env().spawn("stray", async move {
                env.sleep(Duration::from_secs(2)).await;
                let error = write(api).await.expect_err("its reconcile has ended");
                *noted.lock().expect("whole") = reconcile_ended(&error).copied();
            }));
            Ok(Outcome::Done)
        }
    };
    (world.start_with(world.scripted(patches_maps, act)).await, end)
}

// parity: consistency-store-wrote-at
#[tokio::test(start_paused = true)]
async fn write_after_the_end_of_its_reconcile_is_not_sent() {
    let world = World::with(&["m"]);
    let (_workers, end) = stray_writer(&world).await;
    world.pass(10).await;
    assert_eq!(*end.lock().expect("whole"), Some(ReconcileEndedError::NotSent));
    assert!(world.work().is_empty(), "{:?}", world.work());
}

#[tokio::test(start_paused = true)]
async fn write_in_flight_is_dropped_when_its_reconcile_ends() {
    let world = World::with(&["m"]);
    let end: Arc<Mutex<Option<ReconcileEndedError>>> = Arc::default();
    let noted = Arc::clone(&end);
    let act = move |_, cx: Context| {
        let (api, noted) = (api_of(&cx), Arc::clone(&noted));
        async move {
            if noted.lock().expect("whole").is_some() {
                return Ok(Outcome::Done);
            }
            drop(cx.env().spawn("stray", async move {
                let error = write(api).await.expect_err("its reconcile has ended");
                *noted.lock().expect("whole") = reconcile_ended(&error).copied();
            }));
            cx.env().sleep(Duration::from_secs(1)).await;
            Ok(Outcome::RequeueAfter(Duration::ZERO))
        }
    };
    let slow = |request: &RequestSummary| {
        (request.verb == Some(Verb::Patch)).then_some(FaultAction::SlowServer { by_ms: 5000 })
    };
    world.api.inject_fault(slow);
    let workers = world.start_with(world.scripted(patches_maps, act)).await;
    world.pass(3).await;
    assert!(workers.has_unsettled_writes(), "a late copy of the write can take effect");
    world.pass(117).await;
    assert!(!workers.has_unsettled_writes());
    assert_eq!(*end.lock().expect("whole"), Some(ReconcileEndedError::Interrupted));
    let times = world.diary.times("m");
    let next = times[1].saturating_duration_since(times[0]);
    let ClientOptions { unacknowledged_timeout, request_timeout, .. } = ClientOptions::default();
    let late = unacknowledged_timeout + request_timeout;
    assert!(next > late, "the key waits until the write can no longer take effect: {next:?}");
}

#[tokio::test(start_paused = true)]
async fn outcome_that_settles_early_does_not_wait_for_a_late_one() {
    let world = World::with(&["dropped", "failed"]);
    let act = move |key: ObjectKey, cx: Context| {
        let (env, api) = (cx.env().clone(), api_of(&cx));
        async move {
            // The write of `dropped` comes first.
            let wait = if key.name() == "failed" { 1 } else { 0 };
            env.sleep(Duration::from_secs(wait)).await;
            let (patch, params) = (Patch::Merge(json!({ "data": { "a": "b" } })), PatchParams::default());
            let write = api.patch(key.name(), &params, &patch);
            drop(env.timeout(Duration::from_millis(500), write).await);
            Ok(Outcome::RequeueAfter(Duration::from_millis(1)))
        }
    };
    world.api.inject_fault(|request: &RequestSummary| match (request.verb, request.name.as_str()) {
        (Some(Verb::Patch), "dropped") => Some(FaultAction::SlowServer { by_ms: 5000 }),
        (Some(Verb::Patch), "failed") => Some(FaultAction::InternalError),
        _ => None,
    });
    let wire = |setup: &mut Setup| {
        patches_maps(setup);
        setup.workers(2);
    };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(10).await;
    assert_eq!(world.diary.times("dropped").len(), 1, "its write can still take effect");
    assert!(world.diary.times("failed").len() > 1, "the server has ended its write");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_end_after_a_task_of_an_aborted_reconcile() {
    let world = World::with(&["m"]);
    let (began, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let act = move |_, cx: Context| {
        let (began, released) = (began.clone(), Arc::clone(&released));
        async move {
            drop(cx.spawn("blocked", async move {
                began.send(()).expect("the test listens");
                // An abort has no effect before this returns.
                released.lock().expect("whole").recv().expect("the test releases it");
            }));
            std::future::pending::<()>().await;
            Ok(Outcome::Done)
        }
    };
    let mut workers = world.start_with(world.scripted(patches_maps, act)).await;
    begins.recv().await.expect("the task runs");
    workers.abort();
    assert!(world.env.timeout(Duration::from_millis(200), workers.ended()).await.is_err(), "its task runs");
    release.send(()).expect("the task waits");
    workers.ended().await;
}

/// A controller whose first reconcile starts two nested tasks and returns immediately with `outcome`.
async fn spawner(world: &World, tune: fn(&mut Setup), act: fn(&Context) -> bool) -> (Workers, Ends) {
    let ends: Ends = Arc::default();
    let noted = Arc::clone(&ends);
    let wire = move |setup: &mut Setup| {
        patches_maps(setup);
        tune(setup);
    };
    let reconcile = move |_, cx: Context| {
        let noted = Arc::clone(&noted);
        async move {
            let (theirs, inner) = (Arc::clone(&noted), cx.clone());
            drop(cx.spawn("first", async move {
                let (env, api) = (inner.env().clone(), api_of(&inner));
                let task = inner.spawn("second", async move {
                    env.sleep(Duration::from_secs(2)).await;
                    write(api).await.expect("the reconcile is running");
                });
                drop(task);
                inner.env().sleep(Duration::from_secs(1)).await;
                theirs.lock().expect("whole").push("first");
            }));
            if act(&cx) {
                std::future::pending::<()>().await;
            }
            noted.lock().expect("whole").push("reconcile");
            Ok(Outcome::Done)
        }
    };
    (world.start_with(world.scripted(wire, reconcile)).await, ends)
}

#[tokio::test(start_paused = true)]
async fn key_is_settled_when_the_tasks_of_its_reconcile_have_ended() {
    let world = World::with(&["m"]);
    let (workers, ends) = spawner(&world, |_| {}, |_| false).await;
    world.pass(1).await;
    assert_eq!(workers.busy().len(), 1, "the reconcile has returned, and its tasks run");
    world.pass(5).await;
    assert_eq!(*ends.lock().expect("whole"), ["reconcile", "first", "reconcile", "first"]);
    assert_eq!(world.work().len(), 2, "both runs write: {:?}", world.work());
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_reconcile_are_aborted_when_it_takes_too_long() {
    let world = World::with(&["m"]);
    let tune = |setup: &mut Setup| setup.reconcile_timeout(Some(Duration::from_millis(500)));
    let (workers, ends) = spawner(&world, tune, |_| true).await;
    world.pass(3).await;
    assert!(world.metrics.reconcile("scripted").timeouts.get() > 1);
    assert!(ends.lock().expect("whole").is_empty() && world.work().is_empty());
    workers.abort();
    world.pass(5).await;
    assert!(ends.lock().expect("whole").is_empty() && world.work().is_empty());
}

#[tokio::test(start_paused = true)]
async fn task_that_is_spawned_after_its_reconcile_never_runs() {
    let world = World::with(&["m"]);
    let end: Arc<Mutex<Option<TaskError>>> = Arc::default();
    let noted = Arc::clone(&end);
    let act = move |_, cx: Context| {
        let noted = Arc::clone(&noted);
        async move {
            let late = cx.clone();
            drop(cx.env().spawn("stray", async move {
                late.env().sleep(Duration::from_secs(1)).await;
                let ended = late.spawn("late", async { panic!("it runs") }).await;
                *noted.lock().expect("whole") = ended.err();
            }));
            Ok(Outcome::Done)
        }
    };
    let _workers = world.start_with(world.scripted(patches_maps, act)).await;
    world.pass(3).await;
    assert!(matches!(*end.lock().expect("whole"), Some(TaskError::Aborted)));
}
