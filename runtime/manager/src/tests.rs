//! Tests of whole managers with an in-process API server, in virtual time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Secret};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use windlass_admin::{Health, Probe};
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan, FaultyServer};
use windlass_client::{ClientOptions, Clients};
use windlass_controller::{
    CacheSync, Context, Controller, Descriptor, Outcome, ReconcileError, Registration, Setup, SetupError,
    Trigger, TriggerError, by_self,
};
use windlass_election::WRITTEN_ANNOTATION;
use windlass_env::{Env, Instant, Task};
use windlass_events::NewEvent;
use windlass_informer::{Lister, NamespaceSet, ObjectFeed, Selection};
use windlass_metrics::Metrics;
use windlass_object::{GroupResource, ObjectKey, ResourceKind, Rule, Scope, TypedObjects, Verb};

use crate::{CacheOptions, Manager, ManagerConfig, ManagerError, Registry, ShutdownSignals, ShutdownTrigger};

mod configured;
mod construction;
mod credentials;
mod every_replica;
mod liveness;
mod parts;
mod renewal;
mod resync;
mod runnables;
mod shards;
mod statusz;

/// Signs each ConfigMap with the name of its replica, in two writes ten seconds apart.
struct Scribe {
    maps: Lister<ConfigMap>,
}

impl Controller for Scribe {
    const NAME: &'static str = "scribe";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch]);
        Ok(Self { maps: setup.primary::<ConfigMap>().lister() })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let (begun, done) = (begun_by(cx.env().instance()), done_by(cx.env().instance()));
        let data = self.maps.get_lossy(key).and_then(|map| map.data.clone()).unwrap_or_default();
        if data.get("scribe") == Some(&done) {
            return Ok(Outcome::Done);
        }
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
        let write = |text: &str| Patch::Merge(json!({ "data": { "scribe": text } }));
        maps.patch(key.name(), &PatchParams::default(), &write(&begun)).await?;
        cx.env().sleep(Duration::from_secs(10)).await;
        maps.patch(key.name(), &PatchParams::default(), &write(&done)).await?;
        cx.events().publish(&map_reference(key), &NewEvent::normal("Signed", "signed twice"));
        Ok(Outcome::Done)
    }
}

/// Sends two hundred writes concurrently, regardless of the rate limiter.
struct Hasty;

impl Controller for Hasty {
    const NAME: &'static str = "hasty";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch]);
        setup.primary::<ConfigMap>();
        Ok(Self)
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
        let patch = Patch::Merge(json!({ "data": { "scribe": "hasty" } }));
        let writes =
            (0..200).map(|_| async { maps.patch(key.name(), &PatchParams::default(), &patch).await });
        join_all(writes).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Outcome::Done)
    }
}

fn map_reference(key: &ObjectKey) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        namespace: key.namespace().map(str::to_owned),
        name: Some(key.name().to_owned()),
        ..ObjectReference::default()
    }
}

fn begun_by(replica: &str) -> String {
    format!("begun by {replica}")
}

fn done_by(replica: &str) -> String {
    format!("done by {replica}")
}

const MAP: &str = "/api/v1/namespaces/shop/configmaps/web";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/windlass";

/// A test API server and a clock. When it is dropped, all tasks of its managers must have ended.
struct World {
    env: Env,
    api: FaultyServer,
    /// The environments of its managers.
    envs: Mutex<Vec<Env>>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for env in self.envs.get_mut().expect("not poisoned") {
            assert_eq!(env.tasks(), Vec::<String>::new(), "no task of {} is left", env.instance());
        }
    }
}

/// A manager in the world.
struct Replica {
    env: Env,
    health: Health,
    metrics: Metrics,
    trigger: ShutdownTrigger,
    run: Task<Result<(), ManagerError>>,
}

impl World {
    fn new() -> Self {
        Self::in_which(Vec::new())
    }

    /// Returns a world with these faults.
    fn in_which(faults: Vec<Fault>) -> Self {
        let env = Env::virtual_time(3);
        let api = FaultyServer::new(&env, FaultPlan { seed: 3, faults });
        api.upsert("/api/v1/namespaces/shop", json!({}));
        api.upsert(MAP, json!({}));
        Self::of(env, api)
    }

    fn of(env: Env, api: FaultyServer) -> Self {
        Self { env, api, envs: Mutex::default() }
    }

    fn manager(&self, env: &Env, config: ManagerConfig) -> Manager {
        // The environment of the world also has tasks of the test.
        if env.instance() != self.env.instance() {
            self.envs.lock().expect("not poisoned").push(env.clone());
        }
        let line = self.api.link();
        let connect = move |env: &Env, config: &ManagerConfig, metrics: &Metrics, fence| {
            let uri = http::Uri::from_static("http://api");
            Clients::from_service(env.clone(), line, uri, config.client_options(), metrics, fence)
        };
        Manager::with_clients(env.clone(), config, connect).expect("a valid configuration")
    }

    fn start(&self, name: &str) -> Replica {
        self.start_with(ManagerConfig {
            shutdown_timeout: Duration::from_secs(30),
            ..ManagerConfig::new(name)
        })
    }

