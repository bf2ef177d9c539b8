//! Durations for which shards have no active holder, as observed at the server and in the simulated world.
//!
//! A shard is *vacant* while its Lease has no holder, or a holder that has crashed, is paused, is partitioned, or has
//! not renewed the Lease for a renew deadline. Time is true time. The limits of a vacancy are:
//!
//! - **Clean** vacancy, where the holder released the shard while no replica had a fault: another replica must acquire
//!   it within [`HANDOFF_LIMIT`]. After a stop signal, this time starts at the signal.
//! - Any other vacancy: one lease duration by the slowest clock, while another replica is *able* to acquire the shard,
//!   that is, it runs and is neither paused nor partitioned. One retry period is added for a replica that should
//!   acquire the shard and does not; others then act for it. [`SILENT_AFTER_RETRY_PERIODS`] retry periods are added if
//!   another replica becomes silent during the vacancy, because its share stays reserved until the others detect that.
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
const HANDOFF_LIMIT: Duration = Duration::from_secs(1);
/// Number of retry periods without a renewal after which a member counts as silent.
const SILENT_AFTER_RETRY_PERIODS: u32 = 2;
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
    pub handoffs: u64,
    /// Longest of these handoffs, from the signal or the release until another replica held the shard.
    pub longest_handoff: Duration,
}

/// Oracle of the shards of one election.
#[derive(Debug, Default)]
pub(crate) struct ShardGapOracle {
    timings: Option<LeaseTimings>,
    replicas: BTreeMap<Arc<str>, Replica>,
    shards: BTreeMap<ShardId, Shard>,
    shard_map: Option<ShardMap>,
    /// Time since which the Leases match the plan.
    settled: Duration,
    /// Times at which incarnations received the stop signal.
    stopped_at: BTreeMap<ProcessId, Duration>,
    /// Last time at which an incarnation ended without a stop signal.
    last_crash: Option<Duration>,
    gaps: OwnershipGaps,
}

/// One process that uses sharding, across its incarnations.
#[derive(Debug)]
struct Replica {
    deadline: Duration,
    /// Outages of its Lease traffic, by the fault plan.
    outages: Vec<Outage>,
    incarnation: Option<Incarnation>,
}

#[derive(Debug)]
struct Incarnation {
    number: u64,
    /// Time since which it is a member.
    member: Option<Duration>,
    is_stopping: bool,
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
    gap: Option<OwnershipGap>,
}

#[derive(Debug)]
struct OwnershipGap {
    since: Duration,
    /// Holder at the start of the vacancy.
    previous_holder: Option<ProcessId>,
    /// Start of the handoff, if no fault is active.
    clean: Option<Duration>,
    /// Whether the limit has run since the start of the vacancy.
    is_limited_from_start: bool,
}

impl ShardGapOracle {
    /// Adds a process that takes its share of this many shards. `deadline` is its renew deadline.
    pub(crate) fn add_replica(
        &mut self,
        instance: &str,
        (timings, deadline): (LeaseTimings, Duration),
        shards: u16,
        plan: &[Fault],
    ) {
        self.timings = Some(timings);
        let concerned = plan.iter().filter(|fault| fault.applies_to(instance));
        let outages = concerned.filter_map(|fault| Outage::of(fault, timings.recovery)).collect();
        self.replicas.insert(instance.into(), Replica { deadline, outages, incarnation: None });
        for number in (0..shards).map(ShardId) {
            self.shards.entry(number).or_default();
        }
    }

    /// Records the start of an incarnation. A pause of the previous incarnation ends.
    pub(crate) fn on_started(&mut self, process: &ProcessId, at: Duration) {
        let Some(replica) = self.replicas.get_mut(&process.instance) else { return };
        for pause in replica.outages.iter_mut().filter(|outage| outage.pause && outage.is_on(at)) {
            (pause.until, pause.over) = (at, at);
        }
        replica.incarnation =
            Some(Incarnation { number: process.incarnation, member: None, is_stopping: false });
    }

    /// Records that the server stored the membership of a process.
    pub(crate) fn on_joined(&mut self, process: &ProcessId, at: Duration) {
        if let Some(incarnation) = self.incarnation(process) {
            incarnation.member.get_or_insert(at);
        }
    }

    /// Records that the server deleted the membership of a process.
    pub(crate) fn on_left(&mut self, process: &ProcessId) {
        if let Some(incarnation) = self.incarnation(process) {
            incarnation.member = None;
        }
    }

