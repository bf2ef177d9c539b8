//! Acquire, hold, release: what is decided elsewhere, done here.
//!
//! The three verbs take `&mut self`, so that at most one of them runs, and keep all they know in the elector, so that
//! any of them may be dropped at any await and called again. A write that was cut off this way may or may not have
//! taken effect: until the Lease has been fetched again, what is known of it is *stale* and no write builds on it.

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

/// How much longer than the retry period a pause may be, drawn again each time: upstream's factor. It keeps standbys
/// that failed together from trying again together.
const JITTER: f64 = 1.2;

/// One replica's part in an election.
pub struct Elector {
    env: Env,
    lease: ObjectKey,
    config: ElectionConfig,
    api: LeaseApi,
    watch: LeaseWatch,
    /// What stands for election next to this, where the API server's coordinator elects.
    candidate: Option<Candidate>,
    fence: Arc<LeaderFence>,
    clocks: Arc<Clocks>,
    leadership: Sender<Leadership>,
    /// Whom a coordinator wants to hold the lease that this replica holds.
    preferred: Sender<Option<String>>,
    last_renewal: LastRenewal,
    metrics: ElectionMetrics,
    rng: Rng,
    role: Role,
    /// What is known of the Lease, and what is written next.
    lease_state: LeaseState,
    /// The failure told of last; the same one is not told again.
    complaint: Option<String>,
}

/// Leading or not. The deadline of a term lives in the fence, where those who write look.
#[derive(Copy, Clone, Debug)]
enum Role {
    Standby,
    Leading {
        renew_at: Instant,
        /// Until when the lease is renewed though a coordinator wants another to hold it.
        yield_by: Option<Instant>,
    },
}

impl Elector {
    /// An elector that has not begun. `client` should have its own connection and no rate limit, `watch` may be
    /// shared; the fence is closed until [`acquire`](Self::acquire) returns.
    ///
    /// # Errors
    ///
    /// A configuration that does not [validate](ElectionConfig::validate).
    ///
    /// # Panics
    ///
    /// If one `env` is given to two electors of the same Lease, whose random pauses would be the same.
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
            complaint: None,
        })
    }

    /// The fence this elector opens and closes.
    pub fn fence(&self) -> Arc<LeaderFence> {
        self.fence.clone()
    }

    /// This replica's place in the election, as it changes.
    pub fn leadership(&self) -> Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Whom the API server's coordinator wants to lead, once that is not this replica, which does; nothing otherwise.
    ///
    /// Whoever sees a name should bring the work to its end and release the lease. It is renewed for one more lease
    /// duration, so that no work is cut off; then it counts as lost, for [`LossReason::Preferred`].
    pub fn preferred(&self) -> Receiver<Option<String>> {
        self.preferred.subscribe()
    }

    /// What is known of the writes of whoever led before this replica. It holds for the term that
    /// [`acquire`](Self::acquire) began; work starts once caches show these writes.
    pub fn predecessor(&self) -> &PreviousHolder {
        self.lease_state.predecessor()
    }

    /// A check that fails once the lease is held here, has not been renewed for its duration and 20 s more, and
    /// nobody has stepped down: the task that holds it is stuck.
    pub fn health(&self) -> HealthCheck {
        self.last_renewal.health(self.env.clone(), self.lease.to_string(), self.config.lease_duration)
    }

    /// Stands by until this replica leads, then returns with the fence open. Returns at once while it leads.
    ///
    /// A server that cannot be reached or refuses is tried again after a pause of 1 to 2.2 retry periods, without
    /// end; each change of the failure is logged once.
    ///
    /// # Errors
    ///
    /// [`ElectionError::Refused`] if the server calls the Lease invalid, which no repetition can cure;
    /// [`ElectionError::NotCoordinated`] if it is to elect and does not.
    ///
    /// # Cancel safety
    ///
    /// Safe. A write in flight may still win the lease; the next call, or a release, finds out.
    pub async fn acquire(&mut self) -> Result<(), ElectionError> {
        let candidate = self.candidate.clone();
        tokio::select! {
            biased;
            refused = stand(candidate) => Err(refused),
            outcome = self.acquire_beside() => outcome,
        }
    }

    async fn acquire_beside(&mut self) -> Result<(), ElectionError> {
        if matches!(self.role, Role::Leading { .. }) && self.fence.held_until().is_none() {
            self.lose(self.missed_deadline());
        }
        while matches!(self.role, Role::Standby) {
            if let Err(failure) = self.stand_by().await {
                self.lease_state.mark_stale();
                self.recover(failure).await?;
            }
        }
        self.watch.stop();
        Ok(())
    }

    /// Renews until the lease is lost; then the fence is closed. Run it next to the work, and stop the work when it
    /// returns.
    ///
    /// A renewal that fails is tried again each retry period, as long as the fence is open. Where a coordinator wants
    /// another to lead, [`preferred`](Self::preferred) says so, and there is a lease duration left to end the work.
    ///
    /// # Cancel safety
    ///
    /// Safe: calling it again continues where it was. While nobody calls it, nobody renews, and the fence closes by
    /// itself.
    pub async fn hold(&mut self) -> LeaseLost {
        let candidate = self.candidate.clone();
        tokio::select! {
            biased;
            // Whether there are candidates matters for the next term, not for this one.
            lost = self.renew_until_lost() => lost,
            lost = stand_in_vain(candidate) => lost,
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
                Ok(()) => self.complaint = None,
                Err(LeaseError::Lost(reason)) => return self.lose(reason),
                Err(failure) => self.complain("cannot renew the lease", &failure),
            }
        }
    }

    /// Closes the fence, then gives the lease back if the configuration says so and the Lease, fetched again, still
    /// names this replica. Call it after the work has ended: the next leader may start while this runs.
    ///
    /// `written` is what this term wrote, for the successor to wait for. `None` says nothing, as after a crash: the
    /// successor must expect anything. A term that did nothing, and did not wait for the writes of its own
    /// [predecessor](Self::predecessor), hands these on.
    ///
    /// Conflicts are tried again; the whole is bounded by the renew deadline.
    ///
    /// # Errors
    ///
    /// The lease could not be given back, and a standby takes over when it expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: the fence is closed before the first await, and calling it again continues.
    pub async fn release(&mut self, written: Option<&WrittenVersions>) -> Result<(), ElectionError> {
        self.step_down(Leadership::Following { holder: None });
        self.watch.stop();
        if !self.config.release_on_exit || !self.lease_state.may_hold() {
            return Ok(());
        }
        let within = self.config.renew_deadline;
        match self.env.clone().timeout(within, self.give_back(written)).await {
            Ok(outcome) => outcome.map_err(|error| ElectionError::Release { message: error.to_string() }),
            Err(_) => Err(ElectionError::ReleaseTimedOut { within }),
        }
    }
}

