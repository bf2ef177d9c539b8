//! The webhooks of a program, called by an in-process API server.
//!
//! Guarantees:
//! - The webhooks run in a [`Manager`] with their caches, writers and rules. The server has the CRDs and configurations
//!   that `manifests` prints, and calls the webhooks for each write, as a cluster does.
//! - A review is a dry run of a write: its result is that of the write, and nothing is stored.
//! - When a review begins, the caches contain all objects of the server.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt as _;
use windlass_api_server::ApiServer;
use windlass_controller::{ApiScope, Registration};
use windlass_env::{Env, Task};
use windlass_manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};

use crate::bench::{assert_paused, serve_webhooks};
use crate::local::{
    api, client_of, create, install_configurations, install_definitions, manifests, over, server,
    webhooks_in_process,
};

/// User of the requests of webhooks.
const BENCH: &str = "bench";

/// Smallest step of tokio's clock. It passes when every task waits; by then every event has reached its cache.
const STEP: Duration = Duration::from_millis(1);

/// The webhooks of a program in a manager on an in-process API server that calls them. Dropping the bench stops them.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass_testing::{WebhookBench, object};
/// # use windlass_webhook::{FailurePolicy, Hook, Webhooks, deny};
/// # use serde_json::json;
/// const HOOK: Hook = Hook::new("maps.example.com").failure(FailurePolicy::Fail);
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let namespace = json!({ "metadata": { "name": "shop" } });
/// let webhooks = Webhooks::new().validates::<ConfigMap>(HOOK, |review| match review.name() {
///     "web" => Ok(()),
///     _ => Err(deny("use another name")),
/// });
/// let bench = WebhookBench::new(webhooks).await;
/// # bench.create(&object::<k8s_openapi::api::core::v1::Namespace>(namespace)).await;
/// let map = object::<ConfigMap>(json!({ "metadata": { "name": "mail", "namespace": "shop" } }));
/// let reviewed = bench.create_reviewed(&map).await;
/// let message = "admission webhook \"maps.example.com\" denied the request: use another name";
/// assert_eq!(reviewed.denied.as_deref(), Some(message));
/// # }
/// ```
pub struct WebhookBench {
    env: Env,
    client: Client,
    server: ApiServer,
    _manager: Task<Result<(), ManagerError>>,
    /// Stops the manager when it fires.
    _stop: ShutdownTrigger,
}

/// The result of a review.
#[derive(Clone, Debug, PartialEq)]
pub struct Reviewed<K> {
    /// Message of the denial, as a client receives it; `None` if the request is admitted.
    pub denied: Option<String>,
    /// Invalid fields of the denial.
    pub fields: Vec<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The object that the write would store; `None` for deletions and denied requests.
    pub object: Option<K>,
}

impl WebhookBench {
    /// Returns a bench for `Webhooks`, or for another registration that serves webhooks.
    ///
    /// # Panics
    /// Panics if the setup fails, if the server rejects the configurations, if the webhooks are not served, and outside
    /// a tokio runtime with a paused clock (`#[tokio::test(start_paused = true)]`).
    pub async fn new(webhooks: impl Into<Registration>) -> Self {
        assert_paused();
        let (registration, world) = (webhooks.into(), Env::virtual_time(1));
        let (server, env) = (server(&world.with_incarnation("server", 0)), world.with_incarnation(BENCH, 0));
        let (webhooks, connection) = webhooks_in_process(BENCH);
        let config =
            ManagerConfig { election: None, webhooks: Some(webhooks.clone()), ..ManagerConfig::new(BENCH) };
        let (manifests, client) =
            (manifests(&config, std::slice::from_ref(&registration)), client_of(&server));
        install_definitions(&client, &manifests).await;
        let manager = Manager::with_clients(env.clone(), config, over(server.as_user(BENCH)));
        let manager = manager.unwrap_or_else(|error| panic!("{error}")).register(registration);
        let (stop, signals) = ShutdownSignals::manual();
        let manager = env.spawn("manager", manager.run(signals));
        serve_webhooks(&env, &server, &webhooks, connection).await;
        install_configurations(&client, &manifests).await;
        Self { env, client, server, _manager: manager, _stop: stop }
    }

