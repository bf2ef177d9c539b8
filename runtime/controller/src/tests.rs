//! Tests of a whole controller against an in-process API server, in virtual time.

mod applying;
mod caches;
mod dry_runs;
mod explaining;
mod fresh;
mod parking;
mod polls;
mod queueing;
mod replacing;
mod rights;
mod runnables;
mod sources;
mod threads;
mod turns;
mod undecodable;
mod watching;
mod writing;
mod written;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, FaultyServer, RequestSummary};
use windlass_client::{ClientOptions, Clients, OpenFence};
use windlass_env::{Env, Instant};
use windlass_events::Recorder;
use windlass_informer::{ApiServerSources, FactoryOptions, InformerFactory, Lister, Selection, ShardSet};
use windlass_metrics::Metrics;
use windlass_object::{GroupResource, ObjectKey, ResourceVersion, Verb};
use windlass_sharding::{KeyOwnership, OwnsAllKeys};
use windlass_workqueue::{RateLimiter, default_limiter};

use crate::host::{ControllerDeps, Host, PreparedController, Triggers, Workers};
use crate::{
    Context, Controller, Outcome, ReconcileError, Registration, Setup, SetupError, Trigger, by_self, retry,
    terminal,
};

/// The log of reconciled keys, with their times.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(Instant, String)>>>);

impl Diary {
    fn note(&self, env: &Env, key: &ObjectKey) {
        self.0.lock().expect("lock is not poisoned").push((env.now(), key.name().to_owned()));
    }

    /// Drains the log and returns the names of the keys in the order of their reconciles.
    fn names(&self) -> Vec<String> {
        self.0.lock().expect("lock is not poisoned").drain(..).map(|(_, name)| name).collect()
    }

    fn times(&self, name: &str) -> Vec<Instant> {
        let entries = self.0.lock().expect("lock is not poisoned");
        entries.iter().filter(|(_, key)| key == name).map(|(at, _)| *at).collect()
    }
}

/// A reconciler that chooses its action by the name of the ConfigMap.
struct Obedient {
    diary: Diary,
    maps: Lister<ConfigMap>,
}

impl Controller for Obedient {
    const NAME: &'static str = "obedient";
    type Config = Diary;

    fn setup(setup: &mut Setup, diary: &Diary) -> Result<Self, SetupError> {
        obedient(setup, diary.clone())
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        self.diary.note(cx.env(), key);
        match key.name() {
            "panics" => panic!("injected failure"),
            "fails" => Err(retry("injected failure")),
            "hopeless" => Err(terminal("injected failure")),
            "later" => Ok(Outcome::RequeueAfter(Duration::from_secs(60))),
            "slow" => {
                cx.env().sleep(Duration::from_secs(5)).await;
                Ok(Outcome::Done)
            }
            "undeclared" => {
                api_of(cx).create(&PostParams::default(), &ConfigMap::default()).await?;
                Ok(Outcome::Done)
            }
            "counter" => self.count(key, cx).await,
            _ => Ok(Outcome::Done),
        }
    }
}

impl Obedient {
    /// Increments the cached counter up to ten. With a cache older than the last write it would write a value twice.
    async fn count(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let map = self.maps.get_lossy(key).ok_or_else(|| retry("not cached"))?;
        let count =
            map.data.iter().flatten().find(|(name, _)| *name == "count").map_or("0", |(_, value)| value);
        let count: u32 = count.parse().map_err(retry)?;
        if count == 10 {
            return Ok(Outcome::Done);
        }
        let patch = json!({ "data": { "count": (count + 1).to_string() } });
        api_of(cx).patch(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Outcome::RequeueAfter(Duration::from_millis(1)))
    }
}

fn obedient(setup: &mut Setup, diary: Diary) -> Result<Obedient, SetupError> {
    setup.uses::<ConfigMap>([Verb::Patch]);
    setup.workers(2);
    let maps = setup.primary::<ConfigMap>().lister();
    Ok(Obedient { diary, maps })
}

