//! Two hours of virtual time under churn and faults: what a process holds when it is at rest does not grow.
//!
//! A manager with all controllers works against a server over a line that fails in every way but by ending the process,
//! while a user makes, scales and deletes objects whose names never come back. At the end of every cycle all that was
//! made is gone again; what is still allocated then that was not before the cycle, and which tasks live, is noted. The
//! server, its history and its journal live in the same thread: they are bounded, and full before the first cycle that
//! counts.
//!
//! `WINDLASS_SEED` says which faults (default 1).

#![expect(clippy::print_stdout, reason = "the figures are part of the result")]

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{self, Either};
use http::Uri;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use windlass_api_server::faults::{Journal, Line, Network, Plan};
use windlass_api_server::{ApiServer, ApiServerOptions, storage};
use windlass_client::{Clients, Fence};
use windlass_controllers::{Options, registrations};
use windlass_env::Env;
use windlass_manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};
use windlass_metrics::Metrics;
use windlass_testing::nodes::{self, NodeOptions};
use windlass_testing::{FaultKind, Faults, object};

/// How many cycles there are, and how long one lasts: two hours.
const CYCLES: usize = 24;
const CYCLE: Duration = Duration::from_secs(300);
/// How many cycles are for what grows to its bound once: the server's history, metrics, free lists.
const WARM_UP: usize = 8;
/// How long anything may take under faults, in virtual time.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Bounds of the world, small enough to be reached while it warms up.
const HISTORY: usize = 256;
const RECORDS: usize = 256;
/// What all cycles that count may leave behind in bytes, for maps whose size depends on what was in them when.
const LEFT_BEHIND: i64 = 64 * 1024;
const RESOURCES: [&str; 5] = ["pods", "replicasets", "services", "endpoints", "leases"];

#[test]
fn a_process_holds_no_more_after_two_hours_of_churn_and_faults_than_before() {
    let world = World::new(seed());
    let mut figures = Vec::new();
    for number in 0..CYCLES {
        let used = allocation_counter::measure(|| world.runtime.block_on(world.cycle(number)));
        let tasks = world.tasks();
        println!("cycle {number:>2}: {:>8} bytes more, {} tasks", used.bytes_current, tasks.len());
        figures.push((used.bytes_current, tasks));
    }
    let (_, at_first) = &figures[WARM_UP];
    for (number, (_, tasks)) in figures.iter().enumerate().skip(WARM_UP) {
        assert_eq!(tasks, at_first, "the tasks after cycle {number}");
    }
    let left: i64 = figures[WARM_UP + 1..].iter().map(|(bytes, _)| bytes).sum();
    println!("{} cycles left {left} bytes behind", CYCLES - WARM_UP - 1);
    assert!(left < LEFT_BEHIND, "{left} bytes are still held of what is gone");
    world.stop();
}

fn seed() -> u64 {
    let seed = std::env::var("WINDLASS_SEED").unwrap_or_else(|_| "1".to_owned());
    seed.parse()
        .unwrap_or_else(|_| panic!("WINDLASS_SEED={seed} is no number; leave it out or write digits alone"))
}

/// A server, nodes that are played, and the process under test.
struct World {
    runtime: Runtime,
    env: Env,
    client: kube::Client,
    /// The life of the process that is running.
    life: Arc<Mutex<Env>>,
    nodes: ShutdownTrigger,
    tested: ShutdownTrigger,
}

impl World {
    fn new(seed: u64) -> World {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime can be made");
        let inside = runtime.enter();
        let env = Env::virtual_time(seed);
        let memory = storage::Memory::new(storage::MemoryOptions { history: HISTORY });
        let options = ApiServerOptions { storage: Some(Arc::new(memory)), ..ApiServerOptions::default() };
        let server = Arc::new(ApiServer::new(&env.incarnation("server", 0), options));
        let network = Network::new(&env, server, plan(seed), Journal::new(RECORDS, None));
        let user = env.incarnation("user", 0);
        let client = kube::Client::new(network.sound_line(&user), "default");
        let life = Arc::new(Mutex::new(env.incarnation("windlass", 0)));
        let nodes = play_nodes(&env, &network);
        let (tested, signals) = ShutdownSignals::manual();
        drop(env.spawn("lives", lives(env.clone(), network, Arc::clone(&life), signals)));
        drop(inside);
        World { runtime, env, client, life, nodes, tested }
    }

    /// The names of the tasks of the process under test.
    fn tasks(&self) -> Vec<String> {
        let mut tasks = self.life.lock().unwrap_or_else(PoisonError::into_inner).tasks();
        tasks.sort();
        tasks
    }

