//! A simulated cluster as the script of a test uses it.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_controller::{ApiScope, Registration};
use windlass_env::Env;
use windlass_manager::ManagerConfig;

use crate::local::{
    api, create, install_configurations, install_definitions, manifests, webhooks_in_process,
};
use crate::nodes::{self, NodeOptions};
use crate::state::ClusterState;
use crate::violation::Violation;
use crate::world::{Process, World};

/// Handle to a simulated cluster. Clones share the cluster.
#[derive(Clone)]
pub struct Cluster {
    world: Arc<World>,
    user: Env,
    client: kube::Client,
    replicas: usize,
    config: ManagerConfig,
}

/// Objects of the cluster at one point in time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Arc<Vec<Value>>,
}

impl Cluster {
    pub(crate) fn new(world: &Arc<World>, user: Env, replicas: usize, config: ManagerConfig) -> Self {
        let client = kube::Client::new(world.network.reliable_link(&user), "default");
        Cluster { world: Arc::clone(world), user, client, replicas, config }
    }

    /// Runs these controllers in as many processes as the simulation has replicas. The fault plan applies to them.
    ///
    /// # Panics
    /// Panics if called twice: replicas of one election run the same controllers.
    pub fn run(&self, registrations: impl IntoIterator<Item = Registration>) {
        let registrations: Vec<Registration> = registrations.into_iter().collect();
        let known = self.world.processes();
        assert!(
            !known.iter().any(|name| name == "a"),
            "cannot run controllers: controllers already run; pass all of them to one `run` call"
        );
        for replica in 0..self.replicas {
            let name = replica_name(replica);
            let (registrations, config) = (registrations.clone(), self.config.clone());
            self.world.start(Process { name, registrations, config, tested: true });
        }
    }

    /// Installs the CRDs and the webhook configurations of these registrations, as `manifests` prints them. The server
    /// then calls the webhooks of the processes that [`run`](Self::run) starts. A webhook is unreachable while no
    /// process serves it. Faults of the kind [`FaultKind::Webhook`](crate::FaultKind::Webhook) affect the calls; other
    /// faults of the network do not.
    ///
    /// # Panics
    /// Panics if a setup fails, or if the server rejects an object.
    pub async fn install(&self, registrations: impl IntoIterator<Item = Registration>) {
        let registrations: Vec<Registration> = registrations.into_iter().collect();
        let webhooks = webhooks_in_process(&self.config.name).0;
        self.world.serve_webhooks(&webhooks);
        let config = ManagerConfig { webhooks: Some(webhooks), ..self.config.clone() };
        let manifests = manifests(&config, &registrations);
        install_definitions(&self.client, &manifests).await;
        install_configurations(&self.client, &manifests).await;
    }

    /// Runs controllers as part of the environment, such as nodes: without faults and without oracle checks.
    pub fn run_unchecked(&self, name: &str, registrations: impl IntoIterator<Item = Registration>) {
        let config = ManagerConfig { election: None, shards: None, ..self.config.clone() };
        let registrations = registrations.into_iter().collect();
        self.world.start(Process { name: name.to_owned(), registrations, config, tested: false });
    }

    /// Runs simulated nodes alongside the controllers.
    pub fn run_nodes(&self, options: &NodeOptions) {
        self.run_unchecked("nodes", nodes::registrations(options));
    }

    /// Returns the user's client. Its requests are not subject to faults.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the user's environment: clock, random numbers and tasks.
    pub fn env(&self) -> &Env {
        &self.user
    }

    /// Sleeps for `time` of virtual time.
    pub async fn advance(&self, time: Duration) {
        self.user.sleep(time).await;
    }

    /// Returns the user's client for the objects of `K`, in the namespace `default` if `K` is namespaced.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope: ApiScope>,
    {
        api(self.client())
    }

