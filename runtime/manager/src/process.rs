//! A running manager: a function for each step of the start table and its reverse.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use windlass_admin::{AdminServer, AdminServerDeps};
use windlass_client::{Fence, OpenFence, RawClient, one_line};
use windlass_controller::RunsOn;
use windlass_env::Env;
use windlass_events::{Recorder, recorder};
use windlass_informer::ApiServerSources;
use windlass_metrics::Metrics;

use crate::api_server::wait_for_api_server;
use crate::cache_requirements::{CacheReadiness, CacheRequirements, POLL_INTERVAL};
use crate::config::ManagerConfig;
use crate::controller_group::{ControllerGroup, GroupContext};
use crate::controllers::Recorders;
use crate::error::ManagerError;
use crate::lifecycle::{START, StartStep, stop_order};
use crate::phase::ProcessPhase;
use crate::race::first;
use crate::replica_controllers::ReplicaControllers;
use crate::runnables::RunnableDeps;
use crate::shutdown::ShutdownSignals;
use crate::shutdown_deadline::{ABORT_TIMEOUT, ShutdownDeadline};

/// Interval at which informers that delay the start are logged.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// All parts of a running manager.
pub(crate) struct Process {
    pub(crate) env: Env,
    pub(crate) config: Arc<ManagerConfig>,
    pub(crate) metrics: Metrics,
    pub(crate) api_server: kube::Client,
    pub(crate) reader: RawClient,
    /// Shared by the group and the process.
    pub(crate) context: GroupContext,
    /// The client of election events.
    pub(crate) election_client: kube::Client,
    pub(crate) group: ControllerGroup,
    /// Controllers that work whether this replica leads or not.
    pub(crate) replica_controllers: ReplicaControllers,
    pub(crate) admin_deps: AdminServerDeps,
    pub(crate) admin: Option<AdminServer>,
    pub(crate) election_events: Recorders,
    pub(crate) phase: ProcessPhase,
    /// The caches that each controller requires.
    pub(crate) cache_requirements: CacheRequirements,
    pub(crate) started: Vec<StartStep>,
}

impl Process {
    /// Runs until a signal, the loss of a Lease or a failure, then stops the started steps.
    pub(crate) async fn run(mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        let end = match first(signals.aborted(), self.run_and_stop(signals)).await {
            Either::Left(()) => Err(ManagerError::Aborted),
            Either::Right(end) => end,
        };
        match &end {
            Err(ManagerError::Aborted) => self.abort().await,
            Err(lost) if lost.is_lost_lease() => self.stop_now().await,
            _ => {}
        }
        self.group.stop_unstarted();
        self.replica_controllers.stop_unstarted();
        end
    }

    async fn run_and_stop(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        let end = self.work(signals).await;
        self.phase.stopping();
        self.context.runnables.close();
        let end = match end {
            // All tasks under the Lease have ended.
            Err(lost) if lost.is_lost_lease() => Err(lost),
            Err(failure) => Err(reported_failure(failure, self.stop().await)),
            Ok(()) => {
                tracing::info!("shutting down");
                self.stop().await
            }
        };
        // A runnable can have failed before its step was stopped. Every failure is logged, the result contains one.
        match (end, self.context.runnables.take_unreported_failure()) {
            (Ok(()), Some(failure)) => Err(failure),
            (end, _) => end,
        }
    }

    /// Executes the start steps, then works until the first signal or a failure.
    async fn work(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        let runnables = self.context.runnables.clone();
        match first(runnables.failure(), self.start_and_work(signals)).await {
            Either::Left(failure) => Err(failure),
            Either::Right(end) => end,
        }
    }

    async fn start_and_work(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        for (step, _reason) in START.into_iter().filter(|(step, _)| !step.is_led()) {
            tracing::debug!(?step, "starting");
            // Recorded first, so that a partially executed step is stopped as well.
            self.started.push(step);
            match first(signals.draining(), self.start(step)).await {
                Either::Left(()) => return Ok(()),
                Either::Right(started) => started?,
            }
        }
        self.started.push(StartStep::GroupElection);
        self.context.election_events = self.config.election.is_some().then(|| self.election_recorder());
        // Boxed, because the future is large and overflows the thread's stack in debug builds.
        Box::pin(self.group.work(&self.context, signals)).await
    }

