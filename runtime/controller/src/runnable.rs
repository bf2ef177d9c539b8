//! Runnables: servers, syncers and other long-running work that runs in the process next to controllers.
//!
//! A [`Runnable`] declares in its setup what it reads and writes, as a controller does. It has no queue.
//!
//! Guarantees:
//! - [`Runnable::run`] is called once its caches are synced, and on a new leader once they reflect the writes of the
//!   previous leader. It waits only for the caches that its setup declares.
//! - A request that was not declared in `setup` is rejected before it leaves the process. On the leader every write
//!   passes the fence of the lease.
//! - A panic is handled like any other error. Recorded events are sent before the runnable counts as stopped, for at
//!   most 500 ms.
//!
//! With [`Setup::start_without_caches`] a runnable starts before its caches are complete.
//!
//! A runnable does not wait for its own writes to reach the caches: a lister can be behind them. Work that depends on
//! its own writes belongs in a controller.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use tokio_util::sync::CancellationToken;
use windlass_admin::Health;
use windlass_client::{ControllerClients, RequestOptions};
use windlass_env::{Env, TaskGroup, catch_panic};
use windlass_events::{Recorder, recorder};
use windlass_metrics::Metrics;

use crate::consistency::caches::{Cache, check_synced};
use crate::declared::{Declaration, EnforcedRules};
use crate::descriptor::{Descriptor, RunsOn};
use crate::enqueue::trigger::{Trigger, Triggers};
use crate::error::{BoxError, SetupError};
use crate::run::cache_wait::{CacheWait, caches_synced};
use crate::run::cleanup::Cleanup;
use crate::setup::{CacheSync, OwnSource, RunnableParts, Setup};

/// Time limit for sending the remaining events after a runnable has ended.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Work that runs in the process next to controllers.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::Node;
/// # use windlass_controller::{BoxError, Runnable, RunnableContext, RunsOn, Setup, SetupError};
/// # use windlass_informer::Lister;
/// struct NodeCount {
///     nodes: Lister<Node>,
/// }
///
/// impl Runnable for NodeCount {
///     const NAME: &'static str = "node-count";
///     const RUNS_ON: RunsOn = RunsOn::EveryReplica;
///     type Config = ();
///
///     fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
///         Ok(Self { nodes: setup.watch::<Node>().lister() })
///     }
///
///     async fn run(&self, cx: RunnableContext) -> Result<(), BoxError> {
///         while cx.env().timeout(Duration::from_secs(60), cx.stopped()).await.is_err() {
///             tracing::info!(nodes = self.nodes.list().len(), "counted");
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait Runnable: Send + Sync + Sized + 'static {
    /// Its name in errors, logs and roles, and the identity of its client.
    const NAME: &'static str;

    /// The replicas that run it, and the point in the start of the process. Default [`RunsOn::Leader`].
    const RUNS_ON: RunsOn = RunsOn::Leader;

    /// The configuration of the runnable; `()` if it has none.
    type Config: Send + Sync + 'static;

    /// Declares what the runnable reads and writes, and builds it. Works like
    /// [`Controller::setup`](crate::Controller::setup), except that methods that need a queue are errors. A runnable
    /// that runs [before caches](RunsOn::BeforeCaches) has no watches.
    ///
    /// # Errors
    /// If the runnable cannot be built from its configuration.
    fn setup(setup: &mut Setup, config: &Self::Config) -> Result<Self, SetupError>;

    /// Runs until [`RunnableContext::stopped`] resolves or its work is done. It is called once, in its own task.
    /// Implementations write `async fn run`.
    ///
    /// # Errors
    /// Failures after which the process must not continue: the first error of a runnable ends the process.
    ///
    /// # Cancel safety
    /// The future is dropped at any await when leadership is lost, a shutdown is aborted, or the shutdown timeout
    /// expires.
    fn run(&self, cx: RunnableContext) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// A runnable with its type erased.
pub(crate) trait Run: Send + Sync {
    fn run(&self, cx: RunnableContext) -> BoxFuture<'_, Result<(), BoxError>>;
}

impl<R: Runnable> Run for R {
    fn run(&self, cx: RunnableContext) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(Runnable::run(self, cx))
    }
}

type RunTask = Box<dyn Fn(RunnableContext) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A runnable that consists of one function.
pub(crate) struct Task(pub(crate) RunTask);

