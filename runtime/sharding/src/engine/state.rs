//! The state of the engine, and the primitive changes that several phases make: requests, backoffs, lost and released
//! shards.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use windlass_election::lease::{LeaseError, LeaseParams, LeaseState, TimePoint, WriteContext, WritePurpose};
use windlass_election::{ElectionError, LossReason, WrittenVersions};
use windlass_env::{Instant, Rng};
use windlass_object::ResourceVersion;
use windlass_object::shard::{HashRanges, HeavyNamespace, ShardId, ShardMap};

use super::message::{Effect, EngineOutput, Request, RequestTarget};
use crate::lease_cache::LeaseCache;
use crate::names::{LeaseNames, WANTED_ANNOTATION};
use crate::plan::Plan;

/// The ratio of the longest and the shortest backoff.
const JITTER: f64 = 1.2;

/// A shard that this replica claims, holds or releases.
#[derive(Clone, Debug)]
pub(crate) struct OwnedShard {
    pub(super) generation: u64,
    pub(super) ranges: HashRanges,
    pub(crate) stage: OwnershipStage,
}

/// The stages of a shard from its claim to its release.
#[derive(Clone, Debug)]
pub(crate) enum OwnershipStage {
    /// The claim is in flight.
    Claiming,
    /// The Lease names this replica. The fence stays closed until the cache contains every write before the claim and
    /// no other holder of these ranges.
    Claimed { at: Instant, version: Option<ResourceVersion>, relist_at: Instant },
    /// The fence is open, and the owner works on the shard.
    Active,
    /// The owner stops its work. The fence stays open for that.
    Draining { since: Instant },
    /// The lease is lost and the fence closed, and the owner has not released the shard yet.
    Lost { since: Instant },
    /// The work has stopped, and the Lease is being released. `since` is when the handoff was requested.
    Releasing { written: Option<WrittenVersions>, since: Instant, begun: Instant },
}

impl OwnedShard {
    /// Returns a shard whose claim is about to be sent.
    pub(super) fn claiming(generation: u64, ranges: HashRanges) -> Self {
        Self { generation, ranges, stage: OwnershipStage::Claiming }
    }
}

impl OwnershipStage {
    /// Returns whether the fence is open.
    pub(super) fn has_open_fence(&self) -> bool {
        matches!(self, Self::Active | Self::Draining { .. })
    }

    /// Returns whether the owner works on the shard, or has not released it yet.
    pub(super) fn has_work(&self) -> bool {
        matches!(self, Self::Active | Self::Draining { .. } | Self::Lost { .. })
    }
}

/// A request in flight.
#[derive(Debug)]
struct InFlight {
    id: u64,
    sent: Instant,
    context: Option<WriteContext>,
}

/// A request whose response was received.
pub(super) struct Answered {
    pub(super) sent: Instant,
    pub(super) context: Option<WriteContext>,
}

/// The renewals of one held Lease.
#[derive(Debug)]
pub(super) struct RenewalState {
    pub(super) due: Instant,
    /// When the current attempt began.
    pub(super) begun: Option<Instant>,
    /// Whether the current attempt has fetched the Lease.
    pub(super) fetched: bool,
}

/// The state of the list and watch that fill the cache.
#[derive(Debug)]
pub(crate) enum ListWatchState {
    Idle { not_before: Instant },
    Listing,
    Listed,
    Opening,
    Open { since: Instant },
}

/// A division that the owner proposed, and the namespaces that it cannot balance.
pub(super) type Proposal = (ShardMap, Vec<HeavyNamespace>);

/// One replica in an election of shards.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) params: Arc<LeaseParams>,
    /// Number of shards that this replica requests.
    pub(super) desired_shards: NonZeroU16,
    pub(super) cache: LeaseCache,
    /// The last valid plan.
    pub(super) plan: Option<Plan>,
    /// The version of the Lease that was last parsed as a plan.
    pub(super) plan_version: Option<String>,
    pub(super) proposal: Option<Proposal>,
    pub(crate) owned: BTreeMap<ShardId, OwnedShard>,
    in_flight: BTreeMap<RequestTarget, InFlight>,
    last_request_id: u64,
    backoffs: BTreeMap<RequestTarget, Instant>,
    pub(super) renewals: BTreeMap<RequestTarget, RenewalState>,
    pub(crate) list_watch: ListWatchState,
    /// This replica acquires nothing and ends its membership.
    pub(super) stopping: bool,
    pub(super) completed_releases: BTreeMap<ShardId, Result<(), ElectionError>>,
    /// The times between handoff requests and releases.
    pub(super) handoff_durations: Vec<Duration>,
    /// Renewals that had to fetch the Lease first.
    pub(super) slow_renewals: Vec<RequestTarget>,
    last_errors: BTreeMap<RequestTarget, String>,
    /// Effects of inputs, for the next step.
    pub(super) pending: Vec<Effect>,
    /// A phase changed the input of an earlier one.
    pub(super) rerun: bool,
    rng: Rng,
}

