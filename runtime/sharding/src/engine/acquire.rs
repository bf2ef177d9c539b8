//! Phases that acquire shards: claims, and their confirmation before the fence opens.

use windlass_election::lease::{ElectionAction, TimePoint, WritePurpose};
use windlass_env::Instant;
use windlass_object::shard::{HashRanges, ShardId};

use super::message::{Effect, EngineOutput, RequestTarget};
use super::state::{Engine, ListWatchState, OwnedShard, OwnershipStage};
use crate::fair_share::assign;
use crate::names::{GENERATION_ANNOTATION, RANGES_ANNOTATION};
use crate::plan::{Plan, generation};

/// The next action about a shard that no replica holds.
enum UnheldAction {
    /// Leave it to the member it is assigned to.
    WaitUntil(Instant),
    /// Clear its expired holder, so that the assigned member can claim it.
    Expire,
    Claim,
}

impl Engine {
    /// Opens the fences of claimed shards, once the cache contains every write before the claim and no other holder of
    /// the same ranges.
    pub(super) fn confirm_claims(&mut self, at: &TimePoint, output: &mut EngineOutput) {
        let now = at.now;
        for shard in self.owned.keys().copied().collect::<Vec<_>>() {
            let Some(OwnedShard {
                ranges,
                generation,
                stage: OwnershipStage::Claimed { at: claimed_at, version, relist_at },
            }) = self.owned.get(&shard).cloned()
            else {
                continue;
            };
            if !self.cache.contains_claim(version.as_ref(), claimed_at) {
                self.wait_for_claim(relist_at, now, output);
                continue;
            }
            let Some(deadline) = self.cache.shard(shard).state.held_until(now) else { continue };
            if !self.is_clear(shard, &ranges, now, output) {
                self.expire_conflicts(shard, &ranges, at, output);
                continue;
            }
            let previous_holder = self.cache.previous_holder(shard, &ranges, generation);
            self.cache.shard(shard).confirm_claim();
            if let Some(owned) = self.owned.get_mut(&shard) {
                owned.stage = OwnershipStage::Active;
            }
            output.effects.push(Effect::Acquired { shard, ranges, deadline, previous_holder });
            // The holder of shard 0 can have a plan to write.
            self.rerun = true;
        }
    }

    /// Waits until the watch shows a claim, and lists again if it does not.
    fn wait_for_claim(&mut self, relist_at: Instant, now: Instant, output: &mut EngineOutput) {
        if now < relist_at {
            output.wait(relist_at);
        } else if let ListWatchState::Open { .. } = self.list_watch {
            self.relist(now, output);
        }
    }

    /// Returns whether neither another holder nor unfinished work of this replica is on these ranges.
    fn is_clear(&self, shard: ShardId, ranges: &HashRanges, now: Instant, output: &mut EngineOutput) -> bool {
        let has_own_work = self
            .owned
            .iter()
            .any(|(other, owned)| *other != shard && owned.stage.has_work() && owned.ranges.overlaps(ranges));
        let conflicts = self.cache.conflicting_shards(shard, ranges, now);
        for conflict in &conflicts {
            if let Some(expiry) = self.cache.expires_at(*conflict, now) {
                output.wait(expiry);
            }
        }
        !has_own_work && conflicts.is_empty()
    }

    /// Claims shards that no replica holds, up to this replica's share.
    pub(super) fn claim_unheld(&mut self, at: &TimePoint, output: &mut EngineOutput) {
        let now = at.now;
        if !self.participates(now, output) || !self.is_fresh(now) {
            return;
        }
        let Some(plan) = self.plan.clone() else { return };
        let Some(shares) = self.shares(&plan, now) else { return };
        let identity = self.params.identity.clone();
        let target = shares.targets.get(&identity).copied().unwrap_or(0);
        let mut room = target.saturating_sub(shares.held.get(&identity).copied().unwrap_or(0));
        let unheld = self.unheld(&plan, now, output);
        let assigned = assign(&unheld, &shares.held, &shares.targets);
        for shard in unheld {
            let is_assigned = assigned.get(&shard) == Some(&identity);
            match self.unheld_action(shard, is_assigned, room, now) {
                UnheldAction::WaitUntil(until) => output.wait(until),
                UnheldAction::Expire => {
                    self.expire(shard, at, output);
                    output.wait(now + self.params.retry_period / 4);
                }
                UnheldAction::Claim => {
                    let is_claimed = self.try_claim(shard, &plan, at, output);
                    room -= usize::from(is_claimed);
                }
            }
        }
    }

