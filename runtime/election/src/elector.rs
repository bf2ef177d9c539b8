//! The elector: acquires, holds and releases the Lease, following the decisions of [`LeaseState`].
//!
//! The three methods take `&mut self`, so that only one of them runs at a time. All state is in the elector, so each of
//! them can be dropped at any await and called again. A write that was interrupted this way might have taken effect:
//! the state is *stale*, and no write builds on it, until the Lease is fetched.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_client::RawClient;
use windlass_env::watch_channel::{self, Receiver, Sender};
use windlass_env::{Env, Instant, Rng};
use windlass_metrics::{ElectionMetrics, Metrics};
use windlass_object::ObjectKey;

use crate::clocks::Clocks;
use crate::config::{Election, ElectionConfig, ElectionConfigError};
use crate::coordinated::Candidate;
use crate::error::{ElectionError, LeaseError, LeaseLost, LossReason};
use crate::fence::LeaderFence;
use crate::leadership::{HealthCheck, LastRenewal, Leadership};
use crate::lease_api::LeaseApi;
use crate::lease_state::{LeaseParams, LeaseState, RenewAction, TimePoint, WritePurpose};
use crate::lease_watch::{LeaseEvent, LeaseWatch};
use crate::observed_lease::ElectionAction;
use crate::written_versions::{PreviousHolder, WrittenVersions};

/// Maximum random extension of a pause, relative to the retry period; the factor of client-go. It prevents standbys
/// that failed together from retrying together.
const JITTER: f64 = 1.2;

/// One replica's participant in an election.
pub struct Elector {
    env: Env,
    lease: ObjectKey,
    config: ElectionConfig,
    api: LeaseApi,
    watch: LeaseWatch,
    /// Candidate of this replica, if the API server's coordinator elects.
    candidate: Option<Candidate>,
    fence: Arc<LeaderFence>,
    clocks: Arc<Clocks>,
    leadership: Sender<Leadership>,
    /// Identity that the coordinator prefers while this replica holds the lease.
    preferred: Sender<Option<String>>,
    last_renewal: LastRenewal,
    metrics: ElectionMetrics,
    rng: Rng,
    role: Role,
    /// Observed Lease and next write.
    lease_state: LeaseState,
    /// Last logged failure, to log each failure once.
    last_failure: Option<String>,
}

/// Role of this replica. The deadline of a term is in the fence, which the client checks.
#[derive(Copy, Clone, Debug)]
enum Role {
    Standby,
    Leading {
        renew_at: Instant,
        /// Time until which the lease is renewed although the coordinator prefers another replica.
        yield_by: Option<Instant>,
    },
}

impl Elector {
    /// Returns an idle elector. `client` should have its own connection and no rate limit; `watch` can be shared. The
    /// fence is closed until [`acquire`](Self::acquire) returns.
    ///
    /// # Errors
    ///
    /// If the configuration does not [validate](ElectionConfig::validate).
    ///
    /// # Panics
    ///
    /// If two electors of the same Lease use the same `env`: their random pauses would be equal.
    pub fn new(
        env: Env,
        election: Election,
        client: kube::Client,
        watch: RawClient,
        fence: Arc<LeaderFence>,
        metrics: &Metrics,
    ) -> Result<Self, ElectionConfigError> {
        election.config.validate()?;
        let lease_state = LeaseState::new(LeaseParams::from_config(&election), &election.config.lease_name);
        let candidate = Candidate::of(&env, &client, &election);
        let api = LeaseApi::new(env.clone(), client, watch, &election);
        let (lease, config) = (election.lease(), election.config);
        let metrics = metrics.election(lease.name());
        metrics.master_status.set(0);
        let clocks = Arc::new(Clocks::new(env.clone(), config.allowance()));
        fence.watch(Arc::clone(&clocks));
        Ok(Self {
            candidate,
            api,
            watch: LeaseWatch::new(env.clone(), lease.name()),
            leadership: watch_channel::channel(Leadership::Following { holder: None }).0,
            preferred: watch_channel::channel(None).0,
            rng: env.rng(&format!("election/{lease}")),
            env,
            lease,
            config,
            fence,
            clocks,
            last_renewal: LastRenewal::default(),
            metrics,
            role: Role::Standby,
            lease_state,
            last_failure: None,
        })
    }

