//! The last known state of all Leases of the election: the plan, the members, the shards. Pure.
//!
//! Lists and a watch show all writes in one order; responses to single requests can be newer. Guarantees:
//!
//! - No Lease goes back to an older state.
//! - Whether a holder or a member is live follows from when a *change* of its record was received, never from the times
//!   in the record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_election::lease::{ElectionAction, LeaseObservation, LeaseParams, LeaseState, ObservedLease};
use windlass_election::{PreviousHolder, WrittenVersions, merge_written};
use windlass_env::Instant;
use windlass_object::ResourceVersion;
use windlass_object::shard::{HashRanges, ShardId};

use crate::names::{LeaseNames, LeaseRole, SHARDS_LABEL, WANTED_ANNOTATION};
use crate::plan::annotation;
use crate::shard_lease::{OverwrittenTerm, PreviousTerm, ShardLease};

/// All Leases of the election.
#[derive(Debug)]
pub(crate) struct LeaseCache {
    pub(crate) names: LeaseNames,
    params: Arc<LeaseParams>,
    pub(crate) plan: ObservedLease,
    /// The membership of this replica.
    pub(crate) membership: LeaseState,
    /// The memberships of all other replicas, by name.
    pub(crate) others: BTreeMap<String, ObservedLease>,
    pub(crate) shards: BTreeMap<ShardId, ShardLease>,
    /// The cache contains every write up to this version.
    pub(crate) version: Option<ResourceVersion>,
    /// When the first list was received.
    pub(crate) listed_at: Option<Instant>,
    /// When the request of the last list was sent.
    list_sent_at: Option<Instant>,
    /// When a list or a watch event was last received.
    pub(crate) updated_at: Option<Instant>,
}

impl LeaseCache {
    pub(crate) fn new(names: LeaseNames, params: Arc<LeaseParams>) -> Self {
        let membership = LeaseState::new(params.clone(), names.member(&params.identity));
        let membership = membership.with_label(SHARDS_LABEL, names.prefix());
        Self {
            names,
            params,
            plan: ObservedLease::Unknown,
            membership,
            others: BTreeMap::new(),
            shards: BTreeMap::new(),
            version: None,
            listed_at: None,
            list_sent_at: None,
            updated_at: None,
        }
    }

    /// Returns the Lease of a shard, and creates its entry if there is none.
    pub(crate) fn shard(&mut self, shard: ShardId) -> &mut ShardLease {
        let (names, params) = (&self.names, &self.params);
        let new = || ShardLease::new(params.clone(), names.shard(shard), (SHARDS_LABEL, names.prefix()));
        self.shards.entry(shard).or_insert_with(new)
    }
}

/// Changes.
impl LeaseCache {
    /// Records a list. A Lease that is not in it is deleted, unless a newer state of it is known.
    pub(crate) fn on_list(
        &mut self,
        version: Option<ResourceVersion>,
        leases: Vec<Lease>,
        sent: Instant,
        now: Instant,
    ) {
        let listed: BTreeSet<String> =
            leases.iter().filter_map(|lease| lease.metadata.name.clone()).collect();
        if self.version.as_ref().zip(version.as_ref()).is_some_and(|(known, listed)| listed < known) {
            self.clear();
        }
        for lease in leases {
            self.invalidate_previous_term(&lease);
            self.apply(lease, now);
        }
        self.delete_unlisted(&listed, version.as_ref());
        self.version = version;
        self.listed_at = self.listed_at.or(Some(now));
        self.list_sent_at = Some(sent);
        self.updated_at = Some(now);
    }