    /// Something is made, grows, shrinks and goes; then there is quiet until the cycle is over.
    async fn cycle(&self, number: usize) {
        let over = self.env.now() + CYCLE;
        let name = format!("web-{number}");
        let pods: Api<Pod> = self.api();
        let sets: Api<ReplicaSet> = self.api();
        let services: Api<Service> = self.api();
        services.create(&PostParams::default(), &service(&name)).await.expect("the user can create");
        sets.create(&PostParams::default(), &replica_set(&name)).await.expect("the user can create");
        for replicas in [3, 8, 2, 0] {
            let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
            sets.patch(&name, &PatchParams::default(), &patch).await.expect("the user can patch");
            self.until(&format!("{replicas} pods of {name}"), async || {
                let set = sets.get(&name).await.expect("the set is there");
                let ready = set.status.and_then(|status| status.ready_replicas).unwrap_or_default();
                let existing =
                    pods.list(&ListParams::default()).await.expect("the user can list").items.len();
                i32::try_from(existing) == Ok(replicas) && ready == replicas
            })
            .await;
        }
        services.delete(&name, &DeleteParams::default()).await.expect("the user can delete");
        sets.delete(&name, &DeleteParams::default()).await.expect("the user can delete");
        let endpoints: Api<Endpoints> = self.api();
        self.until(&format!("nothing of {name}"), async || {
            endpoints.get_opt(&name).await.expect("the user can read").is_none()
                && sets.get_opt(&name).await.expect("the user can read").is_none()
        })
        .await;
        self.env.sleep_until(over).await;
        // Events outlive what they tell of; a real server forgets them after an hour.
        let events: Api<Event> = self.api();
        let all = (DeleteParams::default(), ListParams::default());
        events.delete_collection(&all.0, &all.1).await.expect("the user can delete");
    }

    async fn until(&self, what: &str, mut wanted: impl AsyncFnMut() -> bool) {
        let begun = self.env.now();
        while !wanted().await {
            let waited = self.env.now() - begun;
            assert!(waited < PATIENCE, "{what}: not after {waited:?}");
            self.env.sleep(Duration::from_secs(1)).await;
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    fn stop(self) {
        self.nodes.fire();
        self.tested.fire();
        self.life.lock().unwrap_or_else(PoisonError::into_inner).kill();
        self.env.kill();
        self.runtime.block_on(self.env.tasks_ended());
    }
}

/// What goes wrong on the wire, every ten minutes. The process itself is not killed: what it holds is what is looked at.
fn plan(seed: u64) -> Plan {
    let span = CYCLE * u32::try_from(CYCLES).expect("a small number");
    let faults = Faults::all().without(FaultKind::Crash).without(FaultKind::Clock);
    faults.plan(seed, span, 1, &RESOURCES.map(str::to_owned))
}

/// Runs the manager; one that lost its lease starts again as any process would.
async fn lives(env: Env, network: Network, life: Arc<Mutex<Env>>, signals: ShutdownSignals) {
    for number in 0.. {
        let own = if number == 0 {
            life.lock().unwrap_or_else(PoisonError::into_inner).clone()
        } else {
            env.incarnation("windlass", number)
        };
        *life.lock().unwrap_or_else(PoisonError::into_inner) = own.clone();
        let config = ManagerConfig::new(format!("windlass-{number}"));
        let manager = manager(&own, config, network.line(&own));
        let manager = registrations(&Options::default()).into_iter().fold(manager, Manager::register);
        let ended = future::select(pin!(signals.draining()), pin!(manager.run(signals.clone()))).await;
        match ended {
            Either::Left(_) => return,
            Either::Right((Err(ManagerError::LeaseLost { .. }), _)) => own.kill(),
            Either::Right((end, _)) => panic!("the process ended: {end:?}"),
        }
    }
}

fn play_nodes(env: &Env, network: &Network) -> ShutdownTrigger {
    let own = env.incarnation("nodes", 0);
    let config = ManagerConfig { election: None, ..ManagerConfig::new("nodes") };
    let manager = manager(&own, config, network.sound_line(&own));
    let manager = nodes::registrations(&NodeOptions::default()).into_iter().fold(manager, Manager::register);
    let (trigger, signals) = ShutdownSignals::manual();
    drop(own.spawn("nodes", manager.run(signals)));
    trigger
}

fn manager(env: &Env, config: ManagerConfig, line: Line) -> Manager {
    let connect = move |env: &Env, config: &ManagerConfig, metrics: &Metrics, fence: Arc<dyn Fence>| {
        let uri = Uri::from_static("http://kubernetes.default.svc");
        Clients::over_service(env.clone(), line, uri, config.client.clone(), metrics, fence)
    };
    Manager::with_clients(env.clone(), config, connect).expect("the configuration is sound")
}

fn replica_set(name: &str) -> ReplicaSet {
    object(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            },
        },
    }))
}

fn service(name: &str) -> Service {
    object(json!({
        "metadata": { "name": name },
        "spec": { "selector": { "app": name }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    }))
}
