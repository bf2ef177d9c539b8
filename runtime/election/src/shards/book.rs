//! What one replica knows of all Leases of the election: the plan, the members, the shards. Pure.
//!
//! It is fed by lists and a watch, which show one order of all writes, and by answers to single requests, which may be
//! newer. No Lease in it ever goes back to an older state, and whether a holder or a member lives is judged by when
//! *changes* of its record were received here, never by what time a record states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use windlass_env::Instant;
use windlass_object::ResourceVersion;
use windlass_object::shard::{Ranges, ShardId};

use super::names::{Names, Place, SHARDS_LABEL, WANTED_ANNOTATION};
use super::plan::{annotation, generation, ranges};
use crate::decide::{Observation, Step, View};
use crate::record::Record;
use crate::tenure::{Tenure, Terms};
use crate::written::{Predecessor, Written};

/// Everything known.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) names: Names,
    pub(crate) terms: Arc<Terms>,
    pub(crate) plan: View,
    /// This replica's own membership.
    pub(crate) me: Tenure,
    /// The Leases of all other members, by name.
    pub(crate) others: BTreeMap<String, View>,
    pub(crate) shards: BTreeMap<ShardId, Shard>,
    /// Every write up to this version is in the book.
    pub(crate) version: Option<ResourceVersion>,
    /// When the first list came.
    pub(crate) listed_at: Option<Instant>,
    /// When the request was sent that the last list answered.
    pub(crate) list_sent_at: Option<Instant>,
    /// When a list or anything of a watch last came.
    pub(crate) heard_at: Option<Instant>,
}

/// One shard's Lease.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) tenure: Tenure,
    /// Who held it last, as far as that one told when it gave it back.
    former: Option<Former>,
    /// Of which state of the Lease that follows: an earlier one, told late, changes nothing.
    former_at: Option<ResourceVersion>,
    /// The newest state that a list or the watch showed. Answers may be ahead of it, and then show nothing of what was
    /// between.
    shown: Option<Lease>,
    /// From whom this replica took it, until it acts on it; `None` if that is not known.
    taken: Option<Taken>,
}

/// What a claim was written over.
#[derive(Clone, Debug)]
enum Taken {
    /// There was no Lease.
    Nothing,
    /// A term of this shard.
    Former(Former),
}

/// What is left of a term that has ended.
#[derive(Clone, Debug)]
struct Former {
    generation: u64,
    ranges: Ranges,
    predecessor: Predecessor,
}

impl Book {
    pub(crate) fn new(names: Names, terms: Arc<Terms>) -> Self {
        let me =
            Tenure::new(terms.clone(), names.member(&terms.identity)).labelled(SHARDS_LABEL, names.prefix());
        Self {
            names,
            terms,
            plan: View::Unknown,
            me,
            others: BTreeMap::new(),
            shards: BTreeMap::new(),
            version: None,
            listed_at: None,
            list_sent_at: None,
            heard_at: None,
        }
    }

    /// The shard of this number, made if need be.
    pub(crate) fn shard(&mut self, shard: ShardId) -> &mut Shard {
        let (names, terms) = (&self.names, &self.terms);
        self.shards.entry(shard).or_insert_with(|| Shard {
            tenure: Tenure::new(terms.clone(), names.shard(shard)).labelled(SHARDS_LABEL, names.prefix()),
            former: None,
            former_at: None,
            shown: None,
            taken: None,
        })
    }

    /// Takes in a whole list: what it does not hold is gone, unless it was seen in a later state.
    pub(crate) fn listed(
        &mut self,
        version: Option<ResourceVersion>,
        leases: Vec<Lease>,
        sent: Instant,
        now: Instant,
    ) {
        let listed: BTreeSet<String> =
            leases.iter().filter_map(|lease| lease.metadata.name.clone()).collect();
        if self.version.as_ref().zip(version.as_ref()).is_some_and(|(known, listed)| listed < known) {
            self.forget();
        }
        for lease in leases {
            self.doubt_former(&lease);
            self.put(lease, now);
        }
        let older = |view: &View| match (&version, version_of(view)) {
            (Some(version), Some(seen)) => version.reached(&seen).unwrap_or(true),
            _ => true,
        };
        let gone = |name: &str, view: &View| !listed.contains(name) && older(view);
        if gone(&self.names.plan(), &self.plan) {
            self.plan.vanished();
        }
        if gone(self.me.name(), self.me.view()) {
            self.me.vanished();
        }
        self.others.retain(|name, view| !gone(name, view));
        for shard in self.shards.values_mut() {
            if gone(shard.tenure.name(), shard.tenure.view()) {
                shard.vanished();
                shard.doubt_former(version.clone());
            }
        }
        self.version = version;
        self.listed_at = self.listed_at.or(Some(now));
        self.list_sent_at = Some(sent);
        self.heard_at = Some(now);
    }

