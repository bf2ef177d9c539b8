//! A takeover from a silent leader by a standby with many cached objects: every cache is listed once, outside the
//! client's rate limit, and no write precedes it.
//!
//! `WINDLASS_OBJECTS` sets the number of objects (default 5,000). With `--nocapture` the test prints the duration of
//! the takeover in virtual and in real time.

#![expect(clippy::print_stdout, reason = "the durations are the result")]

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use windlass_api_server::faults::{FaultPlan, FaultyServer};
use windlass_client::Clients;
use windlass_controller::{Context, Controller, Outcome, ReconcileError, Setup, SetupError};
use windlass_env::Env;
use windlass_informer::Lister;
use windlass_manager::{Manager, ManagerConfig, ShutdownSignals};
use windlass_metrics::Metrics;
use windlass_object::{ObjectKey, Verb};
use windlass_simulation::env_or;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/windlass";
const MARKED: &str = "/api/v1/namespaces/shop/configmaps/marked";
/// Number of objects in a page of a list.
const PAGE: usize = 500;

/// Marks one of all cached ConfigMaps.
struct Marker {
    maps: Lister<ConfigMap>,
}

impl Controller for Marker {
    const NAME: &'static str = "marker";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.uses::<ConfigMap>([Verb::Patch]);
        Ok(Self { maps: setup.primary::<ConfigMap>().lister() })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let is_marked = self.maps.get_lossy(key).is_some_and(|map| map.data.is_some());
        if key.name() == "marked" && !is_marked {
            let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
            let patch = Patch::Merge(json!({ "data": { "marked": "yes" } }));
            maps.patch(key.name(), &PatchParams::default(), &patch).await?;
        }
        Ok(Outcome::Done)
    }
}

/// Reads the same cache, and writes nothing.
struct Reader;

impl Controller for Reader {
    const NAME: &'static str = "reader";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.watch::<ConfigMap>().enqueue(|_| Vec::new());
        Ok(Self)
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        Ok(Outcome::Done)
    }
}

/// Returns a server with this many ConfigMaps, and a Lease that another process holds.
fn server(env: &Env, objects: usize) -> FaultyServer {
    let api = FaultyServer::new(env, FaultPlan::without_faults(1));
    api.upsert("/api/v1/namespaces/shop", json!({}));
    for number in 0..objects {
        api.upsert(&format!("/api/v1/namespaces/shop/configmaps/map-{number}"), json!({}));
    }
    let spec = json!({ "holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 1 });
    api.upsert(LEASE, json!({ "spec": spec }));
    api
}

fn manager(env: &Env, api: &FaultyServer) -> Manager {
    let line = api.link();
    let connect = move |env: &Env, config: &ManagerConfig, metrics: &Metrics, fence| {
        let uri = http::Uri::from_static("http://api");
        Clients::from_service(env.clone(), line, uri, config.client.clone(), metrics, fence)
    };
    let manager = Manager::with_clients(env.clone(), ManagerConfig::new("one"), connect).expect("a manager");
    manager
        .register(windlass_controller::Registration::controller::<Marker>())
        .register(windlass_controller::Registration::controller::<Reader>())
}

fn lists(api: &FaultyServer) -> usize {
    let lists = |verb| matches!(verb, Some(Verb::List));
    api.served_requests().iter().filter(|asked| asked.resource == "configmaps" && lists(asked.verb)).count()
}

/// Waits until `done`, for at most ten virtual minutes.
async fn until(env: &Env, done: impl Fn() -> bool) {
    for _ in 0..600_000 {
        if done() {
            return;
        }
        env.sleep(Duration::from_millis(1)).await;
    }
    panic!("not within ten minutes");
}

#[tokio::test(start_paused = true)]
async fn takeover_lists_a_large_cache_once_before_the_first_write() {
    let objects = env_or("WINDLASS_OBJECTS", 5_000);
    let env = Env::virtual_time(1);
    let api = server(&env, objects);
    let (trigger, signals) = ShutdownSignals::manual();
    let run = env.spawn("manager", manager(&env.with_incarnation("one", 0), &api).run(signals));
    env.sleep(Duration::from_secs(10)).await;
    // The object to write appears while the other process leads.
    api.upsert(MARKED, json!({}));
    let listed_before = lists(&api);
    let holder = || api.object(LEASE).map(|lease| lease["spec"]["holderIdentity"].clone());
    until(&env, || holder() == Some(json!("one"))).await;
    let (acquired, clock) = (env.now(), std::time::Instant::now());
    until(&env, || api.object(MARKED).is_some_and(|map| map["data"]["marked"] == "yes")).await;
    let (virtually, really) = (env.now().saturating_duration_since(acquired), clock.elapsed());
    let listed = lists(&api) - listed_before;
    println!(
        "{objects} objects: first write {virtually:?} (virtual), {really:?} (real) after the lease; {listed} pages"
    );
    assert_eq!(
        listed,
        (objects + 1).div_ceil(PAGE),
        "one list for all controllers, complete before the write"
    );
    assert!(virtually < Duration::from_secs(5), "the rate limit does not delay a takeover: {virtually:?}");
    trigger.fire();
    assert!(run.await.expect("no panic").is_ok());
}
