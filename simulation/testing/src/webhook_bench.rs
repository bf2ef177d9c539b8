//! The webhooks of a program, called by a test as an API server calls them.
//!
//! Guarantees:
//! - The webhooks run in a [`Manager`] with their caches, writers and rules, on an in-process API server.
//! - A review is encoded, sent and decoded as on a socket, and a patch is applied to the object that was sent.
//! - When a review begins, the caches contain all objects of the server.
//!
//! The in-process API server does not call webhooks by itself.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::Request;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_controller::host::InProcessWebhooks;
use windlass_controller::{ApiScope, Registration};
use windlass_env::{Env, Task};
use windlass_manager::{Manager, ManagerConfig, ManagerError, ShutdownSignals, ShutdownTrigger};
use windlass_object::{ResourceKind, Scoped};

use crate::bench::assert_paused;
use crate::local::{api, client_of, create, over, server, webhooks_in_process};

/// User of the requests of webhooks.
const BENCH: &str = "bench";

/// Smallest step of tokio's clock. It passes when every task waits; by then every event has reached its cache.
const STEP: Duration = Duration::from_millis(1);

/// The webhooks of a program in a manager on an in-process API server. Dropping the bench stops them.
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
/// let webhooks = Webhooks::new().validates::<ConfigMap>(HOOK, |review| match review.name() {
///     "web" => Ok(()),
///     _ => Err(deny("use another name")),
/// });
/// let bench = WebhookBench::new(webhooks).await;
/// let map = object::<ConfigMap>(json!({ "metadata": { "name": "mail" } }));
/// let reviewed = bench.create_reviewed("maps.example.com", &map).await;
/// assert_eq!(reviewed.denied.as_deref(), Some("use another name"));
/// # }
/// ```
pub struct WebhookBench {
    env: Env,
    client: Client,
    connection: InProcessWebhooks,
    _manager: Task<Result<(), ManagerError>>,
    /// Stops the manager when it fires.
    _stop: ShutdownTrigger,
}

/// The result of a review.
#[derive(Clone, Debug, PartialEq)]
pub struct Reviewed<K> {
    /// Message of the denial; `None` if the request is admitted.
    pub denied: Option<String>,
    /// Invalid fields of the denial.
    pub fields: Vec<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The object after the patch of a mutator; `None` for deletions.
    pub object: Option<K>,
}

impl WebhookBench {
    /// Returns a bench for `Webhooks`, or for another registration that serves webhooks. The server has the CRDs that the
    /// setup declares.
    ///
    /// # Panics
    /// Panics if the setup fails, if the caches do not sync, and outside a tokio runtime with a paused clock
    /// (`#[tokio::test(start_paused = true)]`).
    pub async fn new(webhooks: impl Into<Registration>) -> Self {
        assert_paused();
        let (registration, world) = (webhooks.into(), Env::virtual_time(1));
        let (server, env) = (server(&world.with_incarnation("server", 0)), world.with_incarnation(BENCH, 0));
        let (webhooks, connection) = webhooks_in_process(BENCH);
        let declaration = registration.declaration_with(&world, webhooks.clone());
        let declaration = declaration.unwrap_or_else(|error| panic!("the setup of webhooks failed: {error}"));
        let client = client_of(&server);
        for mut definition in declaration.definitions {
            // The server stores and returns one version. It does not convert.
            definition.spec.conversion = None;
            create(&client, &definition).await;
        }
        let config = ManagerConfig { election: None, webhooks: Some(webhooks), ..ManagerConfig::new(BENCH) };
        let manager = Manager::with_clients(env.clone(), config, over(server.as_user(BENCH)));
        let manager = manager.unwrap_or_else(|error| panic!("{error}")).register(registration);
        let (stop, signals) = ShutdownSignals::manual();
        let manager = env.spawn("manager", manager.run(signals));
        Self { env, client, connection, _manager: manager, _stop: stop }
    }

    /// Creates an object on the server, without a review.
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

    /// Returns the clock of the webhooks.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Reviews the creation of an object by the webhook with this name. The object is not created.
    ///
    /// # Panics
    /// Panics if the webhook fails; the message contains the reason.
    pub async fn create_reviewed<K>(&self, webhook: &str, object: &K) -> Reviewed<K>
    where
        K: Resource<DynamicType = (), Scope: Scoped> + Serialize + DeserializeOwned,
    {
        self.review(webhook, "CREATE", Some(object), None).await
    }

