//! One controller whose reconciles run one at a time, when a test requests them.
//!
//! Guarantees:
//! - The controller runs in a [`Manager`] with its informers, writers and rules, on an in-process API server. Only the
//!   test starts reconciles.
//! - When a reconcile begins, the caches contain all objects of the server.
//! - The clock is virtual. It advances only while every task waits and a method of [`Bench`] runs.
//!
//! Faults, several controllers and retries are not supported: use a [`Simulation`](crate::Simulation).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, FutureExt as _, ready, select};
use http::{Method, Request, Response, header};
use kube::client::Body;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;
use tower::Service;
use windlass_api_server::ApiServer;
use windlass_api_server::faults::Server as _;
use windlass_controller::host::{InProcessWebhooks, ReconcileLayer};
use windlass_controller::{
    ApiScope, BoxError, Controller, Outcome, ReconcileError, Registration, Trigger, WebhookConfig, terminal,
};
use windlass_env::{Env, Task, catch_panic};
use windlass_events::{CapturedEvent, NewEvent};
use windlass_manager::{
    ControllerSelection, Explainer, Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger,
};
use windlass_metrics::Metrics;
use windlass_object::ObjectKey;
use windlass_object::request::ResourcePath;

use crate::local::{
    api, client_of, create, install_configurations, install_definitions, manifests, over, server,
    webhook_address, webhook_handler, webhooks_in_process,
};
use crate::permissions::undeclared;

/// User of the controller's requests, and name of the trigger.
const BENCH: &str = "bench";

/// Smallest step of tokio's clock. It passes when every task waits; by then every event has reached its cache.
const STEP: Duration = Duration::from_millis(1);

/// Timeout of a requested reconcile and of the caches before it.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A controller in a manager on an in-process API server. Its reconciles run one at a time, when the test requests
/// them, on caches that contain all objects of the server. Dropping the bench stops the controller.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use serde_json::json;
/// # use windlass_controller::{Context, Controller, Outcome, ReconcileError, Setup, SetupError, Writer};
/// # use windlass_informer::Lister;
/// # use windlass_object::ObjectKey;
/// # use windlass_testing::{Bench, object};
/// /// Removes the data of ConfigMaps.
/// struct Cleaner {
///     maps: Lister<ConfigMap>,
///     writer: Writer<ConfigMap>,
/// }
///
/// impl Controller for Cleaner {
///     const NAME: &'static str = "cleaner";
///     type Config = ();
///
///     fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
///         let maps = setup.primary::<ConfigMap>().lister();
///         Ok(Self { maps, writer: setup.writer::<ConfigMap>().patch().build() })
///     }
///
///     async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
///         if let Some(map) = self.maps.get(key)? {
///             self.writer.patch(cx, &map, |map: &mut ConfigMap| map.data = None).await?;
///         }
///         Ok(Outcome::Done)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut bench = Bench::new::<Cleaner>(()).await;
/// let map = json!({ "metadata": { "name": "web" }, "data": { "a": "1" } });
/// bench.create(&object::<ConfigMap>(map)).await;
/// let key = ObjectKey::namespaced("default", "web");
/// assert_eq!(bench.reconcile(&key).await.requests.len(), 1);
/// assert!(bench.reconcile(&key).await.requests.is_empty());
/// # }
/// ```
pub struct Bench {
    env: Env,
    client: Client,
    wire: Wire,
    gate: Arc<Gate>,
    trigger: Trigger,
    metrics: Metrics,
    explainer: Explainer,
    manager: Task<Result<(), ManagerError>>,
    /// Stops the manager when it fires.
    _stop: ShutdownTrigger,
    controller: &'static str,
    /// Versions of the events that were reported.
    events: BTreeMap<ObjectKey, String>,
}

/// Result of one reconcile.
#[derive(Debug)]
pub struct ReconcileReport {
    /// Outcome that the reconcile returned. Also an error if the controller sent a request that its setup does not
    /// declare and ignored the error.
    pub result: Result<Outcome, ReconcileError>,
    /// Requests of the reconcile in the order of sending, without those of informers and without events.
    pub requests: Vec<SentRequest>,
    /// New and repeated events after the reconcile, as the recorder aggregated them: the recorder merges events from
    /// the tenth note of one reason about one object, and allows a burst of 25 per object.
    pub events: Vec<CapturedEvent>,
}

/// A request that a controller sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SentRequest {
    /// HTTP method.
    pub method: Method,
    /// URL path.
    pub path: String,
    /// Query without the question mark.
    pub query: String,
    /// Request body; null if there is none.
    pub body: Value,
}

impl Bench {
    /// Returns a bench for the controller `C` with webhooks of the same program: the server calls them for each write,
    /// as a cluster with their configurations does.
    ///
    /// # Panics
    /// See [`new`](Self::new).
    pub async fn with_webhooks<C: Controller>(config: C::Config, webhooks: impl Into<Registration>) -> Bench {
        Self::run(Registration::controller_with::<C>(config), Some(webhooks.into())).await
    }

