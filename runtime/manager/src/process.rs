//! A manager that runs: one function per step of the start table, one per step back, and what ends it.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use k8s_openapi::api::core::v1::ObjectReference;
use windlass_client::{RawClient, one_line};
use windlass_controller::SetupError;
use windlass_election::ElectionConfig;
use windlass_env::Env;
use windlass_events::{EventType, Recorder, recorder_drawing_from};
use windlass_informer::{ApiSources, InformerFactory};
use windlass_metrics::Metrics;

use crate::admin_server::AdminServer;
use crate::api_server::wait_for_api_server;
use crate::config::ManagerConfig;
use crate::controllers::{Controllers, Recorders};
use crate::error::ManagerError;
use crate::health::Health;
use crate::leadership::Leadership;
use crate::lifecycle::{START, Step, stop_order};
use crate::needs::{Needs, Standing};
use crate::phase::Phase;
use crate::shutdown::ShutdownSignals;
use crate::takeover;

/// How often the informers that hold up the start are told of.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// How often kinds that are not served are looked for, as long as no controller can work without: as often as a person
/// would who has just installed one.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long informers may take to stop when the process is in a hurry. They only read.
const HURRY: Duration = Duration::from_secs(1);

/// Everything a running manager consists of.
pub(crate) struct Process {
    pub(crate) env: Env,
    pub(crate) config: Arc<ManagerConfig>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) api_server: kube::Client,
    pub(crate) reader: RawClient,
    pub(crate) factory: InformerFactory,
    pub(crate) election_client: kube::Client,
    pub(crate) leadership: Leadership,
    pub(crate) controllers: Controllers,
    pub(crate) admin: Option<AdminServer>,
    pub(crate) election_events: Recorders,
    pub(crate) phase: Phase,
    /// What each controller's caches lack.
    pub(crate) needs: Needs,
    /// Whether the caches show what the last leader wrote, so that what controllers write is built on it.
    pub(crate) caught_up: bool,
    pub(crate) started: Vec<Step>,
}

impl Process {
    /// Runs until a signal, the loss of the lease or a failure, then stops what was started.
    pub(crate) async fn run(mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        let end = match first(signals.aborted(), self.run_and_stop(signals)).await {
            Either::Left(()) => Err(ManagerError::Aborted),
            Either::Right(end) => end,
        };
        if matches!(end, Err(ManagerError::Aborted | ManagerError::LeaseLost(_))) {
            self.abort().await;
        }
        self.controllers.let_go();
        end
    }

    async fn run_and_stop(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        let end = self.work(signals).await;
        self.phase.stopping();
        match end {
            Err(lost @ ManagerError::LeaseLost(_)) => Err(lost),
            Err(failure) => Err(first_told(failure, self.stop().await)),
            Ok(()) => {
                tracing::info!("shutting down");
                self.stop().await
            }
        }
    }

    /// Starts step by step, then works, until the first signal.
    async fn work(&mut self, signals: &ShutdownSignals) -> Result<(), ManagerError> {
        for (step, _reason) in START {
            tracing::debug!(?step, "starting");
            // Noted before it is done, so that a step that was interrupted half-way is stopped as well.
            self.started.push(step);
            match first(signals.draining(), self.start(step)).await {
                Either::Left(()) => return Ok(()),
                Either::Right(started) => started?,
            }
        }
        Ok(self.leadership.during(signals.draining()).await?)
    }

    async fn start(&mut self, step: Step) -> Result<(), ManagerError> {
        match step {
            Step::AdminServer => self.start_admin_server().await,
            Step::ApiServer => {
                wait_for_api_server(&self.env, &self.api_server, self.config.api_server_wait).await
            }
            Step::Informers => self.start_informers().await,
            Step::Election => self.lead().await,
            Step::Controllers => self.start_controllers().await,
        }
    }

    async fn start_admin_server(&mut self) -> Result<(), ManagerError> {
        if let Some(address) = self.config.admin {
            let (metrics, health) = (self.metrics.clone(), self.health.clone());
            self.admin = Some(AdminServer::start(&self.env, address, metrics, health).await?);
        }
        Ok(())
    }