/// Standing by.
impl Elector {
    /// Takes one step towards leading.
    async fn stand_by(&mut self) -> Result<(), LeaseError> {
        self.note_whether_led();
        match self.lease_state.next_action(self.env.now()) {
            ElectionAction::Fetch => self.fetch().await,
            ElectionAction::Create => self.claim(WritePurpose::First).await,
            ElectionAction::TakeOver => self.claim(WritePurpose::TakeOver).await,
            ElectionAction::Reclaim => self.claim(WritePurpose::Reclaim).await,
            ElectionAction::Release => self.write(WritePurpose::Release, None).await.map(drop),
            ElectionAction::WaitUntil(expiry) => {
                self.follow(expiry).await;
                Ok(())
            }
            ElectionAction::Follow => {
                self.listen().await;
                Ok(())
            }
        }
    }

    fn note_whether_led(&self) {
        if let Some(candidate) = &self.candidate {
            candidate.note(self.lease_state.is_led(self.env.now()));
        }
    }

    /// Decides what a failed step means, and pauses before the next.
    async fn recover(&mut self, failure: LeaseError) -> Result<(), ElectionError> {
        // The next look is newer than what a running watch has yet to tell, or tells nothing at all any more.
        self.watch.stop();
        let pause = match failure {
            // Whoever wrote first is seen by the next look. The pause only keeps losers apart.
            LeaseError::Conflict => self.spread(),
            LeaseError::Invalid(message) => return Err(ElectionError::Refused { message }),
            failure => {
                self.complain("cannot acquire the lease", &failure);
                self.pause()
            }
        };
        self.env.sleep(pause).await;
        Ok(())
    }

    /// Waits until the lease expires or something is learned of it. The watch is opened next to the wait, so that one
    /// which hangs delays nothing.
    async fn follow(&mut self, expiry: Instant) {
        self.complaint = None;
        let wake = expiry + self.spread();
        let pause = self.pause();
        let sighting = tokio::select! {
            biased;
            sighting = self.watch.next(&self.api, self.lease_state.view().version(), pause) => sighting,
            () = self.env.sleep_until(wake) => return,
        };
        match sighting {
            LeaseEvent::Changed(lease) => self.lease_state.on_watch_event(*lease, self.env.now()),
            LeaseEvent::Deleted => self.lease_state.on_deleted(),
            LeaseEvent::Lost => self.lease_state.mark_stale(),
        }
        self.publish_holder();
    }

    /// Waits until something is learned of the Lease, and looks if that takes long: a watch may be silent because it
    /// has stopped.
    async fn listen(&mut self) {
        let patience = (self.config.retry_period * 2).min(self.config.lease_duration);
        let until = self.env.now() + patience;
        self.follow(until).await;
        if self.env.now() >= until {
            self.watch.stop();
            self.lease_state.mark_stale();
        }
    }