    fn start_with(&self, config: ManagerConfig) -> Replica {
        self.start_controller(config, Registration::controller::<Scribe>())
    }

    fn start_controller(&self, config: ManagerConfig, registration: Registration) -> Replica {
        let env = self.env.with_incarnation(&config.identity, 0);
        let manager = self.manager(&env, config).register(registration);
        self.run(env, manager)
    }

    fn run(&self, env: Env, manager: Manager) -> Replica {
        let (trigger, signals) = ShutdownSignals::manual();
        let (health, metrics) = (manager.health().clone(), manager.metrics().clone());
        // Spawned in the environment of the world, so that the tasks of the manager can be counted separately.
        let run = self.env.spawn("manager", manager.run(signals));
        Replica { env, health, metrics, trigger, run }
    }

    async fn pass(&self, seconds: u64) {
        self.env.sleep(Duration::from_secs(seconds)).await;
    }

    /// Injects a fault into requests about one resource from now on.
    fn fail(&self, resource: &'static str, action: FaultAction) {
        self.api.inject_fault(move |asked| (asked.resource == resource).then(|| action.clone()));
    }

    /// Removes all faults.
    fn heal(&self) {
        self.api.inject_fault(|_| None);
    }

    /// Partitions the server from all clients from now on.
    fn silence(&self) {
        self.api.inject_fault(|_| Some(FaultAction::Partition));
    }

    /// Returns the served writes.
    fn writes(&self) -> Vec<String> {
        self.api.served_requests().iter().filter(|asked| asked.is_write()).map(|asked| asked.line()).collect()
    }

    /// Returns kind and message of the recorded Events, in order.
    fn events(&self) -> Vec<(String, String)> {
        let text = |event: &Value, path: &str| event.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let kind_and_message =
            |event: &Value| Some((text(event, "/involvedObject/kind")?, text(event, "/message")?));
        self.api.all("/api/v1/events").iter().filter_map(kind_and_message).collect()
    }

    /// Returns the number of writes except for Leases and Events.
    fn work(&self) -> usize {
        self.api.served_requests().iter().filter(|asked| asked.is_work()).count()
    }

    fn scribbled(&self) -> Value {
        self.api.object(MAP).expect("the map")["data"]["scribe"].clone()
    }

    /// Returns the versions that the last release recorded in the Lease.
    fn written(&self) -> Value {
        self.api.object(LEASE).expect("the lease")["metadata"]["annotations"][WRITTEN_ANNOTATION].clone()
    }

    /// Creates a Lease that another replica has released with this annotation.
    fn released_with(&self, annotation: &str) {
        let metadata = json!({ "annotations": { WRITTEN_ANNOTATION: annotation } });
        self.api.upsert(LEASE, json!({ "metadata": metadata, "spec": { "holderIdentity": "" } }));
    }

    fn holder(&self) -> Value {
        self.api.object(LEASE).map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
    }
}

impl Replica {
    async fn ended(self) -> Result<(), ManagerError> {
        let end = self.run.await.expect("the manager does not panic");
        assert_eq!(self.env.tasks(), Vec::<String>::new(), "every task has ended when run returns");
        end
    }

    /// Stops gracefully.
    async fn stops(self) {
        self.trigger.fire();
        let end = self.ended().await;
        assert!(end.is_ok(), "{end:?}");
    }

    /// Kills the replica with all of its tasks.
    async fn dies(&self) {
        self.env.kill();
        let gone = self.env.timeout(Duration::from_millis(1), self.env.wait_for_tasks()).await;
        assert!(gone.is_ok(), "left by a crash: {:?}", self.env.tasks());
    }

    fn ready(&self) -> bool {
        self.health.report(Probe::Ready).passed()
    }
}

fn since(env: &Env, begun: Instant) -> Duration {
    env.now().saturating_duration_since(begun)
}

