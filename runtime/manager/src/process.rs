//! A manager that runs: one function per step of the start table, one per step back, and what ends it.

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
use crate::budget::{HURRY, ShutdownDeadline};
use crate::cache_requirements::{CacheReadiness, CacheRequirements, LOOK_INTERVAL};
use crate::config::ManagerConfig;
use crate::controller_group::{ControllerGroup, GroupContext};
use crate::controllers::Recorders;
use crate::error::ManagerError;
use crate::lifecycle::{START, StartStep, stop_order};
use crate::phase::ProcessPhase;
use crate::race::first;
use crate::replica_team::ReplicaTeam;
use crate::runnables::RunnableDeps;
use crate::shutdown::ShutdownSignals;

/// How often the informers that hold up the start are told of.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// Everything a running manager consists of.
pub(crate) struct Process {
    pub(crate) env: Env,
    pub(crate) config: Arc<ManagerConfig>,
    pub(crate) metrics: Metrics,
    pub(crate) api_server: kube::Client,
    pub(crate) reader: RawClient,
    /// What everybody who acts takes from here.
    pub(crate) common: GroupContext,
    /// Who tells of elections, if there are any.
    pub(crate) election_client: kube::Client,
    pub(crate) team: ControllerGroup,
    /// Works whether this replica leads or not.
    pub(crate) everywhere: ReplicaTeam,
    pub(crate) admin_parts: AdminServerDeps,
    pub(crate) admin: Option<AdminServer>,
    pub(crate) election_events: Recorders,
    pub(crate) phase: ProcessPhase,
    /// What each controller's caches lack.
    pub(crate) needs: CacheRequirements,
    pub(crate) started: Vec<StartStep>,
}

