//! Phases that observe: expired terms, the list and the watch, the plan.

use windlass_election::lease::{LeaseError, ObservedLease};
use windlass_env::Instant;
use windlass_object::shard::ShardId;

use super::message::{EngineOutput, Request, RequestTarget};
use super::state::{Engine, ListWatchState};
use crate::plan::Plan;

impl Engine {
    /// Ends the terms whose deadline has passed.
    pub(super) fn detect_expired_terms(&mut self, now: Instant, output: &mut EngineOutput) {
        if self.cache.membership.is_held() && self.cache.membership.held_until(now).is_none() {
            self.cache.membership.lose();
            self.renewals.remove(&RequestTarget::Membership);
        }
        let shards = self.cache.shards.iter();
        let expired: Vec<ShardId> = shards
            .filter(|(_, lease)| lease.state.is_held() && lease.state.held_until(now).is_none())
            .map(|(shard, _)| *shard)
            .collect();
        for shard in expired {
            self.lose(shard, self.missed_deadline(shard), now, output);
        }
    }

    /// Keeps the cache up to date: lists, then watches from the version of the list.
    pub(super) fn list_and_watch(&mut self, now: Instant, output: &mut EngineOutput) {
        self.restart_stalled_watch(now, output);
        match self.list_watch {
            ListWatchState::Idle { not_before } if now < not_before => output.wait(not_before),
            ListWatchState::Idle { .. } => {
                self.list_watch = ListWatchState::Listing;
                self.send(RequestTarget::List, Request::List, self.params.attempt, now, output);
            }
            ListWatchState::Listed => {
                self.list_watch = ListWatchState::Opening;
                let request = Request::Watch(self.cache.version.clone());
                self.send(RequestTarget::Watch, request, self.params.attempt, now, output);
            }
            ListWatchState::Listing | ListWatchState::Opening | ListWatchState::Open { .. } => {}
        }
    }

    /// Lists again if an open watch does not show the renewals of this replica.
    fn restart_stalled_watch(&mut self, now: Instant, output: &mut EngineOutput) {
        let is_open = matches!(self.list_watch, ListWatchState::Open { .. });
        if !is_open || self.cache.membership.held_until(now).is_none() {
            return;
        }
        let stalled_at = self.cache.updated_at.unwrap_or(now) + self.params.retry_period * 2;
        if now >= stalled_at {
            self.relist(now, output);
        } else {
            output.wait(stalled_at);
        }
    }

    /// Parses the plan if its Lease has changed. While the Lease is invalid, the last valid plan applies.
    pub(super) fn read_plan(&mut self) {
        let ObservedLease::Seen(seen) = &self.cache.plan else { return };
        let version = seen.lease.metadata.resource_version.clone();
        if self.plan.is_some() && self.plan_version == version {
            return;
        }
        match Plan::from_lease(&seen.lease) {
            Ok(plan) => self.adopt(plan),
            Err(error) => {
                let lease = self.cache.names.plan();
                let error = format!(
                    "invalid shard map in the Lease {lease}: {error}; delete this Lease, the replicas create a new one"
                );
                self.log_failure(RequestTarget::Plan, &LeaseError::Request(error));
            }
        }
        self.plan_version = version;
    }

    fn adopt(&mut self, plan: Plan) {
        if self.plan.as_ref() != Some(&plan) {
            let (generation, shards) = (plan.generation, plan.shard_map.len());
            tracing::info!(election = self.cache.names.prefix(), generation, shards, "shard map read");
        }
        // A proposal is kept until a plan contains it, or it no longer fits the number of shards.
        self.proposal = self.proposal.take().filter(|(shard_map, heavy)| {
            shard_map.len() == plan.shard_map.len() && (*shard_map != plan.shard_map || *heavy != plan.heavy)
        });
        self.plan = Some(plan);
        self.clear_failure(RequestTarget::Plan);
    }
}