    /// Reviews the update of an object. The object is not updated.
    ///
    /// # Panics
    /// See [`create_reviewed`](Self::create_reviewed).
    pub async fn update_reviewed<K>(&self, webhook: &str, old: &K, object: &K) -> Reviewed<K>
    where
        K: Resource<DynamicType = (), Scope: Scoped> + Serialize + DeserializeOwned,
    {
        self.review(webhook, "UPDATE", Some(object), Some(old)).await
    }

    /// Reviews the deletion of an object. The object is not deleted.
    ///
    /// # Panics
    /// See [`create_reviewed`](Self::create_reviewed).
    pub async fn delete_reviewed<K>(&self, webhook: &str, old: &K) -> Reviewed<K>
    where
        K: Resource<DynamicType = (), Scope: Scoped> + Serialize + DeserializeOwned,
    {
        self.review(webhook, "DELETE", None, Some(old)).await
    }

    async fn review<K>(
        &self,
        webhook: &str,
        operation: &str,
        object: Option<&K>,
        old: Option<&K>,
    ) -> Reviewed<K>
    where
        K: Resource<DynamicType = (), Scope: Scoped> + Serialize + DeserializeOwned,
    {
        let document = |object: &K| serde_json::to_value(object).unwrap_or_else(|error| panic!("{error}"));
        let (sent, old_document) = (object.map(document), old.map(document));
        let meta = object.or(old).map(Resource::meta);
        let kind = ResourceKind::of::<K>();
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": BENCH, "operation": operation, "userInfo": { "username": "user" }, "dryRun": false,
                "name": meta.and_then(|it| it.name.as_ref()),
                "namespace": meta.and_then(|it| it.namespace.as_ref()),
                "kind": { "group": kind.group, "version": kind.version, "kind": kind.kind },
                "object": sent, "oldObject": old_document,
            },
        });
        let response = self.send(webhook, &review).await;
        reviewed(sent, &response)
    }

    /// Sends a review, and returns the `response` in the answer.
    async fn send(&self, webhook: &str, review: &Value) -> Value {
        // The caches receive the objects that the test has created.
        self.env.sleep(STEP).await;
        let handler =
            self.connection.handler().expect("the webhooks are not served; see the log for the reason");
        let request = Request::post(format!("/admission/{webhook}?timeout=5s"));
        let request = request.header("Content-Type", "application/json");
        let request = request.body(Bytes::from(review.to_string())).unwrap_or_else(|error| panic!("{error}"));
        let (head, body) = handler(request).await.into_parts();
        let body: Value = serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            head.status.is_success(),
            "webhook {webhook:?} failed with {}: {}",
            head.status,
            body["message"]
        );
        body["response"].clone()
    }
}

/// Decodes a response to a review of `sent`.
fn reviewed<K: DeserializeOwned>(sent: Option<Value>, response: &Value) -> Reviewed<K> {
    let texts = |values: &Value, of: &dyn Fn(&Value) -> Option<String>| -> Vec<String> {
        values.as_array().into_iter().flatten().filter_map(of).collect()
    };
    let status = &response["status"];
    let is_allowed = response["allowed"] == true;
    let message = status["message"].as_str().unwrap_or_default().to_owned();
    let object = sent.map(|sent| {
        let changed = match response["patch"].as_str() {
            Some(patch) => patched(&sent, patch),
            None => sent,
        };
        serde_json::from_value(changed)
            .unwrap_or_else(|error| panic!("the patched object is invalid: {error}"))
    });
    Reviewed {
        denied: (!is_allowed).then_some(message),
        fields: texts(&status["details"]["causes"], &|cause| Some(cause["field"].as_str()?.to_owned())),
        warnings: texts(&response["warnings"], &|warning| Some(warning.as_str()?.to_owned())),
        object,
    }
}

fn patched(sent: &Value, patch: &str) -> Value {
    let patch = base64::engine::general_purpose::STANDARD.decode(patch);
    let patch = patch.ok().and_then(|patch| serde_json::from_slice(&patch).ok());
    let patch: Value = patch.unwrap_or_else(|| panic!("the patch is not base64 of JSON"));
    windlass_patch::json::apply(sent, &patch)
        .unwrap_or_else(|error| panic!("the patch does not apply: {error}"))
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
