//! Durations for which shards have no active holder, as observed at the server and in the simulated world.
//!
//! A shard is *vacant* while its Lease has no holder, or a holder that has crashed, is paused, is partitioned, or has
//! not renewed the Lease for a renew deadline. Time is true time. The limits of a vacancy are:
//!
//! - **Clean** vacancy, where the holder released the shard while no replica had a fault: another replica must acquire
//!   it within [`HAND_OVER`]. After a stop signal, this time starts at the signal.
//! - Any other vacancy: one lease duration by the slowest clock, while another replica is *able* to acquire the shard,
//!   that is, it runs and is neither paused nor partitioned. One retry period is added for a replica that should
//!   acquire the shard and does not; others then act for it. [`NOTICED`] retry periods are added if another replica
//!   becomes silent during the vacancy, because its share stays reserved until the others detect that.
//!
//! The limit restarts when a partitioned process reconnects ([`LeaseTimings::recovery`]), because silently lost
//! requests must time out first. It is suspended while only a part of the Lease requests passes, late, unanswered or
//! rejected: a replica that renews its membership but cannot write shard Leases keeps its share, as the election
//! documents. It is also suspended while the shard plan changes: ranges of a crashed holder stay blocked until its
//! Lease expires. Faults that do not prevent the acquisition of an existing Lease do not suspend it: duplicated watch
//! events, missing bookmarks, and rejected creates after the shard's Lease was created.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_api_server::faults::{Fault, FaultAction, ProcessId};
use windlass_object::shard::{HashRanges, ShardId, ShardMap};

use crate::violation::Violation;

/// Limit of a handoff without faults, as promised by the election.
const HAND_OVER: Duration = Duration::from_secs(1);
/// Number of retry periods without a renewal after which a member counts as silent.
const NOTICED: u32 = 2;
/// Allowance for requests in flight and for the interval between checks.
const SLACK: Duration = Duration::from_millis(500);
/// Number of lease durations after which the election removes a crashed member. Until then a starting replica reserves
/// a share for that member, for 5/4 retry periods.
const REMOVED_AFTER: u32 = 4;

/// Timing parameters of the replicas of one election, in true time of the slowest clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTimings {
    pub(crate) lease: Duration,
    pub(crate) retry: Duration,
    /// Time until a silently lost request is sent again.
    pub(crate) recovery: Duration,
}

/// Summary of all vacancies of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnershipGaps {
    /// Number of shards that lost their holder and were acquired by another replica, where the limit ran from the
    /// start.
    pub filled: u64,
    /// Longest of these vacancies, in true time.
    pub longest: Duration,
    /// Number of handoffs without faults.
    pub hand_overs: u64,
    /// Longest of these handoffs, from the signal or the release until another replica held the shard.
    pub longest_hand_over: Duration,
}

/// Oracle of the shards of one election.
#[derive(Debug, Default)]
pub(crate) struct ShardGapOracle {
    terms: Option<LeaseTimings>,
    replicas: BTreeMap<Arc<str>, Replica>,
    shards: BTreeMap<ShardId, Shard>,
    division: Option<ShardMap>,
    /// Time since which the Leases match the plan.
    settled: Duration,
    /// Times at which incarnations received the stop signal.
    told: BTreeMap<ProcessId, Duration>,
    /// Last time at which an incarnation ended without a stop signal.
    died: Option<Duration>,
    vacancies: OwnershipGaps,
}

/// One process that uses sharding, across its incarnations.
#[derive(Debug)]
struct Replica {
    deadline: Duration,
    /// Outages of its Lease traffic, by the fault plan.
    troubles: Vec<Outage>,
    living: Option<Incarnation>,
}

#[derive(Debug)]
struct Incarnation {
    life: u64,
    /// Time since which it is a member.
    member: Option<Duration>,
    told_to_stop: bool,
}

/// Period in which a fault disturbs the Lease requests of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outage {
    from: Duration,
    until: Duration,
    /// Time at which the last effects of the fault end.
    over: Duration,
    /// Whether all requests are blocked, so that every other replica can detect the outage.
    whole: bool,
    /// Whether it is a pause, which ends with the incarnation in which it began.
    pause: bool,
    /// Whether it only blocks the creation of Leases.
    creates: bool,
}

#[derive(Debug, Default)]
struct Shard {
    /// Whether its Lease has ever existed.
    created: bool,
    holder: Option<ProcessId>,
    renewed: Duration,
    ranges: Option<HashRanges>,
    vacant: Option<OwnershipGap>,
}

#[derive(Debug)]
struct OwnershipGap {
    since: Duration,
    /// Holder at the start of the vacancy.
    named: Option<ProcessId>,
    /// Start of the handoff, if no fault is active.
    clean: Option<Duration>,
    /// Whether the limit has run since the start of the vacancy.
    judged: bool,
}