    /// Returns the shards of the plan that no replica holds.
    fn unheld(&self, plan: &Plan, now: Instant, output: &mut EngineOutput) -> Vec<ShardId> {
        let mut unheld = Vec::new();
        for shard in (0..plan.shard_map.len().get()).map(ShardId) {
            match self.cache.apparent_action(shard, now) {
                ElectionAction::WaitUntil(expiry) => output.wait(expiry),
                ElectionAction::Release | ElectionAction::Follow => {}
                _ if self.owned.contains_key(&shard) => {}
                ElectionAction::Fetch
                | ElectionAction::Create
                | ElectionAction::TakeOver
                | ElectionAction::Reclaim => unheld.push(shard),
            }
        }
        unheld
    }

    /// Decides about an unheld shard. The assigned member might be slow, might observe other members, or might have
    /// started later and still wait for the previous holder to expire, which one write ends. After a short time any
    /// member with room can claim the shard.
    fn unheld_action(&self, shard: ShardId, is_assigned: bool, room: usize, now: Instant) -> UnheldAction {
        let reserved_for = if room == 0 { self.params.retry_period / 4 } else { self.params.retry_period };
        let reserved_until = self.cache.unheld_since(shard) + reserved_for;
        if !is_assigned && now < reserved_until {
            UnheldAction::WaitUntil(reserved_until)
        } else if room == 0 {
            UnheldAction::Expire
        } else {
            UnheldAction::Claim
        }
    }

    /// Makes the next request of a claim; returns whether it counts against the room.
    fn try_claim(&mut self, shard: ShardId, plan: &Plan, at: &TimePoint, output: &mut EngineOutput) -> bool {
        let (now, target) = (at.now, RequestTarget::Shard(shard));
        let ranges = plan.shard_map.ranges(shard).clone();
        if !self.is_free(target, now, output) {
            return false;
        }
        if !self.is_clear(shard, &ranges, now, output) {
            self.expire_conflicts(shard, &ranges, at, output);
            return false;
        }
        let purpose = match self.lease(target).next_action(now) {
            ElectionAction::Fetch => {
                self.fetch(target, self.params.attempt, now, output);
                return true;
            }
            ElectionAction::Create => WritePurpose::First,
            ElectionAction::TakeOver => WritePurpose::TakeOver,
            ElectionAction::Reclaim => WritePurpose::Reclaim,
            ElectionAction::WaitUntil(expiry) => {
                output.wait(expiry);
                return false;
            }
            ElectionAction::Release | ElectionAction::Follow => return false,
        };
        self.claim(shard, OwnedShard::claiming(plan.generation, ranges), purpose, at, output);
        true
    }

    fn claim(
        &mut self,
        shard: ShardId,
        owned: OwnedShard,
        purpose: WritePurpose,
        at: &TimePoint,
        output: &mut EngineOutput,
    ) {
        let target = RequestTarget::Shard(shard);
        if matches!(purpose, WritePurpose::First | WritePurpose::TakeOver) {
            self.cache.shard(shard).begin_claim();
        }
        let lease = self.lease(target);
        // The generation never decreases: the term of a later plan must not look like one of an earlier plan.
        let stated = lease.observed().seen().and_then(|seen| generation(&seen.lease.metadata));
        lease.annotate(GENERATION_ANNOTATION, owned.generation.max(stated.unwrap_or(0)).to_string());
        lease.annotate(RANGES_ANNOTATION, owned.ranges.to_string());
        self.write(target, purpose, None, self.params.attempt, at, output);
        self.owned.insert(shard, owned);
    }

    fn expire_conflicts(
        &mut self,
        shard: ShardId,
        ranges: &HashRanges,
        at: &TimePoint,
        output: &mut EngineOutput,
    ) {
        for conflict in self.cache.conflicting_shards(shard, ranges, at.now) {
            self.expire(conflict, at, output);
        }
    }

    /// Clears the holder of an expired Lease, so that it can no longer renew.
    fn expire(&mut self, shard: ShardId, at: &TimePoint, output: &mut EngineOutput) {
        let target = RequestTarget::Shard(shard);
        let is_held = self.lease(target).observed().holder().is_some();
        let is_expired = is_held && self.cache.apparent_action(shard, at.now) == ElectionAction::TakeOver;
        if !is_expired || self.owned.contains_key(&shard) || !self.is_free(target, at.now, output) {
            return;
        }
        match self.lease(target).next_action(at.now) {
            ElectionAction::Fetch => self.fetch(target, self.params.attempt, at.now, output),
            ElectionAction::TakeOver => {
                self.write(target, WritePurpose::ClearHolder, None, self.params.attempt, at, output);
            }
            ElectionAction::Create
            | ElectionAction::Reclaim
            | ElectionAction::Release
            | ElectionAction::WaitUntil(_)
            | ElectionAction::Follow => {}
        }
    }
}