    fn invalidate_previous_term(&mut self, lease: &Lease) {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let Some(LeaseRole::Shard(shard)) = self.names.role(name) else { return };
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.invalidate_previous_unless_observed(lease);
        }
    }

    fn delete_unlisted(&mut self, listed: &BTreeSet<String>, version: Option<&ResourceVersion>) {
        let is_deleted =
            |name: &str, view: &ObservedLease| !listed.contains(name) && is_reached(view, version);
        if is_deleted(&self.names.plan(), &self.plan) {
            self.plan.on_deleted();
        }
        if is_deleted(self.membership.name(), self.membership.observed()) {
            self.membership.on_deleted();
        }
        self.others.retain(|name, view| !is_deleted(name, view));
        for shard in self.shards.values_mut() {
            if is_deleted(shard.state.name(), shard.state.observed()) {
                shard.on_deleted();
                shard.invalidate_previous(version.cloned());
            }
        }
    }

    /// Clears the cache after the server went back to an earlier version: all cached states are newer than the states
    /// that it will send.
    fn clear(&mut self) {
        self.plan = ObservedLease::Unknown;
        self.others.clear();
        self.membership.clear();
        self.shards.values_mut().for_each(ShardLease::clear);
    }

    /// Records a state that the watch has shown.
    pub(crate) fn on_watch_event(&mut self, lease: Lease, now: Instant) {
        let version = version_in(&lease);
        self.apply(lease, now);
        self.on_progress(version, now);
    }

    /// Records a deletion that the watch has shown: the last state, with the version of the deletion.
    pub(crate) fn on_deleted(&mut self, lease: &Lease, now: Instant) {
        let version = version_in(lease);
        let is_current = |view: &ObservedLease| is_reached(view, version.as_ref());
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        match self.names.role(name) {
            Some(LeaseRole::Plan) if is_current(&self.plan) => self.plan.on_deleted(),
            Some(LeaseRole::Member) if name == self.membership.name() => {
                if is_current(self.membership.observed()) {
                    self.membership.on_deleted();
                }
            }
            Some(LeaseRole::Member) => {
                if self.others.get(name).is_some_and(is_current) {
                    self.others.remove(name);
                }
            }
            Some(LeaseRole::Shard(shard)) => {
                let shard = self.shard(shard);
                match is_current(shard.state.observed()) {
                    true => shard.on_deleted(),
                    false => shard.on_earlier_deletion(),
                }
            }
            Some(LeaseRole::Plan) | None => {}
        }
        self.on_progress(version, now);
    }

    /// Records that the watch has shown every write up to `version`.
    pub(crate) fn on_progress(&mut self, version: Option<ResourceVersion>, now: Instant) {
        if let Some(version) = version
            && self.version.as_ref().is_none_or(|known| version.reached(known).unwrap_or(true))
        {
            self.version = Some(version);
        }
        self.updated_at = Some(now);
    }

    /// Records the state of one Lease, unless a newer one is known.
    fn apply(&mut self, lease: Lease, now: Instant) {
        let name = lease.metadata.name.clone().unwrap_or_default();
        match self.names.role(&name) {
            Some(LeaseRole::Plan) => self.plan.observe_newer(lease, now),
            Some(LeaseRole::Member) if name == self.membership.name() => {
                self.membership.on_watch_event(lease, now);
            }
            Some(LeaseRole::Member) => {
                self.others.entry(name).or_insert(ObservedLease::Unknown).observe_newer(lease, now);
            }
            Some(LeaseRole::Shard(shard)) => self.shard(shard).on_observed(lease, now),
            None => {}
        }
    }
}

/// Members.
impl LeaseCache {
    /// Returns the live members, each with the number of shards that it requests.
    pub(crate) fn live_members(&self, now: Instant) -> BTreeMap<String, Option<u16>> {
        let others = self.others.values().filter_map(|view| self.live_member(view, now));
        let own = self
            .membership
            .held_until(now)
            .and_then(|_| identity_and_shards(self.membership.observed().seen()?));
        others.chain(own).collect()
    }

    /// Returns the live members that have renewed recently, including this replica.
    pub(crate) fn responsive_members(&self, now: Instant) -> BTreeSet<String> {
        let is_recent = |view: &&ObservedLease| {
            view.seen().is_some_and(|seen| now < seen.changed_at + self.response_timeout(seen))
        };
        let others = self.others.values().filter(is_recent).filter_map(|view| self.live_member(view, now));
        let own = self.membership.held_until(now).map(|_| self.params.identity.clone());
        others.map(|(member, _)| member).chain(own).collect()
    }

    /// Returns the time without a renewal after which no shard is reserved for a member, long before its membership
    /// expires. The time is shorter for a member of the first list that has not renewed since: it renewed some time
    /// before that list, and a starting replica should not reserve shards for a crashed member.
    fn response_timeout(&self, seen: &LeaseObservation) -> Duration {
        match self.listed_at == Some(seen.changed_at) {
            true => self.params.retry_period * 5 / 4,
            false => self.params.retry_period * 2,
        }
    }

    fn live_member(&self, view: &ObservedLease, now: Instant) -> Option<(String, Option<u16>)> {
        let seen = view.seen()?;
        (now < self.expiry(seen)).then(|| identity_and_shards(seen)).flatten()
    }

    /// Returns when a Lease expires unless its record changes.
    pub(crate) fn expiry(&self, seen: &LeaseObservation) -> Instant {
        seen.changed_at + seen.record.duration(self.params.lease_duration)
    }
}

/// Shards.
impl LeaseCache {
    /// Returns whether the cache contains every write before a claim.
    pub(crate) fn contains_claim(&self, claim: Option<&ResourceVersion>, claimed_at: Instant) -> bool {
        let by_version = self.version.as_ref().zip(claim).and_then(|(known, claim)| known.reached(claim));
        by_version.unwrap_or(false) || self.list_sent_at.is_some_and(|sent| sent > claimed_at)
    }

