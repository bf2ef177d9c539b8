//! What acts under one leadership: the controllers, and the runnables that need a leader.
//!
//! It goes through the last steps of [`START`], and back through them in reverse.
//!
//! Whatever leads it, **a term** begins with a fence that opens and with what is known of the predecessor's writes, and
//! it ends in one of two ways. Either the team is told to stop: it drains while the lease is still renewed, and releases
//! with what it wrote. Or the term is lost: everything under it is stopped where it stands, at once, and nothing is
//! released. Where a coordinator prefers another replica, the team is told to stop.
//!
//! A lost term is not followed by another in the same process. Controllers are built once, their triggers and sources run
//! once, and a worker that was stopped half-way leaves what only a new process is rid of: so the process ends. With
//! shards the team has a term for each shard, whose keys are what is drained or stopped, and the process continues
//! without a shard that it lost ([`crate::shards`]).

use futures_util::future;
use k8s_openapi::api::core::v1::ObjectReference;
use windlass_controller::RunsOn;
use windlass_election::{Election, PreviousHolder};
use windlass_env::Env;
use windlass_events::{NewEvent, Recorder};
use windlass_informer::InformerFactory;

use crate::budget::ShutdownDeadline;
use crate::cache_requirements::CacheRequirements;
use crate::controllers::Controllers;
use crate::error::ManagerError;
use crate::leadership::{GroupLeadership, TermWrites};
use crate::lifecycle::{START, StartStep, stop_order};
use crate::race::first;
use crate::runnables::{RunnableDeps, Runnables};
use crate::shutdown::ShutdownSignals;
use crate::takeover::{Takeover, merged};

/// What the team takes from its process.
pub(crate) struct GroupContext {
    pub(crate) env: Env,
    pub(crate) factory: InformerFactory,
    pub(crate) runnables: Runnables,
    pub(crate) means: RunnableDeps,
    /// Who is told when a lease is won and when it is given up, if there are elections.
    pub(crate) election_events: Option<Recorder>,
}

/// Controllers and runnables that act under one leadership.
pub(crate) struct ControllerGroup {
    pub(crate) leadership: GroupLeadership,
    /// What it stands for, if it is elected.
    pub(crate) election: Option<Election>,
    pub(crate) controllers: Controllers,
    /// What its controllers' caches lack.
    pub(crate) needs: CacheRequirements,
    /// Whom it follows, once it leads.
    pub(crate) predecessor: Option<PreviousHolder>,
    /// What its controllers and runnables wait for, once it leads.
    pub(crate) takeover: Option<Takeover>,
    /// Whether all controllers have caches that reflect what the last leader wrote.
    pub(crate) caught_up: bool,
    pub(crate) started: Vec<StartStep>,
}

impl ControllerGroup {
    /// Goes through its steps, then works, until the first signal.
    ///
    /// # Errors
    /// What it cannot continue without. If that is its lease, nothing of it runs any more.
    ///
    /// # Cancel safety
    /// What was begun is noted; [`ControllerGroup::stop`] and [`ControllerGroup::abort`] end it.
    pub(crate) async fn work(
        &mut self,
        common: &GroupContext,
        signals: &ShutdownSignals,
    ) -> Result<(), ManagerError> {
        let worked = self.start_and_work(common, signals).await;
        self.unless_lost(common, worked).await
    }

    async fn start_and_work(
        &mut self,
        common: &GroupContext,
        signals: &ShutdownSignals,
    ) -> Result<(), ManagerError> {
        for (step, _reason) in START.into_iter().filter(|(step, _)| step.is_led()) {
            tracing::debug!(?step, "starting");
            // Noted before it is done, so that a step that was interrupted half-way is stopped as well.
            self.started.push(step);
            match first(signals.draining(), self.start(step, common)).await {
                future::Either::Left(()) => return Ok(()),
                future::Either::Right(started) => started?,
            }
        }
        let unwanted = self.leadership.handoff_requested();
        match self.leadership.during(first(signals.draining(), unwanted)).await? {
            future::Either::Left(()) => Ok(()),
            future::Either::Right(unwanted) => Err(unwanted),
        }
    }

    async fn start(&mut self, step: StartStep, common: &GroupContext) -> Result<(), ManagerError> {
        match step {
            StartStep::GroupElection => self.lead(common).await,
            StartStep::LeaderRunnables => {
                let predecessor = self.predecessor.as_ref();
                let takeover = |it| Takeover::new(common.env.clone(), common.factory.running(), it);
                self.takeover = predecessor.map(takeover);
                let means = RunnableDeps { takeover: self.takeover.clone(), ..common.means.clone() };
                common.runnables.start(RunsOn::Leader, means);
                Ok(())
            }
            StartStep::Controllers => {
                self.leadership.during(self.controllers.start(self.takeover.as_ref())).await??;
                self.caught_up = true;
                Ok(())
            }
            // The process's.
            StartStep::AdminServer
            | StartStep::ApiServer
            | StartStep::EarlyRunnables
            | StartStep::Informers
            | StartStep::Runnables => Ok(()),
        }
    }