    /// Returns the fence that this elector opens and closes.
    pub fn fence(&self) -> Arc<LeaderFence> {
        self.fence.clone()
    }

    /// Returns a receiver for this replica's role in the election.
    pub fn leadership(&self) -> Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Returns a receiver for the identity that the coordinator prefers over this leader. The value is `None` while
    /// there is no such identity.
    ///
    /// When the value is set, the caller should stop the work and release the lease. The elector renews the lease for
    /// one more lease duration, so that the work can finish. After that the lease is lost, with
    /// [`LossReason::Preferred`].
    pub fn preferred(&self) -> Receiver<Option<String>> {
        self.preferred.subscribe()
    }

    /// Returns the reported writes of the previous leader. The value is valid for the term that
    /// [`acquire`](Self::acquire) started. Start the work when the caches contain these writes.
    pub fn previous_holder(&self) -> &PreviousHolder {
        self.lease_state.previous_holder()
    }

    /// Returns a check that fails if the lease is held but was not renewed for its duration and 20 s more: the task
    /// that holds it is stuck.
    pub fn health(&self) -> HealthCheck {
        self.last_renewal.health(self.env.clone(), self.lease.to_string(), self.config.lease_duration)
    }

    /// Waits until this replica leads, and returns with the fence open. Returns immediately if it already leads.
    ///
    /// If the server is unreachable or returns an error, the elector retries after 1 to 2.2 retry periods,
    /// indefinitely. It logs each change of the failure once.
    ///
    /// # Errors
    ///
    /// [`ElectionError::Rejected`] if the server rejects the Lease as invalid, which a retry cannot fix;
    /// [`ElectionError::NotCoordinated`] if the server must elect and does not.
    ///
    /// # Cancel safety
    ///
    /// Safe. A write in flight can still win the lease; the next call, or a release, detects this.
    pub async fn acquire(&mut self) -> Result<(), ElectionError> {
        let candidate = self.candidate.clone();
        tokio::select! {
            biased;
            error = run_candidate(candidate) => Err(error),
            outcome = self.acquire_as_candidate() => outcome,
        }
    }

    async fn acquire_as_candidate(&mut self) -> Result<(), ElectionError> {
        if matches!(self.role, Role::Leading { .. }) && self.fence.held_until().is_none() {
            self.lose(self.missed_deadline());
        }
        while matches!(self.role, Role::Standby) {
            if let Err(failure) = self.step_as_standby().await {
                self.lease_state.mark_stale();
                self.recover(failure).await?;
            }
        }
        self.watch.stop();
        Ok(())
    }

    /// Renews the lease until it is lost. The fence is then closed. Run this concurrently with the work, and stop the
    /// work when it returns.
    ///
    /// A failed renewal is retried each retry period while the fence is open. If the coordinator prefers another
    /// replica, [`preferred`](Self::preferred) reports it, and one lease duration remains to stop the work.
    ///
    /// # Cancel safety
    ///
    /// Safe: another call continues. Without a running call the lease is not renewed, and the fence closes at its
    /// deadline.
    pub async fn hold(&mut self) -> LeaseLost {
        let candidate = self.candidate.clone();
        tokio::select! {
            biased;
            // The result of the candidate matters for the next term only.
            lost = self.renew_until_lost() => lost,
            lost = run_candidate_while_leading(candidate) => lost,
        }
    }