    /// Records that a process received the stop signal.
    pub(crate) fn on_stop_signal(&mut self, instance: &str, at: Duration) {
        let Some((instance, replica)) = self.replicas.get_key_value(instance) else { return };
        let Some(number) = replica.incarnation.as_ref().map(|incarnation| incarnation.number) else { return };
        let process = ProcessId { instance: Arc::clone(instance), incarnation: number };
        if let Some(incarnation) = self.incarnation(&process) {
            incarnation.is_stopping = true;
            self.stopped_at.entry(process).or_insert(at);
        }
    }

    /// Records the end of an incarnation.
    pub(crate) fn on_ended(&mut self, process: &ProcessId, at: Duration) {
        let Some(replica) = self.replicas.get_mut(&process.instance) else { return };
        let ended = replica.incarnation.take_if(|incarnation| incarnation.number == process.incarnation);
        if ended.is_some_and(|incarnation| !incarnation.is_stopping) {
            self.last_crash = Some(at);
        }
        self.check(at);
    }

    /// Records the shard plan that the server stored.
    pub(crate) fn on_plan(&mut self, shard_map: Option<ShardMap>, at: Duration) {
        if self.shard_map != shard_map {
            (self.shard_map, self.settled) = (shard_map, at);
        }
    }

    /// Records the Lease of a shard that the server stored.
    pub(crate) fn on_lease(
        &mut self,
        shard: ShardId,
        holder: Option<ProcessId>,
        ranges: Option<HashRanges>,
        at: Duration,
    ) -> Option<Violation> {
        let violation = self.check(at);
        let calm = self.is_free_of_faults(at);
        let Some(leased) = self.shards.get_mut(&shard) else { return violation };
        let previous_holder = std::mem::replace(&mut leased.holder, holder);
        (leased.created, leased.renewed, leased.ranges) = (true, at, ranges);
        let given_back = leased.holder.is_none() && leased.gap.is_none();
        if let Some(process) = previous_holder.filter(|_| given_back) {
            let clean = calm.then(|| self.stopped_at.get(&process).copied().unwrap_or(at));
            let gap = OwnershipGap {
                since: at,
                previous_holder: Some(process),
                clean,
                is_limited_from_start: true,
            };
            self.shards.entry(shard).or_default().gap = Some(gap);
        }
        let later = self.check(at);
        violation.or(later)
    }

    /// Returns the summary of all vacancies that ended.
    pub(crate) fn gaps(&self) -> OwnershipGaps {
        self.gaps
    }

    /// Checks every shard. Called periodically.
    pub(crate) fn check(&mut self, at: Duration) -> Option<Violation> {
        let timings = self.timings?;
        if !self.is_settled() {
            self.settled = at;
        }
        let mut violation = None;
        let mut shards = std::mem::take(&mut self.shards);
        for (number, shard) in &mut shards {
            if self.has_active_holder(shard, at) {
                if let Some(gap) = shard.gap.take().filter(|gap| gap.previous_holder != shard.holder) {
                    self.gaps.count(&gap, at);
                }
                continue;
            }
            let gap = shard.gap.get_or_insert_with(|| {
                let previous_holder = shard.holder.clone();
                // A holder that received the stop signal must release the shard.
                let clean = previous_holder
                    .as_ref()
                    .and_then(|previous_holder| self.stopped_at.get(previous_holder).copied());
                OwnershipGap { since: at, previous_holder, clean, is_limited_from_start: true }
            });
            violation = violation.or(self.check_limit((*number, shard.created), gap, timings, at));
        }
        self.shards = shards;
        violation
    }
}

impl ShardGapOracle {
    fn incarnation(&mut self, process: &ProcessId) -> Option<&mut Incarnation> {
        let incarnation = self.replicas.get_mut(&process.instance)?.incarnation.as_mut();
        incarnation.filter(|incarnation| incarnation.number == process.incarnation)
    }

    /// Returns whether the holder in the Lease runs, can act and has renewed the Lease in time.
    fn has_active_holder(&self, shard: &Shard, at: Duration) -> bool {
        let Some(holder) = &shard.holder else { return false };
        let Some(replica) = self.replicas.get(&holder.instance) else { return false };
        let lives =
            replica.incarnation.as_ref().is_some_and(|incarnation| incarnation.number == holder.incarnation);
        lives && at <= shard.renewed + replica.deadline && !replica.is_out(at)
    }

