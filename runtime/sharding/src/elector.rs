//! Runs the engine: sends its requests, passes in the responses and the watch events, and opens and closes the fences.
//!
//! The elector owns all requests in flight, not the futures that run it. Each of these can be dropped at any await, and
//! the next one continues. While none is polled, no Lease is renewed, and the fences close on their own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_client::RawClient;
use windlass_election::lease::{Clocks, LastRenewal, LeaseApi, LeaseParams, TimePoint};
use windlass_election::{
    ElectionError, HealthCheck, LeaderFence, LeaseLost, PreviousHolder, WrittenVersions,
};
use windlass_env::watch_channel::{self, Receiver, Sender};
use windlass_env::{Env, Instant};
use windlass_metrics::{ElectionMetrics, Metrics, ShardMetrics};
use windlass_object::shard::{HashRanges, HeavyNamespace, ShardId, ShardMap};

use crate::config::{ShardsConfig, ShardsConfigError};
use crate::engine::{Effect, Engine, ProposalOutcome, RequestTarget};
use crate::event::ShardEvent;
use crate::names::LeaseNames;
use crate::overview::ShardsOverview;
use crate::requests::{Input, LeaseRequests};

#[cfg(test)]
mod tests;

/// One replica in an election of shards.
pub struct ShardElector {
    env: Env,
    engine: Engine,
    requests: LeaseRequests,
    names: LeaseNames,
    release_on_exit: bool,
    fences: BTreeMap<ShardId, Term>,
    clocks: Arc<Clocks>,
    renew_deadline: Duration,
    events: VecDeque<ShardEvent>,
    /// Releases whose completion is reported as an event.
    releasing: BTreeSet<ShardId>,
    overview: Sender<ShardsOverview>,
    last_renewal: LastRenewal,
    health: HealthCheck,
    metrics: Metrics,
    gauges: ShardMetrics,
}

/// An open fence, and the metrics of its Lease.
struct Term {
    fence: Arc<LeaderFence>,
    metrics: ElectionMetrics,
}

impl ShardElector {
    /// Returns an elector that has not sent a request. `client` should have its own connections and no rate limit,
    /// `watch` can be shared.
    ///
    /// # Errors
    ///
    /// A configuration that does not [validate](ShardsConfig::validate).
    ///
    /// # Panics
    ///
    /// If two electors of the same shards share `env`, because their random backoffs would be the same.
    pub fn new(
        env: Env,
        config: ShardsConfig,
        client: kube::Client,
        watch: RawClient,
        metrics: &Metrics,
    ) -> Result<Self, ShardsConfigError> {
        config.validate()?;
        let ShardsConfig { election, shards } = config;
        let params = LeaseParams::from_config(&election);
        let api = LeaseApi::new(env.clone(), client, watch, &election);
        let (prefix, election) = (election.lease(), election.config);
        let names = LeaseNames::new(prefix.name());
        let rng = env.rng(&format!("shards/{prefix}"));
        let last_renewal = LastRenewal::default();
        Ok(Self {
            engine: Engine::new(params, prefix.name(), shards, rng),
            requests: LeaseRequests::new(env.clone(), api, names.selector()),
            names,
            release_on_exit: election.release_on_exit,
            fences: BTreeMap::new(),
            clocks: Arc::new(Clocks::new(env.clone(), election.allowance())),
            renew_deadline: election.renew_deadline,
            events: VecDeque::new(),
            releasing: BTreeSet::new(),
            overview: watch_channel::channel(ShardsOverview::default()).0,
            health: last_renewal.health(env.clone(), format!("{prefix}-shard-*"), election.lease_duration),
            last_renewal,
            gauges: metrics.shards(prefix.name()),
            metrics: metrics.clone(),
            env,
        })
    }

    /// Runs the election until the next event. Call it in a loop next to the work: held Leases are renewed while this,
    /// [`release`](Self::release) or [`release_all`](Self::release_all) runs.
    ///
    /// # Cancel safety
    ///
    /// Safe: requests in flight continue with the next call.
    pub async fn next(&mut self) -> ShardEvent {
        loop {
            let wake = self.step();
            self.report_releases();
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.wait(wake).await;
        }
    }

