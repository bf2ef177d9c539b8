//! Tasks of a controller that produce keys without a watch: timers, polls and streams.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use windlass_client::{ControllerClients, DeclaredVerbs};
use windlass_env::Env;
use windlass_metrics::IntCounter;
use windlass_workqueue::Priority;

use crate::enqueue::enqueuer::Enqueuer;

/// The environment of a controller task. Clones share it.
#[derive(Clone)]
pub struct TaskContext {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    clients: ControllerClients,
    declared: Arc<dyn DeclaredVerbs>,
    /// Built on first use, because timers need no client.
    client: OnceLock<kube::Client>,
    stop: CancellationToken,
}

impl TaskContext {
    pub(crate) fn new(
        env: Env,
        clients: ControllerClients,
        declared: Arc<dyn DeclaredVerbs>,
        stop: CancellationToken,
    ) -> Self {
        Self { inner: Arc::new(Inner { env, clients, declared, client: OnceLock::new(), stop }) }
    }

    /// Returns the clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// Returns a client for reads. It has the identity, limits and fence of the controller, and rejects requests that
    /// the controller did not declare. Write only in a reconcile: no key waits until the cache reflects writes of this
    /// client.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn client(&self) -> &kube::Client {
        let Inner { clients, declared, client, .. } = &*self.inner;
        client.get_or_init(|| clients.declared(Arc::clone(declared)))
    }

    /// Returns a future that resolves when the controller stops. The task is then aborted.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.inner.stop.clone().cancelled_owned()
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").field("env", &self.inner.env).finish_non_exhaustive()
    }
}

/// The context of a running source.
#[derive(Clone)]
pub(crate) struct SourceContext {
    pub(crate) cx: TaskContext,
    /// The name of the task and of its random-number stream.
    pub(crate) name: String,
    pub(crate) queue: Enqueuer,
    /// The priority of background keys.
    pub(crate) background: Priority,
    pub(crate) panics: IntCounter,
}

impl SourceContext {
    pub(crate) fn panicked(&self, message: &str) {
        self.panics.inc();
        tracing::error!(task = self.name, message, "key source panicked; continuing");
    }
}

/// A task that enqueues keys until it is dropped.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnOnce(SourceContext) -> BoxFuture<'static, ()> + Send>,
}

impl Source {
    pub(crate) fn new<F>(name: String, run: impl FnOnce(SourceContext) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, run: Box::new(move |means| Box::pin(run(means))) }
    }
}

/// A user function that is called for each iteration.
pub(crate) type Call<T> = Arc<dyn Fn(TaskContext) -> T + Send + Sync>;
