//! The controllers of one process: prepared, started together, drained together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;
use windlass_admin::Health;
use windlass_client::{Clients, ControllerClients, OpenFence, RawClient};
use windlass_controller::host::{Cleanup, ControllerDeps, PreparedController, Workers};
use windlass_controller::{Descriptor, RunsOn};
use windlass_election::WrittenVersions;
use windlass_env::{Env, Rng, Task};
use windlass_events::{Recorder, Sink, recorder};
use windlass_metrics::Metrics;

use crate::config::ManagerConfig;
use crate::error::ManagerError;
use crate::shards::ShardContext;
use crate::takeover::{Takeover, merged};

/// Interval at which stragglers are logged.
const STRAGGLER_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Time for sending the last events. A slow API server must not delay the handoff, and events are best effort.
const EVENT_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for aborted tasks to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The controllers that the configuration selects.
pub(crate) struct Controllers {
    deps: StartDeps,
    waiting: Vec<PreparedController>,
    working: Vec<Workers>,
    /// The cleanup of each controller, whether it ever worked or not.
    cleanups: Vec<Cleanup>,
    /// The versions that drained controllers have written; `None` if the outcome of a write is unknown.
    written: Option<WrittenVersions>,
    /// Whether a write of a drained controller can still take effect.
    has_unsettled_writes: bool,
    recorders: Recorders,
    spread: Rng,
}

/// The dependencies for starting a controller.
#[derive(Clone)]
pub(crate) struct StartDeps {
    pub(crate) env: Env,
    pub(crate) clients: Clients,
    pub(crate) reader: RawClient,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) config: Arc<ManagerConfig>,
    /// The shards of this replica, if sharding is enabled.
    pub(crate) shards: Option<ShardContext>,
    /// The replicas that run these controllers.
    pub(crate) runs_on: RunsOn,
}

impl StartDeps {
    /// Returns the same for the controllers of every replica, which have every key.
    pub(crate) fn of_every_replica(&self) -> Self {
        Self { shards: None, runs_on: RunsOn::EveryReplica, ..self.clone() }
    }

    /// Returns the name of a stream of random numbers.
    fn stream(&self, name: &str) -> String {
        match self.runs_on {
            RunsOn::Leader => name.to_owned(),
            RunsOn::EveryReplica | RunsOn::BeforeCaches => format!("every replica/{name}"),
        }
    }

    /// Returns the clients of this identity, behind the fence of these controllers.
    fn clients_of(&self, descriptor: Descriptor) -> Result<ControllerClients, ManagerError> {
        let clients = self.clients.for_controller_with_rate(descriptor.client_name, descriptor.rate)?;
        Ok(match self.runs_on {
            RunsOn::Leader => clients,
            RunsOn::EveryReplica | RunsOn::BeforeCaches => clients.with_fence(Arc::new(OpenFence)),
        })
    }
}