    /// Returns a bench for the controller `C`. The server has the CRDs that its setup declares
    /// ([`Setup::crd`](windlass_controller::Setup::crd)).
    ///
    /// # Panics
    /// Panics if the setup fails, and outside a tokio runtime with a paused clock (`#[tokio::test(start_paused =
    /// true)]`).
    pub async fn new<C: Controller>(config: C::Config) -> Bench {
        let registration = Registration::controller_with::<C>(config);
        Self::run(registration, None).await
    }

    async fn run(registration: Registration, webhooks: Option<Registration>) -> Bench {
        assert_paused();
        let (world, controller) = (Env::virtual_time(1), registration.descriptor());
        let (server, env) = (server(&world.with_incarnation("server", 0)), world.with_incarnation(BENCH, 0));
        let client = client_of(&server);
        let (served, connection) = webhooks_in_process(BENCH);
        let config = ManagerConfig {
            election: None,
            controllers: ControllerSelection::parse([controller.name]),
            webhooks: Some(served.clone()),
            ..ManagerConfig::new(BENCH)
        };
        let all: Vec<_> = [Some(registration.clone()), webhooks.clone()].into_iter().flatten().collect();
        let manifests = manifests(&config, &all);
        install_definitions(&client, &manifests).await;
        let gate = Arc::new(Gate::default());
        let layer = Arc::clone(&gate);
        let registration = registration
            .with_settings(|setup| drop(setup.trigger(BENCH, 1)))
            .with_layer(move |_| Arc::clone(&layer) as _);
        let wire = Wire::new(server.as_user(BENCH), controller.client_name);
        let manager = Manager::with_clients(env.clone(), config, over(wire.clone()));
        let manager = manager.unwrap_or_else(|error| panic!("{error}")).register(registration);
        let has_webhooks = webhooks.is_some();
        let manager = webhooks.into_iter().fold(manager, Manager::register);
        let (stop, signals) = ShutdownSignals::manual();
        let bench = Bench {
            client,
            wire,
            gate,
            trigger: manager.trigger(controller.name, BENCH),
            metrics: manager.metrics().clone(),
            explainer: manager.explainer().clone(),
            manager: env.spawn("manager", manager.run(signals)),
            _stop: stop,
            controller: controller.name,
            events: BTreeMap::new(),
            env,
        };
        if has_webhooks {
            serve_webhooks(&bench.env, &server, &served, connection).await;
            install_configurations(&bench.client, &manifests).await;
        }
        bench
    }

