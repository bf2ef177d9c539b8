//! The running workers of one controller.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use windlass_env::{Instant, Task};
use windlass_informer::InformerFactory;
use windlass_object::{GroupResource, ResourceVersion};

use crate::consistency::unknown_outcomes::{OutcomeResolver, STOP_TIMEOUT};
use crate::core::Core;
use crate::core::activity::ActiveKey;
use crate::core::lifecycle::ControllerPhase;
use crate::enqueue::source::{Source, TaskContext};
use crate::enqueue::trigger::Trigger;
use crate::enqueue::wiring::Replay;
use crate::run::shard_handoff::ShardHandoff;
use crate::run::worker::Worker;

/// Additional time that a worker can spend on a key outside waiting and reconciling before it counts as stuck.
const STUCK_MARGIN: Duration = Duration::from_secs(60);

/// The running workers of one controller. Dropping this neither stops nor waits for them: call [`Workers::stop`] and
/// then [`Workers::ended`].
pub struct Workers {
    core: Arc<Core>,
    replays: Arc<[Replay]>,
    tasks: Vec<Task<()>>,
    /// Resolves unknown outcomes of writes, including those of the last reconciles.
    resolver: Option<Task<()>>,
    /// The time until which [`Workers::ended`] waits for such outcomes.
    resolve_until: Option<Instant>,
    /// The controller's own informers, which stop after it.
    own_informers: Vec<InformerFactory>,
}

impl Workers {
    /// Starts `workers`, each as its own task.
    pub(crate) fn start(
        core: &Arc<Core>,
        workers: Vec<Worker>,
        replays: Arc<[Replay]>,
        resolver: OutcomeResolver,
    ) -> Self {
        let (env, name) = (&core.env, core.name());
        let spawn = |worker: Worker| env.spawn(format!("{name} worker {}", worker.number), worker.run());
        Self {
            tasks: workers.into_iter().map(spawn).collect(),
            resolver: Some(env.spawn(format!("{name} write outcomes"), resolver.run())),
            resolve_until: None,
            own_informers: Vec::new(),
            core: Arc::clone(core),
            replays,
        }
    }

    /// Runs the key sources next to the workers, until the stop signal.
    pub(crate) fn run_sources(&mut self, sources: Vec<Source>, cx: &TaskContext) {
        for source in sources {
            let (name, run) = self.core.run_source(source, cx);
            self.tasks.push(self.core.env.spawn(name, run));
        }
    }

    /// Releases parked keys once their object is decodable or deleted, until the stop signal.
    pub(crate) fn follow_undecodable(&mut self) {
        let Core { env, stop, keys, .. } = &*self.core;
        for number in 0..keys.undecodable.caches() {
            let (stop, follow) = (stop.clone(), keys.undecodable.clone().follow(number));
            let name = format!("{} undecodable {number}", self.core.name());
            self.tasks.push(env.spawn(name, async move {
                stop.run_until_cancelled(follow).await;
            }));
        }
    }

    /// Keeps informers that stop with the controller.
    pub(crate) fn attach_informers(&mut self, own: impl IntoIterator<Item = InformerFactory>) {
        self.own_informers.extend(own);
    }

