//! Random fault plans: kinds, number and times of faults.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use windlass_api_server::faults::{Fault, FaultAction, FaultPlan};
use windlass_env::{Env, Rng};

use crate::cluster::replica_name;

/// Kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Requests and responses are lost.
    Loss,
    /// Requests and responses are delayed, sometimes by more than a Lease tolerates.
    Delay,
    /// The server rejects requests: 409, 429, 500, 503, 504, 410.
    Rejection,
    /// Watches stall, close, break or expire.
    Watch,
    /// Events are delayed, duplicated or coalesced; bookmarks are missing.
    Event,
    /// A server replica with a stopped cache responds.
    Stale,
    /// No message reaches or leaves a process.
    Partition,
    /// A process crashes and restarts.
    Crash,
    /// Clocks run fast or slow, within the tolerance of a Lease, and wall clocks step.
    Clock,
    /// Creates are rejected because a quota is exceeded.
    Quota,
    /// A process is paused, often for longer than a lease duration, and then continues.
    Pause,
    /// Watches of one resource send no data for up to 4 minutes, or a server fails without closing its connections:
    /// responses are lost and its watches are silent.
    Silence,
    /// Connections are half-open or slow to establish, the server is slow, or the duration of a response depends on its
    /// size.
    Connection,
    /// 429 with `Retry-After` of up to one minute.
    Overload,
    /// The credentials of one process are expired for some time.
    Credentials,
    /// The machine of a process is suspended for longer than a fence tolerates: its monotonic clock stops too.
    Suspension,
    /// Webhooks are unreachable, do not respond within their time limit, or respond with 500. Not part of
    /// [`Faults::all`], because the writes of the script fail too.
    Webhook,
}

/// Kinds of faults of a random plan. A correct controller recovers from each of them on its own. Two faults are
/// excluded and can only be planned explicitly: a cache cannot distinguish a poisoned object from a deleted one, so a
/// correct controller replaces it; and a correct controller stops retrying in a terminating namespace.
///
/// ```
/// use windlass_testing::{FaultKind, Faults, Simulation};
///
/// let faults = Faults::all().without(FaultKind::Suspension).with(FaultKind::Webhook);
/// let simulation = Simulation::new(7).minutes(20).faults(faults);
/// assert!(!simulation.fault_plan().faults.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    kinds: BTreeSet<FaultKind>,
}

impl FaultKind {
    /// Kinds whose faults are generated independently.
    pub const SINGLE: [FaultKind; 11] = [
        FaultKind::Loss,
        FaultKind::Delay,
        FaultKind::Rejection,
        FaultKind::Watch,
        FaultKind::Event,
        FaultKind::Stale,
        FaultKind::Partition,
        FaultKind::Crash,
        FaultKind::Clock,
        FaultKind::Quota,
        FaultKind::Pause,
    ];

    /// Kinds whose faults are generated in addition to [`FaultKind::SINGLE`], so that they overlap.
    pub const COMBINED: [FaultKind; 4] =
        [FaultKind::Silence, FaultKind::Connection, FaultKind::Overload, FaultKind::Credentials];
}

impl Faults {
    /// Returns every kind of fault except [`FaultKind::Webhook`]: [`FaultKind::SINGLE`], [`FaultKind::COMBINED`] and
    /// suspensions.
    pub fn all() -> Self {
        Self::only(FaultKind::SINGLE.into_iter().chain(FaultKind::COMBINED).chain([FaultKind::Suspension]))
    }

    /// Returns no kinds.
    pub fn none() -> Self {
        Self::only([])
    }

    /// Returns these kinds.
    pub fn only(kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        Faults { kinds: kinds.into_iter().collect() }
    }

    /// Removes one kind.
    #[must_use]
    pub fn without(mut self, kind: FaultKind) -> Self {
        self.kinds.remove(&kind);
        self
    }

    /// Adds one kind.
    #[must_use]
    pub fn with(mut self, kind: FaultKind) -> Self {
        self.kinds.insert(kind);
        self
    }