fn api_of(cx: &Context) -> Api<ConfigMap> {
    Api::namespaced(cx.client().clone(), "shop")
}

/// A world with one controller in it.
struct World {
    env: Env,
    api: FaultyServer,
    metrics: Metrics,
    diary: Diary,
    resync: Option<Duration>,
    triggers: Triggers,
    /// The shards of the caches; `None` selects all objects.
    shards: Option<ShardSet>,
}

/// A controller that is ready to start.
struct Readied {
    prepared: PreparedController,
    factory: InformerFactory,
    resources: ControllerDeps,
}

type Act =
    Arc<dyn Fn(ObjectKey, Context) -> BoxFuture<'static, Result<Outcome, ReconcileError>> + Send + Sync>;

/// A controller with wiring and reconcile function set by the test.
struct Script {
    wire: Box<dyn Fn(&mut Setup) + Send + Sync>,
    diary: Diary,
    act: Act,
}

/// A reconciler that calls a function of the test.
struct Scripted {
    diary: Diary,
    act: Act,
}

impl Controller for Scripted {
    const NAME: &'static str = "scripted";
    type Config = Script;

    fn setup(setup: &mut Setup, Script { wire, diary, act }: &Script) -> Result<Self, SetupError> {
        wire(setup);
        Ok(Self { diary: diary.clone(), act: Arc::clone(act) })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        self.diary.note(cx.env(), key);
        (self.act)(key.clone(), cx.clone()).await
    }
}

impl World {
    fn with(maps: &[&str]) -> Self {
        Self::in_which(Vec::new(), maps)
    }

    /// Creates a world with these faults.
    fn in_which(faults: Vec<Fault>, maps: &[&str]) -> Self {
        let env = Env::virtual_time(7);
        let api = FaultyServer::new(&env, FaultPlan { seed: 7, faults });
        api.upsert("/api/v1/namespaces/shop", json!({}));
        let (metrics, diary) = (Metrics::new(), Diary::default());
        let world =
            Self { env, api, metrics, diary, resync: None, triggers: Triggers::default(), shards: None };
        maps.iter().for_each(|name| world.put(name));
        world
    }

    /// Creates or updates a ConfigMap.
    fn put(&self, name: &str) {
        let now = format!("{:?}", self.env.now());
        self.api.upsert(&path(name), json!({ "metadata": { "annotations": { "put-at": now } } }));
    }

    /// Returns the writes of the controllers that the server received.
    fn work(&self) -> Vec<String> {
        self.api.served_requests().iter().filter(|asked| asked.is_work()).map(|asked| asked.line()).collect()
    }

    fn lists(&self) -> usize {
        self.api.served_requests().iter().filter(|asked| asked.verb == Some(Verb::List)).count()
    }

    /// Creates an object of another kind: the version of the server advances, but not that of the cache.
    fn put_something_else(&self) {
        self.api.upsert("/api/v1/namespaces/shop/secrets/other", json!({}));
    }

    async fn start(&self) -> Workers {
        let diary = self.diary.clone();
        self.start_with(Registration::controller_with::<Obedient>(diary)).await
    }

    async fn start_with(&self, registration: Registration) -> Workers {
        let Readied { prepared, factory, resources } = self.ready(registration);
        factory.wait_for_sync(Some(Duration::from_secs(10))).await.expect("synced");
        prepared.start(resources).await.expect("started")
    }

    /// Prepares a start, with running informers.
    fn ready(&self, registration: Registration) -> Readied {
        self.ready_in(Arc::new(OwnsAllKeys), registration)
    }