// parity: on-stopped-leading, election-per-manager, stops-when-context-cancelled, cancels-election-only-when
// parity: election-per-controller-unsafe
#[tokio::test(start_paused = true)]
async fn first_signal_awaits_reconciles_before_lease_release() {
    let world = World::new();
    let replica = world.start("one");
    world.pass(5).await;
    assert_eq!((world.scribbled(), world.holder()), (json!(begun_by("one")), json!("one")));
    replica.trigger.fire();
    world.pass(1).await;
    assert_eq!(world.holder(), json!("one"), "the lease is held while something may write");
    assert!(!replica.ready(), "it is shutting down");
    assert!(replica.ended().await.is_ok());
    assert_eq!(world.scribbled(), json!(done_by("one")));
    assert_ne!(world.holder(), json!("one"), "released in the end");
    let writes = world.writes();
    let last = writes.iter().rfind(|write| !write.contains("/events"));
    assert!(
        last.is_some_and(|write| write.contains("/leases/")),
        "the release is the last write except for its Events: {writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn events_have_the_source_of_their_descriptor() {
    /// Records an Event about each ConfigMap.
    struct Speaker;

    impl Controller for Speaker {
        const NAME: &'static str = "speaker";
        type Config = ();

        fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
            setup.primary::<ConfigMap>();
            Ok(Self)
        }

        async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
            cx.events().publish(&map_reference(key), &NewEvent::normal("Spoken", "spoken"));
            Ok(Outcome::Done)
        }
    }

    let world = World::new();
    let env = world.env.with_incarnation("one", 0);
    let speaker = |name| Descriptor::new(name).with_client_name("client");
    let manager = [
        speaker("first"),
        speaker("second").with_event_source("source"),
        Descriptor::new("third").with_event_source("source"),
        speaker("fourth").without_events(),
    ]
    .map(|descriptor| Registration::controller::<Speaker>().with_descriptor(descriptor))
    .into_iter()
    .fold(world.manager(&env, ManagerConfig::new("one")), Manager::register);
    let one = world.run(env, manager);
    world.pass(20).await;
    let source = |event: &Value| event["source"]["component"].as_str().unwrap_or_default().to_owned();
    let spoken = world.api.all("/api/v1/events").into_iter().filter(|event| event["reason"] == "Spoken");
    let mut sources: Vec<_> = spoken.map(|event| source(&event)).collect();
    sources.sort();
    assert_eq!(sources, ["client", "source", "source"]);
    one.stops().await;
}

