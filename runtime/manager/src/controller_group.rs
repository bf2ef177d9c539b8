//! The controllers and runnables that act under one leadership.
//!
//! The group executes the last steps of [`START`], and reverts them in reverse order.
//!
//! **A term** begins when a fence opens, with the known writes of the predecessor. It ends in one of two ways:
//! - The group receives the stop signal: it drains while the Lease is still renewed, and releases the Lease with the
//!   versions that it wrote. This also happens if a coordinator prefers another replica.
//! - The term is lost: all tasks under it are aborted immediately, and the Lease is not released.
//!
//! A process has no second term after a lost one. Controllers are built once, their triggers and sources run once, and
//! an aborted worker leaves state that only a new process clears, so the process exits. With shards the group has a
//! term for each shard. It drains or aborts the keys of that shard, and the process continues without a shard that it
//! lost ([`crate::shards`]).

use futures_util::future;
use k8s_openapi::api::core::v1::ObjectReference;
use windlass_controller::RunsOn;
use windlass_election::{Election, PreviousHolder};
use windlass_env::Env;
use windlass_events::{NewEvent, Recorder};
use windlass_informer::InformerFactory;

use crate::cache_requirements::CacheRequirements;
use crate::controllers::Controllers;
use crate::error::ManagerError;
use crate::leadership::{GroupLeadership, TermWrites};
use crate::lifecycle::{START, StartStep, stop_order};
use crate::race::first;
use crate::runnables::{RunnableDeps, Runnables};
use crate::shutdown::ShutdownSignals;
use crate::shutdown_deadline::ShutdownDeadline;
use crate::takeover::{Takeover, merged};

/// The dependencies of a group.
pub(crate) struct GroupContext {
    pub(crate) env: Env,
    pub(crate) factory: InformerFactory,
    pub(crate) runnables: Runnables,
    pub(crate) runnable_deps: RunnableDeps,
    /// The recorder of events about winning and releasing the Lease; `None` without an election.
    pub(crate) election_events: Option<Recorder>,
}

/// Controllers and runnables that act under one leadership.
pub(crate) struct ControllerGroup {
    pub(crate) leadership: GroupLeadership,
    /// The election of the group; `None` if it is not elected.
    pub(crate) election: Option<Election>,
    pub(crate) controllers: Controllers,
    /// The caches that its controllers require.
    pub(crate) cache_requirements: CacheRequirements,
    /// The previous holder, once the group leads.
    pub(crate) previous_holder: Option<PreviousHolder>,
    /// The wait for the writes of the previous leader, once the group leads.
    pub(crate) takeover: Option<Takeover>,
    /// Whether the caches of all controllers reflect the writes of the previous leader.
    pub(crate) caught_up: bool,
    pub(crate) started: Vec<StartStep>,
}

impl ControllerGroup {
    /// Executes its steps, then works until the first signal.
    ///
    /// # Errors
    /// Returns the error that prevents it from continuing. If that is a lost lease, all tasks of the group have ended.
    ///
    /// # Cancel safety
    /// Started steps are recorded; [`ControllerGroup::stop`] and [`ControllerGroup::abort`] stop them.
    pub(crate) async fn work(
        &mut self,
        context: &GroupContext,
        signals: &ShutdownSignals,
    ) -> Result<(), ManagerError> {
        let worked = self.start_and_work(context, signals).await;
        self.unless_lost(context, worked).await
    }

    async fn start_and_work(
        &mut self,
        context: &GroupContext,
        signals: &ShutdownSignals,
    ) -> Result<(), ManagerError> {
        for (step, _reason) in START.into_iter().filter(|(step, _)| step.is_led()) {
            tracing::debug!(?step, "starting");
            // Recorded first, so that a partially executed step is stopped as well.
            self.started.push(step);
            match first(signals.draining(), self.start(step, context)).await {
                future::Either::Left(()) => return Ok(()),
                future::Either::Right(started) => started?,
            }
        }
        let handoff = self.leadership.handoff_requested();
        match self.leadership.run_while_led(first(signals.draining(), handoff)).await? {
            future::Either::Left(()) => Ok(()),
            future::Either::Right(handoff) => Err(handoff),
        }
    }

    async fn start(&mut self, step: StartStep, context: &GroupContext) -> Result<(), ManagerError> {
        match step {
            StartStep::GroupElection => self.lead(context).await,
            StartStep::LeaderRunnables => {
                let previous_holder = self.previous_holder.as_ref();
                let takeover = |it| Takeover::new(context.env.clone(), context.factory.running(), it);
                self.takeover = previous_holder.map(takeover);
                let deps = RunnableDeps { takeover: self.takeover.clone(), ..context.runnable_deps.clone() };
                context.runnables.start(RunsOn::Leader, deps);
                Ok(())
            }
            StartStep::Controllers => {
                self.leadership.run_while_led(self.controllers.start(self.takeover.as_ref())).await??;
                self.caught_up = true;
                Ok(())
            }
            // Steps of the process.
            StartStep::AdminServer
            | StartStep::ApiServer
            | StartStep::EarlyRunnables
            | StartStep::Informers
            | StartStep::Runnables => Ok(()),
        }
    }