impl ShardGapOracle {
    /// Adds a process that takes its share of this many shards. `deadline` is its renew deadline.
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

    /// Records the start of an incarnation. A pause of the previous incarnation ends.
    pub(crate) fn starts(&mut self, who: &ProcessId, at: Duration) {
        let Some(replica) = self.replicas.get_mut(&who.instance) else { return };
        for pause in replica.troubles.iter_mut().filter(|trouble| trouble.pause && trouble.is_on(at)) {
            (pause.until, pause.over) = (at, at);
        }
        replica.living = Some(Incarnation { life: who.life, member: None, told_to_stop: false });
    }

    /// Records that the server stored the membership of a process.
    pub(crate) fn belongs(&mut self, who: &ProcessId, at: Duration) {
        if let Some(living) = self.living(who) {
            living.member.get_or_insert(at);
        }
    }

    /// Records that the server deleted the membership of a process.
    pub(crate) fn left(&mut self, who: &ProcessId) {
        if let Some(living) = self.living(who) {
            living.member = None;
        }
    }

    /// Records that a process received the stop signal.
    pub(crate) fn stops(&mut self, instance: &str, at: Duration) {
        let Some((instance, replica)) = self.replicas.get_key_value(instance) else { return };
        let Some(life) = replica.living.as_ref().map(|living| living.life) else { return };
        let who = ProcessId { instance: Arc::clone(instance), life };
        if let Some(living) = self.living(&who) {
            living.told_to_stop = true;
            self.told.entry(who).or_insert(at);
        }
    }

    /// Records the end of an incarnation.
    pub(crate) fn ended(&mut self, who: &ProcessId, at: Duration) {
        let Some(replica) = self.replicas.get_mut(&who.instance) else { return };
        let ended = replica.living.take_if(|living| living.life == who.life);
        if ended.is_some_and(|living| !living.told_to_stop) {
            self.died = Some(at);
        }
        self.look(at);
    }

    /// Records the shard plan that the server stored.
    pub(crate) fn planned(&mut self, division: Option<ShardMap>, at: Duration) {
        if self.division != division {
            (self.division, self.settled) = (division, at);
        }
    }

    /// Records the Lease of a shard that the server stored.
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

    /// Returns the summary of all vacancies that ended.
    pub(crate) fn vacancies(&self) -> OwnershipGaps {
        self.vacancies
    }

    /// Checks every shard. Called periodically.
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
                // A holder that received the stop signal must release the shard.
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

    /// Returns whether the holder in the Lease runs, can act and has renewed the Lease in time.
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
        (at > from + within).then_some(Violation::ShardWithoutHolder {
            shard,
            since,
            counted_from: from,
            within,
            at,
        })
    }

    /// Returns the start of the limit of a vacancy, or `None` while the limit is suspended. `created` states whether
    /// the shard's Lease exists.
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

    /// Returns whether a process crashed or an outage began after `since`.
    fn somebody_falls_silent(&self, since: Duration, at: Duration) -> bool {
        let troubles = self.troubles().filter(|trouble| !trouble.creates);
        let mut begun = troubles.map(|trouble| trouble.from).chain(self.died);
        begun.any(|begun| since < begun && begun <= at)
    }

    /// Returns whether no effect of any fault is left, and a replica is able to acquire shards.
    fn is_calm(&self, at: Duration) -> bool {
        let Some(terms) = self.terms else { return false };
        let calm = terms.lease * REMOVED_AFTER + terms.retry + SLACK;
        let recently = at.saturating_sub(calm);
        // The Lease of a shard that is handed off exists.
        let wrong = |trouble: &Outage| !trouble.creates && trouble.from <= at && recently <= trouble.over;
        let able = |replica: &Replica| replica.able(at).is_some_and(|since| since <= recently);
        at > calm
            && self.is_settled()
            && self.settled <= recently
            && self.died.is_none_or(|died| died < recently)
            && !self.troubles().any(|trouble| wrong(&trouble))
            && self.replicas.values().any(able)
    }

    /// Returns whether every holder acts on the ranges that the plan assigns to its shard.
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
    /// Returns whether every other replica can detect that it is inactive.
    fn is_out(&self, at: Duration) -> bool {
        self.troubles.iter().any(|trouble| trouble.whole && trouble.is_on(at))
    }

    /// Returns the time since which it is a member, or `None` if it cannot acquire shards now.
    fn able(&self, at: Duration) -> Option<Duration> {
        let living = self.living.as_ref().filter(|living| !living.told_to_stop)?;
        living.member.filter(|_| !self.is_out(at))
    }
}