    async fn start(&mut self, step: StartStep) -> Result<(), ManagerError> {
        match step {
            StartStep::AdminServer => self.start_admin_server().await,
            StartStep::ApiServer => {
                wait_for_api_server(&self.env, &self.api_server, self.config.api_server_wait).await
            }
            StartStep::EarlyRunnables => {
                self.start_runnables(RunsOn::BeforeCaches);
                self.context.runnables.ready(&self.env, RunsOn::BeforeCaches).await;
                Ok(())
            }
            StartStep::Informers => self.start_informers().await,
            StartStep::Runnables => {
                self.start_runnables(RunsOn::EveryReplica);
                self.replica_controllers.start(self.context.runnables.clone());
                Ok(())
            }
            // Steps of the group.
            StartStep::GroupElection | StartStep::LeaderRunnables | StartStep::Controllers => Ok(()),
        }
    }

    async fn start_admin_server(&mut self) -> Result<(), ManagerError> {
        if let Some(config) = &self.config.admin {
            self.admin = Some(AdminServer::start(&self.env, config, self.admin_deps.clone()).await?);
        }
        Ok(())
    }

    /// Starts runnables that need no leadership: their writes pass no fence.
    fn start_runnables(&self, group: RunsOn) {
        let fence: Option<Arc<dyn Fence>> = Some(Arc::new(OpenFence));
        self.context.runnables.start(group, RunnableDeps { fence, ..self.context.runnable_deps.clone() });
    }

    /// Waits until every controller has its caches, or until some have and the others have delayed the start for
    /// [`SYNC_INTERVAL`], because a missing role can be granted in a minute or in a month. While no controller can
    /// work, the process does not stand for election and waits: without a limit, unless every controller has one.
    async fn start_informers(&mut self) -> Result<(), ManagerError> {
        self.context.factory.start(Arc::new(ApiServerSources::new(self.reader.clone())));
        let begun = self.env.now();
        loop {
            let waited = self.env.now().saturating_duration_since(begun);
            let turn = self.cache_requirements.turn(SYNC_INTERVAL, waited)?;
            let settled = self.context.factory.wait_for_sync(Some(turn)).await;
            if matches!(self.cache_requirements.readiness(), CacheReadiness::SomeReady) {
                break;
            }
            match settled {
                Err(behind) => {
                    tracing::warn!(?waited, caches = %behind, "waiting for caches");
                    self.phase.syncing(behind.to_string());
                }
                // The CRDs of the rest are not installed. Informers do not wait for those, but their controllers do.
                Ok(()) => {
                    self.phase.syncing(format!(
                        "no controller has its caches: {:?}",
                        self.cache_requirements.unmet()
                    ));
                    self.env.sleep(turn.min(POLL_INTERVAL)).await;
                }
            }
        }
        self.phase.synced();
        match self.cache_requirements.unmet() {
            unmet if unmet.is_empty() => tracing::info!("caches are synced"),
            unmet => tracing::warn!(
                waiting = ?unmet,
                "starting; controllers with unsynced caches start later"
            ),
        }
        Ok(())
    }

    /// Returns the recorder of election events under the manager's name. A controller can have the same name, so the
    /// random stream has a separate name.
    fn election_recorder(&mut self) -> Recorder {
        let (env, name) = (self.env.clone(), &self.config.name);
        let (recorder, sink) = recorder(env, "leader election", name, &self.metrics);
        let sink = sink.with_cache_size(self.config.event_cache_size);
        self.election_events.run(&self.env, name, sink, self.election_client.clone());
        recorder
    }

    /// Stops the started steps in reverse order, all of them. Returns the first failure.
    async fn stop(&mut self) -> Result<(), ManagerError> {
        let budget = self.budget();
        let mut end = Ok(());
        // These drain while the controllers of the leader drain.
        self.replica_controllers.begin_stop(budget.left());
        for step in stop_order(&std::mem::take(&mut self.started)) {
            tracing::debug!(?step, "stopping");
            let stopped = self.stop_step(step, &budget).await;
            if stopped.as_ref().is_err_and(ManagerError::is_lost_lease) {
                return stopped;
            }
            end = end.and(stopped);
        }
        end
    }