    /// Calls [`ready`](Self::ready) for replicas that share keys.
    fn ready_in(&self, ownership: Arc<dyn KeyOwnership>, registration: Registration) -> Readied {
        let (env, metrics) = (self.env.clone(), self.metrics.clone());
        let options = ClientOptions::default();
        let uri = http::Uri::from_static("http://api");
        let clients =
            Clients::from_service(env.clone(), self.api.link(), uri, options, &metrics, Arc::new(OpenFence))
                .expect("clients");
        let reader = clients.for_informers().expect("reader");
        let (resync, shards) = (self.resync, self.shards.clone());
        let options = FactoryOptions { resync, shards, ..FactoryOptions::default() };
        let factory = InformerFactory::new(env.clone(), metrics.clone(), options);
        let triggers = self.triggers.clone();
        let host = Host { ownership, triggers, ..Host::new(env, metrics, factory.clone()) };
        let prepared = registration.prepare(host).expect("set up");
        factory.start(Arc::new(ApiServerSources::new(reader.clone())));
        let clients = clients.for_controller(Obedient::NAME).expect("clients");
        let resources = ControllerDeps { clients, reader, events: Recorder::discarding() };
        Readied { prepared, factory, resources }
    }

    /// Creates a controller with the wiring `wire` and the reconcile function `act`.
    fn scripted<F>(
        &self,
        wire: impl Fn(&mut Setup) + Send + Sync + 'static,
        act: impl Fn(ObjectKey, Context) -> F + Send + Sync + 'static,
    ) -> Registration
    where
        F: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
    {
        let diary = self.diary.clone();
        let act: Act = Arc::new(move |key, context| Box::pin(act(key, context)));
        Registration::controller_with::<Scripted>(Script { wire: Box::new(wire), diary, act })
    }

    /// Creates a controller that only records the reconciled keys.
    async fn watcher(&self, wire: impl Fn(&mut Setup) + Send + Sync + 'static) -> Workers {
        self.start_with(self.scripted(wire, |_, _| async { Ok(Outcome::Done) })).await
    }

    /// Returns the trigger `feed` of the scripted controller, as if it were declared.
    fn feed(&self, bound: usize) -> Trigger {
        let trigger = self.triggers.get("scripted", "feed");
        trigger.declare(bound);
        trigger
    }

    async fn pass(&self, seconds: u64) {
        self.env.sleep(Duration::from_secs(seconds)).await;
    }

    fn count(&self) -> Option<String> {
        let map = self.api.object(&path("counter"))?;
        Some(map["data"]["count"].as_str()?.to_owned())
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/shop/configmaps/{name}")
}

/// Injects this fault into the first write only.
fn first_write(action: FaultAction) -> impl FnMut(&RequestSummary) -> Option<FaultAction> + Send + 'static {
    let mut action = Some(action);
    move |asked| if asked.is_work() { action.take() } else { None }
}

/// Delays all watch events by one second.
const LATE: FaultAction = FaultAction::Coalesced { within_ms: 1000 };

fn gaps(times: &[Instant]) -> Vec<Duration> {
    times.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).collect()
}

// parity: metrics-controller-runtime-reconcile, recover-panic-not-if
#[tokio::test(start_paused = true)]
async fn reconcile_panic_is_counted_and_backed_off_without_delaying_other_keys() {
    let world = World::with(&["panics", "calm"]);
    let workers = world.start().await;
    world.pass(1).await;
    world.put("calm");
    world.pass(1).await;
    assert_eq!(world.diary.times("calm").len(), 2, "other keys are unaffected");
    let times = world.diary.times("panics");
    let metrics = world.metrics.reconcile(Obedient::NAME);
    assert_eq!(metrics.panics.get(), times.len() as u64);
    assert!((6..12).contains(&times.len()), "backed off, not spinning: {} attempts in 2 s", times.len());
    assert!(gaps(&times).is_sorted(), "each pause is at least as long as the one before");
    assert!(workers.health(Duration::from_secs(60))().is_ok());
}

