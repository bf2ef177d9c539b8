//! Fixture: an API server, a link with faults, and the clients and caches of a process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_util::future::{self, BoxFuture, FutureExt as _, join_all};
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tower::Service;
use windlass::client::ClientOptions;
use windlass::controller::Descriptor;
use windlass::env::Instant;
use windlass::events::Recorder;
use windlass::metrics::Metrics;
use windlass::prelude::*;
use windlass::testing::api_server::body::Body;
use windlass::testing::api_server::faults::{FaultyServer, Link, LinkError, RequestSummary};
use windlass::testing::{Fault, FaultAction, FaultPlan};
use windlass_client::{Clients, OpenFence, RawClient};
use windlass_controller::host::{ControllerDeps, Host, Workers};
use windlass_informer::{ApiServerSources, FactoryOptions, InformerFactory, SourceProvider};

/// A cluster and the clients and caches of one process. Clones share them.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) api: FaultyServer,
    pub(crate) metrics: Metrics,
    clients: Clients,
    rights: Rights,
    factory: InformerFactory,
}

/// Resources that no client is allowed to read.
#[derive(Clone, Default)]
struct Rights(Arc<Mutex<BTreeSet<&'static str>>>);

/// A link to the server that enforces [`Rights`].
#[derive(Clone)]
struct AuthorizedLink {
    line: Link,
    rights: Rights,
}

/// The reconcile function of a [`controller`].
pub(crate) type Act =
    Arc<dyn Fn(ObjectKey, Context) -> BoxFuture<'static, Result<Outcome, ReconcileError>> + Send + Sync>;

/// Entries with their times, such as the keys of reconciles.
#[derive(Clone, Default)]
pub(crate) struct ReconcileLog(Arc<Mutex<Vec<(Instant, String)>>>);

struct Acting(Act);

/// The result of starting a controller, or `None` while it starts.
#[derive(Clone, Default)]
pub(crate) struct Started(Arc<Mutex<Option<Result<Workers, SetupError>>>>);

impl World {
    /// Creates a world without faults.
    pub(crate) fn new() -> Self {
        Self::with_faults(Vec::new())
    }

    /// Creates a world with faults.
    pub(crate) fn with_faults(faults: Vec<Fault>) -> Self {
        Self::of(Env::virtual_time(11), faults)
    }

    /// Creates another cluster for the same process.
    pub(crate) fn second_process(&self) -> Self {
        Self::of(self.env.with_incarnation("elsewhere", 0), Vec::new())
    }

    fn of(env: Env, faults: Vec<Fault>) -> Self {
        let api = FaultyServer::new(&env, FaultPlan { seed: 11, faults });
        api.upsert("/api/v1/namespaces/shop", json!({}));
        let (metrics, rights) = (Metrics::new(), Rights::default());
        let options = ClientOptions::default();
        let wire = AuthorizedLink { line: api.link(), rights: rights.clone() };
        let uri = http::Uri::from_static("http://api");
        let clients = Clients::from_service(env.clone(), wire, uri, options, &metrics, Arc::new(OpenFence));
        let clients = clients.expect("clients");
        let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
        Self { env, api, metrics, clients, rights, factory }
    }

    /// Returns this world with a new factory for the caches of its controllers.
    pub(crate) fn with(self, options: FactoryOptions) -> Self {
        let factory = InformerFactory::new(self.env.clone(), self.metrics.clone(), options);
        Self { factory, ..self }
    }

    /// Denies or allows reads of a resource for all clients.
    pub(crate) fn forbid(&self, resource: &'static str, forbidden: bool) {
        let mut rights = self.rights.lock();
        if forbidden {
            rights.insert(resource)
        } else {
            rights.remove(resource)
        };
    }

    /// Creates or changes a ConfigMap in the namespace `shop`.
    pub(crate) fn put(&self, name: &str) {
        let now = format!("{:?}", self.env.now());
        self.api.upsert(&map(name), json!({ "metadata": { "annotations": { "put-at": now } } }));
    }

    /// Creates a factory without informers. Factories share no caches.
    pub(crate) fn factory(&self, name: &str) -> InformerFactory {
        let options = FactoryOptions { name: name.to_owned(), ..FactoryOptions::default() };
        InformerFactory::new(self.env.clone(), self.metrics.clone(), options)
    }

    /// Returns the API server as a source of informers.
    pub(crate) fn sources(&self) -> Arc<dyn SourceProvider> {
        Arc::new(ApiServerSources::new(self.reader()))
    }

    pub(crate) fn reader(&self) -> RawClient {
        self.clients.for_informers().expect("a reader")
    }

    /// Starts the informers of the factory and waits until they are synced.
    pub(crate) async fn sync(&self, factory: &InformerFactory) {
        factory.start(self.sources());
        factory.wait_for_sync(Some(Duration::from_secs(60))).await.expect("synced");
    }

    /// Runs these controllers on one set of caches, as a manager does.
    pub(crate) async fn run(&self, registrations: impl IntoIterator<Item = Registration>) -> Vec<Workers> {
        let starts: Vec<_> = registrations.into_iter().map(|one| self.begin(one)).collect();
        join_all(starts).await.into_iter().map(|started| started.expect("started")).collect()
    }

    /// Creates a manager of this cluster, which takes part in the election there.
    pub(crate) fn manager(&self, env: Env, registration: Registration) -> Manager {
        let wire = self.api.link();
        let manager = Manager::with_clients(env, ManagerConfig::new("one"), |env, config, metrics, fence| {
            let uri = http::Uri::from_static("http://api");
            Clients::from_service(env.clone(), wire, uri, config.client.clone(), metrics, fence)
        });
        manager.expect("a manager").register(registration)
    }

    /// Sets up and starts a controller. The future completes when its caches are synced or the start fails.
    pub(crate) fn begin(
        &self,
        registration: Registration,
    ) -> impl Future<Output = Result<Workers, SetupError>> + Send + 'static {
        let host = Host::new(self.env.clone(), self.metrics.clone(), self.factory.clone());
        let prepared = registration.prepare(host);
        let prepared = prepared.expect("set up");
        self.factory.start(self.sources());
        let clients = self.clients.for_controller(prepared.descriptor().client_name).expect("clients");
        prepared.start(ControllerDeps { clients, reader: self.reader(), events: Recorder::discarding() })
    }

    /// Starts a controller like [`Self::begin`] in a separate task, for controllers that wait long for their caches.
    pub(crate) fn launch(&self, registration: Registration) -> Started {
        let name = format!("start of {}", registration.descriptor().name);
        let (started, begun) = (Started::default(), self.begin(registration));
        let outcome = started.clone();
        drop(self.env.spawn(name, begun.map(move |ended| *outcome.lock() = Some(ended))));
        started
    }

    /// Injects a fault into the first `count` requests that match.
    pub(crate) fn inject_into_first(
        &self,
        mut count: u32,
        which: fn(&RequestSummary) -> bool,
        action: FaultAction,
    ) {
        self.api.inject_fault(move |request| {
            let hit = count > 0 && which(request);
            count -= u32::from(hit);
            hit.then(|| action.clone())
        });
    }

    /// Advances the time by seconds.
    pub(crate) async fn pass(&self, seconds: u64) {
        self.env.sleep(Duration::from_secs(seconds)).await;
    }

    /// Returns the URIs of the matching requests that were sent for a resource.
    pub(crate) fn sent_uris(&self, resource: &str, which: impl Fn(&RequestSummary) -> bool) -> Vec<String> {
        let sent = self.api.sent_requests();
        let of_resource = sent.iter().filter(|request| request.resource == resource && which(request));
        of_resource.map(|request| request.uri.clone()).collect()
    }

    /// Returns the write requests of controllers, in order.
    pub(crate) fn written(&self) -> Vec<String> {
        self.api
            .sent_requests()
            .iter()
            .filter(|request| request.is_work())
            .map(|request| request.line())
            .collect()
    }
}