    /// Waits until at least one controller has its caches, then until this replica leads.
    async fn lead(&mut self, context: &GroupContext) -> Result<(), ManagerError> {
        self.cache_requirements.met(&context.env).await?;
        if let Some(election) = &self.election {
            tracing::info!(lease = %election.lease(), identity = %election.config.identity, "on standby");
        }
        self.previous_holder = self.leadership.acquire().await?;
        self.record_event(context, "became leader");
        Ok(())
    }

    /// Records an event about the election, if there is one, on its Lease.
    fn record_event(&self, context: &GroupContext, what: &str) {
        if let (Some(election), Some(events)) = (&self.election, &context.election_events) {
            let note = format!("{} {what}", election.config.identity);
            events.publish(&lease(election), &NewEvent::normal("LeaderElection", note));
        }
    }

    /// Stops the started steps in reverse order, all of them. Returns the first failure.
    pub(crate) async fn stop(
        &mut self,
        context: &GroupContext,
        budget: &ShutdownDeadline,
    ) -> Result<(), ManagerError> {
        let mut end = Ok(());
        self.leadership.stop_acquiring();
        for step in stop_order(&std::mem::take(&mut self.started)) {
            tracing::debug!(?step, "stopping");
            let stopped = self.stop_step(step, context, budget, end.is_ok()).await;
            if stopped.as_ref().is_err_and(ManagerError::is_lost_lease) {
                return self.unless_lost(context, stopped).await;
            }
            end = end.and(stopped);
        }
        end
    }

    /// Stops one step. `clean` states whether everything that was stopped so far has ended.
    async fn stop_step(
        &mut self,
        step: StartStep,
        context: &GroupContext,
        budget: &ShutdownDeadline,
        clean: bool,
    ) -> Result<(), ManagerError> {
        match step {
            // The Lease is renewed until the last reconcile has ended.
            StartStep::Controllers => {
                self.leadership.run_while_led(self.controllers.drain(budget.left())).await?
            }
            StartStep::LeaderRunnables => {
                let ended = context.runnables.end(&context.env, RunsOn::Leader, budget.left());
                self.leadership.run_while_led(ended).await?
            }
            StartStep::GroupElection => self.step_down(context, clean).await,
            StartStep::AdminServer
            | StartStep::ApiServer
            | StartStep::EarlyRunnables
            | StartStep::Informers
            | StartStep::Runnables => Ok(()),
        }
    }

    /// Releases the Lease, unless a write of an aborted task or on a half-open connection can still take effect: the
    /// Lease then expires, after every such write.
    async fn step_down(&mut self, context: &GroupContext, clean: bool) -> Result<(), ManagerError> {
        // A standby has not led.
        if self.previous_holder.is_some() {
            self.record_event(context, "stopped leading");
        }
        if clean && !self.controllers.has_unsettled_writes() {
            return self.leadership.release(self.writes(context)).await;
        }
        if let Some(election) = &self.election {
            let lease_duration = election.config.lease_duration;
            tracing::warn!(
                lease = %election.lease(), ?lease_duration,
                "lease not released, because a write can still take effect; a standby takes over when it expires"
            );
        }
        self.leadership.abandon().await;
        Ok(())
    }

    /// Returns the writes of this term and of the previous leaders for the successor, whose caches can be older than
    /// all of them. If a controller still waits for the writes of the previous leader, the successor must wait for
    /// those too.
    fn writes(&self, context: &GroupContext) -> TermWrites {
        let Some(previous_holder) = &self.previous_holder else { return TermWrites::NotBegun };
        if context.runnables.led_writes() {
            return TermWrites::Unknown;
        }
        let written = self.controllers.written().cloned();
        if written.is_none() {
            tracing::warn!("releasing with a write of unknown outcome; the successor relists");
        }
        let reflected = self.takeover.as_ref().filter(|_| self.caught_up).map(Takeover::reflected);
        let earlier = previous_holder.record_for_successor(reflected.as_ref());
        merged(written, earlier).map_or(TermWrites::Unknown, TermWrites::UpTo)
    }

    /// Aborts the group if its Lease was lost.
    async fn unless_lost<T>(
        &mut self,
        context: &GroupContext,
        end: Result<T, ManagerError>,
    ) -> Result<T, ManagerError> {
        if end.as_ref().is_err_and(ManagerError::is_lost_lease) {
            self.abort(context).await;
        }
        end
    }

    /// Aborts all tasks at their next await. They can write nothing: the fence is closed or the Lease expires.
    pub(crate) async fn abort(&mut self, context: &GroupContext) {
        self.started.clear();
        // All are aborted before any is awaited, so that a task that never yields does not keep others working.
        let runnables = context.runnables.abort_one(&context.env, RunsOn::Leader);
        future::join3(self.controllers.abort(), runnables, self.leadership.abandon()).await;
    }

    /// Stops the remaining tasks of controllers that do not work.
    pub(crate) fn stop_unstarted(&self) {
        self.controllers.stop_unstarted();
    }
}

/// Returns the reference to the Lease for events.
fn lease(election: &Election) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(election.namespace.clone()),
        name: Some(election.config.lease_name.clone()),
        ..ObjectReference::default()
    }
}