    /// Reconciles `key` once, on caches that contain all objects of the server.
    ///
    /// # Panics
    /// Panics with the reconcile's message if the reconcile panics, and with the reason if `key` is not reconciled
    /// within ten minutes of virtual time.
    pub async fn reconcile(&mut self, key: &ObjectKey) -> ReconcileReport {
        self.env.sleep(STEP).await;
        let before = undeclared(&self.metrics);
        self.wire.take();
        let result = self.gate.request(key);
        self.trigger.try_send(key.clone()).unwrap_or_else(|error| panic!("{error}"));
        let ended = self.env.timeout(TIMEOUT, select(result, &mut self.manager)).await;
        let result = match ended {
            Ok(Either::Left((Ok(Ok(result)), _))) => result,
            Ok(Either::Left((Ok(Err(message)), _))) => panic!("the reconcile of {key} panicked: {message}"),
            Ok(Either::Left((Err(_), _))) => {
                panic!("the reconcile of {key} was dropped: {}", self.explained(key))
            }
            Ok(Either::Right((end, _))) => panic!("the controller stopped: {end:?}"),
            Err(_) => panic!("{key} was not reconciled: {}", self.explained(key)),
        };
        // The tasks of the reconcile complete, and its events reach the server.
        self.env.sleep(STEP).await;
        let rejected = undeclared(&self.metrics).filter(|now| Some(now) != before.as_ref());
        let result = match (result, rejected) {
            (Ok(_), Some(requests)) => Err(terminal(format!("requests are not declared: {requests}"))),
            (result, _) => result,
        };
        ReconcileReport { result, requests: self.wire.take(), events: self.new_events() }
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

    /// Returns a client for the objects of `K`, in the namespace `default` if `K` is namespaced.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope: ApiScope>,
    {
        api(self.client.clone())
    }

    /// Returns the clock of the controller.
    pub fn env(&self) -> &Env {
        &self.env
    }

    fn explained(&self, key: &ObjectKey) -> String {
        let explained = self.explainer.explain(self.controller, key);
        explained.map_or_else(|error| error.to_string(), |explanation| explanation.to_string())
    }

    /// Returns the events that are new or repeated since the previous call, in the order of their versions.
    fn new_events(&mut self) -> Vec<CapturedEvent> {
        let mut found = Vec::new();
        for event in self.wire.server.objects().into_iter().filter(|object| object["kind"] == "Event") {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = &event["metadata"];
            let key = ObjectKey::new(metadata["namespace"].as_str(), &text(&metadata["name"]));
            let version = text(&metadata["resourceVersion"]);
            if self.events.insert(key, version.clone()).as_ref() != Some(&version) {
                found.push((version.parse::<u64>().unwrap_or_default(), recorded(&event)));
            }
        }
        found.sort_by_key(|(version, _)| *version);
        found.into_iter().map(|(_, event)| event).collect()
    }
}

/// Connects the webhooks of a manager to the server, and waits until the manager serves them.
///
/// # Panics
/// Panics if the manager does not serve them within ten minutes of virtual time.
pub(crate) async fn serve_webhooks(
    env: &Env,
    server: &ApiServer,
    config: &WebhookConfig,
    connection: InProcessWebhooks,
) {
    let serving = connection.clone();
    let handler = webhook_handler(&config.service, move || {
        let handler = serving.handler()?;
        Some(Arc::new(move |request| handler(request).map(Ok).boxed()))
    });
    server.serve_webhooks(&webhook_address(config), Some(handler));
    let ready = async {
        while connection.handler().is_none() {
            env.sleep(STEP).await;
        }
    };
    let ready = env.timeout(TIMEOUT, ready).await;
    assert!(ready.is_ok(), "the webhooks are not served; see the log for the reason");
}

/// Decodes an event of either API group.
fn recorded(event: &Value) -> CapturedEvent {
    let field = |names: [&str; 2]| names.map(|name| &event[name]).into_iter().find(|it| !it.is_null());
    let text = |names| field(names).and_then(Value::as_str).unwrap_or_default();
    let regarding = field(["regarding", "involvedObject"]).cloned().unwrap_or_default();
    let (reason, note) = (text(["reason", "reason"]), text(["note", "message"]));
    let mut recorded = match text(["type", "type"]) {
        "Warning" => NewEvent::warning(reason, note),
        _ => NewEvent::normal(reason, note),
    };
    recorded.action = event["action"].as_str().filter(|it| !it.is_empty()).map(str::to_owned);
    recorded.related = serde_json::from_value(event["related"].clone()).ok();
    let annotations = event["metadata"]["annotations"].clone();
    recorded.annotations = serde_json::from_value(annotations).unwrap_or_default();
    CapturedEvent { regarding: serde_json::from_value(regarding).unwrap_or_default(), event: recorded }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.env.kill();
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl fmt::Display for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// Checks that the clock of the runtime is paused, so that time passes only while every task waits.
pub(crate) fn assert_paused() {
    let env = Env::virtual_time(0);
    let now = env.now();
    // A running clock has a resolution of nanoseconds.
    let is_paused = (0..1_000).all(|_| env.now() == now);
    assert!(is_paused, "a bench needs a paused clock; use #[tokio::test(start_paused = true)]");
}

/// Admits a reconcile only if the test requested it. Keys of changed objects are also queued; they complete
/// immediately.
#[derive(Default)]
struct Gate(Mutex<Option<Requested>>);

struct Requested {
    key: ObjectKey,
    answer: oneshot::Sender<Result<Result<Outcome, ReconcileError>, String>>,
}

impl Gate {
    fn request(&self, key: &ObjectKey) -> oneshot::Receiver<Result<Result<Outcome, ReconcileError>, String>> {
        let (answer, result) = oneshot::channel();
        *self.lock() = Some(Requested { key: key.clone(), answer });
        result
    }

    fn lock(&self) -> MutexGuard<'_, Option<Requested>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReconcileLayer for Gate {
    fn around<'a>(
        &'a self,
        key: &'a ObjectKey,
        reconcile: BoxFuture<'a, Result<Outcome, ReconcileError>>,
    ) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        let Some(Requested { answer, .. }) = self.lock().take_if(|requested| requested.key == *key) else {
            return ready(Ok(Outcome::Done)).boxed();
        };
        async move {
            // The bench might have been dropped.
            let _unheard = answer.send(catch_panic(reconcile).await);
            Ok(Outcome::Done)
        }
        .boxed()
    }
}

/// Connection of the controller to the server. Records the requests of one identity.
#[derive(Clone)]
struct Wire {
    server: ApiServer,
    identity: &'static str,
    sent: Arc<Mutex<Vec<SentRequest>>>,
}

impl Wire {
    fn new(server: ApiServer, identity: &'static str) -> Self {
        Self { server, identity, sent: Arc::default() }
    }

    fn take(&self) -> Vec<SentRequest> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns whether the controller itself sent the request, not an informer or its event recorder.
    fn is_recorded<B>(&self, request: &Request<B>) -> bool {
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let sender = agent.and_then(|agent| agent.rsplit('/').next());
        let resource = ResourcePath::parse(request.uri().path()).map(|path| path.resource);
        sender == Some(self.identity) && resource.as_deref() != Some("events")
    }

    fn record(&self, request: &Request<Body>, body: &[u8]) {
        let sent = SentRequest {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
        };
        self.lock().push(sent);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SentRequest>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Response<windlass_api_server::body::Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut wire = self.clone();
        async move {
            let is_recorded = wire.is_recorded(&request);
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let request = Request::from_parts(parts, Body::from(body.clone()));
            if is_recorded {
                wire.record(&request, &body);
            }
            let Ok(answer) = wire.server.call(request).await;
            Ok(answer)
        }
        .boxed()
    }
}