impl Run for Task {
    fn run(&self, cx: RunnableContext) -> BoxFuture<'_, Result<(), BoxError>> {
        (self.0)(cx)
    }
}

/// The context of one runnable. Clones share it.
#[derive(Clone)]
pub struct RunnableContext {
    env: Env,
    metrics: Metrics,
    triggers: Triggers,
    health: Health,
    clients: ControllerClients,
    declared: Arc<EnforcedRules>,
    client: kube::Client,
    events: Recorder,
    caches: Arc<[Cache]>,
    shutdown: CancellationToken,
    stop: CancellationToken,
    ready: CancellationToken,
}

impl RunnableContext {
    /// Resolves when the runnable must stop.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.stop.clone().cancelled_owned()
    }

    /// Resolves when the shutdown of the process begins. The runnable can continue until
    /// [`stopped`](RunnableContext::stopped) resolves.
    pub fn shutting_down(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.shutdown.clone().cancelled_owned()
    }

    /// Returns whether the caches of this runnable are complete.
    ///
    /// # Errors
    /// The caches that are not, and the causes.
    pub fn caches_synced(&self) -> Result<(), String> {
        check_synced(&self.caches).map_err(|behind| behind.to_string())
    }

    /// Returns the context with a client whose requests have these options, in addition to the identity, the limits and
    /// the fence of this client.
    #[must_use]
    pub fn with(&self, options: RequestOptions) -> Self {
        let client = self.clients.with(options).declared(Arc::clone(&self.declared) as _);
        Self { client, ..self.clone() }
    }

    /// Returns whether the runnable must stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Reports that other parts can rely on the runnable from now on. The informers start when every runnable that runs
    /// [before caches](RunsOn::BeforeCaches) is ready or has ended.
    pub fn ready(&self) {
        self.ready.cancel();
    }

    /// Returns a client with the identity and limits of the runnable. It rejects requests that the runnable did not
    /// declare. On the leader it writes behind the fence of the lease; on every replica it writes at any time.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Returns the recorder of Kubernetes events. It never waits and never fails.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// Returns the clock, timers, randomness and tasks of this process.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Returns the metrics of this process.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the health checks of this process, to which more can be added.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Returns the trigger that `controller` declares under `name` in its setup. It sends keys to that controller.
    pub fn trigger(&self, controller: &str, name: &str) -> Trigger {
        self.triggers.get(controller, name)
    }
}

/// The resources of the process that a runnable needs to run.
#[derive(Clone)]
pub struct RunnableResources {
    /// The clients with its identity.
    pub clients: ControllerClients,
    /// The health checks of the process.
    pub health: Health,
    /// Maximum number of recorded events per type that are kept to detect repetitions.
    pub event_cache_size: usize,
    /// A number that is unique among the runnables of this process.
    pub number: u64,
    /// Canceled when the shutdown of the process begins.
    pub shutdown: CancellationToken,
    /// Canceled when it must stop.
    pub stop: CancellationToken,
    /// Canceled when it is ready.
    pub ready: CancellationToken,
}

/// A runnable that is set up, with its informers requested, and waits to be started.
pub struct PreparedRunnable {
    runnable: Arc<dyn Run>,
    parts: RunnableParts,
}

impl PreparedRunnable {
    pub(crate) fn new(runnable: Arc<dyn Run>, parts: RunnableParts) -> Self {
        Self { runnable, parts }
    }

    /// Returns the names of the runnable and the replicas that run it.
    pub fn descriptor(&self) -> Descriptor {
        self.parts.descriptor
    }

    /// Returns the time that it needs to stop in addition to the shutdown timeout.
    pub fn shutdown_extension(&self) -> Duration {
        self.parts.shutdown_extension
    }

    /// Returns the declarations of the runnable.
    pub fn declaration(&self) -> Declaration {
        self.parts.declared.declaration(self.descriptor(), self.parts.caches.watches())
    }

    /// Returns a check that reports whether the caches of this runnable are complete; if not, it returns the missing
    /// caches and the causes.
    pub fn caches(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let caches = self.parts.caches.all();
        move || check_synced(&caches).map_err(|behind| behind.to_string())
    }