    async fn stop_step(&mut self, step: StartStep, budget: &ShutdownDeadline) -> Result<(), ManagerError> {
        match step {
            StartStep::GroupElection | StartStep::LeaderRunnables | StartStep::Controllers => {
                let stopped = Box::pin(self.group.stop(&self.context, budget)).await;
                // Sent after leadership has ended: no fence blocks them, and no standby waits for them.
                self.election_events.flush(&self.env).await;
                stopped
            }
            StartStep::Runnables => {
                let drained = self.replica_controllers.stop(budget.left()).await;
                drained.and(self.end_runnables(RunsOn::EveryReplica, budget).await)
            }
            StartStep::Informers => self.end_informers(budget.left()).await,
            StartStep::EarlyRunnables => self.end_runnables(RunsOn::BeforeCaches, budget).await,
            StartStep::ApiServer => Ok(()),
            StartStep::AdminServer => {
                self.close_admin_server().await;
                Ok(())
            }
        }
    }

    /// Waits for handlers that are running, for at most `within`.
    async fn end_informers(&mut self, within: Duration) -> Result<(), ManagerError> {
        let ended = self.env.timeout(within, self.context.factory.shutdown()).await;
        ended.map_err(|_| ManagerError::InformersStuck { waited: within })
    }

    async fn end_runnables(&mut self, group: RunsOn, budget: &ShutdownDeadline) -> Result<(), ManagerError> {
        let within = budget.left().saturating_add(self.context.runnables.shutdown_extension(group));
        self.context.runnables.end(&self.env, group, within).await
    }

    fn budget(&self) -> ShutdownDeadline {
        ShutdownDeadline::new(&self.env, self.config.shutdown_timeout)
    }

    async fn close_admin_server(&mut self) {
        // Kept until it has stopped, because this future can be dropped before.
        if let Some(admin) = &mut self.admin {
            admin.close().await;
        }
        self.admin = None;
    }

    /// Stops tasks that need no Lease within [`ABORT_TIMEOUT`], then aborts the rest.
    async fn stop_now(&mut self) {
        if let Err(error) = self.replica_controllers.stop(ABORT_TIMEOUT).await {
            tracing::warn!(error = one_line(&error), "not all reconciles stopped in time");
        }
        for group in [RunsOn::EveryReplica, RunsOn::BeforeCaches] {
            if let Err(error) = self.context.runnables.end(&self.env, group, ABORT_TIMEOUT).await {
                tracing::warn!(error = one_line(&error), "not all runnables stopped in time");
            }
        }
        self.abort().await;
    }

    /// Aborts all tasks at their next await. They can write nothing: fences are closed, or their Leases expire.
    async fn abort(&mut self) {
        future::join(Box::pin(self.group.abort(&self.context)), self.replica_controllers.abort()).await;
        self.election_events.abort().await;
        if self.env.timeout(ABORT_TIMEOUT, self.context.factory.shutdown()).await.is_err() {
            tracing::warn!("informers did not stop in time");
        }
        self.context.runnables.abort(&self.env).await;
        self.close_admin_server().await;
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("started", &self.started).finish_non_exhaustive()
    }
}

/// Returns the failure that ended the work rather than a failure while stopping, unless the latter is a lost Lease,
/// after which no task can keep running.
fn reported_failure(failure: ManagerError, stopped: Result<(), ManagerError>) -> ManagerError {
    match stopped {
        Err(lost) if lost.is_lost_lease() && !failure.is_lost_lease() => {
            tracing::error!(error = one_line(&failure), "failed before the lease was lost");
            lost
        }
        Err(also) => {
            tracing::error!(error = one_line(&also), "shutdown failed as well");
            failure
        }
        Ok(()) => failure,
    }
}

#[cfg(test)]
mod tests {
    use windlass_election::{LeaseLost, LossReason};

    use super::*;

    #[test]
    fn work_failure_is_reported_unless_lease_was_lost_while_stopping() {
        let failure = || ManagerError::ApiServerUnreachable {
            waited: Duration::from_secs(10),
            last: "no answer".into(),
        };
        let also = ManagerError::ShutdownTimeout { waited: Duration::from_secs(10), stragglers: Vec::new() };
        let source = LeaseLost { reason: LossReason::HolderCleared };
        let lost = ManagerError::LeaseLost { lease: "kube-system/windlass".to_owned(), source };
        for stopped in [Ok(()), Err(also)] {
            assert!(matches!(
                reported_failure(failure(), stopped),
                ManagerError::ApiServerUnreachable { .. }
            ));
        }
        assert!(matches!(reported_failure(failure(), Err(lost)), ManagerError::LeaseLost { .. }));
    }
}