    /// Waits until there is something to lead and one of its controllers could work, then until this replica leads.
    async fn lead(&mut self, common: &GroupContext) -> Result<(), ManagerError> {
        self.needs.met(&common.env).await?;
        if let Some(election) = &self.election {
            tracing::info!(lease = %election.lease(), identity = %election.config.identity, "standing by");
        }
        self.predecessor = self.leadership.acquire().await?;
        if let Some(election) = &self.election {
            tracing::info!(lease = %election.lease(), identity = %election.config.identity, "leading");
        }
        self.tell(common, "became leader");
        Ok(())
    }

    /// Records what has come of the election, if there is one, on its Lease.
    fn tell(&self, common: &GroupContext, what: &str) {
        if let (Some(election), Some(events)) = (&self.election, &common.election_events) {
            let note = format!("{} {what}", election.config.identity);
            events.publish(&lease(election), &NewEvent::normal("LeaderElection", note));
        }
    }

    /// Stops what was started, in reverse, through to the end; the first failure is told.
    pub(crate) async fn stop(
        &mut self,
        common: &GroupContext,
        budget: &ShutdownDeadline,
    ) -> Result<(), ManagerError> {
        let mut end = Ok(());
        self.leadership.resign();
        for step in stop_order(&std::mem::take(&mut self.started)) {
            tracing::debug!(?step, "stopping");
            let stopped = self.stop_step(step, common, budget, end.is_ok()).await;
            if stopped.as_ref().is_err_and(ManagerError::is_lost_lease) {
                return self.unless_lost(common, stopped).await;
            }
            end = end.and(stopped);
        }
        end
    }

    /// `clean` says whether everything stopped so far has truly ended.
    async fn stop_step(
        &mut self,
        step: StartStep,
        common: &GroupContext,
        budget: &ShutdownDeadline,
        clean: bool,
    ) -> Result<(), ManagerError> {
        match step {
            // The lease is renewed until the last reconcile has ended.
            StartStep::Controllers => self.leadership.during(self.controllers.drain(budget.left())).await?,
            StartStep::LeaderRunnables => {
                let ended = common.runnables.end(&common.env, RunsOn::Leader, budget.left());
                self.leadership.during(ended).await?
            }
            StartStep::GroupElection => self.step_down(common, clean).await,
            StartStep::AdminServer
            | StartStep::ApiServer
            | StartStep::EarlyRunnables
            | StartStep::Informers
            | StartStep::Runnables => Ok(()),
        }
    }

    /// Gives the lease back, unless something that was aborted may have a write on its way: then it expires by itself.
    async fn step_down(&mut self, common: &GroupContext, clean: bool) -> Result<(), ManagerError> {
        // A standby that ends has led nothing.
        if self.predecessor.is_some() {
            self.tell(common, "stopped leading");
        }
        if clean {
            return self.leadership.release(self.writes(common)).await;
        }
        tracing::warn!("the lease is left to expire");
        self.leadership.abandon().await;
        Ok(())
    }

    /// Returns what the successor is told of this term's writes. While a controller still waits for what the last leader
    /// wrote, the successor must wait for that as well.
    fn writes(&self, common: &GroupContext) -> TermWrites {
        let Some(predecessor) = &self.predecessor else { return TermWrites::NotBegun };
        if common.runnables.led_writes() {
            return TermWrites::Unknown;
        }
        let written = self.controllers.written().cloned();
        if written.is_none() {
            tracing::warn!("releasing with a write of unknown outcome; the successor relists");
        }
        let written = match self.caught_up {
            true => written,
            false => merged(written, predecessor.written().cloned()),
        };
        written.map_or(TermWrites::Unknown, TermWrites::UpTo)
    }

    /// Ends all of it at once if its lease was lost.
    async fn unless_lost<T>(
        &mut self,
        common: &GroupContext,
        end: Result<T, ManagerError>,
    ) -> Result<T, ManagerError> {
        if end.as_ref().is_err_and(ManagerError::is_lost_lease) {
            self.abort(common).await;
        }
        end
    }

    /// Ends everything at its next await. Nothing is written: the fence is closed or its lease expires.
    pub(crate) async fn abort(&mut self, common: &GroupContext) {
        self.started.clear();
        // All are told before any is waited for: one that does not stop keeps none of the others working.
        let runnables = common.runnables.abort_one(&common.env, RunsOn::Leader);
        future::join3(self.controllers.abort(), runnables, self.leadership.abandon()).await;
    }

    /// Stops what is left of controllers that do not work.
    pub(crate) fn let_go(&self) {
        self.controllers.let_go();
    }
}

/// The Lease as events name it.
fn lease(election: &Election) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(election.namespace.clone()),
        name: Some(election.config.lease_name.clone()),
        ..ObjectReference::default()
    }
}
