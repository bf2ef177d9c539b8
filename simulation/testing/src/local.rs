//! An API server and clients for one test without a simulation: real requests, no faults, no oracles.
//!
//! Guarantees: a [`client`] works in any tokio runtime, needs no TLS provider and no port, and shares no state with
//! other tests.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{self, Either, FutureExt as _};
use http::{Request, Response, Uri};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::Service;
use windlass_api_server::body::Body;
use windlass_api_server::{ApiServer, ApiServerOptions, WebhookHandler};
use windlass_client::{ClientError, Clients, Fence, one_line};
use windlass_controller::host::InProcessWebhooks;
use windlass_controller::{ApiScope, BoxError, Registration, WebhookConfig};
use windlass_env::{Env, TaskError};
use windlass_manager::{
    Manager, ManagerConfig, ManagerError, ManifestOptions, Manifests, Registry, ShutdownSignals,
};
use windlass_metrics::Metrics;

use crate::permissions::undeclared;

/// Returns a client of a new API server in real time.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn client() -> kube::Client {
    client_of(&server(&Env::system("test")))
}

/// Returns a new API server in the world of `env`: in real time with [`Env::system`], or under tokio's paused clock
/// with [`Env::virtual_time`], where a seed determines generated names, UIDs and times.
///
/// # Panics
/// Panics if this `env` already has a server.
pub fn server(env: &Env) -> ApiServer {
    ApiServer::new(env, ApiServerOptions::default())
}

/// Returns a client of this server in the namespace `default`. `server.as_user("name")` makes it a client of that user.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn client_of(server: &ApiServer) -> kube::Client {
    kube::Client::new(server.clone(), "default")
}

/// Creates an object from JSON. `apiVersion`, `kind` and the namespace are optional; the namespace defaults to
/// `default`.
///
/// # Panics
/// Panics if the JSON is not a valid `K`.
pub fn object<K>(mut manifest: Value) -> K
where
    K: kube::Resource<DynamicType = (), Scope: windlass_object::Scoped> + DeserializeOwned,
{
    if <K::Scope as windlass_object::Scoped>::SCOPE == windlass_object::Scope::Namespaced {
        let namespace = &mut manifest["metadata"]["namespace"];
        if namespace.is_null() {
            *namespace = json!("default");
        }
    }
    serde_json::from_value(manifest).unwrap_or_else(|error| panic!("not a valid {}: {error}", K::kind(&())))
}

/// Returns the client for the objects of `K`, in the client's namespace if `K` is namespaced.
pub(crate) fn api<K>(client: Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope: ApiScope>,
{
    let namespace = client.default_namespace().to_owned();
    K::Scope::api(client, &namespace)
}

/// Creates an object in the namespace that it names.
///
/// # Panics
/// Panics if the server rejects the object.
pub(crate) async fn create<K>(client: &Client, object: &K) -> K
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let path = K::url_path(&(), object.meta().namespace.as_deref());
    let created = async {
        let bytes = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = kube::core::Request::new(path).create(&PostParams::default(), bytes);
        client.request(request.map_err(kube::Error::BuildRequest)?).await
    };
    created.await.unwrap_or_else(|error| {
        let kind = K::kind(&());
        let remedy = match &error {
            kube::Error::Api(status) if status.code == 404 && status.details.is_none() => {
                format!("; the server does not serve {kind}: create its CRD, or declare it with setup.crd::<{kind}>()")
            }
            _ => String::new(),
        };
        panic!("{kind} {name:?} cannot be created: {}{remedy}", one_line(&error))
    })
}

/// Connects a manager to an in-process server.
pub(crate) fn over<S>(
    service: S,
) -> impl FnOnce(&Env, &ManagerConfig, &Metrics, Arc<dyn Fence>) -> Result<Clients, ClientError>
where
    S: Service<Request<kube::client::Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    move |env, config, metrics, fence| {
        let uri = Uri::from_static("http://kubernetes.default.svc");
        Clients::from_service(env.clone(), service, uri, config.client_options(), metrics, fence)
    }
}