    /// A list does not show what happened since: a Lease that has changed hands may have been given back in between.
    fn doubt_former(&mut self, lease: &Lease) {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let Some(Place::Shard(number)) = self.names.place(name) else { return };
        let Some(shard) = self.shards.get_mut(&number) else { return };
        if !shard.shown.as_ref().is_some_and(|shown| is_same_term(shown, lease)) {
            shard.doubt_former(version_in(lease));
        }
    }

    /// The server went back to an earlier state: what is known of Leases is later than anything it will tell.
    fn forget(&mut self) {
        self.plan = View::Unknown;
        self.others.clear();
        self.me.forget();
        for shard in self.shards.values_mut() {
            shard.tenure.forget();
            (shard.former, shard.former_at, shard.shown, shard.taken) = (None, None, None, None);
        }
    }

    /// Takes in a state that the watch showed.
    pub(crate) fn shown(&mut self, lease: Lease, now: Instant) {
        let version = lease.metadata.resource_version.as_deref().map(ResourceVersion::new);
        self.put(lease, now);
        self.reached(version, now);
    }

    /// Takes in a deletion that the watch showed, with the last state at the version of the deletion.
    pub(crate) fn deleted(&mut self, lease: &Lease, now: Instant) {
        let version = lease.metadata.resource_version.as_deref().map(ResourceVersion::new);
        let older = |view: &View| match (&version, version_of(view)) {
            (Some(version), Some(seen)) => version.reached(&seen).unwrap_or(true),
            _ => true,
        };
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        match self.names.place(name) {
            Some(Place::Plan) if older(&self.plan) => self.plan.vanished(),
            Some(Place::Member) if name == self.me.name() => {
                if older(self.me.view()) {
                    self.me.vanished();
                }
            }
            Some(Place::Member) => {
                if self.others.get(name).is_some_and(older) {
                    self.others.remove(name);
                }
            }
            Some(Place::Shard(shard)) => {
                let shard = self.shard(shard);
                match older(shard.tenure.view()) {
                    true => shard.vanished(),
                    false => shard.shown_gone(),
                }
            }
            Some(Place::Plan) | None => {}
        }
        self.reached(version, now);
    }

    /// The watch has shown everything up to here.
    pub(crate) fn reached(&mut self, version: Option<ResourceVersion>, now: Instant) {
        if let Some(version) = version
            && self.version.as_ref().is_none_or(|known| version.reached(known).unwrap_or(true))
        {
            self.version = Some(version);
        }
        self.heard_at = Some(now);
    }

    /// Takes in one Lease, unless it is known in a later state.
    pub(crate) fn put(&mut self, lease: Lease, now: Instant) {
        let name = lease.metadata.name.clone().unwrap_or_default();
        match self.names.place(&name) {
            Some(Place::Plan) => self.plan.observe_newer(lease, now),
            Some(Place::Member) if name == self.me.name() => self.me.sighted(lease, now),
            Some(Place::Member) => {
                self.others.entry(name).or_insert(View::Unknown).observe_newer(lease, now);
            }
            Some(Place::Shard(shard)) => {
                let shard = self.shard(shard);
                shard.remember(&lease);
                shard.shown = Some(lease.clone());
                shard.tenure.sighted(lease, now);
            }
            None => {}
        }
    }

    /// The members that live, each with the number of shards that it wants.
    pub(crate) fn members(&self, now: Instant) -> BTreeMap<String, Option<u16>> {
        let others = self.others.values().filter_map(|view| self.member(view, now));
        let me =
            self.me.held_until(now).is_some().then(|| self.me.view()).and_then(|view| stated(view.seen()?));
        others.chain(me).collect()
    }

    /// The members that live and were heard of lately, this replica among them.
    pub(crate) fn heard_of(&self, now: Instant) -> BTreeSet<String> {
        let lately =
            |view: &&View| view.seen().is_some_and(|seen| now < seen.changed_at + self.silence(seen));
        let others = self.others.values().filter(lately).filter_map(|view| self.member(view, now));
        let me = self.me.held_until(now).is_some().then(|| self.terms.identity.clone());
        others.map(|(member, _)| member).chain(me).collect()
    }

    /// After what time without a renewal a member is taken for silent, long before its membership expires: one that
    /// comes late to a renewal loses nothing by it. Sooner if it was found by the first list, and has not been heard of
    /// since: it renewed some time before, and a replica that comes is not to keep anything for the dead.
    fn silence(&self, seen: &Observation) -> Duration {
        match self.listed_at == Some(seen.changed_at) {
            true => self.terms.retry_period * 5 / 4,
            false => self.terms.retry_period * 2,
        }
    }