    /// Generates a random plan: one to eight faults in every ten minutes of `span`, plus one or two pauses and up to
    /// four combined faults.
    pub fn plan(&self, seed: u64, span: Duration, replicas: usize, resources: &[String]) -> FaultPlan {
        let env = Env::virtual_time(seed);
        let mut draw = PlanGenerator { rng: env.rng("plan"), span_ms: millis(span), replicas, resources };
        let combined = |kind: &FaultKind| FaultKind::COMBINED.contains(kind);
        let apart = |kind: &FaultKind| {
            matches!(kind, FaultKind::Clock | FaultKind::Pause | FaultKind::Suspension | FaultKind::Webhook)
                || combined(kind)
        };
        let kinds: Vec<FaultKind> = self.kinds.iter().copied().filter(|kind| !apart(kind)).collect();
        let mut faults = Vec::new();
        if self.kinds.contains(&FaultKind::Clock) {
            faults.extend(draw.clocks());
        }
        if !kinds.is_empty() {
            for window in windows(draw.span_ms) {
                for _ in 0..=draw.rng.below(8) {
                    let kind = *draw.one_of(&kinds);
                    faults.push(draw.fault(kind, &window));
                }
            }
        }
        if self.kinds.contains(&FaultKind::Pause) {
            // Pauses use a separate random stream, so that the other faults of a seed do not depend on them.
            let mut draw = PlanGenerator { rng: env.rng("pauses"), ..draw };
            faults.extend(draw.pauses());
        }
        let kinds: Vec<FaultKind> = self.kinds.iter().copied().filter(combined).collect();
        if !kinds.is_empty() {
            let mut draw = PlanGenerator { rng: env.rng("combined"), ..draw };
            faults.extend(draw.combined(&kinds));
        }
        if self.kinds.contains(&FaultKind::Suspension) {
            let mut draw = PlanGenerator { rng: env.rng("suspensions"), ..draw };
            let suspensions = draw.suspensions(&faults);
            faults.extend(suspensions);
        }
        if self.kinds.contains(&FaultKind::Webhook) {
            let mut draw = PlanGenerator { rng: env.rng("webhooks"), ..draw };
            faults.extend(draw.webhooks());
        }
        FaultPlan { seed, faults }
    }
}

const TEN_MINUTES_MS: u64 = 10 * 60 * 1000;

struct PlanGenerator<'a> {
    rng: Rng,
    span_ms: u64,
    replicas: usize,
    resources: &'a [String],
}