impl Started {
    pub(crate) fn works(&self) -> bool {
        matches!(*self.lock(), Some(Ok(_)))
    }

    /// Returns the error if the start failed.
    pub(crate) fn error(&self) -> Option<String> {
        self.lock().as_ref().and_then(|ended| ended.as_ref().err()).map(ToString::to_string)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<Workers, SetupError>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rights {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the resource of a path if reads of it are denied.
    fn withheld(&self, path: &str) -> Option<&'static str> {
        self.lock().iter().copied().find(|resource| path.split('/').any(|part| part == *resource))
    }
}

impl Service<Request<kube::client::Body>> for AuthorizedLink {
    type Response = Response<Body>;
    type Error = LinkError;
    type Future = BoxFuture<'static, Result<Response<Body>, LinkError>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), LinkError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Some(resource) = self.rights.withheld(request.uri().path()) else {
            return self.line.call(request);
        };
        let verb = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            "watch"
        } else {
            "list"
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": format!("{resource} is forbidden: User \"test\" cannot {verb} resource \"{resource}\""),
            "details": { "kind": resource },
        });
        let mut response = Response::new(Body::from_bytes(status.to_string()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        future::ready(Ok(response)).boxed()
    }
}

impl ReconcileLog {
    pub(crate) fn note(&self, at: Instant, what: &str) {
        self.entries().push((at, what.to_owned()));
    }

    pub(crate) fn times(&self, of: &str) -> Vec<Duration> {
        self.entries().iter().filter(|(_, what)| what == of).map(|(at, _)| at.since_origin()).collect()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.entries().iter().map(|(_, what)| what.clone()).collect()
    }

    pub(crate) fn clear(&self) {
        self.entries().clear();
    }

    fn entries(&self) -> MutexGuard<'_, Vec<(Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for Acting {
    const NAME: &'static str = "acting";
    type Config = Box<dyn Fn(&mut Setup) -> Act + Send + Sync>;

    fn setup(setup: &mut Setup, set_up: &Self::Config) -> Result<Self, SetupError> {
        Ok(Self(set_up(setup)))
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        (self.0)(key.clone(), cx.clone()).await
    }
}

/// Returns a controller with this name, whose setup returns the reconcile function.
pub(crate) fn controller(
    name: &'static str,
    set_up: impl Fn(&mut Setup) -> Act + Send + Sync + 'static,
) -> Registration {
    Registration::controller_with::<Acting>(Box::new(set_up)).with_descriptor(Descriptor::new(name))
}

/// Converts a closure to a reconcile function.
pub(crate) fn act<F, W>(act: F) -> Act
where
    F: Fn(ObjectKey, Context) -> W + Send + Sync + 'static,
    W: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
{
    Arc::new(move |key, cx| Box::pin(act(key, cx)))
}

/// Returns a reconcile function that only records its key.
pub(crate) fn noting(log: &ReconcileLog) -> Act {
    let log = log.clone();
    act(move |key, cx| {
        log.note(cx.env().now(), key.name());
        async { Ok(Outcome::Done) }
    })
}

/// Returns the path of a ConfigMap in the namespace `shop`.
pub(crate) fn map(name: &str) -> String {
    format!("/api/v1/namespaces/shop/configmaps/{name}")
}

/// Returns the string at a JSON pointer, or an empty string.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
