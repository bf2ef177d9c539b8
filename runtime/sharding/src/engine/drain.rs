//! The fair shares of all members, and the phase in which this replica drains the shards above its own share.

use std::collections::BTreeMap;

use windlass_env::Instant;
use windlass_object::shard::ShardId;

use super::message::{Effect, EngineOutput, RequestTarget};
use super::state::{Engine, OwnedShard, OwnershipStage};
use crate::fair_share::fair_shares;
use crate::names::GENERATION_ANNOTATION;
use crate::plan::{Plan, ranges};

/// Number of shards that each responsive member holds, and should hold.
pub(super) struct Shares {
    pub(super) held: BTreeMap<String, usize>,
    pub(super) targets: BTreeMap<String, usize>,
}

impl Engine {
    /// Returns the shares of all responsive members under the plan; `None` while this replica is not a member. No shard
    /// is reserved for an unresponsive member, but it keeps its shards until their Leases expire.
    pub(super) fn shares(&self, plan: &Plan, now: Instant) -> Option<Shares> {
        let identity = &self.params.identity;
        let members = self.cache.responsive_members(now).into_iter();
        let mut held: BTreeMap<String, usize> = members.map(|member| (member, 0)).collect();
        *held.get_mut(identity)? = self.retained_shards(plan).len();
        for (shard, lease) in &self.cache.shards {
            let Some(seen) = lease.state.observed().seen() else { continue };
            let holder = seen.record.holder.as_ref().filter(|holder| *holder != identity);
            let counts = shard.0 < plan.shard_map.len().get()
                && now < self.cache.expiry(seen)
                && ranges(&seen.lease.metadata) == *plan.shard_map.ranges(*shard);
            if counts && let Some(held) = holder.and_then(|holder| held.get_mut(holder)) {
                *held += 1;
            }
        }
        let targets = fair_shares(usize::from(plan.shard_map.len().get()), &held);
        Some(Shares { held, targets })
    }

    /// Returns the shards of the plan that this replica claims or holds, and does not release.
    fn retained_shards(&self, plan: &Plan) -> Vec<ShardId> {
        let is_retained = |owned: &OwnedShard| {
            let is_retained = matches!(
                owned.stage,
                OwnershipStage::Claiming | OwnershipStage::Claimed { .. } | OwnershipStage::Active
            );
            owned.generation == plan.generation && is_retained
        };
        self.owned.iter().filter(|(_, owned)| is_retained(owned)).map(|(shard, _)| *shard).collect()
    }

    /// Drains all shards if this replica does not participate, otherwise those that the plan has changed and those
    /// above its share.
    pub(super) fn drain_excess(&mut self, now: Instant, output: &mut EngineOutput) {
        let participates = self.participates(now, output);
        let plan = self.plan.clone();
        for shard in self.owned.keys().copied().collect::<Vec<_>>() {
            if !participates || plan.as_ref().is_some_and(|plan| !self.adopt_plan(shard, plan)) {
                self.drain(shard, now, output);
            }
        }
        let Some(plan) = plan.filter(|_| participates && self.is_fresh(now)) else { return };
        let Some(shares) = self.shares(&plan, now) else { return };
        let target = shares.targets.get(&self.params.identity).copied().unwrap_or(0);
        let mut retained = self.retained_shards(&plan);
        // Shards without work are drained first, then those with the highest number.
        retained.sort_by_key(|shard| (!self.is_active(*shard), *shard));
        for shard in retained.split_off(target.min(retained.len())).into_iter().rev() {
            self.drain(shard, now, output);
        }
    }

    /// Moves a shard to the generation of the plan; `false` if the plan gives it other ranges.
    fn adopt_plan(&mut self, shard: ShardId, plan: &Plan) -> bool {
        let Some(owned) = self.owned.get_mut(&shard) else { return true };
        // A shard that is being released was not held under this plan.
        if owned.generation == plan.generation || matches!(owned.stage, OwnershipStage::Releasing { .. }) {
            return true;
        }
        let is_unchanged =
            shard.0 < plan.shard_map.len().get() && *plan.shard_map.ranges(shard) == owned.ranges;
        if is_unchanged {
            owned.generation = plan.generation;
            let lease = self.lease(RequestTarget::Shard(shard));
            lease.annotate(GENERATION_ANNOTATION, plan.generation.to_string());
        }
        is_unchanged
    }

    fn drain(&mut self, shard: ShardId, now: Instant, output: &mut EngineOutput) {
        let Some(owned) = self.owned.get_mut(&shard) else { return };
        match owned.stage {
            OwnershipStage::Active => {
                owned.stage = OwnershipStage::Draining { since: now };
                output.effects.push(Effect::RequestHandoff { shard });
            }
            OwnershipStage::Claimed { .. } => self.withdraw_claim(shard, now),
            OwnershipStage::Claiming
            | OwnershipStage::Draining { .. }
            | OwnershipStage::Lost { .. }
            | OwnershipStage::Releasing { .. } => {}
        }
    }
}
