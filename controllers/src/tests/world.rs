//! A world with an API server and one controller in it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_client::{ClientOptions, Clients, Fence, OpenFence};
use windlass_controller::{Registration, Resources, Workers};
use windlass_env::Env;
use windlass_events::{Log, Recorder};
use windlass_informer::{ApiSources, FactoryOptions, InformerFactory};
use windlass_metrics::Metrics;

use super::api::Api;
use crate::{Options, registrations};

pub(super) const PODS: &str = "/api/v1/pods";

pub(super) struct World {
    pub(super) env: Env,
    pub(super) api: Api,
    pub(super) metrics: Metrics,
    /// What every write has to pass. Open unless a test closes it.
    pub(super) fence: Arc<dyn Fence>,
    events: Option<Log>,
    workers: Option<Workers>,
}

/// The path of an object in namespace `shop`, by group, plural and name.
pub(super) fn path(group: &str, plural: &str, name: &str) -> String {
    format!("/{group}/namespaces/shop/{plural}/{name}")
}

pub(super) fn pod_path(name: &str) -> String {
    path("api/v1", "pods", name)
}

impl World {
    pub(super) fn new() -> Self {
        let env = Env::virtual_time(11);
        let api = Api::new(env.clone());
        Self { env, api, metrics: Metrics::new(), fence: Arc::new(OpenFence), events: None, workers: None }
    }

    /// Starts the controller of that name.
    pub(super) async fn start(&mut self, name: &str, options: &Options) {
        let registration = registrations(options).into_iter().find(|it| it.descriptor().name == name);
        let prepared = self.prepare(&registration.expect("a controller of that name")).await;
        self.workers = Some(prepared);
    }

    async fn prepare(&mut self, registration: &Registration) -> Workers {
        let (env, metrics) = (self.env.clone(), self.metrics.clone());
        let options = ClientOptions { qps: 0.0, ..ClientOptions::default() };
        let uri = http::Uri::from_static("http://api");
        let fence = Arc::clone(&self.fence);
        let clients = Clients::over_service(env.clone(), self.api.clone(), uri, options, &metrics, fence);
        let clients = clients.expect("clients");
        let reader = clients.for_informers().expect("a reader");
        let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
        let prepared = registration.prepare(env.clone(), metrics, factory.clone()).expect("set up");
        factory.start(Arc::new(ApiSources::new(reader.clone())));
        factory.wait_for_sync(Some(Duration::from_secs(10))).await.expect("synced");
        let (events, log) = Recorder::capturing();
        self.events = Some(log);
        let clients = clients.for_controller(registration.descriptor().client_name).expect("clients");
        prepared.start(Resources { env, clients, reader, events }).await.expect("started")
    }

    /// Lets time pass.
    pub(super) async fn pass(&self, seconds: u64) {
        self.env.sleep(Duration::from_secs(seconds)).await;
    }

    /// The events recorded since this was last asked: reason and note, in order.
    pub(super) fn events(&self) -> Vec<(String, String)> {
        let log = self.events.as_ref().expect("a controller runs");
        log.take().into_iter().map(|event| (event.reason, event.note)).collect()
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

    /// Makes a pod run, ready or not, since now.
    pub(super) fn run_pod(&self, name: &str, ready: bool) {
        let since = self.env.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({ "type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": since });
        let status = json!({ "phase": "Running", "conditions": [condition] });
        self.api.put(&pod_path(name), json!({ "spec": { "nodeName": "node" }, "status": status }));
    }
}