impl PlanGenerator<'_> {
    fn one_of<'t, T>(&mut self, choices: &'t [T]) -> &'t T {
        let at = self.rng.below(choices.len() as u64);
        &choices[usize::try_from(at).unwrap_or_default()]
    }

    fn up_to(&mut self, most: u64) -> u64 {
        1 + self.rng.below(most.max(1))
    }

    /// Generates one fault that begins within a window.
    fn fault(&mut self, kind: FaultKind, window: &Range<u64>) -> Fault {
        let from_ms = self.time_in(window);
        let longest = *self.one_of(&[2_000, 20_000, 120_000]);
        let until_ms = (from_ms + self.up_to(longest)).min(self.span_ms);
        let action = self.action(kind);
        let all_instances =
            self.rng.below(2) == 0 && !matches!(action, FaultAction::Crash | FaultAction::Partition);
        let instance = (!all_instances).then(|| self.replica());
        let process =
            matches!(action, FaultAction::Crash | FaultAction::CrashAtWrite { .. } | FaultAction::Partition);
        let resource = if process || self.rng.below(2) == 0 { None } else { self.resource() };
        let permille = if process { 1000 } else { *self.one_of(&[1000, 500, 200, 50]) };
        Fault { instance, resource, permille, ..during(from_ms, until_ms, action) }
    }

    fn replica(&mut self) -> String {
        let replica = self.rng.below(self.replicas.max(1) as u64);
        replica_name(usize::try_from(replica).unwrap_or_default())
    }

    fn resource(&mut self) -> Option<String> {
        let known = self.resources;
        (!known.is_empty()).then(|| self.one_of(known).clone())
    }

    fn action(&mut self, kind: FaultKind) -> FaultAction {
        let silently = self.rng.below(2) == 0;
        // Seven seconds exceed lease duration minus renew deadline.
        let by_ms = *self.one_of(&[100, 1_000, 7_000, 20_000]);
        match kind {
            FaultKind::Loss if self.rng.below(2) == 0 => FaultAction::RequestLost { silently },
            FaultKind::Loss => FaultAction::ResponseLost { silently },
            FaultKind::Delay if self.rng.below(2) == 0 => FaultAction::RequestDelayed { by_ms },
            FaultKind::Delay => FaultAction::ResponseDelayed { by_ms },
            FaultKind::Rejection => self.rejection(),
            FaultKind::Watch => self
                .one_of(&[
                    FaultAction::WatchStalled,
                    FaultAction::WatchClosed,
                    FaultAction::WatchReset,
                    FaultAction::WatchExpired,
                ])
                .clone(),
            FaultKind::Event => {
                let within_ms = by_ms;
                let events = [
                    FaultAction::WatchDelayed { by_ms },
                    FaultAction::EventDuplicated,
                    FaultAction::Coalesced { within_ms },
                    FaultAction::BookmarksMissing,
                    FaultAction::EndBookmarkMissing,
                ];
                self.one_of(&events).clone()
            }
            FaultKind::Stale => FaultAction::StaleReplica,
            FaultKind::Partition => FaultAction::Partition,
            FaultKind::Crash if self.rng.below(2) == 0 => FaultAction::Crash,
            FaultKind::Crash => FaultAction::CrashAtWrite { write: self.up_to(40), after_effect: silently },
            FaultKind::Clock => FaultAction::WallStep { by_ms: 0 },
            FaultKind::Quota => FaultAction::QuotaExceeded,
            FaultKind::Pause => FaultAction::Pause,
            FaultKind::Silence => FaultAction::WatchHeld,
            FaultKind::Connection => FaultAction::HalfOpen,
            FaultKind::Overload => FaultAction::TooManyRequests { retry_after_seconds: 60 },
            FaultKind::Credentials => FaultAction::Unauthorized,
            FaultKind::Suspension => FaultAction::Suspend,
            FaultKind::Webhook => FaultAction::WebhookRefused,
        }
    }

    /// Generates up to four faults in every ten minutes.
    fn combined(&mut self, kinds: &[FaultKind]) -> Vec<Fault> {
        let mut faults = Vec::new();
        for window in windows(self.span_ms) {
            for _ in 0..self.rng.below(5) {
                let kind = *self.one_of(kinds);
                let from_ms = self.time_in(&window);
                faults.push(self.combined_fault(kind, from_ms));
            }
        }
        faults
    }

    fn combined_fault(&mut self, kind: FaultKind, from_ms: u64) -> Fault {
        let (action, longest) = match kind {
            FaultKind::Silence if self.rng.below(2) == 0 => (FaultAction::ServerDies, 2_000),
            FaultKind::Silence => (FaultAction::WatchHeld, 240_000),
            FaultKind::Connection => (self.connection(), 60_000),
            FaultKind::Overload => {
                let retry_after_seconds = u32::try_from(self.up_to(60)).unwrap_or(60);
                (FaultAction::TooManyRequests { retry_after_seconds }, 60_000)
            }
            _ => (FaultAction::Unauthorized, 120_000),
        };
        let until_ms = (from_ms + self.up_to(longest)).min(self.span_ms);
        let all_instances = self.rng.below(2) == 0 && action != FaultAction::Unauthorized;
        let instance = (!all_instances).then(|| self.replica());
        let resource = match action {
            FaultAction::Unauthorized => None,
            FaultAction::WatchHeld => self.resource(),
            _ if self.rng.below(2) == 0 => None,
            _ => self.resource(),
        };
        let permille =
            if action == FaultAction::WatchHeld { 1000 } else { *self.one_of(&[1000, 500, 200, 50]) };
        Fault { instance, resource, permille, ..during(from_ms, until_ms, action) }
    }

    fn connection(&mut self) -> FaultAction {
        let by_ms = *self.one_of(&[5, 200, 2_000, 10_000]);
        let ms_per_megabyte = *self.one_of(&[1_000, 20_000, 300_000]);
        let connections = [
            FaultAction::HalfOpen,
            FaultAction::SlowConnect { by_ms },
            FaultAction::SlowServer { by_ms },
            FaultAction::SlowTransfer { ms_per_megabyte },
        ];
        self.one_of(&connections).clone()
    }

    /// Generates one or two pauses of single processes in every ten minutes: about as long as the renew deadline, the
    /// lease duration, or much longer.
    fn pauses(&mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for window in windows(self.span_ms) {
            for _ in 0..self.up_to(2) {
                let from_ms = self.time_in(&window);
                let longest = *self.one_of(&[10_000, 20_000, 90_000]);
                let length = longest / 2 + self.up_to(longest / 2);
                let until_ms = (from_ms + length).min(self.span_ms);
                let (instance, action) = (Some(self.replica()), FaultAction::Pause);
                faults.push(Fault { instance, ..during(from_ms, until_ms, action) });
            }
        }
        faults
    }

    /// Generates at most one suspension in every ten minutes, longer than lease duration minus renew deadline by the
    /// slowest clock. A wall-clock step at about the same time would hide the jump of the wall clock, so that no fence
    /// could detect the suspension.
    fn suspensions(&mut self, others: &[Fault]) -> Vec<Fault> {
        const MIN_MS: u64 = 8_000;
        const STEP_MARGIN_MS: u64 = 20_000;
        let mut faults = Vec::new();
        for window in windows(self.span_ms) {
            let is_drawn = self.rng.below(2) == 0;
            let from_ms = self.time_in(&window);
            let longest = *self.one_of(&[5_000, 20_000, 90_000]);
            let until_ms = from_ms + MIN_MS + self.rng.below(longest);
            let instance = Some(self.replica());
            let hides = |other: &Fault| {
                // Also after the suspension, until the process has compared its clocks.
                let about = from_ms.saturating_sub(STEP_MARGIN_MS)..=until_ms + STEP_MARGIN_MS;
                let steps =
                    matches!(other.action, FaultAction::WallStep { .. }) && other.instance == instance;
                steps && about.contains(&other.from_ms)
            };
            if is_drawn && until_ms <= self.span_ms && !others.iter().any(hides) {
                let action = FaultAction::Suspend;
                faults.push(Fault { instance, ..during(from_ms, until_ms, action) });
            }
        }
        faults
    }

    /// Generates one to three faults of webhooks in every ten minutes.
    fn webhooks(&mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for window in windows(self.span_ms) {
            for _ in 0..self.up_to(3) {
                let from_ms = self.time_in(&window);
                let longest = *self.one_of(&[2_000, 20_000, 120_000]);
                let until_ms = (from_ms + self.up_to(longest)).min(self.span_ms);
                let actions =
                    [FaultAction::WebhookRefused, FaultAction::WebhookSilent, FaultAction::WebhookFails];
                let action = self.one_of(&actions).clone();
                let instance = (self.rng.below(2) == 0).then(|| self.replica());
                let permille = *self.one_of(&[1000, 500, 200]);
                faults.push(Fault { instance, permille, ..during(from_ms, until_ms, action) });
            }
        }
        faults
    }

    fn time_in(&mut self, window: &Range<u64>) -> u64 {
        window.start + self.rng.below((window.end - window.start).max(1))
    }

    fn rejection(&mut self) -> FaultAction {
        let retry_after_seconds = u32::try_from(self.up_to(5)).unwrap_or(1);
        let refusals = [
            FaultAction::Conflict,
            FaultAction::TooManyRequests { retry_after_seconds },
            FaultAction::InternalError,
            FaultAction::Unavailable,
            FaultAction::TimedOut,
            FaultAction::Expired,
        ];
        self.one_of(&refusals).clone()
    }

    /// Generates clock rates whose ratio stays within the tolerance of a 15 s Lease with a 10 s deadline, and
    /// wall-clock steps of up to one hour.
    fn clocks(&mut self) -> Vec<Fault> {
        const RATES: [(u32, u32); 5] = [(1, 1), (4, 5), (6, 5), (99, 100), (101, 100)];
        let mut faults = Vec::new();
        for replica in 0..self.replicas {
            let (numerator, denominator) = *self.one_of(&RATES);
            let clock = |action, at_ms| Fault {
                instance: Some(replica_name(replica)),
                ..during(at_ms, at_ms, action)
            };
            if numerator != denominator {
                faults.push(clock(FaultAction::ClockRate { numerator, denominator }, 0));
            }
            if self.rng.below(2) == 0 {
                let by_ms = i64::try_from(self.rng.below(7_200_000)).unwrap_or_default() - 3_600_000;
                let at = self.rng.below(self.span_ms.max(1));
                faults.push(clock(FaultAction::WallStep { by_ms }, at));
            }
        }
        faults
    }
}

