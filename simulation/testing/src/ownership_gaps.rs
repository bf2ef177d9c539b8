//! How long shards are without anybody who works on them, by the account of the server and of the world.
//!
//! A shard is *vacant* while its Lease names nobody, or a process that is dead, stands still, is cut off, or has not
//! renewed it for a renew deadline. Time is true time. Who may be expected to end a vacancy, and by when:
//!
//! - A **clean** one, where the holder gave the shard back while nothing was wrong with anybody: somebody else within
//!   [`HAND_OVER`]. Where the holder was told to stop, that second begins with the signal.
//! - Any other: within one lease duration from when it began, by the slowest clock, as long as somebody is *able* to take
//!   it: runs, does not stand still and is not cut off. A retry period more, for one who should take it and does not
//!   (the others then act for it). And [`NOTICED`] retry periods more if somebody else falls silent during the vacancy:
//!   until that is noticed, a share of the shards is kept for it.
//!
//! The time to end it begins again when a process comes back that was cut off ([`LeaseTimings::recovery`]): requests that were
//! lost silently are given up first. It does not run while something lets a part of the requests about Leases through,
//! late, unheard or refused: one that renews its membership and cannot write the Leases of shards keeps its share, as
//! the election says of itself. Nor while the plan of shards changes hands: ranges of a dead holder stay blocked until
//! its Lease is out of time. What keeps nobody from a Lease that is there does not stop it: events of a watch that come
//! twice, bookmarks that do not come, and creates that are refused once the Lease of the shard was created.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_api_server::faults::{Fault, FaultAction, ProcessId};
use windlass_object::shard::{HashRanges, ShardId, ShardMap};

use crate::violation::Violation;

/// How long a hand-over may take while nothing is wrong: what the election promises.
const HAND_OVER: Duration = Duration::from_secs(1);
/// After how many retry periods without a renewal a member is taken for silent.
const NOTICED: u32 = 2;
/// Requests under way, and the interval at which it is looked.
const SLACK: Duration = Duration::from_millis(500);
/// After how many lease durations the election removes a dead member. Until then a replica that starts keeps a share for
/// that member, for 5/4 retry periods.
const REMOVED_AFTER: u32 = 4;

/// What the replicas of one election go by, in true time of the slowest clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTimings {
    pub(crate) lease: Duration,
    pub(crate) retry: Duration,
    /// How long it takes until a request that was lost silently is sent again.
    pub(crate) recovery: Duration,
}

/// What came of all vacancies of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnershipGaps {
    /// How often a shard lost its holder and somebody else took it, while the time to do so ran from the beginning.
    pub filled: u64,
    /// The longest of these vacancies, in true time.
    pub longest: Duration,
    /// How often a shard was handed over while nothing was wrong.
    pub hand_overs: u64,
    /// The longest of these, from the signal or the release until somebody else had it.
    pub longest_hand_over: Duration,
}

/// Looks after the shards of one election.
#[derive(Debug, Default)]
pub(crate) struct ShardGapOracle {
    terms: Option<LeaseTimings>,
    replicas: BTreeMap<Arc<str>, Replica>,
    shards: BTreeMap<ShardId, Shard>,
    division: Option<ShardMap>,
    /// Since when the Leases are as the plan says.
    settled: Duration,
    /// When lives were told to stop in order.
    told: BTreeMap<ProcessId, Duration>,
    /// When a life ended last that was not told to.
    died: Option<Duration>,
    vacancies: OwnershipGaps,
}

/// One process that shares shards, in whatever life.
#[derive(Debug)]
struct Replica {
    deadline: Duration,
    /// When something keeps it from its Leases, by the plan.
    troubles: Vec<Outage>,
    living: Option<Incarnation>,
}

#[derive(Debug)]
struct Incarnation {
    life: u64,
    /// Since when it is a member.
    member: Option<Duration>,
    told_to_stop: bool,
}