    /// Releases a shard whose work has stopped. `written` contains the versions that this term wrote, which the next
    /// holder waits for; without it, the next holder lists its caches again. The fence closes before the first await.
    /// Other shards are renewed meanwhile; [`next`](Self::next) returns their events.
    ///
    /// # Errors
    ///
    /// The Lease could not be released within the renew deadline. It expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: the release continues with the next call of any method that runs the election.
    pub async fn release(
        &mut self,
        shard: ShardId,
        written: Option<&WrittenVersions>,
    ) -> Result<(), ElectionError> {
        self.close(shard);
        self.engine.release(shard, written, self.env.now());
        loop {
            let wake = self.step();
            if let Some(outcome) = self.engine.take_release_outcome(shard) {
                return outcome;
            }
            self.wait(wake).await;
        }
    }

    /// Begins a [`release`](Self::release). [`next`](Self::next) continues it, and returns [`ShardEvent::Released`]
    /// when it completes. The fence closes immediately.
    pub fn begin_release(&mut self, shard: ShardId, written: Option<&WrittenVersions>) {
        self.close(shard);
        self.engine.release(shard, written, self.env.now());
        self.releasing.insert(shard);
    }

    /// Acquires nothing from now on, and ends the membership. [`next`](Self::next) requests the handoff of every held
    /// shard. This is the first half of a graceful shutdown.
    pub fn stop_acquiring(&mut self) {
        self.engine.stop_acquiring();
    }

    /// Releases all held shards after all work has stopped: the second half of a graceful shutdown. It takes at most
    /// the renew deadline. If the configuration disables `release_on_exit`, the Leases expire instead.
    ///
    /// # Errors
    ///
    /// The first Lease that could not be released. It expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: the fences close before the first await, and calling it again continues.
    pub async fn release_all(&mut self, written: Option<&WrittenVersions>) -> Result<(), ElectionError> {
        self.stop_acquiring();
        self.events.clear();
        let (mut releasing, now) = (self.engine.shards_with_work(), self.env.now());
        for shard in releasing.iter().copied() {
            self.close(shard);
        }
        if !self.release_on_exit {
            return Ok(());
        }
        for shard in releasing.iter().copied() {
            self.engine.release(shard, written, now);
        }
        // Releases that have begun before are awaited too.
        releasing.extend(std::mem::take(&mut self.releasing));
        self.complete_releases(releasing, now).await
    }

    async fn complete_releases(
        &mut self,
        mut releasing: Vec<ShardId>,
        begun: Instant,
    ) -> Result<(), ElectionError> {
        let within = self.engine.params().renew_deadline;
        let until = begun + within;
        let mut outcome = Ok(());
        loop {
            let wake = self.step();
            releasing.retain(|shard| match self.engine.take_release_outcome(*shard) {
                Some(released) => {
                    outcome = std::mem::replace(&mut outcome, Ok(())).and(released);
                    false
                }
                None => true,
            });
            if self.engine.has_left() {
                return outcome;
            }
            if self.env.now() >= until {
                return outcome.and(Err(ElectionError::ReleaseTimedOut { within }));
            }
            self.wait(wake.min(until)).await;
        }
    }

    /// Proposes a division instead of the plan's, and reports namespaces that no division can balance. Only the holder
    /// of shard 0 can propose. If the proposal is accepted, the next calls write the plan, and every replica drains the
    /// shards that change.
    pub fn propose(&mut self, shard_map: ShardMap, heavy: Vec<HeavyNamespace>) -> ProposalOutcome {
        self.engine.propose(shard_map, heavy)
    }

    /// Returns a receiver of the members and the holders.
    pub fn overview(&self) -> Receiver<ShardsOverview> {
        self.overview.subscribe()
    }

    /// Returns a check that fails if a held Lease was not renewed for its duration and 20 s more, and was not given up:
    /// the task that calls [`next`](Self::next) is stuck.
    pub fn health(&self) -> HealthCheck {
        self.health.clone()
    }
}

/// Inputs and effects.
impl ShardElector {
    /// Steps the engine until it has no more effects; returns when to step again.
    fn step(&mut self) -> Instant {
        loop {
            self.clocks.compare();
            let output = self.engine.step(&TimePoint::now(&self.env));
            for effect in output.effects {
                self.perform(effect);
            }
            if !self.engine.has_pending_effects() {
                self.publish();
                return output.wake;
            }
        }
    }

