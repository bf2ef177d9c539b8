//! State of the server, shared by all requests.
//!
//! Guarantee: creating a server starts no task, timer or socket.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use windlass_env::Env;
use windlass_object::Verb;
use windlass_schema::Catalog;

use crate::read::ReadView;
use crate::registry::Registry;
use crate::rights::{DenialObserver, Grant, Rights};
use crate::storage::{InMemoryStorage, MemoryOptions, Storage};
use crate::webhooks::WebhookHandler;

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct ApiServerOptions {
    /// Storage of objects. The default is in memory, with the default history.
    pub storage: Option<Arc<dyn Storage>>,
    /// Served built-in kinds. The default is all that a real server serves by default.
    pub catalog: Option<Catalog>,
    /// Whether lists and watches support shards (`shardSelector`), which upstream calls the feature gate
    /// `ShardedListAndWatch`. Off by default, as upstream; the parameter is then ignored.
    pub sharded_list_and_watch: bool,
    /// Whether the cluster has no garbage collector. A deletion in the foreground, or one that orphans dependents, then
    /// fails immediately instead of waiting for a garbage collector. Off by default, as upstream.
    pub without_garbage_collector: bool,
    /// Whether a Pod needs an existing ServiceAccount, and gets its token and pull secrets, as by the admission plugin
    /// `ServiceAccount` of kube-apiserver. Off by default, as in envtest: without the controllers of namespaces no
    /// account exists.
    pub service_account_admission: bool,
}

/// An in-process API server. Clones share one server; see the [module](self).
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
    view: ReadView,
    user: Option<Arc<str>>,
}

struct Shared {
    env: Env,
    registry: Registry,
    accesses: Mutex<BTreeSet<RecordedAccess>>,
    rights: Rights,
    supports_shards: bool,
    stop: CancellationToken,
    replicas: AtomicU64,
}

/// The access of a user to a resource, for which a role would need a permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordedAccess {
    /// User.
    pub user: String,
    /// Verb of the request.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource, with its subresource if there is one: `pods/status`.
    pub resource: String,
}

impl ApiServer {
    /// Creates a server in `env`, with the objects of a new cluster or those of the given storage.
    ///
    /// # Panics
    /// If this `env` already has a server: both would use the same random numbers.
    pub fn new(env: &Env, options: ApiServerOptions) -> ApiServer {
        let ApiServerOptions {
            storage,
            catalog,
            sharded_list_and_watch,
            without_garbage_collector,
            service_account_admission,
        } = options;
        let storage = storage.unwrap_or_else(|| Arc::new(InMemoryStorage::new(MemoryOptions::default())));
        let catalog = catalog.unwrap_or_else(Catalog::built_in);
        let view = ReadView::live(Arc::clone(&storage), env.rng("api server: length of watches"));
        let shared = Shared {
            env: env.clone(),
            registry: Registry::new(env, storage, catalog)
                .with_garbage_collector(!without_garbage_collector)
                .with_service_account_admission(service_account_admission),
            accesses: Mutex::default(),
            rights: Rights::default(),
            supports_shards: sharded_list_and_watch,
            stop: CancellationToken::new(),
            replicas: AtomicU64::new(0),
        };
        ApiServer { shared: Arc::new(shared), view, user: None }
    }

    /// Returns a handle to the same server that sends all requests as `user`.
    #[must_use]
    pub fn as_user(&self, user: impl Into<Arc<str>>) -> ApiServer {
        ApiServer { user: Some(user.into()), ..self.clone() }
    }

    /// Returns another replica of the same server. It has its own watch cache, which can be frozen.
    #[must_use]
    pub fn replica(&self) -> ApiServer {
        let number = self.shared.replicas.fetch_add(1, Ordering::Relaxed);
        let chance = self.shared.env.rng(&format!("api server: length of watches, replica {number}"));
        ApiServer { view: ReadView::live(Arc::clone(self.view.storage()), chance), ..self.clone() }
    }

    /// Returns the view of this replica's lists and watches.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// Returns the kinds that are served now, including custom ones.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.registry().catalog()
    }

    /// Returns the accesses of all users so far. Rejected and failed requests count, because they need a permission,
    /// too.
    pub fn recorded_accesses(&self) -> BTreeSet<RecordedAccess> {
        self.shared.accesses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Restricts `user` to these grants and those of earlier calls: other requests fail with 403. A user without
    /// restriction has all permissions.
    pub fn restrict(&self, user: &str, grants: Vec<Grant>) {
        self.shared.rights.restrict(user, grants);
    }

    /// Sets the observer of requests that are denied because of [`restrict`](Self::restrict). Replaces the previous
    /// one.
    pub fn observe_denials(&self, observer: DenialObserver) {
        self.shared.rights.observe_denials(observer);
    }

    /// Serves the webhooks at an address with this handler; `None` stops to serve them. The address is
    /// `<name>.<namespace>.svc:<port>` for a Service in a client configuration, and host and port of its URL otherwise;
    /// the default port is 443. Without a handler, a webhook is unreachable. The server ignores the `caBundle`.
    pub fn serve_webhooks(&self, address: &str, handler: Option<WebhookHandler>) {
        self.registry().serve_webhooks(address, handler);
    }

    /// Ends watches and connections. In-process requests are still answered.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Returns a kubeconfig for a server that listens at `address`.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: windlass\nclusters:\n- name: windlass\n  cluster:\n    \
             server: http://{address}\ncontexts:\n- name: windlass\n  context:\n    cluster: windlass\n    \
             namespace: default\n    user: windlass\nusers:\n- name: windlass\n  user: {{}}\n"
        )
    }

    pub(crate) fn env(&self) -> &Env {
        &self.shared.env
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    pub(crate) fn supports_shards(&self) -> bool {
        self.shared.supports_shards
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn rights(&self) -> &Rights {
        &self.shared.rights
    }

    pub(crate) fn record(&self, used: RecordedAccess) {
        let mut all = self.shared.accesses.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&used) {
            all.insert(used);
        }
    }

    /// Completes when the server is stopped.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.shared.stop.clone().cancelled_owned()
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("env", &self.shared.env)
            .field("view", &self.view)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