impl Engine {
    pub(crate) fn new(params: Arc<LeaseParams>, prefix: &str, desired_shards: NonZeroU16, rng: Rng) -> Self {
        let mut cache = LeaseCache::new(LeaseNames::new(prefix), params.clone());
        cache.membership.annotate(WANTED_ANNOTATION, desired_shards.to_string());
        Self {
            params,
            desired_shards,
            cache,
            plan: None,
            plan_version: None,
            proposal: None,
            owned: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            last_request_id: 0,
            backoffs: BTreeMap::new(),
            renewals: BTreeMap::new(),
            list_watch: ListWatchState::Idle { not_before: Instant::ORIGIN },
            stopping: false,
            completed_releases: BTreeMap::new(),
            handoff_durations: Vec::new(),
            slow_renewals: Vec::new(),
            last_errors: BTreeMap::new(),
            pending: Vec::new(),
            rerun: false,
            rng,
        }
    }

    pub(crate) fn is_active(&self, shard: ShardId) -> bool {
        self.owned.get(&shard).is_some_and(|owned| matches!(owned.stage, OwnershipStage::Active))
    }

    /// Returns whether the cache is recent enough to act on. An outdated cache can only miss other replicas: each write
    /// still replaces exactly the state that it builds on.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.cache.updated_at.is_some_and(|updated| now < updated + self.params.retry_period * 3)
    }

    /// Returns whether this replica can hold shards. A replica whose work on a lost shard does not stop within a lease
    /// duration leaves its share to others, because it is stuck.
    pub(super) fn participates(&self, now: Instant, output: &mut EngineOutput) -> bool {
        let mut is_stuck = false;
        for owned in self.owned.values() {
            if let OwnershipStage::Lost { since } = owned.stage {
                let until = since + self.params.lease_duration;
                is_stuck |= now >= until;
                if now < until {
                    output.wait(until);
                }
            }
        }
        !self.stopping && !is_stuck
    }

    /// Returns the state of a shard's Lease, or of the membership.
    pub(super) fn lease(&mut self, target: RequestTarget) -> &mut LeaseState {
        match target {
            RequestTarget::Shard(shard) => &mut self.cache.shard(shard).state,
            RequestTarget::Membership
            | RequestTarget::Plan
            | RequestTarget::List
            | RequestTarget::Watch
            | RequestTarget::ExpiredMember => &mut self.cache.membership,
        }
    }

    /// Lists again, and watches from there.
    pub(super) fn relist(&mut self, now: Instant, output: &mut EngineOutput) {
        output.effects.push(Effect::StopWatch);
        self.list_watch = ListWatchState::Idle { not_before: now };
        self.rerun = true;
    }
}

/// Requests.
impl Engine {
    /// Returns whether a request for `target` can be sent now, and wakes the engine when its backoff ends.
    pub(super) fn is_free(&self, target: RequestTarget, now: Instant, output: &mut EngineOutput) -> bool {
        if self.in_flight.contains_key(&target) {
            return false;
        }
        match self.backoffs.get(&target) {
            Some(until) if now < *until => {
                output.wait(*until);
                false
            }
            _ => true,
        }
    }

    pub(super) fn send(
        &mut self,
        target: RequestTarget,
        request: Request,
        within: Duration,
        now: Instant,
        output: &mut EngineOutput,
    ) {
        let context = match &request {
            Request::Write(write) => Some(write.context),
            Request::List | Request::Watch(_) | Request::Get(_) | Request::Delete(_) => None,
        };
        self.last_request_id += 1;
        let request_id = self.last_request_id;
        self.backoffs.remove(&target);
        self.in_flight.insert(target, InFlight { id: request_id, sent: now, context });
        output.effects.push(Effect::Send { request_id, target, request, within });
    }

    /// Fetches the Lease of the membership or of a shard.
    pub(super) fn fetch(
        &mut self,
        target: RequestTarget,
        within: Duration,
        now: Instant,
        output: &mut EngineOutput,
    ) {
        let name = self.lease(target).name().to_owned();
        self.send(target, Request::Get(name), within, now, output);
    }

    /// Writes the Lease of the membership or of a shard.
    pub(super) fn write(
        &mut self,
        target: RequestTarget,
        purpose: WritePurpose,
        written: Option<&WrittenVersions>,
        within: Duration,
        at: &TimePoint,
        output: &mut EngineOutput,
    ) {
        let write = self.lease(target).begin(purpose, written, at);
        self.send(target, Request::Write(Box::new(write)), within, at.now, output);
    }

