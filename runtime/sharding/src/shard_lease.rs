//! The Lease of one shard, and what the previous holders recorded in it. Pure.
//!
//! Guarantee: a previous term is never replaced by an older one, in whatever order responses and watch events arrive.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_election::PreviousHolder;
use windlass_election::lease::{LeaseParams, LeaseRecord, LeaseState, ObservedLease};
use windlass_env::Instant;
use windlass_object::ResourceVersion;
use windlass_object::shard::HashRanges;

use crate::plan::{generation, ranges};

/// The Lease of one shard.
#[derive(Debug)]
pub(crate) struct ShardLease {
    pub(crate) state: LeaseState,
    /// The last term of another holder, if it is known.
    previous: Option<PreviousTerm>,
    /// The version of the Lease after which `previous` is known: a state of an older version does not change it.
    previous_at: Option<ResourceVersion>,
    /// The newest state from a list or the watch. A response can be newer, but does not show the states in between.
    last_observed: Option<Lease>,
    /// The state that this replica's claim overwrote, until the claim is confirmed; `None` if it is not known.
    overwritten: Option<OverwrittenTerm>,
}

/// The state that a claim overwrote.
#[derive(Clone, Debug)]
pub(crate) enum OverwrittenTerm {
    /// There was no Lease.
    Absent,
    /// The Lease of an earlier term.
    Term(PreviousTerm),
}

/// The record of a term that has ended.
#[derive(Clone, Debug)]
pub(crate) struct PreviousTerm {
    pub(crate) generation: u64,
    pub(crate) ranges: HashRanges,
    pub(crate) previous_holder: PreviousHolder,
}

impl ShardLease {
    /// Returns a Lease that is not known yet.
    pub(crate) fn new(params: Arc<LeaseParams>, name: String, label: (&str, &str)) -> Self {
        Self {
            state: LeaseState::new(params, name).with_label(label.0, label.1),
            previous: None,
            previous_at: None,
            last_observed: None,
            overwritten: None,
        }
    }

    /// Records a state from a list or the watch.
    pub(crate) fn on_observed(&mut self, lease: Lease, now: Instant) {
        self.record_previous(&lease);
        self.last_observed = Some(lease.clone());
        self.state.on_watch_event(lease, now);
    }

    /// Records that a list or the watch has shown the deletion of the last known state.
    pub(crate) fn on_deleted(&mut self) {
        self.on_earlier_deletion();
        self.state.on_deleted();
    }

    /// Records that the watch has shown a deletion after which the Lease was created again.
    pub(crate) fn on_earlier_deletion(&mut self) {
        self.on_absent();
        self.last_observed = None;
    }

    /// Clears everything after the server went back to an earlier version.
    pub(crate) fn clear(&mut self) {
        self.state.clear();
        (self.previous, self.previous_at, self.last_observed, self.overwritten) = (None, None, None, None);
    }

    /// Keeps the previous term that `lease` shows, even if a newer state is known: a claim overwrites the record of a
    /// release, and other shards might still need it. A holder whose name was overwritten recorded nothing.
    pub(crate) fn record_previous(&mut self, lease: &Lease) {
        if !is_held(lease) {
            return self.end_term(lease);
        }
        let has_ended = |before: &Lease| is_earlier(before, lease) && !is_same_term(before, lease);
        self.end_known_terms(has_ended);
    }

    /// Records that a request found no Lease. Its last holder recorded nothing.
    pub(crate) fn on_absent(&mut self) {
        self.end_known_terms(|_| true);
    }

    fn end_known_terms(&mut self, has_ended: impl Fn(&Lease) -> bool) {
        let seen = self.state.observed().seen().map(|seen| &seen.lease);
        let known = self.last_observed.iter().chain(seen);
        let ended: Vec<Lease> = known.filter(|known| is_held(known) && has_ended(known)).cloned().collect();
        ended.iter().for_each(|last| self.end_term(last));
    }

    /// Keeps the term of which `last` is the last known state.
    fn end_term(&mut self, last: &Lease) {
        let at = version_of(last);
        if self.is_newer_than_previous(at.as_ref()) {
            self.previous = PreviousTerm::from_lease(last);
            self.previous_at = at;
        }
    }

    /// Forgets the previous term if a list at `version` might have skipped a later one: a list does not show a term
    /// that began and ended since the last known state.
    pub(crate) fn invalidate_previous(&mut self, version: Option<ResourceVersion>) {
        if self.is_newer_than_previous(version.as_ref()) {
            self.previous = None;
            self.previous_at = version;
        }
    }

