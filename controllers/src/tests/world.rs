//! A world with an API server and controllers.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_api_server::faults::{FaultAction, FaultPlan, FaultyServer};
use windlass_client::{ClientOptions, Clients, Fence, OpenFence};
use windlass_controller::Registration;
use windlass_controller::host::{ControllerDeps, Host, Workers};
use windlass_env::Env;
use windlass_events::{CapturedEvents, Recorder};
use windlass_informer::{ApiServerSources, FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;
use windlass_object::Verb;

use crate::{ControllerOptions, registrations};

pub(super) const PODS: &str = "/api/v1/pods";

pub(super) struct World {
    pub(super) env: Env,
    pub(super) api: FaultyServer,
    pub(super) metrics: Metrics,
    /// Fence of all writes. Open unless a test closes it.
    pub(super) fence: Arc<dyn Fence>,
    events: Vec<CapturedEvents>,
    workers: Vec<Workers>,
    restarts: u64,
    /// Number of inspected requests.
    seen: Cell<usize>,
}

/// Returns the path of an object in the namespace `shop`.
pub(super) fn path(group: &str, plural: &str, name: &str) -> String {
    format!("/{group}/namespaces/shop/{plural}/{name}")
}

pub(super) fn pod_path(name: &str) -> String {
    path("api/v1", "pods", name)
}

impl World {
    pub(super) fn new() -> Self {
        let env = Env::virtual_time(11);
        let api = FaultyServer::new(&env, FaultPlan::without_faults(11));
        api.upsert("/api/v1/namespaces/shop", json!({}));
        let (metrics, fence) = (Metrics::new(), Arc::new(OpenFence));
        let (events, workers) = (Vec::new(), Vec::new());
        Self { env, api, metrics, fence, events, workers, restarts: 0, seen: Cell::new(0) }
    }

    /// Starts the controller with this name, next to those that run.
    pub(super) async fn start(&mut self, name: &str, options: &ControllerOptions) {
        // Each controller has its own caches and clients, as in its own process.
        let env = match self.workers.len() {
            0 => self.env.clone(),
            others => self.env.with_incarnation(&format!("process-{others}"), 0),
        };
        self.start_in(env, name, options).await;
    }

    /// Stops the controller that was started last, and starts it in a new process.
    pub(super) async fn restart(&mut self, name: &str, options: &ControllerOptions) {
        let mut workers = self.workers.pop().expect("a controller runs");
        workers.stop();
        workers.ended().await;
        self.restarts += 1;
        self.start_in(self.env.with_incarnation("process", self.restarts), name, options).await;
    }

    async fn start_in(&mut self, env: Env, name: &str, options: &ControllerOptions) {
        let registration = registrations(options).into_iter().find(|it| it.descriptor().name == name);
        let prepared = self.prepare(env, &registration.expect("a controller of that name")).await;
        self.workers.push(prepared);
    }

    async fn prepare(&mut self, env: Env, registration: &Registration) -> Workers {
        let metrics = self.metrics.clone();
        let options = ClientOptions::default();
        let uri = http::Uri::from_static("http://api");
        let fence = Arc::clone(&self.fence);
        let clients = Clients::from_service(env.clone(), self.api.link(), uri, options, &metrics, fence);
        let clients = clients.expect("clients");
        let reader = clients.for_informers().expect("a reader");
        let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
        let prepared = registration.prepare(Host::new(env, metrics, factory.clone())).expect("set up");
        factory.start(Arc::new(ApiServerSources::new(reader.clone())));
        factory.wait_for_sync(Some(Duration::from_secs(10))).await.expect("synced");
        let (events, log) = Recorder::capturing();
        self.events.push(log);
        let clients = clients.for_controller(registration.descriptor().client_name).expect("clients");
        prepared.start(ControllerDeps { clients, reader, events }).await.expect("started")
    }

    /// Advances the clock.
    pub(super) async fn pass(&self, seconds: u64) {
        self.env.sleep(Duration::from_secs(seconds)).await;
    }

    /// Returns the reasons and messages of the events since the last call, in order for each controller.
    pub(super) fn events(&self) -> Vec<(String, String)> {
        self.events
            .iter()
            .flat_map(CapturedEvents::take)
            .map(|recorded| (recorded.event.reason, recorded.event.note))
            .collect()
    }

    pub(super) fn pods(&self) -> Vec<Value> {
        self.api.all(PODS)
    }

    pub(super) fn pod_names(&self) -> Vec<String> {
        self.pods()
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns the requests since the last call as `METHOD path`, except lists and watches.
    pub(super) fn requests(&self) -> Vec<String> {
        let sent = self.api.sent_requests();
        let new = sent.iter().skip(self.seen.replace(sent.len()));
        let counted = new.filter(|call| !matches!(call.verb, Some(Verb::List | Verb::Watch)));
        counted.map(|call| call.line()).collect()
    }

    /// Returns the value of a counter of the queue with this name, for example `retries`; 0 before its first change.
    pub(super) fn queue_count(&self, queue: &str, counter: &str) -> u64 {
        let exported = self.metrics.encode();
        let series = format!("workqueue_{counter}_total{{name=\"{queue}\"}}");
        let mut lines = exported.lines().filter_map(|line| line.strip_prefix(&series));
        lines.next().map_or(0, |count| count.trim().parse().expect("a number"))
    }

    /// Injects a fault into the next requests whose `METHOD path` starts with `request`.
    pub(super) fn refuse(&self, request: &str, mut times: usize, action: FaultAction) {
        let request = request.to_owned();
        self.api.inject_fault(move |call| {
            let hit = times > 0 && call.line().starts_with(&request);
            times -= usize::from(hit);
            hit.then(|| action.clone())
        });
    }

    /// Removes all faults, except from stalled watches.
    pub(super) fn relent(&self) {
        self.api.inject_fault(|_| None);
    }

    /// Delays all watch events by seven seconds.
    pub(super) fn lag(&self) {
        self.api.inject_fault(|_| Some(FaultAction::Coalesced { within_ms: 7000 }));
    }

    /// Stalls the watches of this resource.
    pub(super) fn hide(&self, resource: &'static str) {
        self.api.inject_fault(move |call| (call.resource == resource).then_some(FaultAction::WatchStalled));
    }

    /// Begins the deletion of the namespace `shop`; a finalizer keeps it.
    pub(super) async fn terminate_namespace(&self) {
        self.api.upsert("/api/v1/namespaces/shop", json!({ "spec": { "finalizers": ["kubernetes"] } }));
        self.pass(1).await;
        self.requests();
        self.api.remove("/api/v1/namespaces/shop");
        self.pass(1).await;
    }

    /// Makes a pod run on a node, ready or not, from now on.
    pub(super) fn run_pod(&self, name: &str, ready: bool) {
        self.run_pod_on(name, "node", ready);
    }

    /// Makes a pod run on the node with this name, ready or not, from now on.
    pub(super) fn run_pod_on(&self, name: &str, node: &str, ready: bool) {
        let since = self.env.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({ "type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": since });
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": node } });
        let (code, refusal) =
            self.api.request(&Method::POST, &format!("{}/binding", pod_path(name)), Some(&binding));
        assert_eq!(code, 201, "{refusal}");
        self.api
            .upsert(&pod_path(name), json!({ "status": { "phase": "Running", "conditions": [condition] } }));
    }

    /// Makes a pod undecodable.
    pub(super) fn spoil_pod(&self, name: &str) {
        self.api.overwrite_unchecked(&pod_path(name), |pod| pod["spec"]["containers"] = json!("not a list"));
    }
}

/// Returns the UID of an object.
pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("a UID")
}
