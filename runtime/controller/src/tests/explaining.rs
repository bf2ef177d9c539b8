//! Tests of `explain`: each test creates a situation and checks the first line of the explanation.

mod details;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Secret;
use tokio_util::sync::CancellationToken;
use windlass_client::{Fence, FenceState, FrameStream, RequestError};
use windlass_informer::{ListRequest, ListerWatcher, Selection, SourceProvider as _, WatchRequest};
use windlass_object::shard::ShardId;
use windlass_object::{RawList, ResourceKind, Scope as Reach, Status, TypedObjects};
use windlass_sharding::{KeyOwnership, Ownership};

use super::*;
use crate::ReadYourWrites;
use crate::host::{ControllerInspector, ControllerPhase, Explanation, LeaseStatus};
use crate::{CacheSync, generation_changed};
use crate::{not_yet, retry_after};

const PAUSED: &str = "example.com/paused";

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("shop", name)
}

fn watch_maps(setup: &mut Setup) {
    setup.primary::<ConfigMap>();
}

fn first_line(explanation: &Explanation) -> String {
    explanation.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Asserts the start of the first line of the explanation.
#[track_caller]
fn assert_says(insight: &ControllerInspector, name: &str, expected: &str) -> Explanation {
    let explanation = insight.explain(&key(name));
    let line = first_line(&explanation);
    assert!(line.starts_with(expected), "{line:?} does not begin with {expected:?}");
    let json = serde_json::to_value(&explanation).expect("serialized");
    assert_eq!(json["cause"], line.as_str(), "{json}");
    assert!(json["situation"]["name"].is_string(), "{json}");
    explanation
}

#[tokio::test(start_paused = true)]
async fn not_yet_is_not_a_failure_but_retry_after_uses_up_retries() {
    let world = World::with(&["child", "server"]);
    let half_minute = Duration::from_secs(30);
    let registration = world.scripted(watch_maps, move |key, _| async move {
        match key.name() {
            "child" => Err(not_yet(half_minute, "its Deployment has no ready replicas")),
            _ => Err(retry_after(half_minute, "the server asks for patience")),
        }
    });
    let workers = world.start_with(registration.with_settings(|setup| setup.max_retries(Some(2)))).await;
    world.pass(1).await;
    let reason = "not yet: its Deployment has no ready replicas; reconciled again in 29.0 s";
    assert_says(&workers.inspector(), "child", reason);
    assert_says(
        &workers.inspector(),
        "server",
        "backing off: failed 1 time(s) in a row; next attempt in 29.0 s",
    );
    world.pass(100).await;
    assert_says(&workers.inspector(), "server", "not retried: the retry limit is reached");
    assert_eq!((world.diary.times("child").len(), world.diary.times("server").len()), (4, 3));
    let counts = world.metrics.reconcile(Scripted::NAME).total;
    assert_eq!((counts.requeue_after.get(), counts.error.get()), (4, 3));
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_reports_done_with_last_event_and_its_time() {
    let world = World::with(&["m"]);
    let workers = world.watcher(watch_maps).await;
    world.pass(10).await;
    world.put("m");
    world.pass(10).await;
    let explanation = assert_says(&workers.inspector(), "m", "done: nothing to do until something changes");
    let seen = explanation.seen.expect("an update was seen");
    let stored = world.api.object(&path("m")).expect("stored");
    assert_eq!(seen.version.as_deref(), stored["metadata"]["resourceVersion"].as_str());
    assert_eq!(seen.uid.as_deref(), stored["metadata"]["uid"].as_str());
    assert_eq!((&*seen.event, &*seen.cause, &*seen.watch), ("updated", "watch", "configmaps.v1"));
    assert_eq!((seen.object.as_str(), explanation.runs, explanation.failures), ("shop/m", 2, 0));
    let run = explanation.last_run.expect("it ran");
    assert_eq!(run.outcome.as_deref(), Some("done"));
    assert!((run.started.seconds_from_now + 10.0).abs() < 0.1, "{:?}", run.started);
    assert_eq!(explanation.queued.map(|queued| queued.asked_by).as_deref(), Some("event"));
    assert_eq!(explanation.cached.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn explain_reports_done_with_next_reconcile_and_deleted_object() {
    let world = World::with(&["later", "gone"]);
    let workers = world.start().await;
    world.pass(1).await;
    assert_says(&workers.inspector(), "later", "done: requeue requested; reconciled again in 59");
    world.api.delete(&path("gone"));
    world.pass(1).await;
    assert_says(
        &workers.inspector(),
        "gone",
        "done: nothing left to do, and no cache holds an object of that name",
    );
}

#[tokio::test(start_paused = true)]
async fn explain_reports_cache_disconnected_after_first_list() {
    let world = World::with(&["known"]);
    let workers = world.watcher(watch_maps).await;
    world.pass(1).await;
    let insight = workers.inspector();
    assert_says(&insight, "known", "done: nothing to do until something changes");
    world.api.inject_fault(|asked| (asked.resource == "configmaps").then_some(FaultAction::Unavailable));
    world.api.upsert(&path("missed"), json!({}));
    // Wait until the open watch has ended.
    world.pass(600).await;
    for name in ["known", "missed"] {
        let explanation =
            assert_says(&insight, name, "waiting for cache: configmaps.v1 (all) may have changed");
        let line = first_line(&explanation);
        assert!(line.contains("may have changed since") && line.contains("503"), "{line}");
    }
    world.api.inject_fault(|_| None);
    world.pass(120).await;
    assert_says(&insight, "missed", "done: ");
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn right_to_write_that_lacks_is_named_with_its_rule() {
    let world = World::with(&["m"]);
    let refused = |_, _| async {
        let words = r#"configmaps "m" is forbidden: User "me" cannot patch resource "configmaps" in API group "" in the namespace "shop""#;
        let mut status = Status::failure(words, "Forbidden");
        status.code = 403;
        Err(kube::Error::Api(Box::new(status)).into())
    };
    let workers = world.start_with(world.scripted(watch_maps, refused)).await;
    world.pass(10).await;
    let explanation = assert_says(
        &workers.inspector(),
        "m",
        "missing permission: me cannot patch configmaps in namespace shop",
    );
    let line = first_line(&explanation);
    assert!(
        line.contains(r#"resources: ["configmaps"], verbs: [patch]"#) && line.contains("next attempt in"),
        "{line}"
    );
    assert!(explanation.last_error.is_some_and(|error| error.denial.is_some()));
    assert!(explanation.failures > 3 && explanation.next_try.is_some());
}

/// The API server, with a switch that denies access.
#[derive(Clone, Default)]
struct Guarded {
    allowed: Arc<AtomicBool>,
    server: Arc<OnceLock<Arc<dyn ListerWatcher>>>,
}

impl Guarded {
    fn server(&self) -> Result<&Arc<dyn ListerWatcher>, RequestError> {
        let mut status = Status::failure("no", "Forbidden");
        status.code = 403;
        let allowed = self.allowed.load(Ordering::Relaxed);
        allowed.then(|| self.server.get()).flatten().ok_or(RequestError::Api(Box::new(status)))
    }
}

#[async_trait::async_trait]
impl ListerWatcher for Guarded {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        self.server()?.list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        self.server()?.watch(request).await
    }
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_names_missing_read_permission_before_and_after_start() {
    let world = World::with(&["m"]);
    let guarded = Guarded::default();
    let source = guarded.clone();
    let wire = move |setup: &mut Setup| {
        setup.cache_sync(CacheSync::Forever);
        setup.watch_from(Arc::new(source.clone()), TypedObjects::<ConfigMap>::new()).primary();
    };
    let readied = world.ready(world.scripted(wire, |_, _| async { Ok(Outcome::Done) }));
    let insight = readied.prepared.inspector();
    let server = ApiServerSources::new(readied.resources.reader.clone());
    let kind = ResourceKind::of::<ConfigMap>();
    assert!(guarded.server.set(server.source(&kind, &Selection::default())).is_ok());
    let starting = world.env.spawn("start", readied.prepared.start(readied.resources));
    world.pass(1).await;
    let explanation = assert_says(&insight, "m", "missing permission: the process cannot list configmaps");
    assert!(first_line(&explanation).contains("verbs: [list, watch]"), "{explanation}");
    guarded.allowed.store(true, Ordering::Relaxed);
    let _workers = starting.await.expect("ended").expect("started");
    world.pass(1).await;
    assert_says(&insight, "m", "done: ");
    guarded.allowed.store(false, Ordering::Relaxed);
    world.pass(3600).await;
    assert_says(&insight, "m", "missing permission: the process cannot ");
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_reports_backoff_with_error_and_next_attempt() {
    let world = World::with(&["fails"]);
    let workers = world.start().await;
    world.pass(10).await;
    let explanation = assert_says(
        &workers.inspector(),
        "fails",
        "backing off: failed 11 time(s) in a row; next attempt in ",
    );
    assert!(first_line(&explanation).ends_with(": injected failure"), "{explanation}");
    let overview = workers.inspector().overview();
    assert_eq!((overview.failing, overview.failing_keys[0].key.as_str()), (1, "shop/fails"));
}

#[tokio::test(start_paused = true)]
async fn explain_reports_key_without_remaining_retries() {
    let world = World::with(&["hopeless", "m"]);
    let workers = world.start().await;
    world.pass(10).await;
    let insight = workers.inspector();
    assert_says(
        &insight,
        "hopeless",
        "not retried: the error is terminal; reconciled again when the object changes: injected failure",
    );
    let failed: Vec<_> = insight.overview().failing_keys.iter().map(ToString::to_string).collect();
    assert_eq!(failed, ["shop/hopeless, not retried until a change: injected failure"]);
    let wire = |setup: &mut Setup| {
        setup.max_retries(Some(2));
        watch_maps(setup);
    };
    let workers = World::with(&["m"]);
    let started = workers.start_with(workers.scripted(wire, |_, _| async { Err(retry("no")) })).await;
    workers.pass(10).await;
    assert_says(
        &started.inspector(),
        "m",
        "not retried: the retry limit is reached; reconciled again when the object changes: no",
    );
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_reports_unsynced_cache_with_reason() {
    let world = World::with(&["m"]);
    world.api.inject_fault(|asked| (asked.resource == "secrets").then_some(FaultAction::Unavailable));
    let readied = world.ready(world.scripted(
        |setup| {
            setup.cache_sync(CacheSync::Forever);
            setup.watch::<Secret>();
            watch_maps(setup);
        },
        |_, _| async { Ok(Outcome::Done) },
    ));
    let insight = readied.prepared.inspector();
    let _starting = world.env.spawn("start", readied.prepared.start(readied.resources));
    world.pass(30).await;
    let explanation = assert_says(&insight, "m", "waiting for cache: secrets.v1 (all): ");
    assert!(first_line(&explanation).contains("503"), "{explanation}");
    assert!(insight.overview().summary().contains("waiting for caches"), "{:?}", insight.overview());
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn standby_replica_names_the_leader() {
    let world = World::with(&["m"]);
    let readied = world.ready(world.scripted(watch_maps, |_, _| async { Ok(Outcome::Done) }));
    let insight = readied.prepared.inspector();
    assert_says(&insight, "m", "waiting for cache: configmaps.v1 (all): still listing");
    world.pass(1).await;
    assert_says(&insight, "m", "not started: ");
    let holder = Arc::new(Mutex::new(LeaseStatus::HeldByOther("other_1".to_owned())));
    let asked = Arc::clone(&holder);
    let held = Arc::new(move || asked.lock().expect("whole").clone());
    insight
        .set_phase(ControllerPhase::Standby { lease: "kube-system/windlass".to_owned(), lease_status: held });
    assert_says(
        &insight,
        "m",
        "lease elsewhere: kube-system/windlass is held by other_1; query that replica",
    );
    *holder.lock().expect("whole") = LeaseStatus::Held;
    assert_says(&insight, "m", "taking over: this replica holds kube-system/windlass");
    *holder.lock().expect("whole") = LeaseStatus::Unknown;
    assert_says(&insight, "m", "lease elsewhere: kube-system/windlass has no known holder");
    let mut workers = readied.prepared.start(readied.resources).await.expect("started");
    world.pass(1).await;
    assert_says(&insight, "m", "done: ");
    workers.stop();
    assert_says(&insight, "m", "shutting down: ");
    workers.ended().await;
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_reports_undecodable_object() {
    let world = World::with(&["m"]);
    let workers = world.watcher(watch_maps).await;
    world.pass(1).await;
    world.api.overwrite_unchecked(&path("m"), |object| object["data"] = json!({ "count": 17 }));
    world.pass(1).await;
    let explanation = assert_says(&workers.inspector(), "m", "undecodable object: configmaps.v1 at version ");
    assert!(first_line(&explanation).contains("cannot be decoded: "), "{explanation}");
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_reports_quarantined_key_until_its_object_changes() {
    let world = World::with(&["panics"]);
    let workers = world.start().await;
    world.pass(1).await;
    assert_says(&workers.inspector(), "panics", "backing off: failed ");
    world.pass(3600).await;
    assert_says(
        &workers.inspector(),
        "panics",
        "quarantined key: its reconcile panicked 15 times in a row, last ",
    );
    assert_eq!(workers.inspector().overview().quarantined, ["shop/panics"]);
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn kind_that_is_not_served_is_absent() {
    let world = World::with(&["m"]);
    let widgets = ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        scope: Reach::Namespaced,
    };
    let readied = world.ready(world.scripted(
        move |setup| {
            setup.cache_sync(CacheSync::Forever);
            setup.watch_dynamic(widgets.clone()).primary();
            watch_maps(setup);
        },
        |_, _| async { Ok(Outcome::Done) },
    ));
    let insight = readied.prepared.inspector();
    world.pass(1).await;
    assert_says(&insight, "m", "kind absent: the API server does not serve widgets.v1.example.com");
}

fn pausable(setup: &mut Setup) {
    // No predicate accepts annotation changes; the pause handling receives them anyway.
    setup.primary::<ConfigMap>().paused_by(PAUSED).when(generation_changed());
}

fn annotate(world: &World, name: &str, value: Option<&str>) {
    world.api.upsert(&path(name), json!({ "metadata": { "annotations": { PAUSED: value } } }));
}

// parity: pausing-each-project
#[tokio::test(start_paused = true)]
async fn paused_key_is_reconciled_once_its_annotation_is_removed() {
    let world = World::with(&["m", "n"]);
    annotate(&world, "m", Some("by hand"));
    let trigger = world.feed(10);
    let wire = move |setup: &mut Setup| {
        drop(setup.trigger("feed", 10));
        pausable(setup);
    };
    let workers = world.watcher(wire).await;
    trigger.try_send(key("m")).expect("room");
    world.pass(60).await;
    assert_eq!(world.diary.names(), ["n"]);
    assert_says(&workers.inspector(), "m", "paused: its object has the annotation example.com/paused");
    annotate(&world, "m", Some("false"));
    world.env.sleep(Duration::from_millis(100)).await;
    assert_eq!(world.diary.names(), ["m"], "at once");
    annotate(&world, "m", Some("true"));
    world.env.sleep(Duration::from_millis(100)).await;
    trigger.try_send(key("m")).expect("the trigger has room after the paused key was dequeued");
    world.pass(1).await;
    annotate(&world, "m", None);
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"]);
    assert_says(&workers.inspector(), "m", "done: ");
}

// parity: pausing-each-project
#[tokio::test(start_paused = true)]
async fn reconcile_may_pause_its_key_with_a_reason() {
    let world = World::with(&["m"]);
    let act = |_, _| async { Ok(Outcome::Paused("spec.suspend is set".into())) };
    let workers = world.start_with(world.scripted(watch_maps, act)).await;
    world.pass(3600).await;
    assert_eq!(world.diary.names(), ["m"]);
    assert_says(&workers.inspector(), "m", "paused: its reconcile reported: spec.suspend is set");
    world.put("m");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["m"], "a change enqueues the key again");
}

/// A fence that closes on command, and the ownership of names up to a letter.
#[derive(Clone, Debug)]
struct Gatekeeper {
    limit: Arc<Mutex<char>>,
    /// Whether writes are blocked.
    shut: Arc<AtomicBool>,
    lost: CancellationToken,
}

impl Gatekeeper {
    fn with(limit: char) -> Self {
        Self { limit: Arc::new(Mutex::new(limit)), shut: Arc::default(), lost: CancellationToken::new() }
    }

    fn keep_up_to(&self, limit: char) {
        *self.limit.lock().expect("whole") = limit;
    }

    /// Blocks writes without a notification.
    fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    fn lose(&self) {
        self.shut();
        self.lost.cancel();
    }

    fn is_gone(&self, key: &ObjectKey) -> bool {
        key.name().chars().next().is_some_and(|first| first > *self.limit.lock().expect("whole"))
    }
}

impl KeyOwnership for Gatekeeper {
    fn ownership(&self, key: &ObjectKey) -> Ownership {
        if self.is_gone(key) {
            return Ownership::NotOwned { shard: ShardId(3), holder: Some("replica-b".to_owned()) };
        }
        Ownership::Owned(Some(Arc::new(self.clone())))
    }
}

impl Fence for Gatekeeper {
    fn state(&self) -> FenceState {
        if self.shut.load(Ordering::SeqCst) { FenceState::Closed } else { FenceState::Open }
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.lost.clone().cancelled_owned())
    }
}

async fn start_in(world: &World, scope: &Gatekeeper, registration: Registration) -> Workers {
    let readied = world.ready_in(Arc::new(scope.clone()), registration);
    readied.prepared.start(readied.resources).await.expect("started")
}

#[tokio::test(start_paused = true)]
async fn key_of_foreign_shard_is_not_reconciled_and_names_its_holder() {
    let world = World::with(&["a", "z"]);
    let scope = Gatekeeper::with('m');
    let trigger = world.feed(1);
    let wire = move |setup: &mut Setup| {
        drop(setup.trigger("feed", 1));
        watch_maps(setup);
    };
    let done = |_, _| async { Ok(Outcome::Done) };
    let workers = start_in(&world, &scope, world.scripted(wire, done)).await;
    (0..3).for_each(|_| trigger.try_send(key("z")).expect("foreign keys use no capacity of the trigger"));
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["a"]);
    assert_says(&workers.inspector(), "z", "other shard: shard 3 is held by replica-b");
    assert_eq!(workers.inspector().overview().remembered, 1);
}

#[tokio::test(start_paused = true)]
async fn shard_release_evicts_keys_and_waits_for_reconciles_in_flight() {
    let world = World::with(&["y-fails", "y-later", "y-waits", "z-slow", "a"]);
    let scope = Gatekeeper::with('z');
    let act = |key: ObjectKey, cx: Context| async move {
        match key.name() {
            "y-fails" => Err(retry("no")),
            "y-later" => Ok(Outcome::RequeueAfter(Duration::from_secs(1))),
            "z-slow" => {
                cx.env().sleep(Duration::from_secs(5)).await;
                Ok(Outcome::RequeueAfter(Duration::from_secs(1)))
            }
            _ => Ok(Outcome::Done),
        }
    };
    let wire = |setup: &mut Setup| {
        setup.workers(2);
        setup.limit_concurrency(1, |key| key.name().starts_with("z").then(|| "z".to_owned()));
        watch_maps(setup);
    };
    let workers = start_in(&world, &scope, world.scripted(wire, act)).await;
    world.pass(2).await;
    world.put("z-next");
    world.env.sleep(Duration::from_millis(10)).await;
    assert_says(&workers.inspector(), "z-next", "concurrency limit: class \"z\" runs 1 reconciles");
    scope.keep_up_to('m');
    let begun = world.env.now();
    workers.shard_handoff().drain_keys(|key| scope.is_gone(key)).await;
    let waited = world.env.now().saturating_duration_since(begun);
    assert!(waited > Duration::from_secs(2) && waited < Duration::from_secs(4), "{waited:?}");
    world.diary.names();
    world.pass(3600).await;
    assert_eq!(world.diary.names(), Vec::<String>::new());
    assert_eq!(workers.inspector().overview().failing, 0);
    world.put("a");
    world.pass(1).await;
    assert_eq!(world.diary.names(), ["a"], "the other keys continue");
}

#[tokio::test(start_paused = true)]
async fn key_that_waits_for_cache_is_released_immediately() {
    let world = World::with(&["counter"]);
    let scope = Gatekeeper::with('z');
    let registration =
        Registration::controller_with::<Obedient>(world.diary.clone()).with_settings(|setup| {
            setup.read_your_writes(ReadYourWrites::Block { at_most: Duration::from_secs(60) });
        });
    let workers = start_in(&world, &scope, registration).await;
    world.api.inject_fault(|_| Some(FaultAction::Coalesced { within_ms: 60_000 }));
    world.pass(1).await;
    assert_eq!(workers.busy().len(), 1, "the worker waits for the cache");
    let begun = world.env.now();
    scope.keep_up_to('a');
    workers.shard_handoff().drain_keys(|key| scope.is_gone(key)).await;
    assert_eq!(world.env.now(), begun);
    assert_eq!(workers.busy(), []);
}

#[tokio::test(start_paused = true)]
async fn writes_of_key_pass_through_fence_of_its_ownership_check() {
    let world = World::with(&["counter"]);
    let scope = Gatekeeper::with('z');
    let registration = Registration::controller_with::<Obedient>(world.diary.clone());
    scope.shut();
    let workers = start_in(&world, &scope, registration).await;
    world.pass(5).await;
    assert_eq!(
        world.work(),
        Vec::<String>::new(),
        "the fence of the process is open, but not the fence of the key"
    );
    let explanation = assert_says(&workers.inspector(), "counter", "backing off: ");
    assert!(first_line(&explanation).contains("leadership is not held"), "{explanation}");
}

// parity: lost-lease-ends-process
#[tokio::test(start_paused = true)]
async fn reconcile_is_dropped_without_failure_when_its_lease_is_lost() {
    let world = World::with(&["m"]);
    let scope = Gatekeeper::with('z');
    let act = |_, cx: Context| async move {
        cx.env().sleep(Duration::from_secs(3600)).await;
        Ok(Outcome::Done)
    };
    let workers = start_in(&world, &scope, world.scripted(watch_maps, act)).await;
    world.pass(5).await;
    assert_eq!(workers.busy().len(), 1);
    let lost = world.env.now();
    scope.lose();
    while !workers.busy().is_empty() {
        world.env.sleep(Duration::from_millis(1)).await;
    }
    assert!(
        world.env.now() - lost <= Duration::from_millis(2),
        "its writes would be held back, and the rest not"
    );
    let explanation = assert_says(&workers.inspector(), "m", "backing off: ");
    assert!(
        first_line(&explanation).contains("reconcile aborted: this replica lost the Lease of the key"),
        "{explanation}"
    );
    scope.keep_up_to('a');
    workers.shard_handoff().drain_keys(|key| scope.is_gone(key)).await;
    assert_eq!(world.diary.names(), ["m"]);
    world.pass(60).await;
    assert_eq!(world.diary.names(), Vec::<String>::new(), "another replica owns the key");
    assert_says(&workers.inspector(), "m", "other shard: shard 3 is held by replica-b");
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_reports_saturated_queue_when_workers_are_busy() {
    let world = World::with(&["a", "b", "c"]);
    let act = |_, cx: Context| async move {
        cx.env().sleep(Duration::from_secs(10)).await;
        Ok(Outcome::Done)
    };
    let workers = world.start_with(world.scripted(watch_maps, act)).await;
    world.pass(4).await;
    let insight = workers.inspector();
    assert_says(&insight, "a", "running: a worker has reconciled it for 4.0 s");
    let explanation = assert_says(
        &insight,
        "b",
        "queue saturated: queued for 4.0 s among 2 keys; all workers (1) are busy",
    );
    assert_eq!(explanation.seen.map(|seen| seen.cause).as_deref(), Some("initial list"));
    let overview = insight.overview();
    assert_eq!((overview.depth, overview.busy, overview.oldest_keys.len()), (2, 1, 2));
    assert_eq!(overview.running[0].key, "shop/a");
}

// parity: nothing-why-object-not
#[tokio::test(start_paused = true)]
async fn explain_names_predicate_that_filtered_the_last_event() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| {
        let refuses = crate::Predicate::on_object(|map: &ConfigMap| map.data.is_some()).named("has data");
        setup.primary::<ConfigMap>().when(refuses);
    };
    let workers = world.watcher(wire).await;
    world.pass(1).await;
    let expected = "filtered by predicate: has data dropped the last event (added, cause: initial list) of the watch \
                    on configmaps.v1";
    assert_says(&workers.inspector(), "m", expected);
    world.api.upsert(&path("m"), json!({ "data": { "a": "b" } }));
    world.pass(1).await;
    assert_says(&workers.inspector(), "m", "done: nothing to do until something changes");
    world.api.upsert(&path("m"), json!({ "data": null }));
    world.pass(1).await;
    let explanation = assert_says(
        &workers.inspector(),
        "m",
        "done: nothing to do until something changes; predicate has data ",
    );
    assert_eq!(explanation.runs, 1);
}

#[tokio::test(start_paused = true)]
async fn explain_names_selection_that_excludes_the_key() {
    let world = World::with(&["m"]);
    let wire = |setup: &mut Setup| {
        setup.primary::<ConfigMap>().with_selection(Selection::in_namespace("other"));
    };
    let workers = world.watcher(wire).await;
    world.pass(1).await;
    assert_says(
        &workers.inspector(),
        "m",
        "not selected: the watch on configmaps.v1 is on namespace other alone",
    );
    let world = World::with(&["m"]);
    let workers = world.watcher(|setup| drop(setup.watch::<ConfigMap>())).await;
    world.pass(1).await;
    let insight = workers.inspector();
    assert_says(&insight, "m", "never seen: an object of that name is among the cached configmaps.v1");
    assert_says(&insight, "typo", "never seen: no cache of this controller holds an object of that name");
}

#[tokio::test(start_paused = true)]
async fn explain_names_cache_that_lacks_own_write() {
    let world = World::with(&["counter"]);
    world.api.inject_fault(|_| Some(FaultAction::Coalesced { within_ms: 8_000 }));
    let workers = world.start().await;
    for _ in 0..300 {
        world.env.sleep(Duration::from_millis(100)).await;
        if first_line(&workers.inspector().explain(&key("counter"))).starts_with("waiting for its own write")
        {
            break;
        }
    }
    assert_says(
        &workers.inspector(),
        "counter",
        "waiting for its own write: the cache of configmaps does not yet reflect the last write of this key",
    );
}

#[tokio::test(start_paused = true)]
async fn history_keeps_configured_number_of_idle_keys() {
    let names: Vec<String> = (0..50).map(|number| format!("m{number:02}")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.push("fails");
    let world = World::with(&names);
    let registration = Registration::controller_with::<Obedient>(world.diary.clone())
        .with_settings(|setup| setup.history_limit(10));
    let workers = world.start_with(registration).await;
    world.pass(10).await;
    assert_eq!(workers.inspector().overview().remembered, 11);
    assert_says(&workers.inspector(), "fails", "backing off: ");
    let forgotten =
        "no history: the key was never enqueued, or 10 other idle keys are more recent; an object of";
    assert_says(&workers.inspector(), "m00", forgotten);
}