    /// Creates an object. The webhooks review it.
    ///
    /// # Panics
    /// Panics if the server or a webhook rejects the object.
    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        self.env.sleep(STEP).await;
        create(&self.client, object).await
    }

    /// Returns a client for the objects of `K`, in the namespace `default` if `K` is namespaced.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope: ApiScope>,
    {
        api(self.client.clone())
    }

    /// Returns the clock of the webhooks.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Reviews the creation of an object. The object is not created.
    ///
    /// # Panics
    /// Panics if a webhook fails; the message contains the reason.
    pub async fn create_reviewed<K>(&self, object: &K) -> Reviewed<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        self.review(Method::POST, collection(object), Some(object)).await
    }

    /// Reviews the update of an object of the server. The object is not updated.
    ///
    /// # Panics
    /// See [`create_reviewed`](Self::create_reviewed).
    pub async fn update_reviewed<K>(&self, object: &K) -> Reviewed<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let path = format!("{}/{}", collection(object), object.name_any());
        self.review(Method::PUT, path, Some(object)).await
    }

    /// Reviews the deletion of an object of the server. The object is not deleted.
    ///
    /// # Panics
    /// See [`create_reviewed`](Self::create_reviewed).
    pub async fn delete_reviewed<K>(&self, object: &K) -> Reviewed<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let path = format!("{}/{}", collection(object), object.name_any());
        self.review(Method::DELETE, path, None).await
    }

    async fn review<K>(&self, method: Method, path: String, object: Option<&K>) -> Reviewed<K>
    where
        K: Serialize + DeserializeOwned,
    {
        // The caches receive the objects that the test has created.
        self.env.sleep(STEP).await;
        let body = object.map(|object| serde_json::to_vec(object).unwrap_or_else(|error| panic!("{error}")));
        let request = Request::builder().method(method).uri(format!("{path}?dryRun=All"));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())));
        let request = request.unwrap_or_else(|error| panic!("{error}"));
        let Ok(response) = self.server.clone().oneshot(request).await;
        let warnings = response.headers().get_all(header::WARNING).iter();
        let warnings = warnings.filter_map(|it| it.to_str().ok()).map(warning).collect();
        let body = response.into_body().collect().await;
        let body = body.unwrap_or_else(|error| panic!("the response cannot be read: {error}")).to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}"));
        reviewed(body, warnings, object.is_some())
    }
}

/// Returns the path of the collection that contains an object.
fn collection<K: Resource<DynamicType = ()>>(object: &K) -> String {
    K::url_path(&(), object.meta().namespace.as_deref())
}

/// Returns the text of a `Warning` header.
fn warning(header: &str) -> String {
    let quoted = header.trim_start_matches("299 - ").trim_matches('"');
    quoted.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// Decodes the response to a dry run.
fn reviewed<K: DeserializeOwned>(body: Value, warnings: Vec<String>, has_object: bool) -> Reviewed<K> {
    if body["kind"] == "Status" && body["status"] == "Failure" {
        let message = body["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("denied the request"), "the request failed: {message}");
        let causes = body["details"]["causes"].as_array().into_iter().flatten();
        let fields = causes.filter_map(|cause| Some(cause["field"].as_str()?.to_owned())).collect();
        return Reviewed { denied: Some(message), fields, warnings, object: None };
    }
    let decoded = has_object.then(|| serde_json::from_value(body));
    let object = decoded.map(|object| {
        object.unwrap_or_else(|error| panic!("the object after the review is invalid: {error}"))
    });
    Reviewed { denied: None, fields: Vec::new(), warnings, object }
}

impl Drop for WebhookBench {
    fn drop(&mut self) {
        self.env.kill();
    }
}

impl fmt::Debug for WebhookBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookBench").field("env", &self.env).finish_non_exhaustive()
    }
}
