//! Two hours of virtual time under churn and faults: the memory of an idle process does not grow.
//!
//! A manager with all controllers runs against a server behind a link with all faults except those that end the
//! process, while a user creates, scales and deletes objects with unique names. All objects of a cycle are deleted at
//! its end. The test then records the additional allocations since the start of the cycle, and the running tasks. The
//! server, its history and its journal run in the same thread: they are bounded, and full before the first measured
//! cycle.
//!
//! `WINDLASS_SEED` sets the seed of the faults (default 1).

#![expect(clippy::print_stdout, reason = "the figures are part of the result")]

use std::collections::LinkedList;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use windlass_api_server::faults::{FaultAction, FaultPlan, Journal, Link, Network};
use windlass_api_server::{ApiServer, ApiServerOptions, storage};
use windlass_client::{Clients, Fence};
use windlass_controller::Registration;
use windlass_election::ElectionConfig;
use windlass_env::Env;
use windlass_manager::{Manager, ManagerConfig, ShutdownSignals, ShutdownTrigger};
use windlass_metrics::Metrics;
use windlass_object::Verb;
use windlass_simulation::env_or;
use windlass_simulation::fixtures::workloads;
use windlass_testing::nodes::{self, NodeOptions};
use windlass_testing::{FaultKind, Faults, object};

/// Number of cycles; with the duration of a cycle, two hours.
const CYCLES: usize = 24;
const CYCLE: Duration = Duration::from_secs(300);
/// Number of cycles during which bounded data can reach their limit: the server's history, metrics, free lists.
const WARM_UP: usize = 8;
/// Limit of every wait under faults, in virtual time.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// Limits of the world, small enough to be reached during the warm-up.
const HISTORY: usize = 256;
const RECORDS: usize = 256;
/// Number of Services, and of ReplicaSets without pods, that are created and deleted in each cycle, next to those with
/// pods.
const EXTRA: usize = 40;
/// Number of objects with unique names per cycle: the extra objects with the Endpoints of the Services, and the
/// ReplicaSet with pods, its Service, Endpoints and pods. Events, and pods that faults duplicate, are not counted.
const OBJECTS: usize = 3 * EXTRA + 3 + 8;
/// Number of idle keys that each controller remembers, and of cached Events of each kind: the defaults are 10,000 and
/// 4,096, of some hundred bytes each, which two hours do not fill.
const REMEMBERED: usize = 64;
const REMEMBERED_EVENTS: usize = 8;
/// Number of workers of each controller. A worker's client allocates ten kilobytes for 64 requests at its 33rd request;
/// with more workers, some need hours to reach it.
const WORKERS: usize = 2;
/// Name of the first process in a plan.
const STRUCK: &str = "a";
/// Delay of watch events in the first cycle, in milliseconds.
const LATE_MS: u64 = 60_000;
/// Lease duration, and the time for which the process acts without a renewal: longer than the faults. After a lost
/// Lease the process would exit, and a new process shows nothing about growth.
const LEASE: Duration = Duration::from_secs(1200);
const RENEWED_WITHIN: Duration = Duration::from_secs(900);
/// Permitted growth of the measured cycles, in bytes per object: almost nothing. Measured are -20 with seed 1 and -11
/// with seed 2; a single cycle deviates by some kilobytes.
const PER_OBJECT: i64 = 16;
/// Number of additional cycles in which this many bytes of each object leak, to show that the test detects a leak.
const HOARDING: usize = 4;
const LEAK: usize = 128;
const RESOURCES: [&str; 5] = ["pods", "replicasets", "services", "endpoints", "leases"];

#[test]
fn memory_does_not_grow_in_two_hours_of_churn_and_faults() {
    let world = World::new(env_or("WINDLASS_SEED", 1));
    let (mut held, mut tasks) = (vec![0], Vec::new());
    for number in 0..CYCLES {
        held.push(held[number] + world.left_by(number));
        tasks.push(world.tasks());
        println!("after cycle {number:>2}: {:>8} bytes, {} tasks", held[number + 1], tasks[number].len());
    }
    let at_first = &tasks[WARM_UP];
    for (number, tasks) in tasks.iter().enumerate().skip(WARM_UP) {
        assert_eq!(tasks, at_first, "the tasks after cycle {number}");
    }
    let left = per_object(&held[WARM_UP + 1..]);
    println!("cycles left {left} bytes behind for each object");
    assert!(left <= PER_OBJECT, "{left} bytes of each deleted object are still allocated");
    let mut hoarding = vec![0];
    let mut hoard = LinkedList::new();
    for number in CYCLES..CYCLES + HOARDING {
        let kept = allocation_counter::measure(|| (0..OBJECTS).for_each(|_| hoard.push_back([0_u8; LEAK])));
        hoarding.push(hoarding[number - CYCLES] + world.left_by(number) + kept.bytes_current);
    }
    let left = per_object(&hoarding);
    println!("cycles with a leak left {left} bytes behind for each object");
    assert!(left > PER_OBJECT, "a leak of {LEAK} bytes is not detected: {left}");
    world.stop();
}