/// Returns the configuration of webhooks that are served without a socket, and their connection.
pub(crate) fn webhooks_in_process(name: &str) -> (WebhookConfig, InProcessWebhooks) {
    let connection = InProcessWebhooks::default();
    let mut config = WebhookConfig::of_process(name);
    config.in_process = Some(connection.clone());
    (config, connection)
}

/// Namespace of a process and its webhooks.
const NAMESPACE: &str = "default";

/// Creates the CRDs of these registrations, with their conversions.
///
/// # Panics
/// Panics if a setup fails, or if the server rejects an object.
pub(crate) async fn install_definitions(client: &Client, manifests: &Manifests) {
    for definition in &manifests.crds {
        create(client, definition).await;
    }
}

/// Creates the configurations of admission webhooks.
///
/// # Panics
/// Panics if the server rejects a configuration.
pub(crate) async fn install_configurations(client: &Client, manifests: &Manifests) {
    if let Some(mutating) = &manifests.mutating {
        create(client, mutating).await;
    }
    if let Some(validating) = &manifests.validating {
        create(client, validating).await;
    }
}

/// Returns the manifests of a process of these registrations.
///
/// # Panics
/// Panics if a setup fails.
pub(crate) fn manifests(config: &ManagerConfig, registrations: &[Registration]) -> Manifests {
    let mut registry = Registry::new();
    for registration in registrations {
        registry.register(registration.clone()).unwrap_or_else(|error| panic!("{error}"));
    }
    let manifests = Manifests::of(&registry, config, &ManifestOptions::new(NAMESPACE));
    manifests.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the address at which the server calls the webhooks of a process.
pub(crate) fn webhook_address(config: &WebhookConfig) -> String {
    format!("{}.{NAMESPACE}.svc:443", config.service)
}

/// Returns a handler that calls the webhooks of one of these processes.
pub(crate) fn webhook_handler(
    service: &str,
    serving: impl Fn() -> Option<WebhookHandler> + Send + Sync + 'static,
) -> WebhookHandler {
    let unavailable = format!("no endpoints available for service {service:?}");
    Arc::new(move |request| match serving() {
        Some(handler) => handler(request),
        None => future::ready(Err(unavailable.clone())).boxed(),
    })
}

/// Runs controllers on this server as `user` while `script` runs, then stops them gracefully.
///
/// There are no faults, no election and no rate limit; [`Simulation`](crate::Simulation) has all three.
///
/// # Errors
/// Returns an error if the setup of a controller fails, which ends the script, or if the controllers do not stop
/// gracefully.
///
/// # Panics
/// Panics if a controller sent a request that its setup does not declare; the client rejected it, and a real cluster
/// would deny it. Panics if `env` has run controllers as this user before, because both would generate the same random
/// numbers. Panics if the setup of a controller panics, with its message.
pub async fn with_controllers<T>(
    env: &Env,
    server: &ApiServer,
    user: &str,
    registrations: impl IntoIterator<Item = Registration>,
    script: impl Future<Output = T>,
) -> Result<T, ManagerError> {
    let env = env.with_incarnation(user, 0);
    let served = server.as_user(user);
    let (webhooks, _) = webhooks_in_process(user);
    let config = ManagerConfig { election: None, webhooks: Some(webhooks), ..ManagerConfig::new(user) };
    let manager = Manager::with_clients(env.clone(), config, over(served))?;
    let manager = registrations.into_iter().fold(manager, Manager::register);
    let metrics = manager.metrics().clone();
    let (trigger, signals) = ShutdownSignals::manual();
    let running = env.spawn("manager", manager.run(signals));
    let ended = |end: Result<Result<(), ManagerError>, TaskError>| {
        end.unwrap_or_else(|error| panic!("the controllers of {user:?} stopped unexpectedly: {error}"))
    };
    match future::select(pin!(script), running).await {
        Either::Left((outcome, running)) => {
            trigger.fire();
            ended(running.await)?;
            if let Some(requests) = undeclared(&metrics) {
                panic!(
                    "the controllers of {user:?} made undeclared requests: {requests}; declare them in the setup"
                );
            }
            Ok(outcome)
        }
        // Without controllers, the condition that the script waits for might never hold.
        Either::Right((end, script)) => {
            ended(end)?;
            Ok(script.await)
        }
    }
}