/// A time in which something keeps a process from its Leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outage {
    from: Duration,
    until: Duration,
    /// When the last of what it caused is over.
    over: Duration,
    /// Whether nothing gets through, so that everybody can see that the process is out.
    whole: bool,
    /// Whether it is a pause, which ends with the life it began in.
    pause: bool,
    /// Whether it keeps it from creating Leases alone.
    creates: bool,
}

#[derive(Debug, Default)]
struct Shard {
    /// Whether its Lease was ever there.
    created: bool,
    holder: Option<ProcessId>,
    renewed: Duration,
    ranges: Option<HashRanges>,
    vacant: Option<OwnershipGap>,
}

#[derive(Debug)]
struct OwnershipGap {
    since: Duration,
    /// Who was named when it began.
    named: Option<ProcessId>,
    /// When the hand-over began, while nothing is wrong.
    clean: Option<Duration>,
    /// Whether the time to end it runs since it began.
    judged: bool,
}

impl ShardGapOracle {
    /// From now on there are so many shards, of which this process takes its share. `deadline` is its renew deadline.
    pub(crate) fn expect(
        &mut self,
        instance: &str,
        (terms, deadline): (LeaseTimings, Duration),
        shards: u16,
        plan: &[Fault],
    ) {
        self.terms = Some(terms);
        let concerned = plan.iter().filter(|fault| fault.concerns(instance));
        let troubles = concerned.filter_map(|fault| Outage::of(fault, terms.recovery)).collect();
        self.replicas.insert(instance.into(), Replica { deadline, troubles, living: None });
        for number in (0..shards).map(ShardId) {
            self.shards.entry(number).or_default();
        }
    }

    /// A process begins a life. What stood still was the one before.
    pub(crate) fn starts(&mut self, who: &ProcessId, at: Duration) {
        let Some(replica) = self.replicas.get_mut(&who.instance) else { return };
        for pause in replica.troubles.iter_mut().filter(|trouble| trouble.pause && trouble.is_on(at)) {
            (pause.until, pause.over) = (at, at);
        }
        replica.living = Some(Incarnation { life: who.life, member: None, told_to_stop: false });
    }

    /// It belongs to those who share, by the server's account.
    pub(crate) fn belongs(&mut self, who: &ProcessId, at: Duration) {
        if let Some(living) = self.living(who) {
            living.member.get_or_insert(at);
        }
    }

    /// It does so no longer, by the server's account: its membership was swept away.
    pub(crate) fn left(&mut self, who: &ProcessId) {
        if let Some(living) = self.living(who) {
            living.member = None;
        }
    }

    /// It is told to stop in order.
    pub(crate) fn stops(&mut self, instance: &str, at: Duration) {
        let Some((instance, replica)) = self.replicas.get_key_value(instance) else { return };
        let Some(life) = replica.living.as_ref().map(|living| living.life) else { return };
        let who = ProcessId { instance: Arc::clone(instance), life };
        if let Some(living) = self.living(&who) {
            living.told_to_stop = true;
            self.told.entry(who).or_insert(at);
        }
    }

    /// Its life is over.
    pub(crate) fn ended(&mut self, who: &ProcessId, at: Duration) {
        let Some(replica) = self.replicas.get_mut(&who.instance) else { return };
        let ended = replica.living.take_if(|living| living.life == who.life);
        if ended.is_some_and(|living| !living.told_to_stop) {
            self.died = Some(at);
        }
        self.look(at);
    }

    /// The server has such a plan.
    pub(crate) fn planned(&mut self, division: Option<ShardMap>, at: Duration) {
        if self.division != division {
            (self.division, self.settled) = (division, at);
        }
    }