    /// Returns the controller's name.
    pub fn name(&self) -> &'static str {
        self.core.name()
    }

    /// Sends the stop signal: no worker dequeues another key, and the queue accepts no more keys. Running reconciles
    /// continue to their end.
    pub fn stop(&self) {
        let Core { phase, stop, keys, watches, .. } = &*self.core;
        phase.set(ControllerPhase::Draining);
        stop.cancel();
        keys.queue.shut_down();
        keys.triggers.iter().for_each(Trigger::close);
        watches.close();
    }

    /// Waits until every worker and every task of a reconcile has ended, and the outcome of each of their writes is
    /// known. An outcome that is unknown 5 s after the last worker has ended stays unknown ([`Workers::written`]).
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn ended(&mut self) {
        while let Some(task) = self.tasks.last_mut() {
            // The result is ignored: a panic has been logged under the task's name.
            let _ended = task.await;
            self.tasks.pop();
        }
        self.core.dropped_tasks.ended().await;
        self.core.polls.tasks.ended().await;
        self.wait_for_outcomes().await;
        while let Some(own) = self.own_informers.last() {
            own.shutdown().await;
            self.own_informers.pop();
        }
    }

    /// Waits for unknown outcomes until the time limit, then stops the task that resolves them.
    async fn wait_for_outcomes(&mut self) {
        let Some(resolver) = &mut self.resolver else { return };
        let Core { env, barrier: gate, .. } = &*self.core;
        let until = *self.resolve_until.get_or_insert(env.now() + STOP_TIMEOUT);
        let left = until.saturating_duration_since(env.now());
        let resolved = pin!(env.timeout(left, gate.tracker.wait_resolved()));
        // The resolver was aborted or has panicked, which is logged under its name.
        if let Either::Right((resolved, _)) = future::select(&mut *resolver, resolved).await {
            if resolved.is_err() {
                tracing::warn!(controller = self.core.name(), "stopping with writes of unknown outcome");
            }
            resolver.abort();
            let _aborted = resolver.await;
        }
        self.resolver = None;
    }

    /// Aborts every worker and its reconcile at the next await.
    pub fn abort(&self) {
        self.stop();
        self.tasks.iter().for_each(Task::abort);
        self.core.polls.tasks.abort();
        self.resolver.iter().for_each(Task::abort);
    }

    /// Returns the highest version that a write of this controller returned, by resource. The caches of a successor
    /// must reflect these versions before it starts. `None` if the outcome of a write is unknown. Final once the
    /// workers have [ended](Self::ended).
    pub fn written(&self) -> Option<BTreeMap<GroupResource, ResourceVersion>> {
        self.shard_handoff().written()
    }

    /// Returns whether a write without a response can still take effect. The Lease must not be released then: a
    /// successor could read its caches before that.
    pub fn has_unsettled_writes(&self) -> bool {
        let Core { env, barrier, .. } = &*self.core;
        barrier.tracker.lock().settled_at().is_some_and(|settled_at| settled_at > env.now())
    }

    /// Returns the handle that adds keys to these workers and removes them.
    pub fn shard_handoff(&self) -> ShardHandoff {
        ShardHandoff { core: Arc::clone(&self.core), replays: Arc::clone(&self.replays) }
    }

    /// Returns the inspector, the same as [`PreparedController::insight`](crate::host::PreparedController::insight).
    #[cfg(test)]
    pub(crate) fn inspector(&self) -> crate::explain::ControllerInspector {
        crate::explain::ControllerInspector::new(Arc::clone(&self.core))
    }

    /// Returns the keys that workers are reconciling.
    pub fn busy(&self) -> Vec<ActiveKey> {
        self.core.activity.busy()
    }

    /// Returns a check that reports the number of quarantined keys; `None` if there are none. It omits their names,
    /// because health endpoints have more readers than objects do: the log and the controller's
    /// [`ControllerOverview`](crate::host::ControllerOverview) contain them.
    pub fn quarantine_notice(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static + use<> {
        let quarantine = self.core.keys.quarantine.clone();
        move || {
            let resting = quarantine.quarantined().len();
            (resting > 0).then(|| format!("keys in quarantine because their reconcile panics: {resting}"))
        }
    }

    /// Returns a health check. It fails if a worker has had one key for longer than `stuck_after`, if a worker exited
    /// without the stop signal, or if the informer of the controller's own source has died, for example because the
    /// source panicked. With a reconcile timeout it fails 60 s after that timeout if this is sooner: a reconcile that
    /// exceeds its timeout never awaits and blocks its thread.
    pub fn health(
        &self,
        stuck_after: Duration,
    ) -> impl Fn() -> Result<(), String> + Send + Sync + 'static + use<> {
        let (core, own) = (Arc::clone(&self.core), self.own_informers.clone());
        let waits = core.barrier.max_wait();
        let stuck_after = match core.policy.reconcile_timeout {
            Some(limit) => stuck_after.min(limit.saturating_add(waits).saturating_add(STUCK_MARGIN)),
            None => stuck_after,
        };
        move || {
            let is_stopping = core.stop.is_cancelled();
            if !is_stopping && core.activity.has_ended() {
                return Err("a worker exited unexpectedly".to_owned());
            }
            let dead = || own.iter().flat_map(InformerFactory::dead_informers).next();
            if let (false, Some((kind, _))) = (is_stopping, dead()) {
                return Err(format!("the informer of {kind} has died, which followed a custom source"));
            }
            let age = |busy: &ActiveKey| core.env.now().saturating_duration_since(busy.since);
            match core.activity.busy().into_iter().find(|busy| age(busy) > stuck_after) {
                Some(busy) => Err(format!("{} has been reconciled for {:?}", busy.key, age(&busy))),
                None => Ok(()),
            }
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers")
            .field("name", &self.name())
            .field("activity", &self.core.activity)
            .field("quarantined", &self.core.keys.quarantine.quarantined())
            .finish_non_exhaustive()
    }
}