// parity: requeue-error-not-terminal, no-back-off-per
#[tokio::test(start_paused = true)]
async fn key_that_keeps_failing_backs_off_alone() {
    let world = World::with(&["fails", "hopeless", "later"]);
    let _workers = world.start().await;
    for _ in 0..5 {
        world.pass(61).await;
        world.put("calm");
    }
    let failing = gaps(&world.diary.times("fails"));
    assert!(failing.iter().any(|gap| *gap >= Duration::from_secs(80)), "{failing:?}");
    world.pass(1).await;
    assert_eq!(world.diary.times("calm").len(), 5, "a healthy key does not wait for a failing key");
    assert_eq!(world.diary.times("hopeless").len(), 1, "a terminal failure is not retried before a change");
    assert_eq!(world.diary.times("later").len(), 6, "once at the start and once a minute");
}

// parity: ensure-ready, test-mutation-cache-on-add-or-update, stale-reads
#[tokio::test(start_paused = true)]
async fn reconcile_waits_until_cache_contains_its_own_last_write() {
    let world = World::with(&["counter"]);
    world.api.inject_fault(|_| Some(LATE));
    let _workers = world.start().await;
    world.pass(60).await;
    assert_eq!(world.count().as_deref(), Some("10"));
    assert_eq!(world.work().len(), 10, "every write built on the one before: {:?}", world.work());
    assert!(
        world.metrics.reconcile(Obedient::NAME).stale_skips.get() > 0,
        "the cache was stale at least once"
    );
}

// parity: write-without-answer-not
#[tokio::test(start_paused = true)]
async fn unknown_write_outcome_parks_key_until_cache_passes_fresh_read() {
    let world = World::with(&["counter"]);
    let mut swallow = first_write(FaultAction::ResponseLost { silently: true });
    world.api.inject_fault(move |asked| swallow(asked).or(Some(LATE)));
    let _workers = world.start().await;
    let lists = world.lists();
    world.pass(120).await;
    assert_eq!(world.count().as_deref(), Some("10"));
    assert_eq!(world.work().len(), 10, "the write without a response is not repeated");
    assert!(world.lists() > lists, "a fresh read resolved the outcome");
}

// parity: write-without-answer-not
#[tokio::test(start_paused = true)]
async fn unknown_outcome_parks_key_for_seconds_when_collection_is_quiet() {
    let world = World::with(&["counter"]);
    world.api.inject_fault(first_write(FaultAction::InternalError));
    let _workers = world.start().await;
    world.put_something_else();
    world.pass(3).await;
    assert_eq!(world.count(), None, "the write might still appear");
    world.pass(2).await;
    assert_eq!(world.count().as_deref(), Some("10"), "resolved without a bookmark");
}

// parity: write-without-answer-not
#[tokio::test(start_paused = true)]
async fn unknown_outcome_parks_key_while_cache_is_disconnected() {
    let (begin, end) = (Duration::from_secs(1), Duration::from_secs(100));
    let cut = Fault::until(begin + Duration::from_millis(1), FaultAction::WatchClosed).from(begin);
    let faults = vec![cut, Fault::until(end, FaultAction::Unavailable).from(begin)];
    let world = World::in_which(faults, &["counter"]);
    world.api.inject_fault(first_write(FaultAction::InternalError));
    let _workers = world.start().await;
    world.put_something_else();
    world.pass(100).await;
    assert_eq!(world.count(), None, "a disconnected cache does not change");
    world.pass(60).await;
    assert_eq!(world.count().as_deref(), Some("10"));
}

/// A world whose API server stops responding after a write of unknown outcome.
async fn silent_with_unknown_outcome() -> (World, Workers) {
    let world = World::with(&["counter"]);
    let (mut refuse, mut refused) = (first_write(FaultAction::InternalError), false);
    world.api.inject_fault(move |asked| {
        let what = refuse(asked).or(refused.then_some(FaultAction::Partition));
        refused |= what.is_some();
        what
    });
    let workers = world.start().await;
    world.pass(1).await;
    (world, workers)
}