    fn member(&self, view: &View, now: Instant) -> Option<(String, Option<u16>)> {
        let seen = view.seen()?;
        (now < self.expiry(seen)).then(|| stated(seen)).flatten()
    }

    /// When this one's time is up, unless its record changes.
    pub(crate) fn expiry(&self, seen: &Observation) -> Instant {
        seen.changed_at + seen.record.duration(self.terms.lease_duration)
    }

    /// What one who wants this Lease would do by what was last seen, however that was learned.
    pub(crate) fn apparent(&self, shard: ShardId, now: Instant) -> Step {
        self.shards.get(&shard).map_or(Step::Create, |shard| shard.tenure.apparent(now))
    }

    /// Since when nobody holds it, as far as is known.
    pub(crate) fn unheld_since(&self, shard: ShardId) -> Instant {
        let seen = self.shards.get(&shard).and_then(|shard| shard.tenure.view().seen());
        match seen {
            Some(seen) if seen.record.holder.is_none() => seen.changed_at,
            Some(seen) => self.expiry(seen),
            None => self.listed_at.unwrap_or(Instant::ORIGIN),
        }
    }

    /// The shards whose Leases name somebody who acts, or may act, on some of these ranges.
    pub(crate) fn in_the_way(&self, of: ShardId, ranges: &Ranges, now: Instant) -> Vec<ShardId> {
        let overlaps = |(number, shard): (&ShardId, &Shard)| {
            let acts = *number != of && shard.acts_on(now, self.terms.lease_duration)?.overlaps(ranges);
            acts.then_some(*number)
        };
        self.shards.iter().filter_map(overlaps).collect()
    }

    /// When the one in the way is out of time, if it is not yet.
    pub(crate) fn blocked_until(&self, shard: ShardId, now: Instant) -> Option<Instant> {
        let expiry = match self.shards.get(&shard)?.tenure.view() {
            View::Seen(last) | View::Gone(last) => self.expiry(last),
            View::Unknown | View::Absent => return None,
        };
        Some(expiry).filter(|expiry| now < *expiry)
    }

    /// What is known of whoever acted before on what this shard is now, from the moment of the claim until its owner
    /// acts. A term under the same plan was on the same ranges and is the last one there. Else what is known is put
    /// together from all that the plan just before made of these ranges, if each of those told: of a plan before that
    /// one nothing follows, for somebody may have acted in between, of whom nothing is left to see. No more does anything
    /// where there was no Lease: one of somebody who acted under this plan may have been deleted.
    ///
    /// Only right while the book shows every write before the claim and nobody in them acts on these ranges.
    pub(crate) fn predecessor(&self, shard: ShardId, ranges: &Ranges, under: u64) -> Predecessor {
        match self.shards.get(&shard).and_then(|own| own.taken.as_ref()) {
            None | Some(Taken::Nothing) => Predecessor::Silent,
            Some(Taken::Former(former)) if former.generation == under && former.ranges == *ranges => {
                former.predecessor.clone()
            }
            Some(Taken::Former(former)) if former.generation >= under => Predecessor::Silent,
            Some(Taken::Former(_)) => self.put_together(shard, ranges, under),
        }
    }

    fn put_together(&self, shard: ShardId, ranges: &Ranges, under: u64) -> Predecessor {
        let last_of = |(number, entry): (&ShardId, &'_ Shard)| match &entry.taken {
            Some(Taken::Former(former)) if *number == shard => Some(former.clone()),
            _ => entry.former.clone(),
        };
        let formers: Vec<Former> = self
            .shards
            .iter()
            .filter_map(last_of)
            .filter(|former| {
                former.generation.checked_add(1) == Some(under) && former.ranges.overlaps(ranges)
            })
            .collect();
        let covered = formers.iter().fold(Ranges::none(), |all, former| all.union(&former.ranges));
        if covered.union(ranges).width() != covered.width() {
            return Predecessor::Silent;
        }
        let mut written = Written::new();
        for former in formers {
            let Predecessor::Released(told) = former.predecessor else { return Predecessor::Silent };
            for (resource, version) in told {
                let known = written.entry(resource).or_insert_with(|| version.clone());
                if version.reached(known) == Some(true) {
                    *known = version;
                }
            }
        }
        Predecessor::Released(written)
    }
}

impl Shard {
    /// Keeps who held it last, though a later state may be known: a successor's claim writes over what was told, and
    /// others may need it still. Of one whose Lease was not given back, but written over with another's name, nothing was
    /// told.
    pub(super) fn remember(&mut self, lease: &Lease) {
        if !is_held(lease) {
            return self.ended(lease);
        }
        let is_over = |before: &Lease| is_earlier(before, lease) && !is_same_term(before, lease);
        self.end_those(is_over);
    }

    /// Keeps that it was found not to exist. Whoever held it then has told nothing.
    pub(super) fn gone(&mut self) {
        self.end_those(|_| true);
    }