    async fn renew_until_lost(&mut self) -> LeaseLost {
        loop {
            let Role::Leading { renew_at, .. } = self.role else {
                return LeaseLost { reason: LossReason::NotHeld };
            };
            let Some(deadline) = self.fence.held_until() else { return self.lose(self.missed_deadline()) };
            self.env.sleep_until(renew_at.min(deadline)).await;
            if self.fence.held_until().is_none() {
                continue;
            }
            match self.renew_before(deadline).await {
                Ok(()) => self.last_failure = None,
                Err(LeaseError::Lost(reason)) => return self.lose(reason),
                Err(failure) => self.log_failure("cannot renew the lease", &failure),
            }
        }
    }

    /// Closes the fence. Then releases the Lease if the configuration requires it and the Lease, fetched again, still
    /// names this replica. Call it after the work has stopped: the next leader can start while this runs.
    ///
    /// `written` contains the versions written in this term, for the successor to wait for. `None` reports nothing, as
    /// after a crash: the successor must expect any write. A term without writes that did not wait for the writes of
    /// the [previous holder](Self::previous_holder) passes these on.
    ///
    /// Conflicts are retried. The renew deadline limits the whole call.
    ///
    /// # Errors
    ///
    /// If the Lease could not be released. A standby takes over when it expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: the fence is closed before the first await, and another call continues.
    pub async fn release(&mut self, written: Option<&WrittenVersions>) -> Result<(), ElectionError> {
        self.step_down(Leadership::Following { holder: None });
        self.watch.stop();
        if !self.config.release_on_exit || !self.lease_state.may_hold() {
            return Ok(());
        }
        let within = self.config.renew_deadline;
        match self.env.clone().timeout(within, self.release_lease(written)).await {
            Ok(outcome) => outcome.map_err(|error| ElectionError::Release { message: error.to_string() }),
            Err(_) => Err(ElectionError::ReleaseTimedOut { within }),
        }
    }
}

/// Standby.
impl Elector {
    /// Performs the next step towards leading.
    async fn step_as_standby(&mut self) -> Result<(), LeaseError> {
        self.report_leader_presence();
        match self.lease_state.next_action(self.env.now()) {
            ElectionAction::Fetch => self.fetch().await,
            ElectionAction::Create => self.claim(WritePurpose::First).await,
            ElectionAction::TakeOver => self.claim(WritePurpose::TakeOver).await,
            ElectionAction::Reclaim => self.claim(WritePurpose::Reclaim).await,
            ElectionAction::Release => self.write(WritePurpose::Release, None).await.map(drop),
            ElectionAction::WaitUntil(expiry) => {
                self.wait_for_change(expiry).await;
                Ok(())
            }
            ElectionAction::Follow => {
                self.wait_and_refetch().await;
                Ok(())
            }
        }
    }

    fn report_leader_presence(&self) {
        if let Some(candidate) = &self.candidate {
            candidate.set_led(self.lease_state.is_led(self.env.now()));
        }
    }

    /// Returns an error if the failed step is permanent, and pauses otherwise.
    async fn recover(&mut self, failure: LeaseError) -> Result<(), ElectionError> {
        // The next fetch returns a newer state than the pending events of a running watch.
        self.watch.stop();
        let pause = match failure {
            // The next fetch returns the winner's write. The pause only separates the losers.
            LeaseError::Conflict => self.spread(),
            LeaseError::Invalid(message) => return Err(ElectionError::Rejected { message }),
            failure => {
                self.log_failure("cannot acquire the lease", &failure);
                self.pause()
            }
        };
        self.env.sleep(pause).await;
        Ok(())
    }

    /// Waits until the lease expires or the Lease changes. The watch is opened concurrently, so that a hanging request
    /// does not delay the expiry.
    async fn wait_for_change(&mut self, expiry: Instant) {
        self.last_failure = None;
        let wake = expiry + self.spread();
        let pause = self.pause();
        let event = tokio::select! {
            biased;
            event = self.watch.next(&self.api, self.lease_state.observed().version(), pause) => event,
            () = self.env.sleep_until(wake) => return,
        };
        match event {
            LeaseEvent::Changed(lease) => self.lease_state.on_watch_event(*lease, self.env.now()),
            LeaseEvent::Deleted => self.lease_state.on_deleted(),
            LeaseEvent::Lost => self.lease_state.mark_stale(),
        }
        self.publish_holder();
    }

