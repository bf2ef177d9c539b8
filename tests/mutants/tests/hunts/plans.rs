//! Families of plans, generated from a seed.

use std::ops::Range;
use std::time::Duration;

use windlass_env::{Env, Rng};
use windlass_testing::{Fault, FaultAction, FaultKind, FaultPlan, Faults};

use crate::scripts::{BURST_INTERVAL, BURSTS, FIRST_BURST};

/// Approximate activity time of the scripts; faults occur within it.
const SPAN: Duration = Duration::from_secs(150);

/// Instances that run the controllers.
const REPLICAS: [&str; 2] = ["a", "b"];

/// Faults of these kinds, for all or one of two replicas, and for all or one of the resources.
fn random(seed: u64, kinds: &[FaultKind], resources: &[&str]) -> FaultPlan {
    let resources: Vec<String> = resources.iter().map(|resource| (*resource).to_owned()).collect();
    Faults::only(kinds.iter().copied()).plan(seed, SPAN, 2, &resources)
}

/// Any fault.
pub(crate) fn anything(seed: u64) -> FaultPlan {
    random(seed, &FaultKind::SINGLE, &["pods", "replicasets", "endpoints", "leases"])
}

/// Events of pods are seconds late, or are not delivered for some time.
///
/// No watch stalls: a correct controller acts on stale pods as long as its watch is silent.
pub(crate) fn late_pods(seed: u64) -> FaultPlan {
    windows(seed, 20..80, |rng| vec![always(late(rng.below(2))).for_resource("pods")])
}

/// Delayed events of ReplicaSets, while events of pods arrive in time.
pub(crate) fn late_owners(seed: u64) -> FaultPlan {
    windows(seed, 20..80, |rng| vec![always(late(rng.below(3))).for_resource("replicasets")])
}

fn late(choice: u64) -> FaultAction {
    match choice {
        0 => FaultAction::WatchDelayed { by_ms: 20_000 },
        1 => FaultAction::Coalesced { within_ms: 10_000 },
        _ => FaultAction::WatchStalled,
    }
}

/// Delayed requests and responses.
pub(crate) fn slow_requests(seed: u64) -> FaultPlan {
    windows(seed, 10..60, |rng| {
        let by_ms = 1_000 + rng.below(7_000);
        let action = match rng.below(2) {
            0 => FaultAction::RequestDelayed { by_ms },
            _ => FaultAction::ResponseDelayed { by_ms },
        };
        vec![written(rng, action)]
    })
}

/// Partitions of processes, one after the other or together.
pub(crate) fn partitions(seed: u64) -> FaultPlan {
    random(seed, &[FaultKind::Partition, FaultKind::Delay], &["leases"])
}

/// Suspends a machine for longer than a lease duration. Afterwards neither a renewal nor a watch of the Lease reports
/// another holder to the process.
pub(crate) fn suspensions(seed: u64) -> FaultPlan {
    let who = if seed.is_multiple_of(2) { "a" } else { "b" };
    let between = |from, until, action| {
        Fault::until(Duration::from_secs(until), action).from(Duration::from_secs(from)).for_instance(who)
    };
    let lost = FaultAction::RequestLost { silently: false };
    let blind = [between(25, 100, FaultAction::WatchHeld), between(30, 100, lost)]
        .map(|fault| fault.for_resource("leases"));
    FaultPlan { seed, faults: [between(30, 60, FaultAction::Suspend)].into_iter().chain(blind).collect() }
}

/// Watches of pods expire while all requests for pods fail, so that the events of that period are not delivered one by
/// one.
pub(crate) fn relists(seed: u64) -> FaultPlan {
    windows(seed, 5..35, |rng| {
        let who = one_of(rng, &REPLICAS);
        [FaultAction::WatchExpired, FaultAction::Unavailable]
            .map(|action| always(action).for_resource("pods").for_instance(who))
            .to_vec()
    })
}

/// The server rejects writes with conflicts.
pub(crate) fn conflicts(seed: u64) -> FaultPlan {
    windows(seed, 10..40, |rng| vec![written(rng, FaultAction::Conflict)])
}

/// Requests are rejected for about a second, whenever the user makes a change.
pub(crate) fn bursts(seed: u64) -> FaultPlan {
    let mut rng = Env::virtual_time(seed).rng("bursts");
    let burst = |burst: u32| {
        let begin = FIRST_BURST + BURST_INTERVAL * burst;
        let length = Duration::from_millis(500 + rng.below(1_000));
        let action = match rng.below(3) {
            0 => FaultAction::InternalError,
            1 => FaultAction::RequestLost { silently: false },
            _ => FaultAction::QuotaExceeded,
        };
        Fault::until(begin + length, action).from(begin).for_resource("pods")
    };
    FaultPlan { seed, faults: (0..BURSTS).map(burst).collect() }
}

/// Two to five windows of this many seconds with faults.
fn windows(seed: u64, seconds: Range<u64>, goes_wrong: impl Fn(&mut Rng) -> Vec<Fault>) -> FaultPlan {
    let mut rng = Env::virtual_time(seed).rng("windows");
    let mut faults = Vec::new();
    for _ in 0..2 + rng.below(4) {
        let from_ms = rng.below(millis(SPAN));
        let until_ms = from_ms + seconds.start * 1_000 + rng.below((seconds.end - seconds.start) * 1_000);
        faults.extend(goes_wrong(&mut rng).into_iter().map(|fault| Fault { from_ms, until_ms, ..fault }));
    }
    FaultPlan { seed, faults }
}

/// A fault for one of the resources that the controllers write.
fn written(rng: &mut Rng, action: FaultAction) -> Fault {
    always(action).for_resource(one_of(rng, &["pods", "replicasets", "endpoints"]))
}

/// A fault whose time is set later.
fn always(action: FaultAction) -> Fault {
    Fault::until(Duration::ZERO, action)
}

fn one_of(rng: &mut Rng, choices: &[&'static str]) -> &'static str {
    choices[usize::try_from(rng.below(choices.len() as u64)).unwrap_or_default()]
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