    fn check_limit(
        &self,
        (shard, created): (ShardId, bool),
        gap: &mut OwnershipGap,
        timings: LeaseTimings,
        at: Duration,
    ) -> Option<Violation> {
        gap.clean = gap.clean.filter(|_| self.is_free_of_faults(at));
        let (since, from, limit) = if let Some(begun) = gap.clean {
            (begun, begun, HANDOFF_LIMIT)
        } else {
            let from = self.limit_start(gap.since, created, at);
            gap.is_limited_from_start &= from == Some(gap.since);
            let silent =
                if self.another_became_silent(gap.since, at) { SILENT_AFTER_RETRY_PERIODS } else { 0 };
            (gap.since, from?, timings.lease + timings.retry * (1 + silent) + SLACK)
        };
        let shard = shard.to_string();
        (at > from + limit).then_some(Violation::ShardWithoutHolder {
            shard,
            since,
            counted_from: from,
            limit,
            at,
        })
    }

    /// Returns the start of the limit of a vacancy, or `None` while the limit is suspended. `created` states whether
    /// the shard's Lease exists.
    fn limit_start(&self, since: Duration, created: bool, at: Duration) -> Option<Duration> {
        let outages = || self.outages().filter(|outage| !(outage.creates && created));
        let partly = |outage: Outage| !outage.whole && outage.is_on(at);
        if !self.is_settled() || outages().any(partly) {
            return None;
        }
        let able = self.replicas.values().filter_map(|replica| replica.can_acquire_since(at)).min()?;
        let over = outages().filter(|outage| outage.until <= at).map(|outage| outage.over).max();
        Some(since.max(able).max(over.unwrap_or_default()).max(self.settled))
    }

    /// Returns whether a process crashed or an outage began after `since`.
    fn another_became_silent(&self, since: Duration, at: Duration) -> bool {
        let outages = self.outages().filter(|outage| !outage.creates);
        let mut begun = outages.map(|outage| outage.from).chain(self.last_crash);
        begun.any(|begun| since < begun && begun <= at)
    }

    /// Returns whether no effect of any fault is left, and a replica is able to acquire shards.
    fn is_free_of_faults(&self, at: Duration) -> bool {
        let Some(timings) = self.timings else { return false };
        let calm = timings.lease * REMOVED_AFTER + timings.retry + SLACK;
        let recently = at.saturating_sub(calm);
        // The Lease of a shard that is handed off exists.
        let wrong = |outage: &Outage| !outage.creates && outage.from <= at && recently <= outage.over;
        let able = |replica: &Replica| replica.can_acquire_since(at).is_some_and(|since| since <= recently);
        at > calm
            && self.is_settled()
            && self.settled <= recently
            && self.last_crash.is_none_or(|last_crash| last_crash < recently)
            && !self.outages().any(|outage| wrong(&outage))
            && self.replicas.values().any(able)
    }

    /// Returns whether every holder acts on the ranges that the plan assigns to its shard.
    fn is_settled(&self) -> bool {
        let Some(shard_map) = &self.shard_map else { return true };
        self.shards.iter().filter(|(_, shard)| shard.holder.is_some()).all(|(number, shard)| {
            number.0 < shard_map.len().get() && shard.ranges.as_ref() == Some(shard_map.ranges(*number))
        })
    }

    fn outages(&self) -> impl Iterator<Item = Outage> {
        self.replicas.values().flat_map(|replica| replica.outages.iter().copied())
    }
}

impl Replica {
    /// Returns whether every other replica can detect that it is inactive.
    fn is_out(&self, at: Duration) -> bool {
        self.outages.iter().any(|outage| outage.whole && outage.is_on(at))
    }

    /// Returns the time since which it is a member, or `None` if it cannot acquire shards now.
    fn can_acquire_since(&self, at: Duration) -> Option<Duration> {
        let incarnation = self.incarnation.as_ref().filter(|incarnation| !incarnation.is_stopping)?;
        incarnation.member.filter(|_| !self.is_out(at))
    }
}