/// Returns the growth of memory per created object: the minimum that two thirds of all pairs of cycles show. Single
/// cycles that end during the recovery from a fault do not affect it, nor does a single step, such as a queue that
/// reaches a new maximum length and keeps its capacity. Repeated growth does.
fn per_object(held: &[i64]) -> i64 {
    let slope = |earlier: usize, later: usize| {
        let objects = i64::try_from((later - earlier) * OBJECTS).expect("a small number");
        (held[later] - held[earlier]) / objects
    };
    let pairs = (0..held.len()).flat_map(|later| (0..later).map(move |earlier| (earlier, later)));
    let mut slopes: Vec<i64> = pairs.map(|(earlier, later)| slope(earlier, later)).collect();
    slopes.sort_unstable();
    slopes[slopes.len() / 3]
}

/// A server, simulated nodes, and the process under test.
struct World {
    runtime: Runtime,
    env: Env,
    client: kube::Client,
    /// Env of the process under test.
    process: Env,
    line: Link,
    nodes: ShutdownTrigger,
    tested: ShutdownTrigger,
}

impl World {
    fn new(seed: u64) -> World {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime can be made");
        let inside = runtime.enter();
        let env = Env::virtual_time(seed);
        let memory = storage::InMemoryStorage::new(storage::MemoryOptions { history: HISTORY });
        let options = ApiServerOptions { storage: Some(Arc::new(memory)), ..ApiServerOptions::default() };
        let server = Arc::new(ApiServer::new(&env.with_incarnation("server", 0), options));
        let network = Network::new(&env, server, plan(seed), Journal::new(RECORDS, None));
        let user = env.with_incarnation("user", 0);
        let client = kube::Client::new(network.reliable_link(&user), "default");
        let nodes = play_nodes(&env, &network);
        let process = env.with_incarnation(STRUCK, 0);
        let line = network.link(&process);
        let tested = begin(&process, line.clone());
        drop(inside);
        World { runtime, env, client, process, line, nodes, tested }
    }

    /// Returns the names of the tasks of the process under test.
    fn tasks(&self) -> Vec<String> {
        let mut tasks = self.process.tasks();
        tasks.sort();
        tasks
    }

    /// Returns the growth of memory in this cycle, in bytes.
    fn left_by(&self, number: usize) -> i64 {
        allocation_counter::measure(|| self.runtime.block_on(self.cycle(number))).bytes_current
    }

    /// Creates and deletes objects, and then waits until the cycle is over.
    async fn cycle(&self, number: usize) {
        let over = self.env.now() + CYCLE;
        // In the first cycle watch events arrive late and in bursts, so that queues reach their maximum length and keep
        // that capacity.
        let late = (number == 0).then_some(FaultAction::WatchDelayed { by_ms: LATE_MS });
        self.line.inject_fault(move |asked| late.clone().filter(|_| asked.verb == Some(Verb::Watch)));
        self.many_come_and_go(number).await;
        self.one_grows_and_shrinks(&format!("web-{number}")).await;
        self.env.sleep_until(over).await;
        // Events outlive their objects; a real server deletes them after an hour.
        let events: Api<Event> = self.api();
        let all = (DeleteParams::default(), ListParams::default());
        events.delete_collection(&all.0, &all.1).await.expect("the user can delete");
    }

    /// Creates and deletes Services and ReplicaSets without pods, which cause no Events.
    async fn many_come_and_go(&self, number: usize) {
        let (sets, services): (Api<ReplicaSet>, Api<Service>) = (self.api(), self.api());
        let names: Vec<String> = (0..EXTRA).map(|extra| format!("many-{number}-{extra}")).collect();
        for name in &names {
            services.create(&PostParams::default(), &service(name)).await.expect("the user can create");
            sets.create(&PostParams::default(), &replica_set(name, 0)).await.expect("the user can create");
        }
        let endpoints: Api<Endpoints> = self.api();
        let known = async |wanted: usize| {
            let (all, these) = (ListParams::default(), |name: &str| name.starts_with("many-"));
            let endpoints = endpoints.list(&all).await.expect("the user can list").items;
            let sets = sets.list(&all).await.expect("the user can list").items;
            let seen = |set: &&ReplicaSet| {
                set.status.as_ref().is_some_and(|status| status.observed_generation.is_some())
            };
            endpoints.iter().filter(|it| these(&it.name_any())).count() == wanted
                && sets.iter().filter(seen).filter(|it| these(&it.name_any())).count() == wanted
        };
        self.until("all extra objects are reconciled", async || known(EXTRA).await).await;
        for name in &names {
            services.delete(name, &DeleteParams::default()).await.expect("the user can delete");
            sets.delete(name, &DeleteParams::default()).await.expect("the user can delete");
        }
        self.until("all extra objects are deleted", async || known(0).await).await;
    }