    /// The server has the Lease of a shard so.
    pub(crate) fn leased(
        &mut self,
        shard: ShardId,
        holder: Option<ProcessId>,
        ranges: Option<HashRanges>,
        at: Duration,
    ) -> Option<Violation> {
        let flaw = self.look(at);
        let calm = self.is_calm(at);
        let Some(leased) = self.shards.get_mut(&shard) else { return flaw };
        let named = std::mem::replace(&mut leased.holder, holder);
        (leased.created, leased.renewed, leased.ranges) = (true, at, ranges);
        let given_back = leased.holder.is_none() && leased.vacant.is_none();
        if let Some(who) = named.filter(|_| given_back) {
            let clean = calm.then(|| self.told.get(&who).copied().unwrap_or(at));
            let vacancy = OwnershipGap { since: at, named: Some(who), clean, judged: true };
            self.shards.entry(shard).or_default().vacant = Some(vacancy);
        }
        let later = self.look(at);
        flaw.or(later)
    }

    /// What came of all vacancies that ended.
    pub(crate) fn vacancies(&self) -> OwnershipGaps {
        self.vacancies
    }

    /// Looks at every shard; to be called every now and then.
    pub(crate) fn look(&mut self, at: Duration) -> Option<Violation> {
        let terms = self.terms?;
        if !self.is_settled() {
            self.settled = at;
        }
        let mut flaw = None;
        let mut shards = std::mem::take(&mut self.shards);
        for (number, shard) in &mut shards {
            if self.works(shard, at) {
                if let Some(vacancy) = shard.vacant.take().filter(|vacancy| vacancy.named != shard.holder) {
                    self.vacancies.count(&vacancy, at);
                }
                continue;
            }
            let vacancy = shard.vacant.get_or_insert_with(|| {
                let named = shard.holder.clone();
                // One that was told to stop has to give it back.
                let clean = named.as_ref().and_then(|named| self.told.get(named).copied());
                OwnershipGap { since: at, named, clean, judged: true }
            });
            flaw = flaw.or(self.overdue((*number, shard.created), vacancy, terms, at));
        }
        self.shards = shards;
        flaw
    }
}

impl ShardGapOracle {
    fn living(&mut self, who: &ProcessId) -> Option<&mut Incarnation> {
        let living = self.replicas.get_mut(&who.instance)?.living.as_mut();
        living.filter(|living| living.life == who.life)
    }

    /// Whether whom the Lease names is there, can act and has renewed it in time.
    fn works(&self, shard: &Shard, at: Duration) -> bool {
        let Some(holder) = &shard.holder else { return false };
        let Some(replica) = self.replicas.get(&holder.instance) else { return false };
        let lives = replica.living.as_ref().is_some_and(|living| living.life == holder.life);
        lives && at <= shard.renewed + replica.deadline && !replica.is_out(at)
    }

    fn overdue(
        &self,
        (shard, created): (ShardId, bool),
        vacancy: &mut OwnershipGap,
        terms: LeaseTimings,
        at: Duration,
    ) -> Option<Violation> {
        vacancy.clean = vacancy.clean.filter(|_| self.is_calm(at));
        let (since, from, within) = if let Some(begun) = vacancy.clean {
            (begun, begun, HAND_OVER)
        } else {
            let from = self.counts_from(vacancy.since, created, at);
            vacancy.judged &= from == Some(vacancy.since);
            let silent = if self.somebody_falls_silent(vacancy.since, at) { NOTICED } else { 0 };
            (vacancy.since, from?, terms.lease + terms.retry * (1 + silent) + SLACK)
        };
        let shard = shard.to_string();
        (at > from + within).then_some(Violation::Vacant { shard, since, counted_from: from, within, at })
    }

    /// From when on the time to end a vacancy of a shard, whose Lease was `created` or not, runs; nothing while it does
    /// not.
    fn counts_from(&self, since: Duration, created: bool, at: Duration) -> Option<Duration> {
        let troubles = || self.troubles().filter(|trouble| !(trouble.creates && created));
        let partly = |trouble: Outage| !trouble.whole && trouble.is_on(at);
        if !self.is_settled() || troubles().any(partly) {
            return None;
        }
        let able = self.replicas.values().filter_map(|replica| replica.able(at)).min()?;
        let over = troubles().filter(|trouble| trouble.until <= at).map(|trouble| trouble.over).max();
        Some(since.max(able).max(over.unwrap_or_default()).max(self.settled))
    }