/// Returns a fault of everything in this time.
fn during(from_ms: u64, until_ms: u64, action: FaultAction) -> Fault {
    Fault { from_ms, ..Fault::until(Duration::from_millis(until_ms), action) }
}

/// Returns the times of consecutive windows of ten minutes; the last one can be shorter.
fn windows(span_ms: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = (0..span_ms.div_ceil(TEN_MINUTES_MS)).map(|window| window * TEN_MINUTES_MS);
    starts.map(move |start| start..span_ms.min(start + TEN_MINUTES_MS))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN_MINUTES: Duration = Duration::from_secs(600);

    fn plan(seed: u64) -> FaultPlan {
        Faults::all().plan(seed, TEN_MINUTES, 2, &["pods".to_owned(), "leases".to_owned()])
    }

    #[test]
    fn seed_determines_the_plan() {
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7).faults, plan(8).faults);
    }

    #[test]
    fn printed_plan_can_be_parsed() {
        for seed in 0..100 {
            let plan = plan(seed);
            let text = plan.to_string();
            let json = text
                .strip_prefix("FaultPlan::from_json(r##\"")
                .and_then(|it| it.strip_suffix("\"##).expect(\"a printed plan\")"));
            assert_eq!(FaultPlan::from_json(json.expect("a line of Rust")).expect("a plan"), plan);
        }
    }

    #[test]
    fn every_fault_is_within_the_span_and_concerns_a_replica() {
        for seed in 0..500 {
            for fault in plan(seed).faults {
                assert!(fault.from_ms <= fault.until_ms && fault.until_ms <= 600_000, "{fault}");
                assert!(["a", "b"].iter().any(|name| fault.applies_to(name)), "{fault}");
            }
        }
    }

    #[test]
    fn pauses_do_not_change_other_faults_and_some_outlast_a_lease() {
        let pauses: Vec<Fault> = (0..100)
            .flat_map(|seed| {
                let without = Faults::only(FaultKind::SINGLE).without(FaultKind::Pause);
                let without = without.plan(seed, TEN_MINUTES, 2, &["pods".to_owned(), "leases".to_owned()]);
                let of_all = Faults::only(FaultKind::SINGLE);
                let mut faults =
                    of_all.plan(seed, TEN_MINUTES, 2, &["pods".to_owned(), "leases".to_owned()]).faults;
                let pauses = faults.split_off(without.faults.len());
                assert_eq!(faults, without.faults);
                pauses
            })
            .collect();
        assert!(pauses.iter().all(|fault| fault.action == FaultAction::Pause && fault.instance.is_some()));
        let longer = pauses.iter().filter(|fault| fault.until_ms - fault.from_ms > 15_000).count();
        assert!((20..80).contains(&longer), "{longer} of {} outlast 15 s", pauses.len());
    }

    #[test]
    fn combined_faults_do_not_change_other_faults_of_a_seed() {
        let resources = ["pods".to_owned(), "leases".to_owned()];
        let mut drawn = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let of_all = Faults::only(FaultKind::SINGLE).plan(seed, TEN_MINUTES, 2, &resources).faults;
            let mut of_every = Faults::all().plan(seed, TEN_MINUTES, 2, &resources).faults;
            let combined = of_every.split_off(of_all.len());
            assert_eq!(of_every, of_all);
            for fault in combined {
                assert!(fault.until_ms <= 600_000 && fault.until_ms - fault.from_ms <= 240_000, "{fault}");
                let action = format!("{:?}", fault.action);
                drawn.insert(action.split(' ').next().unwrap_or_default().to_owned());
            }
        }
        assert_eq!(drawn.len(), 9, "{drawn:?}");
    }

    #[test]
    fn webhook_faults_do_not_change_other_faults_of_a_seed() {
        let resources = ["pods".to_owned(), "leases".to_owned()];
        let mut drawn = BTreeSet::new();
        for seed in 0..50 {
            let without = Faults::all().plan(seed, TEN_MINUTES, 2, &resources).faults;
            let all = Faults::all().with(FaultKind::Webhook);
            let mut faults = all.plan(seed, TEN_MINUTES, 2, &resources).faults;
            let of_webhooks = faults.split_off(without.len());
            assert_eq!(faults, without);
            assert!((1..=3).contains(&of_webhooks.len()) && of_webhooks.iter().all(Fault::affects_webhooks));
            drawn.extend(of_webhooks.iter().map(|fault| format!("{:?}", fault.action)));
        }
        assert_eq!(drawn.len(), 3, "{drawn:?}");
    }

    #[test]
    fn plan_contains_only_requested_kinds() {
        let only = Faults::only([FaultKind::Stale]);
        let drawn = |seed| only.plan(seed, TEN_MINUTES, 1, &[]).faults;
        assert!((0..50).flat_map(drawn).all(|fault| fault.action == FaultAction::StaleReplica));
        assert!(Faults::none().plan(1, TEN_MINUTES, 2, &[]).faults.is_empty());
    }
}