impl Process {
    /// Runs until a signal, the loss of a lease or a failure, then stops what was started.
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
        self.team.let_go();
        self.everywhere.let_go();
        end
    }

    async fn run_and_stop(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        let end = self.work(signals).await;
        self.phase.stopping();
        self.common.runnables.close();
        let end = match end {
            // What worked under the lease has ended.
            Err(lost) if lost.is_lost_lease() => Err(lost),
            Err(failure) => Err(first_told(failure, self.stop().await)),
            Ok(()) => {
                tracing::info!("shutting down");
                self.stop().await
            }
        };
        // One may have failed before it was its turn to stop. Each failure is in the log, and the result has one.
        match (end, self.common.runnables.untold_failure()) {
            (Ok(()), Some(failure)) => Err(failure),
            (end, _) => end,
        }
    }

    /// Starts step by step, then works, until the first signal or until something fails.
    async fn work(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        let runnables = self.common.runnables.clone();
        match first(runnables.failure(), self.start_and_work(signals)).await {
            Either::Left(failure) => Err(failure),
            Either::Right(end) => end,
        }
    }

    async fn start_and_work(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        for (step, _reason) in START.into_iter().filter(|(step, _)| !step.is_led()) {
            tracing::debug!(?step, "starting");
            // Noted before it is done, so that a step that was interrupted half-way is stopped as well.
            self.started.push(step);
            match first(signals.draining(), self.start(step)).await {
                Either::Left(()) => return Ok(()),
                Either::Right(started) => started?,
            }
        }
        self.started.push(StartStep::GroupElection);
        self.common.election_events = self.config.election.is_some().then(|| self.election_recorder());
        // The future is large: on the stack it would overflow that of a thread in a debug build.
        Box::pin(self.team.work(&self.common, signals)).await
    }

    async fn start(&mut self, step: StartStep) -> Result<(), ManagerError> {
        match step {
            StartStep::AdminServer => self.start_admin_server().await,
            StartStep::ApiServer => {
                wait_for_api_server(&self.env, &self.api_server, self.config.api_server_wait).await
            }
            StartStep::EarlyRunnables => {
                self.start_runnables(RunsOn::BeforeCaches);
                self.common.runnables.ready(&self.env, RunsOn::BeforeCaches).await;
                Ok(())
            }
            StartStep::Informers => self.start_informers().await,
            StartStep::Runnables => {
                self.start_runnables(RunsOn::EveryReplica);
                self.everywhere.start(self.common.runnables.clone());
                Ok(())
            }
            // The team's.
            StartStep::GroupElection | StartStep::LeaderRunnables | StartStep::Controllers => Ok(()),
        }
    }

    async fn start_admin_server(&mut self) -> Result<(), ManagerError> {
        if let Some(config) = &self.config.admin {
            self.admin = Some(AdminServer::start(&self.env, config, self.admin_parts.clone()).await?);
        }
        Ok(())
    }

    /// Of those that need no leadership: what they write stands behind no fence.
    fn start_runnables(&self, group: RunsOn) {
        let fence: Option<Arc<dyn Fence>> = Some(Arc::new(OpenFence));
        self.common.runnables.start(group, RunnableDeps { fence, ..self.common.means.clone() });
    }

    /// Waits until every controller has its caches, or some have and the others have kept them waiting for
    /// [`SYNC_INTERVAL`]: those may need a role that is granted in a minute, or in a month. While none could work it
    /// leaves leading to a replica that can, and waits: without end, unless every controller says for how long.
    async fn start_informers(&mut self) -> Result<(), ManagerError> {
        self.common.factory.start(Arc::new(ApiServerSources::new(self.reader.clone())));
        let begun = self.env.now();
        loop {
            let waited = self.env.now().saturating_duration_since(begun);
            let turn = self.needs.turn(SYNC_INTERVAL, waited)?;
            let settled = self.common.factory.wait_for_sync(Some(turn)).await;
            if matches!(self.needs.standing(), CacheReadiness::SomeCanWork) {
                break;
            }
            match settled {
                Err(behind) => {
                    tracing::warn!(%behind, "waiting for caches");
                    self.phase.syncing(behind.to_string());
                }
                // What is left is not served at all, which informers do not wait for. Their controllers do.
                Ok(()) => {
                    self.phase.syncing(format!("no controller has its caches: {:?}", self.needs.unmet()));
                    self.env.sleep(turn.min(LOOK_INTERVAL)).await;
                }
            }
        }
        self.phase.synced();
        match self.needs.unmet() {
            unmet if unmet.is_empty() => tracing::info!("caches are synced"),
            unmet => tracing::warn!(
                ?unmet,
                "going on without these controllers: each starts once its caches are there"
            ),
        }
        Ok(())
    }

    /// Where elections tell what happened, under the manager's name. A controller may be called the same: what is
    /// left to chance is drawn apart.
    fn election_recorder(&mut self) -> Recorder {
        let (env, name) = (self.env.clone(), &self.config.name);
        let (recorder, sink) = recorder(env, "leader election", name, &self.metrics);
        let sink = sink.with_cache_size(self.config.remembered_events);
        self.election_events.run(&self.env, name, sink, self.election_client.clone());
        recorder
    }

    /// Stops what was started, in reverse, through to the end; the first failure is told.
    async fn stop(&mut self) -> Result<(), ManagerError> {
        let budget = self.budget();
        let mut end = Ok(());
        // While the controllers of the leader drain, these do.
        self.everywhere.begin_stop(budget.left());
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
                let stopped = Box::pin(self.team.stop(&self.common, budget)).await;
                // Sent when nothing is led any more: no fence holds them back, and nobody waits for them.
                self.election_events.flush(&self.env).await;
                stopped
            }
            StartStep::Runnables => {
                let drained = self.everywhere.stop(budget.left()).await;
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

    /// Waits for handlers that are being called, but not for one that never returns.
    async fn end_informers(&mut self, within: Duration) -> Result<(), ManagerError> {
        let ended = self.env.timeout(within, self.common.factory.shutdown()).await;
        ended.map_err(|_| ManagerError::InformersStuck { waited: within })
    }

    async fn end_runnables(&mut self, group: RunsOn, budget: &ShutdownDeadline) -> Result<(), ManagerError> {
        self.common.runnables.end(&self.env, group, budget.left()).await
    }

    fn budget(&self) -> ShutdownDeadline {
        ShutdownDeadline::new(&self.env, self.config.shutdown_timeout)
    }

    async fn close_admin_server(&mut self) {
        // Kept until it has stopped, for whoever takes over from a stop that was dropped half-way.
        if let Some(admin) = &mut self.admin {
            admin.close().await;
        }
        self.admin = None;
    }

    /// Ends what needs no lease as well as it can be done in a moment, then everything.
    async fn stop_now(&mut self) {
        if let Err(error) = self.everywhere.stop(HURRY).await {
            tracing::warn!(error = one_line(&error), "not all reconciles stopped in time");
        }
        for group in [RunsOn::EveryReplica, RunsOn::BeforeCaches] {
            if let Err(error) = self.common.runnables.end(&self.env, group, HURRY).await {
                tracing::warn!(error = one_line(&error), "not all runnables stopped in time");
            }
        }
        self.abort().await;
    }

    /// Ends everything at its next await. Nothing is written: fences are closed, or their leases expire.
    async fn abort(&mut self) {
        future::join(Box::pin(self.team.abort(&self.common)), self.everywhere.abort()).await;
        self.election_events.abort().await;
        if self.env.timeout(HURRY, self.common.factory.shutdown()).await.is_err() {
            tracing::warn!("informers did not stop in time");
        }
        self.common.runnables.abort(&self.env).await;
        self.close_admin_server().await;
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("started", &self.started).finish_non_exhaustive()
    }
}

/// What ended the work is told before what went wrong while stopping, unless that is the loss of the lease, after which
/// nothing may be left running.
fn first_told(failure: ManagerError, stopped: Result<(), ManagerError>) -> ManagerError {
    match stopped {
        Err(lost) if lost.is_lost_lease() && !failure.is_lost_lease() => {
            tracing::error!(error = one_line(&failure), "what ended the work, before the lease was lost");
            lost
        }
        Err(also) => {
            tracing::error!(error = one_line(&also), "stopping failed as well");
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
    fn what_ended_the_work_is_told_first_unless_the_lease_was_lost_while_stopping() {
        let failure = || ManagerError::ApiServerUnreachable {
            waited: Duration::from_secs(10),
            last: "no answer".into(),
        };
        let also = ManagerError::ShutdownTimeout { waited: Duration::from_secs(10), stragglers: Vec::new() };
        let source = LeaseLost { reason: LossReason::Blanked };
        let lost = ManagerError::LeaseLost { lease: "kube-system/windlass".to_owned(), source };
        for stopped in [Ok(()), Err(also)] {
            assert!(matches!(first_told(failure(), stopped), ManagerError::ApiServerUnreachable { .. }));
        }
        assert!(matches!(first_told(failure(), Err(lost)), ManagerError::LeaseLost { .. }));
    }
}