// parity: write-without-answer-not
#[tokio::test(start_paused = true)]
async fn unknown_outcome_does_not_delay_other_keys_when_server_is_silent() {
    let (world, workers) = silent_with_unknown_outcome().await;
    world.pass(60).await;
    assert_eq!(workers.busy(), [], "other keys are processed");
    assert_eq!(world.count(), None);
    world.api.inject_fault(|_| None);
    world.pass(60).await;
    assert_eq!(world.count().as_deref(), Some("10"));
    assert_eq!(workers.written().map(|written| written.len()), Some(1));
}

#[tokio::test(start_paused = true)]
async fn stopping_workers_wait_five_seconds_for_unknown_outcomes() {
    let (world, mut workers) = silent_with_unknown_outcome().await;
    let begun = world.env.now();
    workers.stop();
    workers.ended().await;
    assert_eq!(world.env.now().saturating_duration_since(begun), Duration::from_secs(5));
    assert!(!workers.has_unsettled_writes(), "the server has ended the write");
    assert_eq!(workers.written(), None, "the outcome is unknown to the successor");
}

#[tokio::test(start_paused = true)]
async fn stopping_workers_resolve_unknown_outcomes_from_server() {
    let world = World::with(&["counter"]);
    world.api.inject_fault(first_write(FaultAction::ResponseLost { silently: false }));
    let mut workers = world.start().await;
    world.env.sleep(Duration::from_millis(100)).await;
    world.put_something_else();
    let begun = world.env.now();
    workers.stop();
    workers.ended().await;
    assert!(world.env.now().saturating_duration_since(begun) <= Duration::from_secs(1));
    let counter = world.api.object(&path("counter")).expect("stored");
    let version = ResourceVersion::new(counter["metadata"]["resourceVersion"].as_str().expect("a version"));
    let written = workers.written().expect("known");
    assert!(written[&GroupResource::new("", "configmaps")] >= version);
}

/// A limiter with a defect: it panics for one key.
struct Touchy(Box<dyn RateLimiter<ObjectKey>>);

impl RateLimiter<ObjectKey> for Touchy {
    fn when(&mut self, now: Instant, key: &ObjectKey) -> Duration {
        self.0.when(now, key)
    }

    fn forget(&mut self, now: Instant, key: &ObjectKey) {
        self.0.forget(now, key);
    }

    fn attempts(&self, key: &ObjectKey) -> u32 {
        assert_ne!(key.name(), "odd", "a limiter with a defect");
        self.0.attempts(key)
    }
}

// parity: concurrency-rate-limiter-logger
#[tokio::test(start_paused = true)]
async fn limiter_that_panics_is_counted_and_ends_no_worker() {
    let world = World::with(&["odd", "calm"]);
    let registration = Registration::controller_with::<Obedient>(world.diary.clone())
        .with_settings(|setup| setup.limiter(Box::new(Touchy(default_limiter()))));
    let workers = world.start_with(registration).await;
    world.pass(11).await;
    world.put("calm");
    world.pass(1).await;
    assert_eq!(world.diary.times("calm").len(), 2);
    assert_eq!(world.metrics.reconcile(Obedient::NAME).panics.get(), 3, "once every five seconds");
    assert_eq!(world.metrics.reconcile(Obedient::NAME).active_workers.get(), 0);
    assert!(workers.health(Duration::from_secs(60))().is_ok());
}

#[tokio::test(start_paused = true)]
async fn stopped_controller_reports_highest_version_of_its_writes() {
    let world = World::with(&["counter", "calm"]);
    let mut workers = world.start().await;
    assert_eq!(workers.written(), Some(BTreeMap::new()));
    world.pass(1).await;
    workers.stop();
    workers.ended().await;
    let counter = world.api.object(&path("counter")).expect("stored");
    let version = ResourceVersion::new(counter["metadata"]["resourceVersion"].as_str().expect("a version"));
    world.put("calm");
    assert_eq!(workers.written(), Some(BTreeMap::from([(GroupResource::new("", "configmaps"), version)])));
}