    async fn one_grows_and_shrinks(&self, name: &str) {
        let pods: Api<Pod> = self.api();
        let sets: Api<ReplicaSet> = self.api();
        let services: Api<Service> = self.api();
        services.create(&PostParams::default(), &service(name)).await.expect("the user can create");
        sets.create(&PostParams::default(), &replica_set(name, 1)).await.expect("the user can create");
        for replicas in [3, 8, 2, 0] {
            let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
            sets.patch(name, &PatchParams::default(), &patch).await.expect("the user can patch");
            self.until(&format!("{replicas} pods of {name}"), async || {
                let set = sets.get(name).await.expect("the set is there");
                let ready = set.status.and_then(|status| status.ready_replicas).unwrap_or_default();
                let existing =
                    pods.list(&ListParams::default()).await.expect("the user can list").items.len();
                i32::try_from(existing) == Ok(replicas) && ready == replicas
            })
            .await;
        }
        services.delete(name, &DeleteParams::default()).await.expect("the user can delete");
        sets.delete(name, &DeleteParams::default()).await.expect("the user can delete");
        let endpoints: Api<Endpoints> = self.api();
        self.until(&format!("deletion of {name}"), async || {
            endpoints.get_opt(name).await.expect("the user can read").is_none()
                && sets.get_opt(name).await.expect("the user can read").is_none()
        })
        .await;
    }

    async fn until(&self, what: &str, mut wanted: impl AsyncFnMut() -> bool) {
        let begun = self.env.now();
        while !wanted().await {
            let waited = self.env.now() - begun;
            assert!(waited < TIMEOUT, "{what}: not after {waited:?}");
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
        self.process.kill();
        self.env.kill();
        self.runtime.block_on(self.env.wait_for_tasks());
    }
}

/// Returns the faults of the link for every ten minutes. The process itself is not killed, because its memory is
/// measured.
fn plan(seed: u64) -> FaultPlan {
    let span = CYCLE * u32::try_from(CYCLES).expect("a small number");
    let faults = Faults::all().without(FaultKind::Crash).without(FaultKind::Clock);
    faults.plan(seed, span, 1, &RESOURCES.map(str::to_owned))
}

/// Starts the process under test, which must run to the end.
fn begin(own: &Env, line: Link) -> ShutdownTrigger {
    let election = ElectionConfig {
        lease_duration: LEASE,
        renew_deadline: RENEWED_WITHIN,
        ..ElectionConfig::new("windlass")
    };
    let config = ManagerConfig { election: Some(election), ..config("windlass".to_owned()) };
    let manager = manager(own, config, line);
    let manager = tuned(workloads()).fold(manager, Manager::register);
    let (trigger, signals) = ShutdownSignals::manual();
    drop(own.spawn("process", manager.run(signals)));
    trigger
}

fn play_nodes(env: &Env, network: &Network) -> ShutdownTrigger {
    let own = env.with_incarnation("nodes", 0);
    let config = ManagerConfig { election: None, ..config("nodes".to_owned()) };
    let manager = manager(&own, config, network.reliable_link(&own));
    let manager = tuned(nodes::registrations(&NodeOptions::default())).fold(manager, Manager::register);
    let (trigger, signals) = ShutdownSignals::manual();
    drop(own.spawn("nodes", manager.run(signals)));
    trigger
}

/// Returns a configuration with limits that are reached during the warm-up.
fn config(identity: String) -> ManagerConfig {
    ManagerConfig { event_cache_size: REMEMBERED_EVENTS, ..ManagerConfig::new(identity) }
}

/// Returns the registrations with limits that are reached during the warm-up.
fn tuned(registrations: Vec<Registration>) -> impl Iterator<Item = Registration> {
    registrations.into_iter().map(|one| {
        one.with_settings(|setup| {
            setup.history_limit(REMEMBERED);
            setup.workers(WORKERS);
        })
    })
}

fn manager(env: &Env, config: ManagerConfig, line: Link) -> Manager {
    let connect = move |env: &Env, config: &ManagerConfig, metrics: &Metrics, fence: Arc<dyn Fence>| {
        let uri = Uri::from_static("http://kubernetes.default.svc");
        Clients::from_service(env.clone(), line, uri, config.client.clone(), metrics, fence)
    };
    Manager::with_clients(env.clone(), config, connect).expect("a valid configuration")
}

fn replica_set(name: &str, replicas: i32) -> ReplicaSet {
    object(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
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