    /// Waits until the Lease changes, and fetches it after some time: a watch without events might be stuck.
    async fn wait_and_refetch(&mut self) {
        let timeout = (self.config.retry_period * 2).min(self.config.lease_duration);
        let until = self.env.now() + timeout;
        self.wait_for_change(until).await;
        if self.env.now() >= until {
            self.watch.stop();
            self.lease_state.mark_stale();
        }
    }

    /// Writes this replica into the Lease. If that succeeds, the replica leads from the time of sending.
    async fn claim(&mut self, purpose: WritePurpose) -> Result<(), LeaseError> {
        let sent = self.write(purpose, None).await?;
        if !self.fence.open(sent, sent + self.config.renew_deadline) {
            self.lease_state.step_down();
            return Err(LeaseError::TooLate);
        }
        self.role = Role::Leading { renew_at: sent + self.config.retry_period, yield_by: None };
        self.last_failure = None;
        self.last_renewal.set(Some(sent));
        self.metrics.master_status.set(1);
        self.leadership.set(Leadership::Leading);
        self.report_leader_presence();
        tracing::info!(lease = %self.lease, identity = %self.config.identity, "became leader");
        Ok(())
    }
}

/// Leading.
impl Elector {
    /// Sends one renewal, which ends before the deadline.
    async fn renew_before(&mut self, deadline: Instant) -> Result<(), LeaseError> {
        let env = self.env.clone();
        let begun = env.now();
        let budget = self.config.attempt().min(deadline.saturating_duration_since(begun));
        let outcome = env.timeout(budget, self.renew()).await.unwrap_or(Err(LeaseError::Timeout(budget)));
        // Pauses only after a completed attempt. An interrupted attempt is repeated immediately.
        if let Role::Leading { renew_at, .. } = &mut self.role {
            *renew_at = begun + self.config.retry_period;
        }
        outcome
    }

    /// Renews on top of the last observed Lease. If that is stale or conflicts, fetches the Lease first.
    async fn renew(&mut self) -> Result<(), LeaseError> {
        let mut looked = false;
        loop {
            match self.lease_state.renew_action() {
                RenewAction::Fetch => {
                    looked = true;
                    self.metrics.slowpath.inc();
                    self.fetch().await?;
                }
                RenewAction::Lost(reason) => return Err(LeaseError::Lost(reason)),
                RenewAction::Yield { preferred } if self.has_yielded_long_enough(&preferred) => {
                    return Err(LeaseError::Lost(LossReason::Preferred { preferred }));
                }
                RenewAction::Write | RenewAction::Yield { .. } => match self.extend_fence().await {
                    Err(LeaseError::Conflict | LeaseError::NotFound(_)) if !looked => {}
                    outcome => return outcome,
                },
            }
        }
    }

    /// Publishes the identity that the coordinator prefers. Returns true after the lease duration that the work had to
    /// stop.
    fn has_yielded_long_enough(&mut self, preferred: &str) -> bool {
        let now = self.env.now();
        let Role::Leading { yield_by, .. } = &mut self.role else { return true };
        let until = *yield_by.get_or_insert(now + self.config.lease_duration);
        if self.preferred.get().as_deref() != Some(preferred) {
            tracing::info!(lease = %self.lease, preferred, "coordinator prefers another replica");
            self.preferred.set(Some(preferred.to_owned()));
        }
        now >= until
    }

    async fn extend_fence(&mut self) -> Result<(), LeaseError> {
        let sent = match self.write(WritePurpose::Renew, None).await {
            Err(LeaseError::TooLate) => return Err(LeaseError::Lost(self.missed_deadline())),
            outcome => outcome?,
        };
        if !self.fence.extend(sent, sent + self.config.renew_deadline) {
            return Err(LeaseError::Lost(self.missed_deadline()));
        }
        self.last_renewal.set(Some(sent));
        Ok(())
    }