    /// Whether somebody dies, or something begins to keep somebody away, after this.
    fn somebody_falls_silent(&self, since: Duration, at: Duration) -> bool {
        let troubles = self.troubles().filter(|trouble| !trouble.creates);
        let mut begun = troubles.map(|trouble| trouble.from).chain(self.died);
        begun.any(|begun| since < begun && begun <= at)
    }

    /// Whether nothing has been wrong with anybody for so long that no trace of it is left, and somebody is there to take
    /// shards.
    fn is_calm(&self, at: Duration) -> bool {
        let Some(terms) = self.terms else { return false };
        let calm = terms.lease * REMOVED_AFTER + terms.retry + SLACK;
        let recently = at.saturating_sub(calm);
        // What is handed over is there.
        let wrong = |trouble: &Outage| !trouble.creates && trouble.from <= at && recently <= trouble.over;
        let able = |replica: &Replica| replica.able(at).is_some_and(|since| since <= recently);
        at > calm
            && self.is_settled()
            && self.settled <= recently
            && self.died.is_none_or(|died| died < recently)
            && !self.troubles().any(|trouble| wrong(&trouble))
            && self.replicas.values().any(able)
    }

    /// Whether everybody acts on what the plan gives to the shard.
    fn is_settled(&self) -> bool {
        let Some(division) = &self.division else { return true };
        self.shards.iter().filter(|(_, shard)| shard.holder.is_some()).all(|(number, shard)| {
            number.0 < division.len().get() && shard.ranges.as_ref() == Some(division.ranges(*number))
        })
    }

    fn troubles(&self) -> impl Iterator<Item = Outage> {
        self.replicas.values().flat_map(|replica| replica.troubles.iter().copied())
    }
}

impl Replica {
    /// Whether everybody can see that it does nothing.
    fn is_out(&self, at: Duration) -> bool {
        self.troubles.iter().any(|trouble| trouble.whole && trouble.is_on(at))
    }

    /// Since when it is a member, if it can take shards now.
    fn able(&self, at: Duration) -> Option<Duration> {
        let living = self.living.as_ref().filter(|living| !living.told_to_stop)?;
        living.member.filter(|_| !self.is_out(at))
    }
}

impl Outage {
    /// What this fault does to the election, if it concerns it at all. Lives that end are told of when they do, and
    /// clocks are in the [`LeaseTimings`].
    fn of(fault: &Fault, recovery: Duration) -> Option<Self> {
        let always = fault.permille >= 1000 && fault.resource.is_none();
        let (whole, lingers) = match fault.what {
            FaultAction::Crash
            | FaultAction::CrashAtWrite { .. }
            | FaultAction::ClockRate { .. }
            | FaultAction::WallStep { .. } => {
                return None;
            }
            // The election takes in a state as often as it is told of it, and asks for no bookmark.
            FaultAction::EventDuplicated
            | FaultAction::BookmarksMissing
            | FaultAction::EndBookmarkMissing => return None,
            // Whatever it sent has been answered when it continues.
            FaultAction::Pause => (true, SLACK),
            // Its clock measures the patience for a lost request from where it stopped.
            FaultAction::Suspend => (true, recovery),
            FaultAction::Partition => (always, recovery),
            _ if fault.resource.as_deref().is_some_and(|resource| resource != "leases") => return None,
            FaultAction::RequestDelayed { by_ms }
            | FaultAction::ResponseDelayed { by_ms }
            | FaultAction::WatchDelayed { by_ms }
            | FaultAction::Coalesced { within_ms: by_ms } => (false, recovery + Duration::from_millis(by_ms)),
            _ => (false, recovery),
        };
        let (from, until) = (Duration::from_millis(fault.from_ms), Duration::from_millis(fault.until_ms));
        let pause = matches!(fault.what, FaultAction::Pause | FaultAction::Suspend);
        let creates = matches!(fault.what, FaultAction::QuotaExceeded | FaultAction::NamespaceTerminating);
        Some(Outage { from, until, over: until + lingers, whole, pause, creates })
    }

