//! Replicas that share shards, under random faults of every sort: crashes, pauses, partitions, lost and late requests,
//! refusals, watches that stall and lie, clocks that run fast or slow.
//!
//! The judge holds every write against the Lease of its namespace's shard, twice. When the write is sent, its sender holds
//! the Lease by the server's account, and sent its last renewal less than a renew deadline ago. When the write takes
//! effect, no other replica holds the Lease, and the lease has not ended. The wires are as late as TCP permits, so a late
//! write takes effect before the lease ends or never.
//!
//! It also looks for shards that nobody works on, and objects when that continues for longer than the election promises: a
//! lease duration by the slowest clock after a fault, a second where a shard is handed over.
//!
//! `WINDLASS_PLANS` is the number of plans (default 10), `WINDLASS_SEED` the first seed (default 1).

#![expect(clippy::print_stdout, reason = "for how long shards were vacant is part of the result")]

use std::time::Duration;

use windlass_controllers::{ControllerOptions, registrations};
use windlass_simulation::campaign;
use windlass_simulation::shards::{simulation, tenants};
use windlass_testing::{Cluster, Fault, FaultAction, FaultPlan, Faults, OwnershipGaps, Violation};

/// From how many plans on they have to show that shards that lost their holder were judged: one in two plans at least,
/// where about two in each are usual.
const MANY: u64 = 20;

fn add(all: &mut OwnershipGaps, one: &OwnershipGaps) {
    all.filled += one.filled;
    all.hand_overs += one.hand_overs;
    all.longest = all.longest.max(one.longest);
    all.longest_hand_over = all.longest_hand_over.max(one.longest_hand_over);
}

// parity: lost-lease-ends-process
#[test]
fn whatever_happens_all_work_is_done_once_and_every_write_under_the_lease_of_its_shard() {
    let reports = campaign(10, |seed| simulation(seed).faults(Faults::all()), tenants);
    let mut all = OwnershipGaps::default();
    reports.iter().for_each(|report| add(&mut all, &report.vacancies));
    println!("{all:?}");
    // In some plans no replica dies.
    let plans = reports.len() as u64;
    assert!(
        plans < MANY || 2 * all.filled >= plans,
        "vacancies were hardly judged: {all:?} in {plans} plans"
    );
}

/// Every replica is told to stop, one after the other, while nothing else happens.
async fn rollout(cluster: Cluster) {
    cluster.run(registrations(&ControllerOptions::default()));
    for name in ["a", "b", "c"] {
        cluster.advance(Duration::from_secs(70)).await;
        cluster.terminate(name);
    }
    cluster.advance(Duration::from_secs(70)).await;
}

// parity: lost-lease-ends-process
#[test]
fn shard_whose_holder_is_told_to_stop_is_anothers_within_a_second() {
    for seed in 1..=5 {
        let run = simulation(seed).plan(FaultPlan::quiet(seed)).run(rollout);
        let vacancies = run.unwrap_or_else(|failure| panic!("{failure}")).vacancies;
        println!("{vacancies:?}");
        assert!(vacancies.hand_overs >= 4, "each replica held one at least, and one two: {vacancies:?}");
        assert!(vacancies.longest_hand_over <= Duration::from_secs(1), "{vacancies:?}");
    }
}

#[test]
fn shard_that_is_left_to_expire_in_an_orderly_stop_is_found() {
    let simulation = simulation(1).plan(FaultPlan::quiet(1));
    let simulation = simulation.with_config(|config| {
        config.election.as_mut().expect("replicas are elected").release_on_exit = false;
    });
    let flaw = simulation.run(rollout).expect_err("the others wait for the leases to expire").flaw;
    assert!(matches!(flaw, Violation::Vacant { .. }), "{flaw}");
}

/// What a replica is struck with that holds shards, and for how long they are nobody's then.
fn struck(what: FaultAction) -> Result<OwnershipGaps, Violation> {
    let mut all = OwnershipGaps::default();
    for seed in 1..=3 {
        let fault = Fault::during(Duration::from_secs(150), what.clone());
        let plan = FaultPlan { seed, faults: vec![fault.from(Duration::from_secs(100)).for_instance("a")] };
        let run = simulation(seed).plan(plan).run(tenants);
        add(&mut all, &run.map_err(|failure| failure.flaw)?.vacancies);
    }
    Ok(all)
}

// parity: lost-lease-ends-process
#[test]
fn shard_whose_holder_crashes_pauses_or_is_cut_off_is_anothers_within_a_lease_duration() {
    for what in [FaultAction::Crash, FaultAction::Pause, FaultAction::Partition] {
        let vacancies = struck(what.clone()).unwrap_or_else(|flaw| panic!("{what:?}: {flaw}"));
        println!("{what:?}: {vacancies:?}");
        assert!(vacancies.filled >= 3, "{vacancies:?}");
        assert!(vacancies.longest > Duration::from_secs(10), "{vacancies:?}");
    }
}

/// The Lease of a dead member whose deletion failed was forgotten, and listed again looked like that of a new one, for
/// whom a shard was given up.
#[test]
fn dead_member_that_could_not_be_swept_away_does_not_come_back() {
    holds(
        r##"{"seed": 112, "faults": [
            {"from_ms":0,"until_ms":0,"instance":"b","what":{"ClockRate":{"numerator":4,"denominator":5}}},
            {"from_ms":74985,"until_ms":76777,"permille":500,"what":"Conflict"},
            {"from_ms":88205,"until_ms":88282,"what":{"CrashAtWrite":{"write":9,"after_effect":true}}}
        ]}"##,
    );
}

/// The oracle demands a quick hand-over only once the dead member is removed, which a slow clock delays.
#[test]
fn replica_keeps_a_share_for_a_dead_member_that_a_slow_clock_has_not_removed() {
    holds(
        r##"{"seed": 1, "faults": [
            {"from_ms":0,"until_ms":0,"instance":"b","what":{"ClockRate":{"numerator":4,"denominator":5}}},
            {"from_ms":100358,"until_ms":165529,"instance":"a","what":"Crash"}
        ]}"##,
    );
}

/// The answer of a status write is lost silently: the client repeats the write a minute later, at its request timeout.
#[test]
fn state_is_not_judged_before_a_silently_lost_write_is_repeated() {
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
    let plan = FaultPlan::from_json(plan).expect("a plan as it was printed");
    let run = simulation(plan.seed).plan(plan).run(tenants);
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A replica that comes back late waits for its predecessor's lease from then on, and one that stands still takes
/// nothing: neither is waited for, though a share of the shards is theirs.
#[test]
fn shard_is_not_kept_for_a_replica_that_comes_late_or_has_fallen_silent() {
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
        // Who comes just before a dead member's time is up keeps nothing for that one, nor does anybody keep it waiting.
        r##"{"seed": 250, "faults": [
            {"from_ms":286344,"until_ms":300000,"instance":"b","what":"Crash"},
            {"from_ms":128065,"until_ms":138975,"what":{"CrashAtWrite":{"write":38,"after_effect":false}}}
        ]}"##,
    ];
    PLANS.into_iter().for_each(holds);
}
