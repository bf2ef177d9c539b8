//! Tasks of a controller that bring keys by themselves: timers, polls and streams.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use windlass_client::{ControllerClients, DeclaredVerbs};
use windlass_env::Env;
use windlass_metrics::IntCounter;
use windlass_workqueue::Priority;

use crate::enqueue::enqueuer::Enqueuer;

/// What a task of a controller works with. Clones are the same.
#[derive(Clone)]
pub struct TaskContext {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    clients: ControllerClients,
    declared: Arc<dyn DeclaredVerbs>,
    /// Built at its first use: a timer needs none.
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

    /// The clock, timers and randomness of this process.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// A client for reads. It has the identity, limits and fence of the controller, and rejects requests that the
    /// controller did not declare. No key waits for what it writes: writes belong in a reconcile.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client(&self) -> &kube::Client {
        let Inner { clients, declared, client, .. } = &*self.inner;
        client.get_or_init(|| clients.declared(Arc::clone(declared)))
    }

    /// Resolves when the controller stops. The task is aborted then.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.inner.stop.clone().cancelled_owned()
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").field("env", &self.inner.env).finish_non_exhaustive()
    }
}

/// What a source runs with.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) cx: TaskContext,
    /// Names the task, and its random numbers.
    pub(crate) name: String,
    pub(crate) queue: Enqueuer,
    /// The priority of keys that nothing happened to.
    pub(crate) background: Priority,
    pub(crate) panics: IntCounter,
}

impl Means {
    pub(crate) fn panicked(&self, message: &str) {
        self.panics.inc();
        tracing::error!(task = self.name, message, "a task that brings keys panicked: it goes on");
    }
}

/// A task that brings keys until it is dropped.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnOnce(Means) -> BoxFuture<'static, ()> + Send>,
}

impl Source {
    pub(crate) fn new<F>(name: String, run: impl FnOnce(Means) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, run: Box::new(move |means| Box::pin(run(means))) }
    }
}

/// A function of users' code that is called for each turn.
pub(crate) type Call<T> = Arc<dyn Fn(TaskContext) -> T + Send + Sync>;