    /// Returns the next action of a replica that wants this shard, by its last known state.
    pub(crate) fn apparent_action(&self, shard: ShardId, now: Instant) -> ElectionAction {
        self.shards.get(&shard).map_or(ElectionAction::Create, |shard| shard.state.apparent(now))
    }

    /// Returns since when no replica has held the shard, as far as is known.
    pub(crate) fn unheld_since(&self, shard: ShardId) -> Instant {
        let seen = self.shards.get(&shard).and_then(|shard| shard.state.observed().seen());
        match seen {
            Some(seen) if seen.record.holder.is_none() => seen.changed_at,
            Some(seen) => self.expiry(seen),
            None => self.listed_at.unwrap_or(Instant::ORIGIN),
        }
    }

    /// Returns the other shards whose holders act or might act on some of these ranges.
    pub(crate) fn conflicting_shards(
        &self,
        shard: ShardId,
        ranges: &HashRanges,
        now: Instant,
    ) -> Vec<ShardId> {
        let conflicts = |(other, lease): (&ShardId, &ShardLease)| {
            let is_active =
                *other != shard && lease.active_ranges(now, self.params.lease_duration)?.overlaps(ranges);
            is_active.then_some(*other)
        };
        self.shards.iter().filter_map(conflicts).collect()
    }

    /// Returns when the Lease of a shard expires; `None` if it has expired or does not exist.
    pub(crate) fn expires_at(&self, shard: ShardId, now: Instant) -> Option<Instant> {
        let expiry = match self.shards.get(&shard)?.state.observed() {
            ObservedLease::Seen(last) | ObservedLease::Deleted(last) => self.expiry(last),
            ObservedLease::Unknown | ObservedLease::Absent => return None,
        };
        Some(expiry).filter(|expiry| now < *expiry)
    }

    /// Returns the previous holder of the ranges that this replica has claimed as `shard` under generation `under`.
    ///
    /// A term of the same generation had the same ranges and is the last one. Otherwise the terms of the previous
    /// generation are combined, if each of them recorded its writes. An older generation proves nothing, because a
    /// later holder might have left no trace. Neither does a missing Lease: a Lease of this generation might have been
    /// deleted.
    ///
    /// The result is only valid while the cache contains every write before the claim and no other holder acts on these
    /// ranges.
    pub(crate) fn previous_holder(&self, shard: ShardId, ranges: &HashRanges, under: u64) -> PreviousHolder {
        match self.shards.get(&shard).and_then(ShardLease::overwritten) {
            None | Some(OverwrittenTerm::Absent) => PreviousHolder::Unreported,
            Some(OverwrittenTerm::Term(term)) if term.generation == under && term.ranges == *ranges => {
                term.previous_holder.clone()
            }
            Some(OverwrittenTerm::Term(term)) if term.generation >= under => PreviousHolder::Unreported,
            Some(OverwrittenTerm::Term(_)) => self.combine_previous_terms(shard, ranges, under),
        }
    }

    fn combine_previous_terms(&self, shard: ShardId, ranges: &HashRanges, under: u64) -> PreviousHolder {
        let last_terms = self.shards.iter().filter_map(|(number, lease)| lease.last_term(*number == shard));
        let terms: Vec<&PreviousTerm> = last_terms
            .filter(|term| term.generation.checked_add(1) == Some(under) && term.ranges.overlaps(ranges))
            .collect();
        let covered = terms.iter().fold(HashRanges::none(), |all, term| all.union(&term.ranges));
        if covered.union(ranges).width() != covered.width() {
            return PreviousHolder::Unreported;
        }
        let mut written = WrittenVersions::new();
        for term in terms {
            let PreviousHolder::Released(recorded) = &term.previous_holder else {
                return PreviousHolder::Unreported;
            };
            merge_written(&mut written, recorded);
        }
        PreviousHolder::Released(written)
    }
}

/// Returns the identity of a member, and the number of shards that it requests.
fn identity_and_shards(seen: &LeaseObservation) -> Option<(String, Option<u16>)> {
    let wanted = annotation(&seen.lease.metadata, WANTED_ANNOTATION).and_then(|text| text.parse().ok());
    seen.record.holder.clone().map(|holder| (holder, wanted))
}

/// Returns whether `version` is not older than the known state.
fn is_reached(view: &ObservedLease, version: Option<&ResourceVersion>) -> bool {
    let known = Some(view.version()).filter(|version| !version.is_empty()).map(ResourceVersion::new);
    match (version, known) {
        (Some(version), Some(known)) => version.reached(&known).unwrap_or(true),
        _ => true,
    }
}

fn version_in(lease: &Lease) -> Option<ResourceVersion> {
    lease.metadata.resource_version.as_deref().map(ResourceVersion::new)
}