    /// Ends a request when its response is received; `None` if the request was abandoned before.
    pub(super) fn end_request(&mut self, request_id: u64, target: RequestTarget) -> Option<Answered> {
        let request = self.in_flight.remove(&target)?;
        if request.id != request_id {
            self.in_flight.insert(target, request);
            return None;
        }
        Some(Answered { sent: request.sent, context: request.context })
    }

    /// Abandons the request for a shard in flight. Its outcome is unknown until the Lease is fetched.
    pub(super) fn abandon_request(&mut self, shard: ShardId) {
        let target = RequestTarget::Shard(shard);
        self.renewals.remove(&target);
        self.backoffs.remove(&target);
        let was_written = self.in_flight.remove(&target).is_some_and(|request| request.context.is_some());
        let lease = self.lease(target);
        lease.step_down();
        if was_written {
            lease.mark_stale();
        }
    }

    pub(super) fn back_off(&mut self, target: RequestTarget, pause: Duration, now: Instant) {
        self.backoffs.insert(target, now + pause);
    }

    /// Generates the backoff after a failed request.
    pub(super) fn failure_backoff(&mut self) -> Duration {
        self.rng.jitter(self.params.retry_period, JITTER)
    }

    /// Generates the short backoff after a conflict, which separates replicas that write at the same time.
    pub(super) fn conflict_backoff(&mut self) -> Duration {
        self.rng.between(Duration::from_millis(1), self.params.retry_period / 20)
    }

    /// Generates the time until the first renewal of a claimed Lease. Renewals of shards are spread over the retry
    /// period, so that they are not sent at the same time, each on its own connection.
    pub(super) fn first_renewal_delay(&mut self, target: RequestTarget) -> Duration {
        match target {
            RequestTarget::Shard(_) => {
                self.rng.between(self.params.retry_period / 4, self.params.retry_period)
            }
            RequestTarget::Membership
            | RequestTarget::Plan
            | RequestTarget::List
            | RequestTarget::Watch
            | RequestTarget::ExpiredMember => self.params.retry_period,
        }
    }

    /// Logs a failure, unless it repeats the last one. A conflict is not a failure.
    pub(super) fn log_failure(&mut self, target: RequestTarget, failure: &LeaseError) {
        let error = failure.to_string();
        if matches!(failure, LeaseError::Conflict) || self.last_errors.get(&target) == Some(&error) {
            return;
        }
        let election = self.cache.names.prefix();
        tracing::warn!(election, ?target, error, "lease request failed");
        self.last_errors.insert(target, error);
    }

    pub(super) fn clear_failure(&mut self, target: RequestTarget) {
        self.last_errors.remove(&target);
    }
}

/// Ends of ownership.
impl Engine {
    /// Ends the ownership of a shard whose Lease was released, or could not be.
    pub(super) fn complete_release(
        &mut self,
        shard: ShardId,
        outcome: Result<(), ElectionError>,
        now: Instant,
    ) {
        if let Some(OwnedShard { stage: OwnershipStage::Releasing { since, .. }, .. }) =
            self.owned.remove(&shard)
            && outcome.is_ok()
        {
            self.handoff_durations.push(now.saturating_duration_since(since));
        }
        self.completed_releases.insert(shard, outcome);
        self.rerun = true;
    }

    /// Ends the term of a shard whose lease is lost, and notifies the owner if it works on the shard.
    pub(super) fn lose(
        &mut self,
        shard: ShardId,
        reason: LossReason,
        now: Instant,
        output: &mut EngineOutput,
    ) {
        self.abandon_request(shard);
        self.lease(RequestTarget::Shard(shard)).lose();
        self.rerun = true;
        let Some(owned) = self.owned.get_mut(&shard) else { return };
        match owned.stage {
            OwnershipStage::Active | OwnershipStage::Draining { .. } => {
                owned.stage = OwnershipStage::Lost { since: now };
                output.effects.push(Effect::Lost { shard, reason });
            }
            OwnershipStage::Claiming | OwnershipStage::Claimed { .. } => {
                self.owned.remove(&shard);
            }
            OwnershipStage::Lost { .. } | OwnershipStage::Releasing { .. } => {}
        }
    }

    pub(super) fn missed_deadline(&self, shard: ShardId) -> LossReason {
        let last_error = self.last_errors.get(&RequestTarget::Shard(shard)).cloned();
        LossReason::Deadline {
            within: self.params.renew_deadline,
            last_error: last_error.unwrap_or_else(|| "no renewal was sent".to_owned()),
        }
    }
}