    fn missed_deadline(&self) -> LossReason {
        LossReason::Deadline {
            within: self.config.renew_deadline,
            last_error: self.last_failure.clone().unwrap_or_else(|| "no renewal was attempted".to_owned()),
        }
    }

    fn lose(&mut self, reason: LossReason) -> LeaseLost {
        self.step_down(Leadership::Lost);
        self.lease_state.lose();
        tracing::warn!(lease = %self.lease, identity = %self.config.identity, %reason, "stopped leading");
        LeaseLost { reason }
    }

    fn step_down(&mut self, to: Leadership) {
        self.fence.close();
        self.lease_state.step_down();
        self.role = Role::Standby;
        self.preferred.set(None);
        self.last_renewal.set(None);
        self.metrics.master_status.set(0);
        self.leadership.set(to);
    }

    async fn release_lease(&mut self, written: Option<&WrittenVersions>) -> Result<(), LeaseError> {
        loop {
            self.fetch().await?;
            if !self.lease_state.is_ours() {
                self.lease_state.mark_released();
                return Ok(());
            }
            match self.write(WritePurpose::Release, written).await {
                Ok(_) => {
                    tracing::info!(lease = %self.lease, identity = %self.config.identity, "lease released");
                    return Ok(());
                }
                // Another client wrote the Lease in between: fetch it again to check the holder.
                Err(LeaseError::Conflict | LeaseError::NotFound(_)) => {
                    let pause = self.spread();
                    self.env.sleep(pause).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// Requests, and the state that they update.
impl Elector {
    /// Fetches the Lease.
    async fn fetch(&mut self) -> Result<(), LeaseError> {
        let lease = self.api.get(self.lease.name()).await?;
        self.lease_state.on_fetched(lease, self.env.now());
        self.publish_holder();
        Ok(())
    }

    /// Writes on top of the last observed Lease, and returns the time of sending.
    async fn write(
        &mut self,
        purpose: WritePurpose,
        written: Option<&WrittenVersions>,
    ) -> Result<Instant, LeaseError> {
        self.clocks.compare();
        let write = self.lease_state.begin(purpose, written, &TimePoint::now(&self.env));
        let lease = self.api.write(&write).await?;
        self.lease_state.on_response(write.context, lease, self.env.now())?;
        Ok(write.context.sent)
    }

    /// Publishes the observed holder if it changed. Does nothing while this replica leads or after it has released the
    /// lease.
    fn publish_holder(&self) {
        let observed = self.lease_state.observed();
        let holder = observed.holder().filter(|holder| *holder != self.config.identity).map(str::to_owned);
        let following = Leadership::Following { holder };
        if matches!(self.role, Role::Standby) && self.leadership.get() != following {
            tracing::info!(lease = %self.lease, holder = observed.holder(), "lease is held");
            self.leadership.set(following);
        }
    }

    /// Logs a failure, unless it equals the last logged failure.
    fn log_failure(&mut self, what: &str, failure: &LeaseError) {
        let text = failure.to_string();
        if self.last_failure.as_ref() != Some(&text) {
            tracing::warn!(lease = %self.lease, error = %text, "{what}");
            self.last_failure = Some(text);
        }
    }

    fn pause(&mut self) -> Duration {
        self.rng.jitter(self.config.retry_period, JITTER)
    }

    fn spread(&mut self) -> Duration {
        self.rng.between(Duration::ZERO, self.config.spread())
    }
}

/// Runs the candidate, if there is one. Returns only if the API server does not support candidates.
async fn run_candidate(candidate: Option<Candidate>) -> ElectionError {
    match candidate {
        Some(candidate) => candidate.run().await,
        None => std::future::pending().await,
    }
}

/// Runs the candidate of a leader. Never returns.
async fn run_candidate_while_leading<T>(candidate: Option<Candidate>) -> T {
    let error = run_candidate(candidate).await;
    tracing::warn!(%error, "candidate stopped");
    std::future::pending().await
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("lease", &self.lease)
            .field("identity", &self.config.identity)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