impl Controllers {
    pub(crate) fn new(parts: StartDeps, prepared: Vec<PreparedController>) -> Self {
        let spread = parts.env.rng(&parts.stream("controller start interval"));
        Self {
            deps: parts,
            cleanups: prepared.iter().map(PreparedController::cleanup).collect(),
            waiting: prepared,
            working: Vec::new(),
            written: Some(WrittenVersions::new()),
            has_unsettled_writes: false,
            recorders: Recorders::default(),
            spread,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Starts every controller, each after its own delay and once its caches reflect the writes of the previous leader.
    /// Returns when all controllers work.
    ///
    /// # Cancel safety
    /// Dropping the future leaves some controllers working and others partially started; [`Controllers::drain`] and
    /// [`Controllers::abort`] stop both.
    pub(crate) async fn start(&mut self, takeover: Option<&Takeover>) -> Result<(), ManagerError> {
        let mut starts = FuturesUnordered::new();
        for prepared in self.waiting.drain(..) {
            let descriptor = prepared.descriptor();
            let resources = self.recorders.resources(&self.deps, descriptor)?;
            let wait = self.spread.jitter(self.deps.config.start_interval, 1.0);
            starts.push(start_one(self.deps.env.clone(), wait, takeover.cloned(), prepared, resources));
        }
        // Stored as soon as it works, so that it can be stopped after this future is dropped.
        while let Some(started) = starts.next().await {
            let workers = started?;
            add_health_checks(&self.deps, &workers);
            if let Some(shards) = &self.deps.shards {
                shards.register_controller(workers.shard_handoff());
            }
            self.working.push(workers);
        }
        Ok(())
    }

    /// Returns whether a write of a drained controller can still take effect.
    pub(crate) fn has_unsettled_writes(&self) -> bool {
        self.has_unsettled_writes
    }

    /// Returns the highest version written of each resource by the controllers that have been drained; `None` if the
    /// outcome of a write is unknown.
    pub(crate) fn written(&self) -> Option<&WrittenVersions> {
        self.written.as_ref()
    }

    /// Stops dequeuing keys, fails requests that would wait for the rate limiter, and waits for running reconciles;
    /// aborts the rest after `within`. Then sends the recorded events for at most [`EVENT_FLUSH_TIMEOUT`]: they are
    /// writes, so the Lease is held for them while a standby waits.
    pub(crate) async fn drain(&mut self, within: Duration) -> Result<(), ManagerError> {
        self.working.iter().for_each(Workers::stop);
        self.deps.clients.drain();
        let drained = self.all_ended(within).await;
        if drained.is_err() {
            self.abort_workers().await;
        }
        self.recorders.flush(&self.deps.env).await;
        self.collect_written();
        drained
    }

    /// Aborts all tasks at their next await.
    pub(crate) async fn abort(&mut self) {
        self.abort_workers().await;
        self.recorders.abort().await;
        self.collect_written();
    }

    /// Aborts every worker at its next await, and waits for [`ABORT_TIMEOUT`] at most, because a worker that never
    /// awaits never ends.
    async fn abort_workers(&mut self) {
        self.working.iter().for_each(Workers::abort);
        self.stop_unstarted();
        let env = self.deps.env.clone();
        if env.timeout(ABORT_TIMEOUT, ended(&mut self.working, &self.cleanups)).await.is_err() {
            tracing::error!(stragglers = ?self.stragglers(), "reconciles did not stop after abort; they never yield");
        }
    }

    /// Stops the remaining tasks of controllers that do not work, most importantly the senders of their triggers.
    pub(crate) fn stop_unstarted(&self) {
        self.cleanups.iter().for_each(Cleanup::begin);
    }

    fn collect_written(&mut self) {
        for workers in self.working.drain(..) {
            running(&self.deps, workers.name(), false);
            self.written = merged(self.written.take(), workers.written());
            self.has_unsettled_writes |= workers.has_unsettled_writes();
        }
    }

    async fn all_ended(&mut self, within: Duration) -> Result<(), ManagerError> {
        let env = self.deps.env.clone();
        let (begun, interval, mut left) = (env.now(), STRAGGLER_LOG_INTERVAL.min(within / 3), within);
        loop {
            if env.timeout(interval.min(left), ended(&mut self.working, &self.cleanups)).await.is_ok() {
                return Ok(());
            }
            let (waited, stragglers) = (env.now().saturating_duration_since(begun), self.stragglers());
            left = within.saturating_sub(waited);
            if left.is_zero() {
                return Err(ManagerError::ShutdownTimeout { waited, stragglers });
            }
            tracing::warn!(?waited, ?stragglers, "waiting for reconciles to finish");
        }
    }

    fn stragglers(&self) -> Vec<String> {
        let of = |workers: &Workers| -> Vec<String> {
            workers.busy().iter().map(|busy| format!("{}: {}", workers.name(), busy.key)).collect()
        };
        self.working.iter().flat_map(of).collect()
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controllers")
            .field("waiting", &self.waiting)
            .field("working", &self.working)
            .finish_non_exhaustive()
    }
}

/// Waits until all workers have ended, and all tasks of controllers whose start was dropped.
async fn ended(working: &mut [Workers], cleanups: &[Cleanup]) {
    future::join_all(working.iter_mut().map(Workers::ended)).await;
    for one in cleanups {
        one.finish().await;
    }
}

async fn start_one(
    env: Env,
    wait: Duration,
    takeover: Option<Takeover>,
    prepared: PreparedController,
    resources: ControllerDeps,
) -> Result<Workers, ManagerError> {
    let controller = prepared.descriptor().name;
    env.sleep(wait).await;
    let watches = prepared.declaration().watches;
    let caught_up = async move {
        if let Some(takeover) = takeover {
            takeover
                .wait_for_writes(controller, |kind| watches.iter().any(|(watched, _)| watched == kind))
                .await;
        }
    };
    let workers = prepared
        .start_after(resources, caught_up)
        .await
        .map_err(|source| ManagerError::Setup { controller, source })?;
    tracing::info!(controller, "started");
    Ok(workers)
}

/// Adds the health checks and the metric of a controller that works.
fn add_health_checks(parts: &StartDeps, workers: &Workers) {
    parts.health.live(workers.name(), Arc::new(workers.health(parts.config.worker_stuck_after)));
    parts.health.notice(workers.name(), Arc::new(workers.quarantine_notice()));
    running(parts, workers.name(), true);
}

fn running(parts: &StartDeps, controller: &str, runs: bool) {
    let gauge = parts.metrics.manager().running(controller, &parts.config.name);
    gauge.set(i64::from(runs));
}

/// The event recorders, one per identity and event source. Controllers that have both in common share the event limits.
#[derive(Default)]
pub(crate) struct Recorders {
    by_source: BTreeMap<(&'static str, &'static str), Recorder>,
    stop: CancellationToken,
    sinks: Vec<Task<()>>,
}

impl Recorders {
    /// Returns the dependencies of a controller.
    fn resources(
        &mut self,
        parts: &StartDeps,
        descriptor: Descriptor,
    ) -> Result<ControllerDeps, ManagerError> {
        let client_name = descriptor.client_name;
        let clients = parts.clients_of(descriptor)?;
        let events = match descriptor.event_source() {
            None => Recorder::discarding(),
            Some(source) => match self.by_source.get(&(client_name, source)) {
                Some(recorder) => recorder.clone(),
                None => self.open(parts, (client_name, source), clients.client()),
            },
        };
        Ok(ControllerDeps { clients, reader: parts.reader.clone(), events })
    }

    /// Starts a recorder of this client name and event source.
    fn open(
        &mut self,
        parts: &StartDeps,
        (client_name, source): (&'static str, &'static str),
        client: kube::Client,
    ) -> Recorder {
        // Two clients can have one source, and streams of random numbers and tasks have unique names.
        let name = if client_name == source { source.to_owned() } else { format!("{client_name} {source}") };
        let stream = parts.stream(&name);
        let (recorder, sink) = recorder(parts.env.clone(), &stream, source, &parts.metrics);
        let sink = sink.with_cache_size(parts.config.event_cache_size);
        self.by_source.insert((client_name, source), recorder.clone());
        self.run(&parts.env, &name, sink, client);
        recorder
    }

    /// Starts a task that sends the events of `sink` with `client`.
    pub(crate) fn run(&mut self, env: &Env, component: &str, sink: Sink, client: kube::Client) {
        let name = format!("events of {component}");
        self.sinks.push(env.spawn(name, sink.run(client, self.stop.clone())));
    }

    /// Sends the recorded events and stops; drops unsent events after [`EVENT_FLUSH_TIMEOUT`].
    pub(crate) async fn flush(&mut self, env: &Env) {
        self.stop.cancel();
        if env.timeout(EVENT_FLUSH_TIMEOUT, self.ended()).await.is_err() {
            tracing::warn!("events not sent before shutdown; dropped");
            self.abort().await;
        }
    }

    /// Stops without sending.
    pub(crate) async fn abort(&mut self) {
        self.sinks.iter().for_each(Task::abort);
        self.ended().await;
    }

    async fn ended(&mut self) {
        while let Some(sink) = self.sinks.last_mut() {
            // The result does not matter here: a panic has been logged under the name of the task.
            let _ended = sink.await;
            self.sinks.pop();
        }
    }
}
