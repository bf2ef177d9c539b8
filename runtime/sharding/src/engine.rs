//! The sharding state machine, without clock, client or task. The caller passes in the time and the responses, and
//! performs the effects.
//!
//! [`Engine::step`] runs the [`Phase`]s in order. Each phase is a function of the [`LeaseCache`], the owned shards and
//! the time: it appends requests and events to the output, and a time for the next step. The caller can pass in
//! responses in any order, late or never. The crate documentation lists the guarantees; the tests run engines against a
//! simulated server, network and clocks.
//!
//! [`LeaseCache`]: crate::lease_cache::LeaseCache

mod acquire;
mod drain;
mod membership;
mod message;
mod observe;
mod planning;
mod release;
mod renew;
mod response;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

use windlass_election::ElectionError;
use windlass_election::lease::{LeaseParams, ObservedLease, TimePoint};
use windlass_env::Instant;
use windlass_object::shard::ShardId;

use crate::overview::ShardsOverview;

pub(crate) use self::message::{Effect, EngineOutput, LeaseUpdate, Request, RequestTarget, Response};
pub use self::planning::ProposalOutcome;
pub(crate) use self::state::Engine;
#[cfg(test)]
pub(crate) use self::state::{ListWatchState, OwnershipStage};

/// Number of times that one step runs all phases. Two passes settle all known inputs; more would be a cycle.
const MAX_PASSES: usize = 4;

/// A part of a step.
#[derive(Copy, Clone, Debug)]
enum Phase {
    /// Ends terms whose deadline has passed.
    DetectExpiredTerms,
    /// Parses the plan if it has changed.
    ReadPlan,
    /// Lists and watches the Leases.
    ListAndWatch,
    /// Joins the members, or leaves them.
    JoinOrLeave,
    /// Writes the first plan, or the next one.
    WritePlan,
    /// Drains shards that are not in this replica's share.
    DrainExcess,
    /// Opens the fences of confirmed claims.
    ConfirmClaims,
    /// Claims unheld shards up to this replica's share.
    ClaimUnheld,
    /// Begins to release Leases that name this replica by mistake.
    ReleaseStrays,
    /// Renews the membership and the held shards.
    RenewAll,
    /// Continues releases.
    ContinueReleases,
    /// Deletes a membership of a replica that no longer exists.
    DeleteExpiredMember,
}

impl Phase {
    /// Observations come before decisions, and losses and releases before claims.
    const IN_ORDER: [Self; 12] = [
        Self::DetectExpiredTerms,
        Self::ReadPlan,
        Self::ListAndWatch,
        Self::JoinOrLeave,
        Self::WritePlan,
        Self::DrainExcess,
        Self::ConfirmClaims,
        Self::ClaimUnheld,
        Self::ReleaseStrays,
        Self::RenewAll,
        Self::ContinueReleases,
        Self::DeleteExpiredMember,
    ];
}

impl Engine {
    /// Returns the effects of everything that is known, and the time of the next step.
    pub(crate) fn step(&mut self, at: &TimePoint) -> EngineOutput {
        let mut output = EngineOutput { effects: std::mem::take(&mut self.pending), wake: Instant::NEVER };
        for _ in 0..MAX_PASSES {
            self.rerun = false;
            output.wake = Instant::NEVER;
            for phase in Phase::IN_ORDER {
                self.run(phase, at, &mut output);
            }
            if !self.rerun {
                break;
            }
        }
        output
    }

    fn run(&mut self, phase: Phase, at: &TimePoint, output: &mut EngineOutput) {
        match phase {
            Phase::DetectExpiredTerms => self.detect_expired_terms(at.now, output),
            Phase::ReadPlan => self.read_plan(),
            Phase::ListAndWatch => self.list_and_watch(at.now, output),
            Phase::JoinOrLeave => self.join_or_leave(at, output),
            Phase::WritePlan => self.write_plan(at, output),
            Phase::DrainExcess => self.drain_excess(at.now, output),
            Phase::ConfirmClaims => self.confirm_claims(at, output),
            Phase::ClaimUnheld => self.claim_unheld(at, output),
            Phase::ReleaseStrays => self.release_strays(at.now, output),
            Phase::RenewAll => self.renew_all(at, output),
            Phase::ContinueReleases => self.continue_releases(at, output),
            Phase::DeleteExpiredMember => self.delete_expired_member(at.now, output),
        }
    }

    /// Returns whether another step has effects immediately.
    pub(crate) fn has_pending_effects(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Acquires nothing from now on, ends the membership, and requests the handoff of all held shards.
    pub(crate) fn stop_acquiring(&mut self) {
        self.stopping = true;
    }

    /// Records that a fence is closed which should be open.
    pub(crate) fn on_fence_closed(&mut self, shard: ShardId, now: Instant) {
        let mut output = EngineOutput { effects: Vec::new(), wake: Instant::NEVER };
        self.lose(shard, self.missed_deadline(shard), now, &mut output);
        self.pending.append(&mut output.effects);
    }

    /// Returns the outcome of a release, once.
    pub(crate) fn take_release_outcome(&mut self, shard: ShardId) -> Option<Result<(), ElectionError>> {
        self.completed_releases.remove(&shard)
    }

    /// Returns the durations of the handoffs since the last call.
    pub(crate) fn take_handoff_durations(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.handoff_durations)
    }

    /// Returns the renewals since the last call that had to fetch the Lease first.
    pub(crate) fn take_slow_renewals(&mut self) -> Vec<RequestTarget> {
        std::mem::take(&mut self.slow_renewals)
    }
}

/// Status.
impl Engine {
    pub(crate) fn params(&self) -> &LeaseParams {
        &self.params
    }

    /// Returns whether no Lease might name this replica.
    pub(crate) fn has_left(&self) -> bool {
        self.stopping && self.owned.is_empty() && !self.cache.membership.may_hold()
    }

    /// Returns the shards on which the owner works, or that it has not released yet.
    pub(crate) fn shards_with_work(&self) -> Vec<ShardId> {
        let with_work = self.owned.iter().filter(|(_, owned)| owned.stage.has_work());
        with_work.map(|(shard, _)| *shard).collect()
    }

    /// Returns when the oldest of the last renewals was sent, of all shards with an open fence.
    pub(crate) fn last_renewal(&self, now: Instant) -> Option<Instant> {
        let open = self.owned.iter().filter(|(_, owned)| owned.stage.has_open_fence());
        let deadline = |shard: &ShardId| self.cache.shards.get(shard)?.state.held_until(now);
        let earliest = open.filter_map(|(shard, _)| deadline(shard)).min()?;
        earliest.checked_sub(self.params.renew_deadline)
    }

    pub(crate) fn overview(&self, now: Instant) -> ShardsOverview {
        let Some(plan) = &self.plan else { return ShardsOverview::default() };
        let holder = |shard: ShardId| {
            let view = self.cache.shards.get(&shard).map(|shard| shard.state.observed());
            (shard, view.and_then(ObservedLease::holder).map(str::to_owned))
        };
        ShardsOverview {
            generation: plan.generation,
            shard_map: Some(plan.shard_map.clone()),
            heavy: plan.heavy.clone(),
            members: self.cache.live_members(now).into_keys().collect(),
            holders: (0..plan.shard_map.len().get()).map(ShardId).map(holder).collect(),
            held: self.shards_with_work().into_iter().collect(),
        }
    }
}