    /// Queues completed releases before the later events of their shards.
    fn report_releases(&mut self) {
        let (engine, events) = (&mut self.engine, &mut self.events);
        self.releasing.retain(|shard| match engine.take_release_outcome(*shard) {
            Some(outcome) => {
                events.push_front(ShardEvent::Released { shard: *shard, outcome });
                false
            }
            None => true,
        });
    }

    /// Waits for one input, or until `wake`.
    async fn wait(&mut self, wake: Instant) {
        let input = tokio::select! {
            biased;
            input = self.requests.next() => input,
            () = self.env.sleep_until(wake) => None,
        };
        let now = self.env.now();
        match input {
            Some(Input::Response { request_id, target, response }) => {
                self.engine.on_response(request_id, target, *response, now);
            }
            Some(Input::WatchEvent(update)) => self.engine.on_watch_event(*update, now),
            None => {}
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send { request_id, target, request, within } => {
                self.requests.send(request_id, target, request, within);
            }
            Effect::StopWatch => self.requests.stop_watch(),
            Effect::Acquired { shard, ranges, deadline, previous_holder } => {
                self.open(shard, ranges, deadline, previous_holder);
            }
            Effect::Extend { shard, deadline } => self.extend(shard, deadline),
            Effect::RequestHandoff { shard } => {
                self.events.push_back(ShardEvent::HandoffRequested { shard });
            }
            Effect::Lost { shard, reason } => {
                self.close(shard);
                let lease = self.names.shard(shard);
                tracing::debug!(%lease, %reason, "shard lost");
                self.events.push_back(ShardEvent::Lost { shard, lost: LeaseLost { reason } });
            }
        }
    }
}

/// Fences.
impl ShardElector {
    fn open(
        &mut self,
        shard: ShardId,
        ranges: HashRanges,
        deadline: Instant,
        previous_holder: PreviousHolder,
    ) {
        let lease = self.names.shard(shard);
        let term = Term { fence: LeaderFence::new(self.env.clone()), metrics: self.metrics.election(&lease) };
        // A deadline that has passed by now is detected by the next step, like any other.
        term.fence.watch(Arc::clone(&self.clocks));
        term.fence.open(self.sent_at(deadline), deadline);
        term.metrics.master_status.set(1);
        tracing::info!(%lease, %ranges, "shard acquired");
        let fence = term.fence.clone();
        self.fences.insert(shard, term);
        self.events.push_back(ShardEvent::Acquired { shard, ranges, fence, previous_holder });
    }

    fn extend(&mut self, shard: ShardId, deadline: Instant) {
        let sent = self.sent_at(deadline);
        let is_open = self.fences.get(&shard).is_some_and(|term| term.fence.extend(sent, deadline));
        if !is_open {
            self.engine.on_fence_closed(shard, self.env.now());
        }
    }

    fn close(&mut self, shard: ShardId) {
        if let Some(term) = self.fences.remove(&shard) {
            term.fence.close();
            term.metrics.master_status.set(0);
        }
    }

    /// Returns when the write was sent that grants this deadline.
    fn sent_at(&self, deadline: Instant) -> Instant {
        deadline - self.renew_deadline
    }
}

/// Status.
impl ShardElector {
    /// Updates the metrics, the health check and the overview.
    fn publish(&mut self) {
        let now = self.env.now();
        self.count();
        self.last_renewal.set(self.engine.last_renewal(now));
        let overview = self.engine.overview(now);
        self.gauges.held.set(i64::try_from(self.fences.len()).unwrap_or(i64::MAX));
        self.gauges.members.set(i64::try_from(overview.members.len()).unwrap_or(i64::MAX));
        self.gauges.generation.set(i64::try_from(overview.generation).unwrap_or(i64::MAX));
        self.gauges.heavy.set(i64::try_from(overview.heavy.len()).unwrap_or(i64::MAX));
        if self.overview.get() != overview {
            self.overview.set(overview);
        }
    }

    fn count(&mut self) {
        for duration in self.engine.take_handoff_durations() {
            self.gauges.handoff.observe(duration.as_secs_f64());
        }
        for target in self.engine.take_slow_renewals() {
            if let RequestTarget::Shard(shard) = target
                && let Some(term) = self.fences.get(&shard)
            {
                term.metrics.slowpath.inc();
            }
        }
    }
}

impl fmt::Debug for ShardElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardElector")
            .field("election", &self.names.prefix())
            .field("held", &self.fences.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