// parity: events-leader-stopped-leading
#[tokio::test(start_paused = true)]
async fn leader_changes_are_recorded_as_events_about_the_lease() {
    let world = World::new();
    let (one, two) = (world.start("one"), world.start("two"));
    world.pass(20).await;
    let (leader, standby) = if world.holder() == json!("one") { (one, two) } else { (two, one) };
    let name = leader.env.instance().to_owned();
    standby.trigger.fire();
    assert!(standby.ended().await.is_ok());
    leader.trigger.fire();
    assert!(leader.ended().await.is_ok());
    let recorded: Vec<_> = world.events().into_iter().filter(|(about, _)| about == "Lease").collect();
    let notes =
        ["became leader", "stopped leading"].map(|what| ("Lease".to_owned(), format!("{name} {what}")));
    assert_eq!(recorded, notes);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_writes_queued_at_rate_limiter() {
    let world = World::new();
    let client = ClientOptions { qps: 20.0, burst: 30, ..ClientOptions::default() };
    let config = ManagerConfig { client, ..ManagerConfig::new("one") };
    let replica = world.start_controller(config, Registration::controller::<Hasty>());
    world.pass(2).await;
    let (written, errors) = (world.work(), replica.metrics.reconcile("hasty").total.error.clone());
    assert!((50..100).contains(&written), "the limiter delays the rest: {written} were sent");
    let begun = world.env.now();
    replica.trigger.fire();
    assert!(replica.ended().await.is_ok());
    assert!(since(&world.env, begun) < Duration::from_millis(100), "{:?}", since(&world.env, begun));
    assert_eq!(world.holder(), json!(""), "the lease is released");
    assert!(world.work() <= written + 1, "queued writes were not sent");
    assert_eq!(errors.get(), 1, "the reconcile failed");
}

#[tokio::test(start_paused = true)]
async fn manager_can_have_the_name_of_a_controller() {
    let world = World::new();
    let replica = world.start_with(ManagerConfig { name: "scribe".to_owned(), ..ManagerConfig::new("one") });
    world.pass(15).await;
    replica.trigger.fire();
    assert!(replica.ended().await.is_ok());
    let events = world.writes().into_iter().filter(|write| write.contains("/events")).count();
    assert_eq!(events, 3, "two of the election and one of the controller");
}

// parity: leader-election-durations-local
#[tokio::test(start_paused = true)]
async fn lease_is_renewed_while_shutdown_awaits_long_reconcile() {
    let world = World::new();
    let config = ManagerConfig { shutdown_timeout: Duration::ZERO, ..ManagerConfig::new("one") };
    let mut election = config.election.clone().expect("elected");
    election.lease_duration = Duration::from_secs(4);
    election.renew_deadline = Duration::from_secs(3);
    election.retry_period = Duration::from_secs(1);
    let replica = world.start_with(ManagerConfig { election: Some(election), ..config });
    world.pass(3).await;
    replica.trigger.fire();
    assert!(replica.ended().await.is_ok(), "the drain outlasted the lease's duration twice over");
    assert_eq!(world.scribbled(), json!(done_by("one")));
}

// parity: manager-start-order-stop
#[tokio::test(start_paused = true)]
async fn second_signal_aborts_and_leaves_lease_to_expire() {
    let world = World::new();
    let replica = world.start("one");
    world.pass(5).await;
    replica.trigger.fire();
    world.pass(1).await;
    let begun = world.env.now();
    replica.trigger.fire();
    assert!(matches!(replica.ended().await, Err(ManagerError::Aborted)));
    assert!(since(&world.env, begun) < Duration::from_millis(10));
    assert_eq!((world.scribbled(), world.holder()), (json!(begun_by("one")), json!("one")));
}

#[tokio::test(start_paused = true)]
async fn drain_timeout_names_stragglers_and_keeps_lease() {
    let world = World::new();
    let config = ManagerConfig { shutdown_timeout: Duration::from_secs(3), ..ManagerConfig::new("one") };
    let replica = world.start_with(config);
    world.pass(5).await;
    replica.trigger.fire();
    let begun = world.env.now();
    let Err(ManagerError::ShutdownTimeout { stragglers, .. }) = replica.ended().await else {
        panic!("timed out")
    };
    assert_eq!(stragglers, ["scribe: shop/web"]);
    assert!(since(&world.env, begun) < Duration::from_secs(4));
    assert_eq!(world.holder(), json!("one"), "its last write can be in flight");
}

// parity: leader-election-durations-local, no-grace-after-lease
#[tokio::test(start_paused = true)]
async fn lost_lease_stops_manager_immediately_and_blocks_writes() {
    let world = World::new();
    let replica = world.start("one");
    world.pass(5).await;
    assert_eq!(world.scribbled(), json!(begun_by("one")));
    world.api.upsert(LEASE, json!({ "spec": { "holderIdentity": "other" } }));
    assert!(matches!(replica.ended().await, Err(ManagerError::LeaseLost { .. })));
    let writes = world.work();
    world.pass(60).await;
    assert_eq!(world.work(), writes);
    assert_eq!(world.scribbled(), json!(begun_by("one")), "the reconcile that ran was stopped");
}

#[tokio::test(start_paused = true)]
async fn lease_without_renewal_is_lost_within_renew_deadline() {
    let world = World::new();
    let replica = world.start("one");
    world.pass(5).await;
    world.fail("leases", FaultAction::InternalError);
    let begun = world.env.now();
    assert!(matches!(replica.ended().await, Err(ManagerError::LeaseLost { .. })));
    assert!(since(&world.env, begun) <= Duration::from_secs(11));
}

// parity: leader-election-then-start, warm-sources-start-before, wait-caches-no-timeout, releases-lease-if-leader
// parity: warm-fifteen-cases
#[tokio::test(start_paused = true)]
async fn standby_is_synced_and_ready_and_writes_nothing() {
    let world = World::new();
    let one = world.start("one");
    world.pass(20).await;
    let two = world.start("two");
    world.pass(20).await;
    assert!(two.ready(), "{}", two.health.report(Probe::Ready).details());
    assert_eq!(world.holder(), json!("one"));
    assert_eq!(world.work(), 2, "the standby wrote nothing");
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    world.pass(3).await;
    assert_eq!(world.holder(), json!("two"), "a released lease is acquired immediately");
    assert_eq!(world.scribbled(), json!(begun_by("two")), "and the new leader works");
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
}

// parity: on-stopped-leading, manager-not-elected-not, no-leader-election
#[tokio::test(start_paused = true)]
async fn stopping_standby_does_not_change_the_lease() {
    let world = World::new();
    let one = world.start("one");
    world.pass(20).await;
    let two = world.start("two");
    world.pass(5).await;
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    assert_eq!(world.holder(), json!("one"));
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn liveness_fails_for_dead_informer_but_not_for_absent_server() {
    let world = World::new();
    let replica = world.start_with(ManagerConfig { election: None, ..ManagerConfig::new("one") });
    world.pass(5).await;
    world.silence();
    world.pass(600).await;
    assert!(replica.health.report(Probe::Live).passed());
    replica.dies().await;
    world.pass(1).await;
    let live = replica.health.report(Probe::Live);
    assert!(live.details().contains("[-]informers failed"), "{}", live.details());
}

// parity: no-leader-election-manager
#[tokio::test(start_paused = true)]
async fn without_election_work_starts_when_caches_are_synced() {
    let world = World::new();
    let config = ManagerConfig { election: None, ..ManagerConfig::new("one") };
    let replica = world.start_with(config);
    world.pass(1).await;
    assert_eq!(world.scribbled(), json!(begun_by("one")));
    replica.trigger.fire();
    assert!(replica.ended().await.is_ok());
    assert_eq!(world.holder(), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn unresponsive_api_server_is_one_clear_error() {
    let world = World::new();
    world.silence();
    let begun = world.env.now();
    let Err(error) = world.start("one").ended().await else { panic!("it cannot start") };
    assert!(matches!(error, ManagerError::ApiServerUnreachable { .. }));
    assert_eq!(error.to_string(), "the API server did not report a healthy /healthz within 10s: no answer");
    assert!(since(&world.env, begun) <= Duration::from_secs(10));
}

// parity: stops-when-context-cancelled
#[tokio::test(start_paused = true)]
async fn signal_during_start_stops_started_steps() {
    let world = World::new();
    world.silence();
    let replica = world.start("one");
    world.pass(1).await;
    replica.trigger.fire();
    assert!(replica.ended().await.is_ok());
}

// parity: new-controller-initializers, named-unique
#[tokio::test(start_paused = true)]
async fn duplicate_name_or_alias_is_a_registration_error() {
    let world = World::new();
    let manager = world.manager(&world.env, ManagerConfig::new("one"));
    let manager =
        manager.register(Registration::controller::<Scribe>()).register(Registration::controller::<Scribe>());
    let (_trigger, signals) = ShutdownSignals::manual();
    assert!(matches!(manager.run(signals).await, Err(ManagerError::Registry(_))));

    let mut registry = Registry::new();
    let named = |descriptor| Registration::controller::<Scribe>().with_descriptor(descriptor);
    registry
        .register(named(Descriptor::new("scribe").with_aliases(&["writer"])))
        .expect("the first of its name");
    let error = registry.register(named(Descriptor::new("author").with_aliases(&["writer"]))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot register author: scribe uses its name or alias \"writer\"; rename one of them with \
         Registration::with_descriptor"
    );
    let registered: Vec<_> = registry.descriptors().iter().map(|one| (one.name, one.aliases)).collect();
    assert_eq!(registered, [("scribe", &["writer"][..])]);
}

/// Returns the requests to the API server as resource and verb, from the request counter.
fn asked(metrics: &Metrics) -> BTreeSet<(String, Verb)> {
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let text = metrics.encode();
    let lines = text.lines().filter(|line| line.starts_with("windlass_client_requests_total{"));
    lines.filter_map(|line| Some((label(line, "resource")?, label(line, "verb")?.parse().ok()?))).collect()
}

#[tokio::test(start_paused = true)]
async fn declarations_cover_every_request_of_a_run() {
    let world = World::new();
    let (one, two) = pair(&world).await;
    let metrics = [one.metrics.clone(), two.metrics.clone()];
    world.pass(15).await;
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    world.pass(15).await;
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    let mut asked: BTreeSet<_> = metrics.iter().flat_map(asked).collect();
    // It is not about a resource, and every cluster grants it to all clients.
    assert!(asked.remove(&(String::new(), Verb::Get)), "{asked:?}");

    let mut registry = Registry::new();
    registry.register(Registration::controller::<Scribe>()).expect("the first of its name");
    let declarations = registry.declarations_for(&world.env, &ManagerConfig::new("one")).expect("declared");
    let names: Vec<_> = declarations.iter().map(|one| one.descriptor.name).collect();
    assert_eq!(names, ["scribe", Registry::PROCESS.name]);
    let granted = |rule: &Rule| -> Vec<_> {
        let resource = GroupResource::new(rule.group.clone(), rule.resource.clone()).to_string();
        rule.verbs.iter().map(|verb| (resource.clone(), *verb)).collect()
    };
    let rules = declarations.iter().flat_map(|one| &one.rules);
    let spare = BTreeSet::from([("events".to_owned(), Verb::Patch)]);
    assert_eq!(rules.flat_map(granted).collect::<BTreeSet<_>>(), &asked | &spare, "and no other permissions");
}

#[tokio::test(start_paused = true)]
async fn unknown_controller_is_an_error_before_start() {
    let world = World::new();
    let config =
        ManagerConfig { controllers: "scrbe".parse().expect("infallible"), ..ManagerConfig::new("one") };
    let error = world.start_with(config).ended().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"scrbe\" is not in the list of known controllers; did you mean \"scribe\"?"
    );
    assert!(world.api.sent_requests().is_empty());
}

/// Starts a leader, and a standby.
async fn pair(world: &World) -> (Replica, Replica) {
    let one = world.start("one");
    world.pass(5).await;
    (one, world.start("two"))
}

#[tokio::test(start_paused = true)]
async fn release_records_highest_written_version_of_each_resource() {
    let world = World::new();
    let one = world.start("one");
    world.pass(20).await;
    assert_eq!(world.written(), Value::Null, "a held lease has no record");
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    let version = world.api.object(MAP).expect("the map")["metadata"]["resourceVersion"].clone();
    assert_eq!(world.written(), json!(json!({ "configmaps": version }).to_string()));
}

#[tokio::test(start_paused = true)]
async fn release_repeats_the_record_of_the_previous_leader() {
    let world = World::new();
    world.released_with(r#"{"configmaps":"1","pods":"9999"}"#);
    let one = world.start("one");
    world.pass(1).await;
    assert_eq!(world.scribbled(), json!(begun_by("one")));
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    let version = world.api.object(MAP).expect("the map")["metadata"]["resourceVersion"].clone();
    assert_eq!(world.written(), json!(json!({ "configmaps": version, "pods": "9999" }).to_string()));
}

/// Reads ConfigMaps and writes nothing.
struct Reader;

impl Controller for Reader {
    const NAME: &'static str = "reader";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.primary::<ConfigMap>();
        Ok(Self)
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn release_records_writes_of_a_leader_that_crashed_before() {
    let world = World::new();
    let spec = json!({ "holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 1 });
    world.api.upsert(LEASE, json!({ "spec": spec }));
    let one = world.start_controller(ManagerConfig::new("one"), Registration::controller::<Reader>());
    world.pass(2).await;
    world.api.upsert(MAP, json!({ "data": { "scribe": "the crashed leader" } }));
    let last = world.api.object(MAP).expect("the map")["metadata"]["resourceVersion"].clone();
    world.pass(30).await;
    assert_eq!(world.holder(), json!("one"));
    one.stops().await;
    let record: Value = serde_json::from_str(world.written().as_str().expect("a record")).expect("JSON");
    let number = |it: &Value| it.as_str().and_then(|it| it.parse::<u64>().ok()).expect("a number");
    assert!(number(&record["configmaps"]) >= number(&last), "{record} covers {last}");
}

#[tokio::test(start_paused = true)]
async fn release_drops_a_record_that_the_server_has_lost() {
    let world = World::new();
    world.released_with(r#"{"configmaps":"9999"}"#);
    let one = world.start_controller(ManagerConfig::new("one"), Registration::controller::<Reader>());
    world.pass(30).await;
    one.stops().await;
    assert_eq!(world.written(), Value::Null, "no cache of the successor reaches it");
}

#[tokio::test(start_paused = true)]
async fn new_leader_acts_after_its_caches_reflect_previous_writes() {
    let world = World::new();
    let (one, two) = pair(&world).await;
    world.pass(1).await;
    world.fail("configmaps", FaultAction::Coalesced { within_ms: 3000 });
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    world.env.sleep(Duration::from_millis(400)).await;
    assert_eq!(world.holder(), json!("two"), "the released lease is acquired immediately");
    assert_eq!(world.scribbled(), json!(done_by("one")), "its cache does not reflect this yet");
    world.pass(1).await;
    assert_eq!(
        world.scribbled(),
        json!(begun_by("two")),
        "a late watch is not awaited; the cache is relisted"
    );
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn new_leader_with_current_caches_acts_within_a_second() {
    let world = World::new();
    let (one, two) = pair(&world).await;
    world.pass(1).await;
    one.stops().await;
    world.pass(1).await;
    assert_eq!(world.scribbled(), json!(begun_by("two")));
    two.stops().await;
}

#[tokio::test(start_paused = true)]
async fn manager_of_some_namespaces_reads_only_these_as_they_change() {
    let world = World::new();
    let namespaces = NamespaceSet::from_names(["mail"]);
    let one = world.start_with(ManagerConfig {
        cache: CacheOptions { namespaces: Some(namespaces.clone()), ..CacheOptions::default() },
        shutdown_timeout: Duration::from_secs(30),
        ..ManagerConfig::new("one")
    });
    world.pass(5).await;
    assert_eq!((world.holder(), world.scribbled()), (json!("one"), Value::Null));
    namespaces.insert("shop");
    world.pass(1).await;
    assert_eq!(world.scribbled(), json!(begun_by("one")));
    let sent = world.api.sent_requests();
    let read = sent.iter().filter(|asked| asked.resource == "configmaps" && !asked.is_write());
    let read: BTreeSet<&str> = read.map(|asked| asked.namespace.as_str()).collect();
    assert_eq!(read, BTreeSet::from(["mail", "shop"]));
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn invalid_or_irrelevant_release_record_delays_no_leader() {
    for annotation in
        ["", "{", "[1]", r#"{"configmaps":9999}"#, r#"{"configmaps":"opaque"}"#, r#"{"pods":"9999"}"#]
    {
        let world = World::new();
        world.released_with(annotation);
        let one = world.start("one");
        world.pass(1).await;
        assert_eq!(world.scribbled(), json!(begun_by("one")), "{annotation}");
        one.dies().await;
    }
}

/// Lets a standby take over from a leader whose recorded writes no cache reflects, while lists fail.
async fn taken_over_behind(annotation: &str) -> (World, Replica) {
    let world = World::new();
    let spec = json!({ "holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 1 });
    world.api.upsert(LEASE, json!({ "spec": spec }));
    let one = world.start("one");
    world.pass(2).await;
    world.fail("configmaps", FaultAction::Unavailable);
    world.released_with(annotation);
    (world, one)
}

#[tokio::test(start_paused = true)]
async fn new_leader_waits_for_late_cache_until_relist() {
    let (world, one) = taken_over_behind(r#"{"configmaps":"9999"}"#).await;
    world.pass(300).await;
    assert_eq!((world.holder(), world.scribbled()), (json!("one"), Value::Null));
    world.heal();
    world.pass(70).await;
    assert_ne!(world.scribbled(), Value::Null);
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn stopping_leader_forwards_versions_it_waits_for() {
    let annotation = r#"{"configmaps":"9999"}"#;
    let (world, one) = taken_over_behind(annotation).await;
    world.pass(5).await;
    assert_eq!((world.holder(), world.written()), (json!("one"), Value::Null));
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    assert_eq!((world.holder(), world.written()), (json!(""), json!(annotation)));
}

/// Crashes the leader, and disconnects the caches of the standby when it takes over.
async fn taken_over_in_trouble() -> (World, Replica) {
    let begin = Duration::from_secs(32);
    let cut = Fault::until(begin + Duration::from_millis(1), FaultAction::WatchClosed).from(begin);
    let world = World::in_which(vec![cut.for_resource("configmaps")]);
    let (one, two) = pair(&world).await;
    world.pass(15).await;
    one.dies().await;
    world.pass(11).await;
    world.api.inject_fault(|asked| {
        let read = asked.resource == "configmaps" && !asked.is_write();
        read.then_some(FaultAction::Unavailable)
    });
    world.pass(5).await;
    assert_eq!((world.holder(), world.scribbled()), (json!("two"), json!(done_by("one"))));
    (world, two)
}

#[tokio::test(start_paused = true)]
async fn new_leader_after_crash_waits_for_disconnected_caches() {
    let (world, two) = taken_over_in_trouble().await;
    world.pass(2).await;
    assert_eq!(world.scribbled(), json!(done_by("one")));
    world.api.inject_fault(|_| None);
    world.pass(5).await;
    assert_eq!(world.scribbled(), json!(begun_by("two")));
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn new_leader_never_acts_on_disconnected_caches() {
    let (world, two) = taken_over_in_trouble().await;
    world.pass(300).await;
    assert_eq!((world.holder(), world.scribbled()), (json!("two"), json!(done_by("one"))));
    two.dies().await;
}

#[tokio::test(start_paused = true)]
async fn release_after_unknown_outcome_records_no_versions() {
    let world = World::new();
    let one = world.start("one");
    world.pass(5).await;
    world.fail("configmaps", FaultAction::ResponseLost { silently: false });
    one.trigger.fire();
    assert!(one.ended().await.is_ok());
    assert_eq!((world.holder(), world.written()), (json!(""), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn undeliverable_events_delay_release_by_half_a_second() {
    let world = World::new();
    let one = world.start("one");
    world.pass(5).await;
    world.fail("events", FaultAction::RequestLost { silently: true });
    one.trigger.fire();
    world.pass(5).await;
    let begun = world.env.now();
    while world.holder() == json!("one") {
        world.env.sleep(Duration::from_millis(10)).await;
    }
    assert!(since(&world.env, begun) <= Duration::from_millis(600), "{:?}", since(&world.env, begun));
    assert!(one.ended().await.is_ok());
    let ended = since(&world.env, begun);
    assert!(ended <= Duration::from_millis(1200), "Events about the release have the same limit: {ended:?}");
    assert_eq!((world.scribbled(), world.holder()), (json!(done_by("one")), json!("")));
}

/// Requires a cache that no other controller requires.
struct Hoarder;

impl Controller for Hoarder {
    const NAME: &'static str = "hoarder";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.quarantine_after(Some(1));
        setup.primary::<Secret>();
        Ok(Self)
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        panic!("on purpose")
    }
}

impl World {
    /// Starts a replica that runs the scribe and the hoarder.
    fn start_both(&self, config: ManagerConfig) -> Replica {
        let env = self.env.with_incarnation(&config.identity, 0);
        let manager = self.manager(&env, config);
        let manager = manager
            .register(Registration::controller::<Hoarder>())
            .register(Registration::controller::<Scribe>());
        self.run(env, manager)
    }
}

// parity: wait-caches-no-timeout, error-if-cache-cannot, missing-right-blocks-everything
#[tokio::test(start_paused = true)]
async fn unsynced_cache_delays_only_its_controller_and_is_reported() {
    let world = World::new();
    world.api.upsert("/api/v1/namespaces/shop/secrets/s", json!({}));
    world.fail("secrets", FaultAction::Unavailable);
    let replica = world.start_both(ManagerConfig::new("a"));
    world.pass(90).await;
    assert_eq!(world.scribbled(), done_by("a"), "the other controller works");
    let report = replica.health.report(Probe::Ready);
    let failing: Vec<_> = report.results.iter().filter(|one| one.outcome.is_err()).collect();
    assert_eq!(failing.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["informer-sync-hoarder"]);
    let why = failing[0].outcome.clone().unwrap_err();
    assert!(why.contains("secrets") && why.contains("503"), "{why}");
    world.api.inject_fault(|_| None);
    world.pass(90).await;
    let report = replica.health.report(Probe::Ready);
    assert!(report.passed(), "{}", report.details());
    let notices = [("hoarder".to_owned(), "keys in quarantine because their reconcile panics: 1".to_owned())];
    assert_eq!(report.notices, notices, "it works now, and its panics are reported without a restart");
    replica.stops().await;
}

// parity: cache-sync-timeout, error-if-cache-cannot
#[tokio::test(start_paused = true)]
async fn cache_sync_timeout_stops_process_and_names_caches() {
    let world = World::new();
    world.fail("secrets", FaultAction::Unavailable);
    let within = CacheSync::Within(Duration::from_secs(120));
    let replica = world.start_both(ManagerConfig { cache_sync: within, ..ManagerConfig::new("a") });
    let error = replica.ended().await.expect_err("the cache never fills").to_string();
    assert!(error.contains("hoarder") && error.contains("120s") && error.contains("secrets"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn cache_sync_timeout_applies_when_no_controller_can_work() {
    let world = World::new();
    world.fail("configmaps", FaultAction::Unavailable);
    let within = CacheSync::Within(Duration::from_secs(70));
    let begun = world.env.now();
    let replica = world.start_with(ManagerConfig { cache_sync: within, ..ManagerConfig::new("a") });
    let error = replica.ended().await.expect_err("the cache never fills").to_string();
    assert!(error.contains("scribe") && error.contains("70s") && error.contains("configmaps"), "{error}");
    assert!(since(&world.env, begun) < Duration::from_secs(72), "{:?}", since(&world.env, begun));
    assert_eq!(world.holder(), Value::Null, "a replica that cannot work does not lead");
}

fn widgets() -> ResourceKind {
    ResourceKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        scope: Scope::Namespaced,
    }
}

/// Watches a kind whose CRD is not installed.
struct Founder;

impl Controller for Founder {
    const NAME: &'static str = "founder";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.watch_dynamic(widgets()).primary();
        Ok(Self)
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn missing_crd_is_awaited_for_cache_sync_timeout_without_leading() {
    let world = World::new();
    let within = CacheSync::Within(Duration::from_secs(45));
    let config = ManagerConfig { cache_sync: within, ..ManagerConfig::new("a") };
    let replica = world.start_controller(config, Registration::controller::<Founder>());
    world.pass(40).await;
    assert!(!replica.run.is_finished() && !replica.ready());
    assert_eq!(world.holder(), Value::Null);
    let error = replica.ended().await.expect_err("the kind is never defined").to_string();
    assert!(error.contains("founder") && error.contains("45s") && error.contains("widgets"), "{error}");
}

/// Registers a controller with a trigger that watches ConfigMaps from a custom source, and Secrets.
fn fed(env: &Env) -> (Arc<ObjectFeed>, Registration) {
    let feed = Arc::new(ObjectFeed::new(env));
    let theirs = Arc::clone(&feed);
    let registration = Registration::controller::<Hoarder>()
        .with_descriptor(Descriptor::new("fed"))
        .with_settings(move |setup| {
            let source = theirs.selecting(&Selection::default());
            setup.watch_from(source, TypedObjects::<ConfigMap>::new()).primary();
            setup.trigger("feed", 1);
        });
    (feed, registration)
}

/// Starts a manager of the scribe, which works, and of [`fed`], whose start waits for a cache.
async fn half_started(world: &World) -> (Replica, Arc<ObjectFeed>, Trigger) {
    world.fail("secrets", FaultAction::Unavailable);
    let (feed, registration) = fed(&world.env);
    let config = ManagerConfig { shutdown_timeout: Duration::from_secs(30), ..ManagerConfig::new("one") };
    let env = world.env.with_incarnation("one", 0);
    let manager =
        world.manager(&env, config).register(registration).register(Registration::controller::<Scribe>());
    let trigger = manager.trigger("fed", "feed");
    let replica = world.run(env, manager);
    world.pass(60).await;
    assert_eq!((feed.watch_count(), world.scribbled()), (1, json!(done_by("one"))), "its source has started");
    trigger.try_send(ObjectKey::cluster("kept")).expect("there is room");
    (replica, feed, trigger)
}

// parity: no-goroutine-left-runnable
#[tokio::test(start_paused = true)]
async fn dropped_start_leaves_no_running_task() {
    for way in ["drain", "abort", "lost lease"] {
        let world = World::new();
        let (replica, feed, trigger) = half_started(&world).await;
        let waits = trigger.clone();
        let sent = world.env.spawn("sender", async move { waits.send(ObjectKey::cluster("waits")).await });
        world.pass(1).await;
        assert!(!sent.is_finished(), "the trigger is full");
        match way {
            "drain" => replica.trigger.fire(),
            "abort" => (0..2).for_each(|_| replica.trigger.fire()),
            _ => drop(world.api.upsert(LEASE, json!({ "spec": { "holderIdentity": "other" } }))),
        }
        assert_eq!(replica.ended().await.is_ok(), way == "drain", "{way}");
        assert_eq!(feed.watch_count(), 0, "{way}");
        let result = sent.await.expect("no panic");
        assert_eq!(result, Err(TriggerError::Stopped { controller: "fed" }), "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn trigger_of_stopped_standby_returns_error_to_sender() {
    let world = World::new();
    let (one, other) = pair(&world).await;
    let (_feed, registration) = fed(&world.env);
    let env = world.env.with_incarnation("third", 0);
    let manager = world.manager(&env, ManagerConfig::new("third")).register(registration);
    let trigger = manager.trigger("fed", "feed");
    let two = world.run(env, manager);
    world.pass(5).await;
    trigger.try_send(ObjectKey::cluster("kept")).expect("there is room");
    two.trigger.fire();
    assert!(two.ended().await.is_ok());
    let result = trigger.send(ObjectKey::cluster("late")).await;
    assert_eq!(result, Err(TriggerError::Stopped { controller: "fed" }));
    one.stops().await;
    other.stops().await;
}
