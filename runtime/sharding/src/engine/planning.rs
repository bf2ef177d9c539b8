//! The plan: its first version, proposals, and agreement on another number of shards.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_election::lease::{LeaseWrite, ObservedLease, TimePoint, WriteContext, WritePurpose};
use windlass_env::Instant;
use windlass_object::shard::{HeavyNamespace, ShardId, ShardMap};

use super::message::{EngineOutput, Request, RequestTarget};
use super::state::Engine;
use crate::names::SHARDS_LABEL;
use crate::plan::{Plan, generation};

/// The result of a proposal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ProposalOutcome {
    /// It will be written, unless this replica releases or loses shard 0 before.
    Accepted,
    /// The plan already contains it.
    Unchanged,
    /// Only the holder of shard 0 can propose.
    NotHolder,
    /// The plan has another number of shards.
    OtherNumber,
}

impl Engine {
    /// Proposes a division instead of the plan's.
    pub(crate) fn propose(&mut self, shard_map: ShardMap, mut heavy: Vec<HeavyNamespace>) -> ProposalOutcome {
        // A parsed plan has them in this order.
        heavy.sort_by(|one, other| one.name.cmp(&other.name));
        let Some(plan) = self.plan.as_ref().filter(|_| self.is_active(ShardId(0))) else {
            return ProposalOutcome::NotHolder;
        };
        if shard_map.len() != plan.shard_map.len() {
            return ProposalOutcome::OtherNumber;
        }
        if plan.shard_map == shard_map && plan.heavy == heavy {
            self.proposal = None;
            return ProposalOutcome::Unchanged;
        }
        self.proposal = Some((shard_map, heavy));
        ProposalOutcome::Accepted
    }

    /// Writes the first plan if there is none, and the next plan if this replica holds shard 0.
    pub(super) fn write_plan(&mut self, at: &TimePoint, output: &mut EngineOutput) {
        let now = at.now;
        if !self.can_plan(now) {
            return;
        }
        if !self.is_active(ShardId(0)) {
            self.proposal = None;
        }
        let (metadata, plan) = match &self.cache.plan {
            ObservedLease::Seen(seen) => {
                let Some(plan) = self.next_plan(now) else { return };
                (seen.lease.metadata.clone(), plan)
            }
            ObservedLease::Unknown | ObservedLease::Absent | ObservedLease::Deleted(_) => {
                let plan = self.plan.clone().unwrap_or_else(|| self.first_plan());
                (self.plan_metadata(), plan)
            }
        };
        if !self.is_free(RequestTarget::Plan, now, output) {
            return;
        }
        let exists = metadata.resource_version.is_some();
        let lease = plan.into_lease(metadata, &self.params.identity, at.wall.clone());
        let context = WriteContext { purpose: WritePurpose::First, sent: now };
        let write = Request::Write(Box::new(LeaseWrite { lease, exists, context }));
        self.send(RequestTarget::Plan, write, self.params.attempt, now, output);
    }

    fn can_plan(&self, now: Instant) -> bool {
        self.cache.listed_at.is_some()
            && !self.stopping
            && self.cache.membership.held_until(now).is_some()
            && self.is_fresh(now)
    }

    /// Returns an even plan. Its generation is later than that of every held shard, because other replicas might still
    /// use a plan that was deleted.
    fn first_plan(&self) -> Plan {
        let seen = self.cache.shards.values().filter_map(|shard| shard.state.observed().seen());
        let last = seen.filter_map(|seen| generation(&seen.lease.metadata)).max().unwrap_or(0);
        Plan { generation: last + 1, shard_map: ShardMap::even(self.desired_shards), heavy: Vec::new() }
    }

    fn next_plan(&self, now: Instant) -> Option<Plan> {
        let plan = self.plan.as_ref().filter(|_| self.is_active(ShardId(0)))?;
        let generation = plan.generation + 1;
        if let Some(shard_map) = self.agreed_shard_map(plan, now) {
            return Some(Plan { generation, shard_map, heavy: Vec::new() });
        }
        let (shard_map, heavy) = self.proposal.clone()?;
        // If only the heavy namespaces change, no shard has to move.
        let generation = if shard_map == plan.shard_map { plan.generation } else { generation };
        Some(Plan { generation, shard_map, heavy })
    }

    /// Returns an even division into another number of shards, once every live member requests that number.
    fn agreed_shard_map(&self, plan: &Plan, now: Instant) -> Option<ShardMap> {
        let desired_shards = self.desired_shards;
        let is_agreed =
            self.cache.live_members(now).values().all(|number| *number == Some(desired_shards.get()));
        (is_agreed && desired_shards != plan.shard_map.len()).then(|| ShardMap::even(desired_shards))
    }

    fn plan_metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.cache.names.plan()),
            namespace: Some(self.params.namespace.clone()),
            labels: Some([(SHARDS_LABEL.to_owned(), self.cache.names.prefix().to_owned())].into()),
            ..ObjectMeta::default()
        }
    }
}