    /// Creates an object.
    ///
    /// # Panics
    /// Panics if the server rejects the object.
    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        create(&self.client, object).await
    }

    /// Kills a process without shutdown. After 1 s it restarts as a new incarnation. The replicas are named `a`, `b`
    /// and so on. A replica that has not started yet is not affected.
    ///
    /// # Panics
    /// If no process has this name.
    pub fn kill(&self, process: &str) {
        self.check_name("kill", process);
        self.world.kill(process);
    }

    /// Requests a process to shut down, as in a rollout. It restarts 1 s after it has exited. A second request within
    /// one incarnation aborts the process.
    ///
    /// # Panics
    /// If no process has this name.
    pub fn terminate(&self, process: &str) {
        self.check_name("terminate", process);
        self.world.terminate(process);
    }

    /// Adds a line to the trace.
    pub fn add_trace_line(&self, text: impl Into<String>) {
        self.world.network.note(&self.user, text);
    }

    /// Returns the current objects.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { objects: self.world.network.objects() }
    }

    /// Waits until `wanted` holds. The limit is the end of the faults plus [the convergence
    /// time](crate::Simulation::convergence_timeout). A violation after the limit names the `condition`.
    pub async fn eventually(&self, condition: &str, wanted: impl Fn(&Snapshot) -> bool) {
        let begun = self.now();
        let limit = begun.max(self.world.plan.end()) + self.world.convergence_timeout;
        let mut pause = Duration::from_millis(100);
        while !wanted(&self.snapshot()) {
            if self.now() >= limit {
                let (condition, waited) = (condition.to_owned(), self.now().saturating_sub(begun));
                return self.fail(Violation::Timeout { condition, waited }).await;
            }
            self.advance(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// Waits until the controllers have not written for 15 s, for at most ten minutes: faults can prevent idleness.
    pub async fn settle(&self) {
        const REST: Duration = Duration::from_secs(15);
        let begun = self.now();
        loop {
            let rest = self.now().saturating_sub(self.world.oracle.last_work().max(begun));
            if rest >= REST || self.now().saturating_sub(begun) >= Duration::from_secs(600) {
                return;
            }
            self.advance(REST.saturating_sub(rest).max(Duration::from_millis(1))).await;
        }
    }

    /// Panics if no process and no replica has this name.
    fn check_name(&self, operation: &str, process: &str) {
        let mut known = self.world.processes();
        known.extend((0..self.replicas).map(replica_name));
        known.sort();
        known.dedup();
        assert!(
            known.iter().any(|name| name == process),
            "cannot {operation} {process:?}: no process has this name; use one of {}",
            known.join(", ")
        );
    }

    fn now(&self) -> Duration {
        self.world.env.now().since_origin()
    }

    /// Reports a violation and waits for the driver to end the run.
    async fn fail(&self, violation: Violation) {
        self.world.oracle.report(violation);
        pending::<()>().await;
    }
}

impl Snapshot {
    /// Returns all objects of a kind.
    pub fn all<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let kind = kind.to_owned();
        self.objects.iter().filter(move |object| object["kind"].as_str() == Some(&*kind))
    }

    /// Returns the number of objects of a kind.
    pub fn count(&self, kind: &str) -> usize {
        self.all(kind).count()
    }

    /// Returns the object of that kind and name in any namespace, or `None` if it does not exist.
    ///
    /// # Panics
    /// Panics if the object cannot be decoded.
    pub fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let kind = K::kind(&());
        let is_named = |object: &&Value| object["metadata"]["name"].as_str() == Some(name);
        let object = self.all(&kind).filter(is_named).find(|object| group_of(object) == K::group(&()))?;
        let decoded = K::deserialize(object);
        Some(decoded.unwrap_or_else(|error| panic!("{kind} {name:?} cannot be decoded: {error}")))
    }

    /// Returns all objects.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Returns the state in a form that can be compared with other runs.
    pub fn state(&self) -> ClusterState {
        ClusterState::from_objects(&self.objects)
    }
}

/// Returns the API group of an object; empty for the core group.
fn group_of(object: &Value) -> &str {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns `a`, `b`, ..., then `r26` and so on after `z`.
pub(crate) fn replica_name(replica: usize) -> String {
    u8::try_from(replica)
        .ok()
        .filter(|it| *it < 26)
        .map_or_else(|| format!("r{replica}"), |it| char::from(b'a' + it).to_string())
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("processes", &self.world.processes()).finish_non_exhaustive()
    }
}