    /// Writes ourselves into the Lease and, if that succeeds, leads from the moment it was sent.
    async fn claim(&mut self, purpose: WritePurpose) -> Result<(), LeaseError> {
        let sent = self.write(purpose, None).await?;
        if !self.fence.open(sent, sent + self.config.renew_deadline) {
            self.lease_state.step_down();
            return Err(LeaseError::TooLate);
        }
        self.role = Role::Leading { renew_at: sent + self.config.retry_period, yield_by: None };
        self.complaint = None;
        self.last_renewal.set(Some(sent));
        self.metrics.master_status.set(1);
        self.leadership.set(Leadership::Leading);
        self.note_whether_led();
        tracing::info!(lease = %self.lease, identity = %self.config.identity, "became leader");
        Ok(())
    }
}

/// Leading.
impl Elector {
    /// One attempt to renew, over before the deadline whatever happens.
    async fn renew_before(&mut self, deadline: Instant) -> Result<(), LeaseError> {
        let env = self.env.clone();
        let begun = env.now();
        let budget = self.config.attempt().min(deadline.saturating_duration_since(begun));
        let outcome = env.timeout(budget, self.renew()).await.unwrap_or(Err(LeaseError::Timeout(budget)));
        // Only an attempt that came to its end is followed by a pause: one that was cut off is repeated at once.
        if let Role::Leading { renew_at, .. } = &mut self.role {
            *renew_at = begun + self.config.retry_period;
        }
        outcome
    }

    /// Renews over the state last seen; if that is stale, or turns out to be, over what the server says now.
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
                RenewAction::Write | RenewAction::Yield { .. } => match self.prolong().await {
                    Err(LeaseError::Conflict | LeaseError::NotFound(_)) if !looked => {}
                    outcome => return outcome,
                },
            }
        }
    }

    /// Tells whom the coordinator prefers. True once the work has had a lease duration to end since that was seen first.
    fn has_yielded_long_enough(&mut self, preferred: &str) -> bool {
        let now = self.env.now();
        let Role::Leading { yield_by, .. } = &mut self.role else { return true };
        let until = *yield_by.get_or_insert(now + self.config.lease_duration);
        if self.preferred.get().as_deref() != Some(preferred) {
            tracing::info!(lease = %self.lease, preferred, "the coordinator wants another replica to lead");
            self.preferred.set(Some(preferred.to_owned()));
        }
        now >= until
    }

    async fn prolong(&mut self) -> Result<(), LeaseError> {
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
            last_error: self.complaint.clone().unwrap_or_else(|| "nobody renewed".to_owned()),
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

    async fn give_back(&mut self, written: Option<&WrittenVersions>) -> Result<(), LeaseError> {
        loop {
            self.fetch().await?;
            if !self.lease_state.is_ours() {
                self.lease_state.mark_released();
                return Ok(());
            }
            match self.write(WritePurpose::Release, written).await {
                Ok(_) => {
                    tracing::info!(lease = %self.lease, identity = %self.config.identity, "released the lease");
                    return Ok(());
                }
                // Somebody touched the Lease in between: whether it is still ours is for the next look to say.
                Err(LeaseError::Conflict | LeaseError::NotFound(_)) => {
                    let pause = self.spread();
                    self.env.sleep(pause).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// Reading and writing, and what is kept of it.
impl Elector {
    /// Fetches the Lease.
    async fn fetch(&mut self) -> Result<(), LeaseError> {
        let lease = self.api.get(self.lease.name()).await?;
        self.lease_state.on_fetched(lease, self.env.now());
        self.publish_holder();
        Ok(())
    }

    /// Writes over the state last seen, and says when the request was sent.
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

    /// Tells observers whom this replica follows, if that changed. A leader follows nobody, and a replica that
    /// releases has said so already.
    fn publish_holder(&self) {
        let view = self.lease_state.view();
        let holder = view.holder().filter(|holder| *holder != self.config.identity).map(str::to_owned);
        let following = Leadership::Following { holder };
        if matches!(self.role, Role::Standby) && self.leadership.get() != following {
            tracing::info!(lease = %self.lease, holder = view.holder(), "the lease is held");
            self.leadership.set(following);
        }
    }

    /// Logs a failure, unless it is the one logged last.
    fn complain(&mut self, what: &str, failure: &LeaseError) {
        let complaint = failure.to_string();
        if self.complaint.as_ref() != Some(&complaint) {
            tracing::warn!(lease = %self.lease, error = %complaint, "{what}");
            self.complaint = Some(complaint);
        }
    }

    fn pause(&mut self) -> Duration {
        self.rng.jitter(self.config.retry_period, JITTER)
    }

    fn spread(&mut self) -> Duration {
        self.rng.between(Duration::ZERO, self.config.spread())
    }
}

/// Stands for election where there is a candidate; ends only if the API server knows none.
async fn stand(candidate: Option<Candidate>) -> ElectionError {
    match candidate {
        Some(candidate) => candidate.stand().await,
        None => std::future::pending().await,
    }
}

/// The same, never ending: for whoever leads already.
async fn stand_in_vain<T>(candidate: Option<Candidate>) -> T {
    let refused = stand(candidate).await;
    tracing::warn!(error = %refused, "no candidate any more");
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