    /// The same, unless the listed state is of the last shown term.
    pub(crate) fn invalidate_previous_unless_observed(&mut self, listed: &Lease) {
        if !self.last_observed.as_ref().is_some_and(|shown| is_same_term(shown, listed)) {
            self.invalidate_previous(version_of(listed));
        }
    }

    fn is_newer_than_previous(&self, version: Option<&ResourceVersion>) -> bool {
        let order = version.zip(self.previous_at.as_ref()).and_then(|(new, known)| new.reached(known));
        order.unwrap_or(true)
    }

    /// Keeps the state that this replica's claim is about to overwrite.
    pub(crate) fn begin_claim(&mut self) {
        self.overwritten = match self.state.observed() {
            ObservedLease::Seen(last) | ObservedLease::Deleted(last) => {
                PreviousTerm::from_lease(&last.lease).map(OverwrittenTerm::Term)
            }
            ObservedLease::Unknown | ObservedLease::Absent => Some(OverwrittenTerm::Absent),
        };
    }

    /// Drops the overwritten state: the claim is confirmed, so the term of this replica is the last one.
    pub(crate) fn confirm_claim(&mut self) {
        self.overwritten = None;
    }

    /// Returns the state that the claim overwrote.
    pub(crate) fn overwritten(&self) -> Option<&OverwrittenTerm> {
        self.overwritten.as_ref()
    }

    /// Returns the term that the claim overwrote, to restore it when the claim is withdrawn.
    pub(crate) fn term_before_claim(&self) -> Option<&PreviousTerm> {
        match &self.overwritten {
            Some(OverwrittenTerm::Term(term)) => Some(term),
            Some(OverwrittenTerm::Absent) | None => None,
        }
    }

    /// Returns the last term of another holder: the one that the claim of this replica overwrote, if `is_claimed`.
    pub(crate) fn last_term(&self, is_claimed: bool) -> Option<&PreviousTerm> {
        self.term_before_claim().filter(|_| is_claimed).or(self.previous.as_ref())
    }

    /// Returns the ranges on which the holder acts or might act: until an existing Lease is overwritten, its holder can
    /// renew it.
    pub(crate) fn active_ranges(&self, now: Instant, unstated: Duration) -> Option<HashRanges> {
        match self.state.observed() {
            ObservedLease::Seen(seen) if seen.record.holder.is_some() => Some(ranges(&seen.lease.metadata)),
            ObservedLease::Deleted(last) if now < last.changed_at + last.record.duration(unstated) => {
                Some(ranges(&last.lease.metadata))
            }
            ObservedLease::Unknown
            | ObservedLease::Absent
            | ObservedLease::Seen(_)
            | ObservedLease::Deleted(_) => None,
        }
    }
}

impl PreviousTerm {
    /// Returns the term that `last` ends, if it states a generation. A holder that did not release the Lease recorded
    /// nothing.
    fn from_lease(last: &Lease) -> Option<Self> {
        let metadata = &last.metadata;
        let previous_holder = match is_held(last) {
            true => PreviousHolder::Unreported,
            false => PreviousHolder::from_released(metadata),
        };
        Some(Self { generation: generation(metadata)?, ranges: ranges(metadata), previous_holder })
    }
}

fn version_of(lease: &Lease) -> Option<ResourceVersion> {
    lease.metadata.resource_version.as_deref().map(ResourceVersion::new)
}

fn is_held(lease: &Lease) -> bool {
    LeaseRecord::from_lease(lease).holder.is_some()
}

/// Returns whether both states are of one term, or of the same time without a holder. A holder that reclaims its Lease
/// for other ranges begins a new term, and did not record its writes to the earlier ranges.
fn is_same_term(one: &Lease, other: &Lease) -> bool {
    let term = |lease: &Lease| {
        let record = LeaseRecord::from_lease(lease);
        (record.holder, record.transitions, record.acquired, ranges(&lease.metadata))
    };
    term(one) == term(other)
}

/// Returns whether `one` is or might be older than `other`.
fn is_earlier(one: &Lease, other: &Lease) -> bool {
    let reached = version_of(one).zip(version_of(other)).and_then(|(one, other)| one.reached(&other));
    !reached.unwrap_or(false)
}
