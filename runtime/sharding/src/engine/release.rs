//! Releases: requested by the owner, of withdrawn claims, and of Leases that name this replica by mistake.

use windlass_election::lease::{LeaseState, TimePoint, WritePurpose};
use windlass_election::{ElectionError, WrittenVersions};
use windlass_env::Instant;
use windlass_object::shard::{HashRanges, ShardId};

use super::message::{EngineOutput, RequestTarget};
use super::state::{Engine, OwnedShard, OwnershipStage};
use crate::names::{GENERATION_ANNOTATION, RANGES_ANNOTATION};

/// The next action of a release.
enum ReleaseAction {
    Fetch,
    Write,
    /// The Lease names another holder.
    NotOurs,
}

impl Engine {
    /// Begins to release a shard whose work has stopped.
    pub(crate) fn release(&mut self, shard: ShardId, written: Option<&WrittenVersions>, now: Instant) {
        self.completed_releases.remove(&shard);
        let Some(owned) = self.owned.get_mut(&shard) else {
            self.completed_releases.insert(shard, Ok(()));
            return;
        };
        let since = match owned.stage {
            OwnershipStage::Active | OwnershipStage::Lost { .. } => now,
            OwnershipStage::Draining { since } => since,
            // The owner never had the shard.
            OwnershipStage::Claiming | OwnershipStage::Claimed { .. } => {
                return self.withdraw_claim(shard, now);
            }
            OwnershipStage::Releasing { .. } => return,
        };
        owned.stage = OwnershipStage::Releasing { written: written.cloned(), since, begun: now };
        self.abandon_request(shard);
    }

    /// Begins to release a claimed shard with the record that the claim overwrote: earlier holders might still work
    /// elsewhere, or have recorded writes that the next holder has to wait for.
    pub(super) fn withdraw_claim(&mut self, shard: ShardId, now: Instant) {
        let before = self.cache.shard(shard).term_before_claim().cloned();
        let written = before.as_ref().and_then(|before| before.previous_holder.written().cloned());
        if let Some(before) = before {
            let lease = self.lease(RequestTarget::Shard(shard));
            lease.annotate(GENERATION_ANNOTATION, before.generation.to_string());
            lease.annotate(RANGES_ANNOTATION, before.ranges.to_string());
        }
        if let Some(owned) = self.owned.get_mut(&shard) {
            owned.stage = OwnershipStage::Releasing { written, since: now, begun: now };
        }
        self.abandon_request(shard);
    }

    /// Begins to release Leases that might name this replica although it does not own the shard: a write took effect
    /// whose response was lost or came too late.
    pub(super) fn release_strays(&mut self, now: Instant, output: &mut EngineOutput) {
        let shards = self.cache.shards.iter();
        let strays: Vec<ShardId> = shards
            .filter(|(shard, lease)| lease.state.may_hold() && !self.owned.contains_key(*shard))
            .map(|(shard, _)| *shard)
            .collect();
        for shard in strays {
            if self.is_free(RequestTarget::Shard(shard), now, output) {
                let stage = OwnershipStage::Releasing { written: None, since: now, begun: now };
                self.owned.insert(shard, OwnedShard { generation: 0, ranges: HashRanges::none(), stage });
            }
        }
    }

    /// Sends the requests of all releases.
    pub(super) fn continue_releases(&mut self, at: &TimePoint, output: &mut EngineOutput) {
        for shard in self.owned.keys().copied().collect::<Vec<_>>() {
            let Some(OwnedShard { stage: OwnershipStage::Releasing { written, begun, .. }, .. }) =
                self.owned.get(&shard)
            else {
                continue;
            };
            let (written, begun) = (written.clone(), *begun);
            self.continue_release(shard, written.as_ref(), begun, at, output);
        }
    }

    fn continue_release(
        &mut self,
        shard: ShardId,
        written: Option<&WrittenVersions>,
        begun: Instant,
        at: &TimePoint,
        output: &mut EngineOutput,
    ) {
        let (now, within, target) = (at.now, self.params.renew_deadline, RequestTarget::Shard(shard));
        let until = begun + within;
        if now >= until {
            return self.complete_release(shard, Err(ElectionError::ReleaseTimedOut { within }), now);
        }
        output.wait(until);
        let attempt = self.params.attempt.min(until.saturating_duration_since(now));
        if !self.lease(target).may_hold() {
            return self.complete_release(shard, Ok(()), now);
        }
        if !self.is_free(target, now, output) {
            return;
        }
        match release_action(self.lease(target)) {
            ReleaseAction::Fetch => self.fetch(target, attempt, now, output),
            ReleaseAction::Write => self.write(target, WritePurpose::Release, written, attempt, at, output),
            ReleaseAction::NotOurs => {
                self.lease(target).mark_released();
                self.complete_release(shard, Ok(()), now);
            }
        }
    }
}

fn release_action(lease: &LeaseState) -> ReleaseAction {
    match (lease.is_stale(), lease.is_ours()) {
        (true, _) => ReleaseAction::Fetch,
        (false, true) => ReleaseAction::Write,
        (false, false) => ReleaseAction::NotOurs,
    }
}
