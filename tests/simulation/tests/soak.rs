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
use windlass_controllers::{ControllerOptions, registrations};
use windlass_election::ElectionConfig;
use windlass_env::Env;
use windlass_manager::{Manager, ManagerConfig, ShutdownSignals, ShutdownTrigger};
use windlass_metrics::Metrics;
use windlass_object::Verb;
use windlass_simulation::wanted;
use windlass_testing::nodes::{self, NodeOptions};
use windlass_testing::{FaultKind, Faults, object};

/// How many cycles there are, and how long one lasts: two hours.
const CYCLES: usize = 24;
const CYCLE: Duration = Duration::from_secs(300);
/// How many cycles are for what grows to its bound once: the server's history, metrics, free lists.
const WARM_UP: usize = 8;
/// How long anything may take under faults, in virtual time.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// Bounds of the world, small enough to be reached while it warms up.
const HISTORY: usize = 256;
const RECORDS: usize = 256;
/// How many Services and how many ReplicaSets without pods come and go in each cycle, next to those with pods.
const EXTRA: usize = 40;
/// How many objects a cycle makes whose names never come back: the extra ones and what belongs to the Services, and of what
/// has pods itself and them. Not counted are Events, and pods that faults have made twice.
const OBJECTS: usize = 3 * EXTRA + 3 + 8;
/// How many keys that nothing is the matter with each controller remembers, and how many Events of each sort: by default
/// there are 10,000 and 4,096, of some hundred bytes each, which two hours do not fill.
const REMEMBERED: usize = 64;
const REMEMBERED_EVENTS: usize = 8;
/// How many workers each controller has. A worker's client keeps room for 64 requests from its 33rd on, ten kilobytes: where
/// there are more workers, some take hours to get there.
const WORKERS: usize = 2;
/// The name that a plan has for the first process.
const STRUCK: &str = "a";
/// How late in the first cycle what is watched may come, in milliseconds.
const LATE_MS: u64 = 60_000;
/// How long the lease lasts, and how long the process acts on it without having renewed it: longer than faults continue. One
/// that lost its lease would end, and what another holds that has just begun says nothing.
const LEASE: Duration = Duration::from_secs(1200);
const RENEWED_WITHIN: Duration = Duration::from_secs(900);
/// What the cycles that count may leave behind, in bytes for each object: next to nothing. Measured are -20 with seed 1 and -11
/// with seed 2; one cycle alone is off by some kilobytes to either side.
const PER_OBJECT: i64 = 16;
/// For how many cycles more something keeps so many bytes of each object, to show that it is seen.
const HOARDING: usize = 4;
const LEAK: usize = 128;
const RESOURCES: [&str; 5] = ["pods", "replicasets", "services", "endpoints", "leases"];

#[test]
fn process_holds_no_more_after_two_hours_of_churn_and_faults_than_before() {
    let world = World::new(wanted("WINDLASS_SEED", 1));
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
    assert!(left <= PER_OBJECT, "{left} bytes are still held of each object that is gone");
    let mut hoarding = vec![0];
    let mut hoard = LinkedList::new();
    for number in CYCLES..CYCLES + HOARDING {
        let kept = allocation_counter::measure(|| (0..OBJECTS).for_each(|_| hoard.push_back([0_u8; LEAK])));
        hoarding.push(hoarding[number - CYCLES] + world.left_by(number) + kept.bytes_current);
    }
    let left = per_object(&hoarding);
    println!("cycles with a leak left {left} bytes behind for each object");
    assert!(left > PER_OBJECT, "a leak of {LEAK} bytes is not seen: {left}");
    world.stop();
}

/// How many bytes more are held after a cycle than before it, for each object that it made: what two thirds of all pairs of
/// cycles say at least. A few that end amid the way back from a fault have no say in it, nor has one step, as from a queue
/// that was never as long before and keeps its room. What grows time and again has.
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

/// A server, nodes that are played, and the process under test.
struct World {
    runtime: Runtime,
    env: Env,
    client: kube::Client,
    /// The process under test.
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
        let line = network.line(&process);
        let tested = begin(&process, line.clone());
        drop(inside);
        World { runtime, env, client, process, line, nodes, tested }
    }

    /// The names of the tasks of the process under test.
    fn tasks(&self) -> Vec<String> {
        let mut tasks = self.process.tasks();
        tasks.sort();
        tasks
    }

    /// How many bytes more are held after this cycle than before.
    fn left_by(&self, number: usize) -> i64 {
        allocation_counter::measure(|| self.runtime.block_on(self.cycle(number))).bytes_current
    }

    /// Objects come and go; then there is quiet until the cycle is over.
    async fn cycle(&self, number: usize) {
        let over = self.env.now() + CYCLE;
        // At first all that is watched comes late and in heaps: queues have their greatest length behind them then, and the
        // room that they keep.
        let late = (number == 0).then_some(FaultAction::WatchDelayed { by_ms: LATE_MS });
        self.line.inject_fault(move |asked| late.clone().filter(|_| asked.verb == Some(Verb::Watch)));
        self.many_come_and_go(number).await;
        self.one_grows_and_shrinks(&format!("web-{number}")).await;
        self.env.sleep_until(over).await;
        // Events outlive what they tell of; a real server forgets them after an hour.
        let events: Api<Event> = self.api();
        let all = (DeleteParams::default(), ListParams::default());
        events.delete_collection(&all.0, &all.1).await.expect("the user can delete");
    }

    /// Services and ReplicaSets without pods, which take no Events.
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
        self.until("many are seen to", async || known(EXTRA).await).await;
        for name in &names {
            services.delete(name, &DeleteParams::default()).await.expect("the user can delete");
            sets.delete(name, &DeleteParams::default()).await.expect("the user can delete");
        }
        self.until("none of many is left", async || known(0).await).await;
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
        self.until(&format!("nothing of {name}"), async || {
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

/// What goes wrong on the wire, every ten minutes. The process itself is not killed: what it holds is what is looked at.
fn plan(seed: u64) -> FaultPlan {
    let span = CYCLE * u32::try_from(CYCLES).expect("a small number");
    let faults = Faults::all().without(FaultKind::Crash).without(FaultKind::Clock);
    faults.plan(seed, span, 1, &RESOURCES.map(str::to_owned))
}

/// The process under test: it is to live to the end.
fn begin(own: &Env, line: Link) -> ShutdownTrigger {
    let election = ElectionConfig {
        lease_duration: LEASE,
        renew_deadline: RENEWED_WITHIN,
        ..ElectionConfig::new("windlass")
    };
    let config = ManagerConfig { election: Some(election), ..config("windlass".to_owned()) };
    let manager = manager(own, config, line);
    let manager = tuned(registrations(&ControllerOptions::default())).fold(manager, Manager::register);
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

/// With bounds that are reached while the world warms up.
fn config(identity: String) -> ManagerConfig {
    ManagerConfig { remembered_events: REMEMBERED_EVENTS, ..ManagerConfig::new(identity) }
}

/// Whose bounds are reached while the world warms up.
fn tuned(registrations: Vec<Registration>) -> impl Iterator<Item = Registration> {
    registrations.into_iter().map(|one| {
        one.tuned(|setup| {
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
    Manager::with_clients(env.clone(), config, connect).expect("the configuration is sound")
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