    /// Keeps those as ended that hold it by what is known, where that is so.
    fn end_those(&mut self, is_over: impl Fn(&Lease) -> bool) {
        let seen = self.tenure.view().seen().map(|seen| &seen.lease);
        let known = self.shown.iter().chain(seen);
        let over: Vec<Lease> = known.filter(|known| is_held(known) && is_over(known)).cloned().collect();
        over.iter().for_each(|last| self.ended(last));
    }

    /// Keeps what is left of the term of which this state is the last known.
    fn ended(&mut self, last: &Lease) {
        let at = version_in(last);
        if self.is_news(at.as_ref()) {
            self.former = Former::of(last);
            self.former_at = at;
        }
    }

    /// Forgets who held it last before this version: it is not known what happened until then.
    fn doubt_former(&mut self, version: Option<ResourceVersion>) {
        if self.is_news(version.as_ref()) {
            self.former = None;
            self.former_at = version;
        }
    }

    fn is_news(&self, version: Option<&ResourceVersion>) -> bool {
        let order = version.zip(self.former_at.as_ref()).and_then(|(told, known)| told.reached(known));
        order.unwrap_or(true)
    }

    /// Keeps what this replica is about to write itself over. One that did not give it back told nothing.
    pub(super) fn taking(&mut self) {
        self.taken = match self.tenure.view() {
            View::Seen(last) | View::Gone(last) => Former::of(&last.lease).map(Taken::Former),
            View::Unknown | View::Absent => Some(Taken::Nothing),
        };
    }

    /// What stood there before this replica's claim, on which nobody has acted: plan, ranges, and what was told.
    pub(super) fn undone(&self) -> Option<(u64, Ranges, Predecessor)> {
        match &self.taken {
            Some(Taken::Former(former)) => {
                Some((former.generation, former.ranges.clone(), former.predecessor.clone()))
            }
            Some(Taken::Nothing) | None => None,
        }
    }

    /// The owner acts from now on: what was there before it is not the last any more.
    pub(super) fn acts(&mut self) {
        self.taken = None;
    }

    /// Takes in that the Lease was deleted.
    fn vanished(&mut self) {
        self.shown_gone();
        self.tenure.vanished();
    }

    /// The same, where it was created anew since, as is known already.
    fn shown_gone(&mut self) {
        self.gone();
        self.shown = None;
    }

    /// The ranges on which the holder acts, or may: until somebody has written over an existing Lease, its holder
    /// might renew it.
    fn acts_on(&self, now: Instant, unstated: Duration) -> Option<Ranges> {
        match self.tenure.view() {
            View::Seen(seen) if seen.record.holder.is_some() => Some(ranges(&seen.lease.metadata)),
            View::Gone(last) if now < last.changed_at + last.record.duration(unstated) => {
                Some(ranges(&last.lease.metadata))
            }
            View::Unknown | View::Absent | View::Seen(_) | View::Gone(_) => None,
        }
    }
}

impl Former {
    /// The term that this state of a Lease ends, if it says under which plan it was. One that did not give it back told
    /// nothing.
    fn of(last: &Lease) -> Option<Self> {
        let metadata = &last.metadata;
        let predecessor = match is_held(last) {
            true => Predecessor::Silent,
            false => Predecessor::of_released(metadata),
        };
        Some(Self { generation: generation(metadata)?, ranges: ranges(metadata), predecessor })
    }
}

fn stated(seen: &Observation) -> Option<(String, Option<u16>)> {
    let wanted = annotation(&seen.lease.metadata, WANTED_ANNOTATION).and_then(|text| text.parse().ok());
    seen.record.holder.clone().map(|holder| (holder, wanted))
}

fn version_of(view: &View) -> Option<ResourceVersion> {
    Some(view.version()).filter(|version| !version.is_empty()).map(ResourceVersion::new)
}

fn version_in(lease: &Lease) -> Option<ResourceVersion> {
    lease.metadata.resource_version.as_deref().map(ResourceVersion::new)
}

fn is_held(lease: &Lease) -> bool {
    Record::of(lease).holder.is_some()
}

/// Whether these states are of one term of one holder, or of the same rest. One that reclaims its Lease for other ranges
/// begins anew, and what it wrote on those before was not told.
fn is_same_term(one: &Lease, other: &Lease) -> bool {
    let term = |lease: &Lease| {
        let record = Record::of(lease);
        (record.holder, record.transitions, record.acquired, ranges(&lease.metadata))
    };
    term(one) == term(other)
}

/// Whether this state was before the other, or may have been.
fn is_earlier(one: &Lease, other: &Lease) -> bool {
    let reached = version_in(one).zip(version_in(other)).and_then(|(one, other)| one.reached(&other));
    !reached.unwrap_or(false)
}