impl Outage {
    /// Returns the effect of this fault on the election, or `None` if it has none. Ends of incarnations are recorded
    /// when they happen, and clock rates are part of the [`LeaseTimings`].
    fn of(fault: &Fault, recovery: Duration) -> Option<Self> {
        let always = fault.permille >= 1000 && fault.resource.is_none();
        let (whole, lingers) = match fault.what {
            FaultAction::Crash
            | FaultAction::CrashAtWrite { .. }
            | FaultAction::ClockRate { .. }
            | FaultAction::WallStep { .. } => {
                return None;
            }
            // The election tolerates duplicated events and requests no bookmarks.
            FaultAction::EventDuplicated
            | FaultAction::BookmarksMissing
            | FaultAction::EndBookmarkMissing => return None,
            // All its requests have been answered when it continues.
            FaultAction::Pause => (true, SLACK),
            // Its clock, which measures the request timeout, stopped during the suspension.
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

    /// Returns an oracle with two members, of which `a` has held the only shard since the beginning.
    fn shared(faults: &[Fault]) -> ShardGapOracle {
        let mut custodian = ShardGapOracle::default();
        for name in ["a", "b"] {
            custodian.expect(name, (TERMS, seconds(10)), 1, faults);
            custodian.starts(&who(name), Duration::ZERO);
            custodian.belongs(&who(name), Duration::ZERO);
        }
        custodian
    }

    /// Renews the Lease for `holder` until `until`, and returns the first violation.
    fn renew(custodian: &mut ShardGapOracle, holder: &str, from: u64, until: u64) -> Option<Violation> {
        (from..=until)
            .step_by(2)
            .find_map(|second| custodian.leased(SHARD, Some(who(holder)), None, seconds(second)))
    }

    /// Returns the time of the first violation in milliseconds, checking from `from`.
    fn found(custodian: &mut ShardGapOracle, from: u64) -> Option<u64> {
        let mut times = (from * 1_000..from * 1_000 + 300_000).step_by(100);
        times.find(|millis| custodian.look(Duration::from_millis(*millis)).is_some())
    }

    #[test]
    fn shard_of_crashed_holder_is_acquired_within_limit() {
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
            "the first holder had no predecessor"
        );
    }

    #[test]
    fn running_holder_without_renewals_leaves_shard_vacant() {
        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        assert_eq!(found(&mut custodian, 100), Some(100_000 + 10_100 + 17_600));
    }

    #[test]
    fn paused_process_holds_no_shard_and_need_not_acquire_one() {
        let pause = |name: &str, from, until| {
            Fault::during(seconds(until), FaultAction::Pause).from(seconds(from)).for_instance(name)
        };
        let mut custodian = shared(&[pause("a", 100, 400)]);
        renew(&mut custodian, "a", 0, 98);
        assert_eq!(found(&mut custodian, 100), Some(100_000 + 17_600));
        let mut custodian = shared(&[pause("a", 100, 400), pause("b", 90, 150)]);
        renew(&mut custodian, "a", 0, 98);
        assert_eq!(
            found(&mut custodian, 100),
            Some(150_000 + 500 + 17_600),
            "from the end of the first pause"
        );
        let mut custodian = shared(&[pause("a", 100, 400), pause("c", 110, 400)]);
        custodian.expect("c", (TERMS, seconds(10)), 1, &[pause("c", 110, 400)]);
        renew(&mut custodian, "a", 0, 98);
        assert_eq!(
            found(&mut custodian, 100),
            Some(100_000 + 21_600),
            "until the silent replica is detected"
        );
    }

    #[test]
    fn pause_ends_with_the_incarnation_in_which_it_began() {
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
    fn limit_is_suspended_while_some_lease_requests_are_lost() {
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
        assert_eq!(found(&mut custodian, 101), Some(101_000 + 17_600), "the election does not use pods");
    }

    #[test]
    fn harmless_faults_do_not_suspend_the_limit() {
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
    fn removed_member_need_not_acquire_shards() {
        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.left(&who("b"));
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(found(&mut custodian, 101), None);
        custodian.belongs(&who("b"), seconds(500));
        assert_eq!(found(&mut custodian, 500), Some(500_000 + 17_600));
    }

    #[test]
    fn shard_released_without_faults_is_acquired_within_a_second() {
        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.stops("a", Duration::from_millis(100_700));
        assert_eq!(custodian.leased(SHARD, None, None, seconds(101)), None);
        assert_eq!(found(&mut custodian, 101), Some(101_800), "a second from the signal");

        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.stops("a", Duration::from_millis(100_700));
        custodian.ended(&who("a"), seconds(101));
        assert_eq!(found(&mut custodian, 101), Some(101_800), "it is never released");

        let mut custodian = shared(&[]);
        renew(&mut custodian, "a", 0, 100);
        custodian.leased(SHARD, None, None, seconds(101));
        assert_eq!(custodian.leased(SHARD, Some(who("b")), None, Duration::from_millis(101_400)), None);
        let vacancies = custodian.vacancies();
        assert_eq!((vacancies.hand_overs, vacancies.longest_hand_over), (1, Duration::from_millis(400)));
    }
}