impl Outage {
    /// Returns the effect of this fault on the election, or `None` if it has none. Ends of incarnations are recorded
    /// when they happen, and clock rates are part of the [`LeaseTimings`].
    fn of(fault: &Fault, recovery: Duration) -> Option<Self> {
        let always = fault.permille >= 1000 && fault.resource.is_none();
        let (whole, lingers) = match fault.action {
            FaultAction::Crash
            | FaultAction::CrashAtWrite { .. }
            | FaultAction::ClockRate { .. }
            | FaultAction::WallStep { .. } => {
                return None;
            }
            // The election tolerates duplicated events, requests no bookmarks, and no webhook reviews its requests.
            FaultAction::EventDuplicated
            | FaultAction::BookmarksMissing
            | FaultAction::EndBookmarkMissing
            | FaultAction::WebhookRefused
            | FaultAction::WebhookSilent
            | FaultAction::WebhookFails => return None,
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
        let pause = matches!(fault.action, FaultAction::Pause | FaultAction::Suspend);
        let creates = matches!(fault.action, FaultAction::QuotaExceeded | FaultAction::NamespaceTerminating);
        Some(Outage { from, until, over: until + lingers, whole, pause, creates })
    }

    fn is_on(&self, at: Duration) -> bool {
        (self.from..self.until).contains(&at)
    }
}

impl OwnershipGaps {
    fn count(&mut self, gap: &OwnershipGap, at: Duration) {
        if let Some(begun) = gap.clean {
            self.handoffs += 1;
            self.longest_handoff = self.longest_handoff.max(at.saturating_sub(begun));
        } else if gap.is_limited_from_start && gap.previous_holder.is_some() {
            self.filled += 1;
            self.longest = self.longest.max(at.saturating_sub(gap.since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMINGS: LeaseTimings =
        LeaseTimings { lease: seconds(15), retry: seconds(2), recovery: seconds(10) };
    const SHARD: ShardId = ShardId(0);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn process(name: &str) -> ProcessId {
        ProcessId { instance: name.into(), incarnation: 0 }
    }

    /// Returns an oracle with two members, of which `a` has held the only shard since the beginning.
    fn shared(faults: &[Fault]) -> ShardGapOracle {
        let mut oracle = ShardGapOracle::default();
        for name in ["a", "b"] {
            oracle.add_replica(name, (TIMINGS, seconds(10)), 1, faults);
            oracle.on_started(&process(name), Duration::ZERO);
            oracle.on_joined(&process(name), Duration::ZERO);
        }
        oracle
    }

    /// Renews the Lease for `holder` until `until`, and returns the first violation.
    fn renew(oracle: &mut ShardGapOracle, holder: &str, from: u64, until: u64) -> Option<Violation> {
        (from..=until)
            .step_by(2)
            .find_map(|second| oracle.on_lease(SHARD, Some(process(holder)), None, seconds(second)))
    }

    /// Returns the time of the first violation in milliseconds, checking from `from`.
    fn found(oracle: &mut ShardGapOracle, from: u64) -> Option<u64> {
        let mut times = (from * 1_000..from * 1_000 + 300_000).step_by(100);
        times.find(|millis| oracle.check(Duration::from_millis(*millis)).is_some())
    }

    #[test]
    fn shard_of_crashed_holder_is_acquired_within_limit() {
        let mut oracle = shared(&[]);
        assert_eq!(renew(&mut oracle, "a", 0, 100), None);
        oracle.on_ended(&process("a"), seconds(101));
        assert_eq!(found(&mut oracle, 101), Some(101_000 + 17_600));

        let mut oracle = shared(&[]);
        renew(&mut oracle, "a", 0, 100);
        oracle.on_ended(&process("a"), seconds(101));
        assert_eq!(renew(&mut oracle, "b", 118, 300), None);
        let gaps = oracle.gaps();
        assert_eq!((gaps.filled, gaps.longest), (1, seconds(17)), "the first holder had no predecessor");
    }

    #[test]
    fn running_holder_without_renewals_leaves_shard_vacant() {
        let mut oracle = shared(&[]);
        renew(&mut oracle, "a", 0, 100);
        assert_eq!(found(&mut oracle, 100), Some(100_000 + 10_100 + 17_600));
    }

    #[test]
    fn paused_process_holds_no_shard_and_need_not_acquire_one() {
        let pause = |name: &str, from, until| {
            Fault::until(seconds(until), FaultAction::Pause).from(seconds(from)).for_instance(name)
        };
        let mut oracle = shared(&[pause("a", 100, 400)]);
        renew(&mut oracle, "a", 0, 98);
        assert_eq!(found(&mut oracle, 100), Some(100_000 + 17_600));
        let mut oracle = shared(&[pause("a", 100, 400), pause("b", 90, 150)]);
        renew(&mut oracle, "a", 0, 98);
        assert_eq!(found(&mut oracle, 100), Some(150_000 + 500 + 17_600), "from the end of the first pause");
        let mut oracle = shared(&[pause("a", 100, 400), pause("c", 110, 400)]);
        oracle.add_replica("c", (TIMINGS, seconds(10)), 1, &[pause("c", 110, 400)]);
        renew(&mut oracle, "a", 0, 98);
        assert_eq!(found(&mut oracle, 100), Some(100_000 + 21_600), "until the silent replica is detected");
    }

    #[test]
    fn pause_ends_with_the_incarnation_in_which_it_began() {
        let mut oracle =
            shared(&[Fault::until(seconds(400), FaultAction::Pause).from(seconds(90)).for_instance("a")]);
        renew(&mut oracle, "b", 0, 100);
        oracle.on_ended(&process("a"), seconds(95));
        let next = ProcessId { incarnation: 1, ..process("a") };
        oracle.on_started(&next, seconds(96));
        oracle.on_joined(&next, seconds(97));
        oracle.on_ended(&process("b"), seconds(101));
        assert_eq!(oracle.on_lease(SHARD, Some(next), None, seconds(110)), None);
        assert_eq!(found(&mut oracle, 110), Some(120_100 + 17_600), "it works until its deadline");
    }

    #[test]
    fn limit_is_suspended_while_some_lease_requests_are_lost() {
        let lost = Fault::until(seconds(200), FaultAction::RequestLost { silently: true })
            .from(seconds(90))
            .for_instance("b");
        let mut oracle = shared(&[lost.clone().for_resource("leases").permille(200)]);
        renew(&mut oracle, "a", 0, 100);
        oracle.on_ended(&process("a"), seconds(101));
        assert_eq!(found(&mut oracle, 101), Some(200_000 + 10_000 + 17_600));
        let mut oracle = shared(&[lost.for_resource("pods")]);
        renew(&mut oracle, "a", 0, 100);
        oracle.on_ended(&process("a"), seconds(101));
        assert_eq!(found(&mut oracle, 101), Some(101_000 + 17_600), "the election does not use pods");
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
            let fault = Fault::until(seconds(400), what.clone());
            for fault in [fault.clone(), fault.clone().for_resource("leases"), fault.from(seconds(105))] {
                let mut oracle = shared(&[fault]);
                renew(&mut oracle, "a", 0, 100);
                oracle.on_ended(&process("a"), seconds(101));
                assert_eq!(found(&mut oracle, 101), Some(101_000 + 17_600), "{what:?}");
            }
        }
        let mut oracle = shared(&[Fault::until(seconds(200), FaultAction::QuotaExceeded)]);
        assert_eq!(found(&mut oracle, 0), Some(200_000 + 10_000 + 17_600), "it cannot be created");
    }

    #[test]
    fn removed_member_need_not_acquire_shards() {
        let mut oracle = shared(&[]);
        renew(&mut oracle, "a", 0, 100);
        oracle.on_left(&process("b"));
        oracle.on_ended(&process("a"), seconds(101));
        assert_eq!(found(&mut oracle, 101), None);
        oracle.on_joined(&process("b"), seconds(500));
        assert_eq!(found(&mut oracle, 500), Some(500_000 + 17_600));
    }

    #[test]
    fn shard_released_without_faults_is_acquired_within_a_second() {
        let mut oracle = shared(&[]);
        renew(&mut oracle, "a", 0, 100);
        oracle.on_stop_signal("a", Duration::from_millis(100_700));
        assert_eq!(oracle.on_lease(SHARD, None, None, seconds(101)), None);
        assert_eq!(found(&mut oracle, 101), Some(101_800), "a second from the signal");

        let mut oracle = shared(&[]);
        renew(&mut oracle, "a", 0, 100);
        oracle.on_stop_signal("a", Duration::from_millis(100_700));
        oracle.on_ended(&process("a"), seconds(101));
        assert_eq!(found(&mut oracle, 101), Some(101_800), "it is never released");

        let mut oracle = shared(&[]);
        renew(&mut oracle, "a", 0, 100);
        oracle.on_lease(SHARD, None, None, seconds(101));
        assert_eq!(oracle.on_lease(SHARD, Some(process("b")), None, Duration::from_millis(101_400)), None);
        let gaps = oracle.gaps();
        assert_eq!((gaps.handoffs, gaps.longest_handoff), (1, Duration::from_millis(400)));
    }
}