    fn is_on(&self, at: Duration) -> bool {
        (self.from..self.until).contains(&at)
    }
}

impl OwnershipGaps {
    fn count(&mut self, vacancy: &OwnershipGap, at: Duration) {
        if let Some(begun) = vacancy.clean {
            self.hand_overs += 1;
            self.longest_hand_over = self.longest_hand_over.max(at.saturating_sub(begun));
        } else if vacancy.judged && vacancy.named.is_some() {
            self.filled += 1;
            self.longest = self.longest.max(at.saturating_sub(vacancy.since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: LeaseTimings = LeaseTimings { lease: seconds(15), retry: seconds(2), recovery: seconds(10) };
    const SHARD: ShardId = ShardId(0);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn who(name: &str) -> ProcessId {
        ProcessId { instance: name.into(), life: 0 }
    }

    /// Two members, of which `a` has held the only shard since the beginning.
    fn shared(faults: &[Fault]) -> ShardGapOracle {
        let mut custodian = ShardGapOracle::default();
        for name in ["a", "b"] {
            custodian.expect(name, (TERMS, seconds(10)), 1, faults);
            custodian.starts(&who(name), Duration::ZERO);
            custodian.belongs(&who(name), Duration::ZERO);
        }
        custodian
    }

    /// Lets `holder` renew until `until`; what is found.
    fn renew(custodian: &mut ShardGapOracle, holder: &str, from: u64, until: u64) -> Option<Violation> {
        (from..=until)
            .step_by(2)
            .find_map(|second| custodian.leased(SHARD, Some(who(holder)), None, seconds(second)))
    }

    /// When something is found first, in milliseconds, looking from then on.
    fn found(custodian: &mut ShardGapOracle, from: u64) -> Option<u64> {
        let mut times = (from * 1_000..from * 1_000 + 300_000).step_by(100);
        times.find(|millis| custodian.look(Duration::from_millis(*millis)).is_some())
    }

    #[test]
    fn shard_of_the_dead_is_to_be_taken_within_a_lease_duration_and_a_retry_period() {
        let mut custodian = shared(&[]);
        assert_eq!(renew(&mut custodian, "a", 0, 100), None);
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(found(&mut custodian, 101), Some(101_000 + 17_600));

        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(renew(&mut custodian, "b", 118, 300), None);
        let vacancies = custodian.vacancies();
        assert_eq!(
            (vacancies.filled, vacancies.longest),
            (1, seconds(17)),
            "the first holder followed nobody"
        );
    }

    #[test]
    fn holder_that_renews_no_more_is_none_although_it_lives() {
        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        assert_eq!(found(&mut custodian, 100), Some(100_000 + 10_100 + 17_600));
    }

    #[test]
    fn one_that_stands_still_holds_nothing_and_is_not_expected_to_take_anything() {
        let pause = |name: &str, from, until| {
            Fault::during(seconds(until), FaultAction::Pause).from(seconds(from)).for_instance(name)
        };
        let mut custodian = shared(&[pause("a", 100, 400)]);
        renew(&mut custodian, "a", 0, 98);
        assert_eq!(found(&mut custodian, 100), Some(100_000 + 17_600));
        let mut custodian = shared(&[pause("a", 100, 400), pause("b", 90, 150)]);
        renew(&mut custodian, "a", 0, 98);
        assert_eq!(found(&mut custodian, 100), Some(150_000 + 500 + 17_600), "from when one is back");
        let mut custodian = shared(&[pause("a", 100, 400), pause("c", 110, 400)]);
        custodian.expect("c", (TERMS, seconds(10)), 1, &[pause("c", 110, 400)]);
        renew(&mut custodian, "a", 0, 98);
        assert_eq!(
            found(&mut custodian, 100),
            Some(100_000 + 21_600),
            "until it is noticed that another is silent"
        );
    }

    #[test]
    fn pause_ends_with_the_life_it_began_in() {
        let mut custodian =
            shared(&[Fault::during(seconds(400), FaultAction::Pause).from(seconds(90)).for_instance("a")]);
        renew(&mut custodian, "b", 0, 100);
        custodian.ended(&who("a"), seconds(95));
        let next = ProcessId { life: 1, ..who("a") };
        custodian.starts(&next, seconds(96));
        custodian.belongs(&next, seconds(97));
        custodian.ended(&who("b"), seconds(101));
        assert_eq!(custodian.leased(SHARD, Some(next), None, seconds(110)), None);
        assert_eq!(found(&mut custodian, 110), Some(120_100 + 17_600), "it works until its deadline");
    }

    #[test]
    fn nothing_is_expected_while_a_part_of_the_requests_gets_through() {
        let lost = Fault::during(seconds(200), FaultAction::RequestLost { silently: true })
            .from(seconds(90))
            .for_instance("b");
        let mut custodian = shared(&[lost.clone().for_resource("leases").permille(200)]);
        renew(&mut custodian, "a", 0, 100);
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(found(&mut custodian, 101), Some(200_000 + 10_000 + 17_600));
        let mut custodian = shared(&[lost.for_resource("pods")]);
        renew(&mut custodian, "a", 0, 100);
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(found(&mut custodian, 101), Some(101_000 + 17_600), "the election knows nothing of pods");
    }

    #[test]
    fn what_keeps_nobody_from_a_lease_that_is_there_stops_no_clock() {
        let harmless = [
            FaultAction::EventDuplicated,
            FaultAction::BookmarksMissing,
            FaultAction::EndBookmarkMissing,
            FaultAction::QuotaExceeded,
            FaultAction::NamespaceTerminating,
        ];
        for what in harmless {
            let fault = Fault::during(seconds(400), what.clone());
            for fault in [fault.clone(), fault.clone().for_resource("leases"), fault.from(seconds(105))] {
                let mut custodian = shared(&[fault]);
                renew(&mut custodian, "a", 0, 100);
                custodian.ended(&who("a"), seconds(101));
                assert_eq!(found(&mut custodian, 101), Some(101_000 + 17_600), "{what:?}");
            }
        }
        let mut custodian = shared(&[Fault::during(seconds(200), FaultAction::QuotaExceeded)]);
        assert_eq!(found(&mut custodian, 0), Some(200_000 + 10_000 + 17_600), "it cannot be created");
    }

    #[test]
    fn nothing_is_expected_of_one_whose_membership_was_swept_away() {
        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.left(&who("b"));
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(found(&mut custodian, 101), None);
        custodian.belongs(&who("b"), seconds(500));
        assert_eq!(found(&mut custodian, 500), Some(500_000 + 17_600));
    }

    #[test]
    fn what_is_given_back_while_all_is_well_is_anothers_within_a_second() {
        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.stops("a", Duration::from_millis(100_700));
        assert_eq!(custodian.leased(SHARD, None, None, seconds(101)), None);
        assert_eq!(found(&mut custodian, 101), Some(101_800), "a second from the signal");

        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.stops("a", Duration::from_millis(100_700));
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(found(&mut custodian, 101), Some(101_800), "it is not given back at all");

        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.leased(SHARD, None, None, seconds(101));
        assert_eq!(custodian.leased(SHARD, Some(who("b")), None, Duration::from_millis(101_400)), None);
        let vacancies = custodian.vacancies();
        assert_eq!((vacancies.hand_overs, vacancies.longest_hand_over), (1, Duration::from_millis(400)));
    }
}
