//! Replicas with sharding under random faults of every kind: crashes, pauses, partitions, lost and delayed requests,
//! rejections, watches that stall or return wrong data, clocks that run fast or slow.
//!
//! The oracle checks every write against the Lease of its namespace's shard, twice. When the write is sent, its sender
//! holds the Lease according to the server, and sent its last renewal less than a renew deadline ago. When the write
//! takes effect, no other replica holds the Lease, and the Lease has not expired. The links delay messages as long as
//! TCP permits, so a late write takes effect before the Lease expires or never.
//!
//! The oracle also reports shards without an active holder for longer than the election promises: one lease duration by
//! the slowest clock after a fault, and one second for a handoff.
//!
//! `WINDLASS_PLANS` is the number of plans (default 10), `WINDLASS_SEED` the first seed (default 1).

#![expect(clippy::print_stdout, reason = "the durations of gaps are part of the result")]

use std::time::Duration;

use windlass_simulation::campaign;
use windlass_simulation::fixtures::workloads;
use windlass_simulation::shards::{simulation, tenants};
use windlass_testing::{Cluster, Fault, FaultAction, FaultPlan, Faults, OwnershipGaps, Violation};

/// Number of plans from which on shards that lost their holder must have been checked: at least one in two plans; about
/// two per plan are usual.
const MANY: u64 = 20;

fn add(all: &mut OwnershipGaps, one: &OwnershipGaps) {
    all.filled += one.filled;
    all.handoffs += one.handoffs;
    all.longest = all.longest.max(one.longest);
    all.longest_handoff = all.longest_handoff.max(one.longest_handoff);
}

// parity: lost-lease-ends-process
#[test]
fn sharded_work_is_done_once_with_fenced_writes_under_all_faults() {
    let reports = campaign(10, |seed| simulation(seed).faults(Faults::all()), tenants);
    let mut all = OwnershipGaps::default();
    reports.iter().for_each(|report| add(&mut all, &report.ownership_gaps));
    println!("{all:?}");
    // In some plans no replica crashes.
    let plans = reports.len() as u64;
    assert!(plans < MANY || 2 * all.filled >= plans, "too few gaps were checked: {all:?} in {plans} plans");
}

/// Stops all replicas one after the other, without other faults.
async fn rollout(cluster: Cluster) {
    cluster.run(workloads());
    for name in ["a", "b", "c"] {
        cluster.advance(Duration::from_secs(70)).await;
        cluster.terminate(name);
    }
    cluster.advance(Duration::from_secs(70)).await;
}

// parity: lost-lease-ends-process
#[test]
fn shard_of_stopping_holder_is_acquired_within_a_second() {
    for seed in 1..=5 {
        let run = simulation(seed).plan(FaultPlan::without_faults(seed)).run(rollout);
        let gaps = run.unwrap_or_else(|failure| panic!("{failure}")).ownership_gaps;
        println!("{gaps:?}");
        assert!(gaps.handoffs >= 4, "each replica held at least one shard, and one replica two: {gaps:?}");
        assert!(gaps.longest_handoff <= Duration::from_secs(1), "{gaps:?}");
    }
}

#[test]
fn shard_left_to_expire_in_a_graceful_shutdown_is_reported() {
    let simulation = simulation(1).plan(FaultPlan::without_faults(1));
    let simulation = simulation.with_config(|config| {
        config.election.as_mut().expect("replicas are elected").release_on_exit = false;
    });
    let violation = simulation.run(rollout).expect_err("the others wait for the leases to expire").violation;
    assert!(matches!(violation, Violation::ShardWithoutHolder { .. }), "{violation}");
}

/// Runs a fault on a replica that holds shards, and returns the resulting gaps.
fn struck(action: FaultAction) -> Result<OwnershipGaps, Violation> {
    let mut all = OwnershipGaps::default();
    for seed in 1..=3 {
        let fault = Fault::until(Duration::from_secs(150), action.clone());
        let plan = FaultPlan { seed, faults: vec![fault.from(Duration::from_secs(100)).for_instance("a")] };
        let run = simulation(seed).plan(plan).run(tenants);
        add(&mut all, &run.map_err(|failure| failure.violation)?.ownership_gaps);
    }
    Ok(all)
}

// parity: lost-lease-ends-process
#[test]
fn shard_of_failed_holder_is_acquired_within_a_lease_duration() {
    for action in [FaultAction::Crash, FaultAction::Pause, FaultAction::Partition] {
        let gaps = struck(action.clone()).unwrap_or_else(|violation| panic!("{action:?}: {violation}"));
        println!("{action:?}: {gaps:?}");
        assert!(gaps.filled >= 3, "{gaps:?}");
        assert!(gaps.longest > Duration::from_secs(10), "{gaps:?}");
    }
}

/// The Lease of a crashed member whose deletion failed was forgotten. After a relist it looked like that of a new
/// member, for which a shard was released.
#[test]
fn crashed_member_whose_removal_failed_does_not_reappear() {
    holds(
        r##"{"seed": 112, "faults": [
            {"from_ms":0,"until_ms":0,"instance":"b","what":{"ClockRate":{"numerator":4,"denominator":5}}},
            {"from_ms":74985,"until_ms":76777,"permille":500,"what":"Conflict"},
            {"from_ms":88205,"until_ms":88282,"what":{"CrashAtWrite":{"write":9,"after_effect":true}}}
        ]}"##,
    );
}