#[tokio::test(start_paused = true)]
async fn undeclared_request_is_rejected_and_not_retried() {
    let world = World::with(&["undeclared"]);
    let _workers = world.start().await;
    world.pass(60).await;
    assert_eq!(world.work(), Vec::<String>::new());
    assert_eq!(world.diary.times("undeclared").len(), 1);
    assert_eq!(world.metrics.reconcile(Obedient::NAME).total.terminal.get(), 1);
}

// parity: returns-if-queue-shut
#[tokio::test(start_paused = true)]
async fn canceled_workers_finish_current_key_and_dequeue_no_other() {
    let world = World::with(&["slow"]);
    let mut workers = world.start().await;
    world.pass(1).await;
    assert_eq!(workers.busy().iter().map(|busy| busy.key.name().to_owned()).collect::<Vec<_>>(), ["slow"]);
    assert!(workers.health(Duration::from_millis(500))().is_err(), "a stuck reconcile is reported");
    let begun = world.env.now();
    workers.stop();
    world.put("calm");
    workers.ended().await;
    assert_eq!(world.env.now().saturating_duration_since(begun), Duration::from_secs(4));
    assert_eq!(world.diary.times("calm"), []);
    assert_eq!(
        world.metrics.reconcile(Obedient::NAME).total.success.get(),
        1,
        "the slow one came to its end"
    );
}

// parity: recover-panic
#[tokio::test(start_paused = true)]
async fn panic_in_mapper_or_start_hook_is_counted_and_contained() {
    struct Clumsy(Diary);

    impl Controller for Clumsy {
        const NAME: &'static str = "clumsy";
        type Config = Diary;

        fn setup(setup: &mut Setup, diary: &Diary) -> Result<Self, SetupError> {
            setup.watch::<ConfigMap>().enqueue(|map| {
                assert_ne!(map.metadata.name.as_deref(), Some("bad"), "a mapper with a defect");
                by_self(map)
            });
            Ok(Self(diary.clone()))
        }

        async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
            self.0.note(cx.env(), key);
            Ok(Outcome::Done)
        }

        fn started(&self, _: &crate::Enqueuer) {
            panic!("at the start");
        }
    }

    let world = World::with(&["bad", "good"]);
    let _workers = world.start_with(Registration::controller_with::<Clumsy>(world.diary.clone())).await;
    world.pass(1).await;
    assert_eq!(world.diary.times("good").len(), 1);
    assert_eq!(world.metrics.reconcile("clumsy").panics.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn declarations_can_be_read_repeatedly_without_cluster() {
    let env = Env::virtual_time(1);
    let registration = Registration::controller::<Obedient>();
    for _ in 0..2 {
        let declaration = registration.declaration(&env).expect("declared");
        let rules: BTreeMap<String, Vec<Verb>> = declaration
            .rules
            .into_iter()
            .map(|rule| (rule.resource.into_owned(), rule.verbs.into_iter().collect()))
            .collect();
        assert_eq!(rules["configmaps"], [Verb::List, Verb::Watch, Verb::Patch]);
        assert_eq!(rules["events"], [Verb::Create, Verb::Patch]);
        assert_eq!(declaration.watches.len(), 1);
    }
    assert_eq!(env.tasks(), Vec::<String>::new());
}

// parity: error-if-controller-cannot
#[tokio::test(start_paused = true)]
async fn setup_rejects_zero_workers_and_selection_after_mappers() {
    let refused = |declare: fn(&mut Setup)| {
        let registration = Registration::controller::<Obedient>().with_settings(declare);
        registration.declaration(&Env::virtual_time(1)).map(drop)
    };
    assert!(matches!(refused(|setup| setup.workers(0)), Err(SetupError::NoWorkers)));
    let late = refused(|setup| {
        setup.watch::<ConfigMap>().enqueue(by_self).with_selection(Selection::in_namespace("shop"));
    });
    assert!(matches!(late, Err(SetupError::Watch { .. })), "{late:?}");
}
