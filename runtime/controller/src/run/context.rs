//! What a reconcile is handed: the means to write, to tell, and to wait.

use std::fmt;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use windlass_client::{ControllerClients, DeclaredVerbs};
use windlass_env::Env;
use windlass_events::Recorder;
use windlass_object::condition::ConditionStatus;
use windlass_object::{ObjectKey, time};
use windlass_workqueue::Priority;

use crate::consistency::key_log::KeyLog;
use crate::enqueue::watches::Watches;

/// The means of one reconcile. Cheap to clone into tasks that the reconcile spawns: their writes are logged for the same
/// key, also those of a task that outlives the reconcile.
#[derive(Clone)]
pub struct Context {
    client: Arc<ReconcileClient>,
    events: Recorder,
    env: Env,
    attempts: u32,
    span: tracing::Span,
    watches: Watches,
    priority: Priority,
}

/// What the attempt at one key knows of it.
pub(crate) struct About {
    pub(crate) attempts: u32,
    pub(crate) priority: Priority,
    pub(crate) span: tracing::Span,
}

/// The client of one reconcile. It is built at its first use, because most reconciles change nothing.
pub(crate) struct ReconcileClient {
    clients: ControllerClients,
    declared: Arc<dyn DeclaredVerbs>,
    log: Arc<KeyLog>,
    built: OnceLock<kube::Client>,
}

impl ReconcileClient {
    pub(crate) fn new(clients: ControllerClients, declared: Arc<dyn DeclaredVerbs>, log: KeyLog) -> Self {
        Self { clients, declared, log: Arc::new(log), built: OnceLock::new() }
    }

    fn get(&self) -> &kube::Client {
        let build = || self.clients.worker(Arc::clone(&self.log) as _, Some(Arc::clone(&self.declared)));
        self.built.get_or_init(build)
    }
}

impl Context {
    pub(crate) fn new(
        client: ReconcileClient,
        events: Recorder,
        env: Env,
        watches: Watches,
        about: About,
    ) -> Self {
        let About { attempts, priority, span } = about;
        Self { client: Arc::new(client), events, env, attempts, span, watches, priority }
    }

    /// Returns the client of this reconcile. It is rate-limited, fenced by leadership, and rejects requests that the
    /// controller did not declare. The next reconcile of this key waits until the caches reflect what the client wrote.
    ///
    /// The client belongs to the key for as long as it or a clone of it exists: a write that a task sends after the
    /// reconcile has returned is credited to this key, whichever key the worker has by then.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client(&self) -> &kube::Client {
        self.client.get()
    }

    /// Returns kube's client for objects of `K`: those in the namespace of `at`, or of the cluster, as the scope of `K`
    /// says. For requests that have no method of a [`Writer`](crate::Writer); `setup` declares them by
    /// [`uses`](crate::Setup::uses).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn api<K>(&self, at: &ObjectKey) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope: ApiScope<K>>,
    {
        K::Scope::api(self.client().clone(), at.namespace().unwrap_or_default())
    }

    /// Reads an object past the cache; `None` if it does not exist. `setup` declares that by
    /// `uses::<K>([Verb::Get])`.
    ///
    /// # Errors
    /// As the server answers, except that the object does not exist.
    pub async fn get_live<K>(&self, key: &ObjectKey) -> Result<Option<K>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope: ApiScope<K>> + Clone + DeserializeOwned + fmt::Debug,
    {
        self.api::<K>(key).get_opt(key.name()).await
    }

    /// Makes a condition about the present generation of `of`, stamped with the time. To be set by
    /// [`set_condition`](windlass_object::condition::set_condition), which keeps the time of a status that stays.
    pub fn condition(
        &self,
        of: &impl Resource,
        type_: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl Into<String>,
    ) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.into().as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            observed_generation: of.meta().generation,
            last_transition_time: self.time(),
        }
    }

    /// The wall clock, in whole seconds, as objects carry it.
    pub fn time(&self) -> Time {
        time::seconds(self.env.wall())
    }

    /// Tells users what happened. Never waits and never fails the reconcile.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// The clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// How many times in a row this key has failed before this attempt.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How urgent the key was when the worker took it. A key that comes back keeps it, unless its
    /// [`Outcome`](crate::Outcome::at) says otherwise.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Watches that may be added and removed while the controller runs.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// The span of this reconcile (controller and key), for tasks that the reconcile spawns.
    pub fn span(&self) -> &tracing::Span {
        &self.span
    }
}

/// The scope of a kind, which says where its objects are found.
pub trait ApiScope<K> {
    /// The client for the objects of `K`. A kind without namespaces ignores `namespace`.
    fn api(client: kube::Client, namespace: &str) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = Self>> ApiScope<K> for NamespaceResourceScope {
    fn api(client: kube::Client, namespace: &str) -> Api<K> {
        Api::namespaced(client, namespace)
    }
}

impl<K: Resource<DynamicType = (), Scope = Self>> ApiScope<K> for ClusterResourceScope {
    fn api(client: kube::Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}