    /// Waits until every controller has its caches, or some have and the others have kept them waiting for
    /// [`SYNC_INTERVAL`]: those may need a role that is granted in a minute, or in a month. While none could work it
    /// leaves leading to a replica that can, and waits: without end, unless every controller says for how long.
    async fn start_informers(&mut self) -> Result<(), ManagerError> {
        self.factory.start(Arc::new(ApiSources::new(self.reader.clone())));
        let begun = self.env.now();
        loop {
            let waited = self.env.now().saturating_duration_since(begun);
            let turn = self.turn_of_waiting(waited)?;
            let settled = self.factory.wait_for_sync(Some(turn)).await;
            if matches!(self.needs.standing(), Standing::SomeCanWork) {
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

    /// How long to wait for informers before the next look at what they lack.
    fn turn_of_waiting(&self, waited: Duration) -> Result<Duration, ManagerError> {
        let Standing::NoneCanWorkFor(unmet, patience) = self.needs.standing() else {
            return Ok(SYNC_INTERVAL);
        };
        let left = patience.saturating_sub(waited);
        if left.is_zero() {
            let source = SetupError::NotSynced { waited, lacking: unmet.lacking };
            return Err(ManagerError::Setup { controller: unmet.controller, source });
        }
        Ok(SYNC_INTERVAL.min(left))
    }

    async fn lead(&mut self) -> Result<(), ManagerError> {
        let config = Arc::clone(&self.config);
        if let Some(election) = &config.election {
            tracing::info!(lease = %election.lease_name, identity = %election.identity, "standing by");
        }
        self.leadership.acquire().await?;
        if let Some(election) = &config.election {
            tracing::info!(lease = %election.lease_name, identity = %election.identity, "leading");
            let events = self.election_recorder();
            let note = format!("{} became leader", election.identity);
            events.event(&lease(election), EventType::Normal, "LeaderElection", &note);
        }
        Ok(())
    }

    /// Where the election tells what happened, under the manager's name. A controller may be called the same: what is
    /// left to chance is drawn apart.
    fn election_recorder(&mut self) -> Recorder {
        let (env, name) = (self.env.clone(), &self.config.name);
        let (recorder, sink) = recorder_drawing_from(env, "leader election", name, &self.metrics);
        self.election_events.run(&self.env, name, sink, self.election_client.clone());
        recorder
    }

    /// Lets the controllers work on caches that show what the last leader wrote. The lease is renewed meanwhile.
    async fn start_controllers(&mut self) -> Result<(), ManagerError> {
        if let Some(predecessor) = self.leadership.predecessor() {
            let caught_up = takeover::caught_up(&self.env, &self.factory, &predecessor);
            self.leadership.during(caught_up).await?;
        }
        self.caught_up = true;
        self.leadership.during(self.controllers.start()).await?
    }

    /// Stops what was started, in reverse, through to the end; the first failure is told.
    async fn stop(&mut self) -> Result<(), ManagerError> {
        let mut end = Ok(());
        for step in stop_order(&std::mem::take(&mut self.started)) {
            tracing::debug!(?step, "stopping");
            let stopped = self.stop_step(step, end.is_ok()).await;
            if let Err(lost @ ManagerError::LeaseLost(_)) = stopped {
                return Err(lost);
            }
            end = end.and(stopped);
        }
        end
    }

    /// `clean` says whether everything stopped so far has truly ended.
    async fn stop_step(&mut self, step: Step, clean: bool) -> Result<(), ManagerError> {
        match step {
            // The lease is renewed until the last reconcile has ended.
            Step::Controllers => self.leadership.during(self.controllers.drain()).await?,
            Step::Election => self.step_down(clean).await,
            Step::Informers => {
                self.factory.shutdown().await;
                Ok(())
            }
            Step::ApiServer => Ok(()),
            Step::AdminServer => {
                self.close_admin_server().await;
                Ok(())
            }
        }
    }

    /// Gives the lease back, unless an aborted reconcile may have a write on its way: then it expires by itself. Events
    /// of the election are sent after that: no fence holds them back, and nobody waits for them.
    async fn step_down(&mut self, clean: bool) -> Result<(), ManagerError> {
        let released = if clean {
            // Whoever was told to stop before its caches had caught up hands on what it was to wait for.
            let written = self.caught_up.then(|| self.controllers.written());
            self.leadership.release(written).await
        } else {
            tracing::warn!("the lease is left to expire");
            Ok(())
        };
        self.election_events.flush(&self.env).await;
        released
    }

    async fn close_admin_server(&mut self) {
        if let Some(admin) = self.admin.take() {
            admin.stop().await;
        }
    }

    /// Ends everything at its next await. Nothing is written: the fence is closed or its lease expires.
    async fn abort(&mut self) {
        self.controllers.abort().await;
        self.election_events.abort().await;
        if self.env.timeout(HURRY, self.factory.shutdown()).await.is_err() {
            tracing::warn!("informers did not stop in time");
        }
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
        Err(lost @ ManagerError::LeaseLost(_)) => {
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

/// Whichever comes first; `stop` is looked at first whenever both could go on.
async fn first<A, B>(stop: impl Future<Output = A>, work: impl Future<Output = B>) -> Either<A, B> {
    match future::select(pin!(stop), pin!(work)).await {
        Either::Left((stopped, _)) => Either::Left(stopped),
        Either::Right((worked, _)) => Either::Right(worked),
    }
}

/// The Lease as events name it.
fn lease(election: &ElectionConfig) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(election.lease_namespace.clone()),
        name: Some(election.lease_name.clone()),
        ..ObjectReference::default()
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
        let lost = ManagerError::LeaseLost(LeaseLost { reason: LossReason::Blanked });
        for stopped in [Ok(()), Err(also)] {
            assert!(matches!(first_told(failure(), stopped), ManagerError::ApiServerUnreachable { .. }));
        }
        assert!(matches!(first_told(failure(), Err(lost)), ManagerError::LeaseLost(_)));
    }
}