/// The oracle requires a quick handoff only after the removal of the crashed member, which a slow clock delays.
#[test]
fn share_is_kept_for_a_crashed_member_until_its_removal() {
    holds(
        r##"{"seed": 1, "faults": [
            {"from_ms":0,"until_ms":0,"instance":"b","what":{"ClockRate":{"numerator":4,"denominator":5}}},
            {"from_ms":100358,"until_ms":165529,"instance":"a","what":"Crash"}
        ]}"##,
    );
}

/// The response of a status write is lost silently: the client repeats the write after its request timeout of one
/// minute.
#[test]
fn state_is_checked_after_a_silently_lost_write_is_repeated() {
    holds(
        r##"{"seed": 3133, "faults": [
            {"from_ms":154916,"until_ms":206343,"instance":"c","what":"Pause"},
            {"from_ms":234323,"until_ms":248697,"instance":"a","resource":"leases","permille":500,"what":{"SlowServer":{"by_ms":10000}}},
            {"from_ms":208208,"until_ms":260003,"resource":"pods","permille":500,"what":{"SlowConnect":{"by_ms":10000}}},
            {"from_ms":249817,"until_ms":300000,"instance":"b","permille":200,"what":"HalfOpen"}
        ]}"##,
    );
}

fn holds(plan: &str) {
    let plan = FaultPlan::from_json(plan).expect("a printed plan");
    let run = simulation(plan.seed).plan(plan).run(tenants);
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A replica that restarts late waits for the Lease of its predecessor from then on, and a paused replica acquires
/// nothing: neither has a share reserved, although the plan assigns it one.
#[test]
fn shard_is_not_reserved_for_a_late_or_silent_replica() {
    const PLANS: [&str; 3] = [
        r##"{"seed": 9, "faults": [
            {"from_ms":227102,"until_ms":227904,"what":{"CrashAtWrite":{"write":40,"after_effect":false}}},
            {"from_ms":74086,"until_ms":82767,"instance":"a","what":"Crash"},
            {"from_ms":2699,"until_ms":4578,"instance":"c","what":"Pause"}
        ]}"##,
        r##"{"seed": 31, "faults": [
            {"from_ms":221457,"until_ms":253639,"instance":"b","what":"Partition"},
            {"from_ms":230978,"until_ms":248166,"instance":"c","what":"Pause"}
        ]}"##,
        // A replica that starts just before the timeout of a crashed member reserves nothing for that member, and none
        // for it.
        r##"{"seed": 250, "faults": [
            {"from_ms":286344,"until_ms":300000,"instance":"b","what":"Crash"},
            {"from_ms":128065,"until_ms":138975,"what":{"CrashAtWrite":{"write":38,"after_effect":false}}}
        ]}"##,
    ];
    PLANS.into_iter().for_each(holds);
}

/// The connection of a create is half-open when the shard is lost. The create took effect seconds after the replica had
/// acquired the shard again and listed the pods, because its outcome counted as settled one second after it was
/// dropped.
#[test]
fn half_open_create_is_not_repeated_when_its_shard_returns() {
    const PLANS: [&str; 2] = [
        r##"{"seed": 2219, "faults": [
            {"from_ms":0,"until_ms":0,"instance":"b","what":{"ClockRate":{"numerator":101,"denominator":100}}},
            {"from_ms":261368,"until_ms":300000,"instance":"b","permille":500,"what":{"ResponseDelayed":{"by_ms":7000}}},
            {"from_ms":275526,"until_ms":285076,"instance":"b","what":"Pause"},
            {"from_ms":6041,"until_ms":33178,"instance":"c","what":"Pause"},
            {"from_ms":6680,"until_ms":40275,"permille":200,"what":"HalfOpen"},
            {"from_ms":71406,"until_ms":103677,"permille":50,"what":{"TooManyRequests":{"retry_after_seconds":20}}},
            {"from_ms":290995,"until_ms":300000,"instance":"b","permille":200,"what":"HalfOpen"}
        ]}"##,
        r##"{"seed": 7183, "faults": [
            {"from_ms":0,"until_ms":0,"instance":"a","what":{"ClockRate":{"numerator":6,"denominator":5}}},
            {"from_ms":0,"until_ms":0,"instance":"b","what":{"ClockRate":{"numerator":6,"denominator":5}}},
            {"from_ms":0,"until_ms":0,"instance":"c","what":{"ClockRate":{"numerator":101,"denominator":100}}},
            {"from_ms":133097,"until_ms":133593,"resource":"pods","what":"StaleReplica"},
            {"from_ms":5514,"until_ms":82308,"instance":"c","what":"Pause"},
            {"from_ms":77342,"until_ms":86353,"instance":"a","what":"Pause"},
            {"from_ms":96250,"until_ms":142233,"permille":500,"what":"HalfOpen"},
            {"from_ms":69591,"until_ms":78989,"instance":"a","what":"Suspend"}
        ]}"##,
    ];
    let quiet = simulation(1).plan(FaultPlan::without_faults(1)).run(tenants);
    let quiet = quiet.unwrap_or_else(|failure| panic!("{failure}"));
    for plan in PLANS {
        let plan = FaultPlan::from_json(plan).expect("a printed plan");
        let run = simulation(plan.seed).plan(plan).run_compared_to(Some(&quiet), tenants);
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