    /// Returns a handle that cleans up if the runnable is dropped while it runs.
    pub fn cleanup(&self) -> Cleanup {
        Cleanup {
            controller: self.descriptor().name,
            triggers: Vec::new(),
            informers: self.parts.sources.iter().map(|own| own.factory.clone()).collect(),
            polls: TaskGroup::new(self.parts.host.env.clone()),
        }
    }

    /// Sets the time limit for caches, unless the setup of the runnable has set one.
    pub fn cache_sync_by_default(&mut self, timeout: CacheSync) {
        self.parts.cache_sync.get_or_insert(timeout);
    }

    /// Waits for the caches, then for `caught_up`, and runs the runnable to its end. `caught_up` is first polled when
    /// the caches are complete.
    ///
    /// # Errors
    /// The error or panic of the runnable, and [`SetupError::NotSynced`].
    ///
    /// # Cancel safety
    /// Dropping it drops the runnable; [`Cleanup::finish`] waits until all its parts have stopped.
    pub async fn run(
        self,
        resources: RunnableResources,
        caught_up: impl Future<Output = ()> + Send,
    ) -> Result<(), BoxError> {
        let started = Started(self.cleanup());
        let begin = async {
            self.caches_synced().await?;
            caught_up.await;
            Ok::<(), SetupError>(())
        };
        let ended = match resources.stop.run_until_cancelled(begin).await {
            None => Ok(()),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(())) => self.run_with_events(resources).await,
        };
        started.0.finish().await;
        ended
    }

    async fn caches_synced(&self) -> Result<(), SetupError> {
        let RunnableParts { descriptor, host, needed, sources, cache_sync, .. } = &self.parts;
        sources.iter().for_each(OwnSource::start);
        if self.parts.without_caches {
            return Ok(());
        }
        let timeout = cache_sync.unwrap_or_default();
        let lacking = || check_synced(needed).err().map(|behind| behind.to_string()).unwrap_or_default();
        let wait = CacheWait { env: &host.env, name: descriptor.name, limit: timeout };
        wait.until(|| caches_synced(needed), lacking).await
    }

    /// Runs the runnable and sends the events that it records, including those that are left when it ends.
    async fn run_with_events(&self, resources: RunnableResources) -> Result<(), BoxError> {
        let RunnableParts { descriptor, host, declared, needed, .. } = &self.parts;
        let RunnableResources {
            clients,
            health,
            event_cache_size: remembered_events,
            number,
            shutdown,
            stop,
            ready,
        } = resources;
        let declared = EnforcedRules::new(declared.permitted(), descriptor.name, host.metrics.clone());
        let declared = Arc::new(declared);
        // A later runnable can have the same name, so each generates names of events from its own stream.
        let chance = format!("{} {} {}", host.env.instance(), host.env.incarnation(), descriptor.name);
        let chance = host.env.with_incarnation(&chance, number);
        let source = descriptor.event_source();
        let named = source.unwrap_or(descriptor.client_name);
        let (events, sink) = recorder(chance, descriptor.client_name, named, &host.metrics);
        let events = if source.is_some() { events } else { Recorder::discarding() };
        let ended = CancellationToken::new();
        let sink = pin!(sink.with_cache_size(remembered_events).run(clients.client(), ended.clone()));
        let run = self.runnable.run(RunnableContext {
            env: host.env.clone(),
            metrics: host.metrics.clone(),
            triggers: host.triggers.clone(),
            health,
            client: clients.declared(Arc::clone(&declared) as _),
            clients,
            declared,
            events,
            caches: needed.clone().into(),
            shutdown,
            stop,
            ready,
        });
        let ran = match select(pin!(catch_panic(run)), sink).await {
            Either::Right(((), run)) => run.await,
            Either::Left((ran, sink)) => {
                ended.cancel();
                if host.env.timeout(FLUSH_TIMEOUT, sink).await.is_err() {
                    tracing::warn!(runnable = descriptor.name, "events not sent before shutdown; dropped");
                }
                ran
            }
        };
        ran.unwrap_or_else(|message| Err(format!("panicked: {message}").into()))
    }
}

/// A runnable that has started. Its own informers stop when this is dropped.
struct Started(Cleanup);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.begin();
    }
}

impl fmt::Debug for RunnableContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableContext").field("stopped", &self.is_stopped()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunnableResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableResources").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl fmt::Debug for PreparedRunnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedRunnable").field("descriptor", &self.descriptor()).finish_non_exhaustive()
    }
}
