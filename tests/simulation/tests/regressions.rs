//! Plans that once failed, each with its cause.

use windlass_simulation::{scripts, simulation};
use windlass_testing::FaultPlan;

fn holds(plan: &str) {
    let plan = FaultPlan::from_json(plan).expect("a printed plan");
    let quiet = simulation(plan.seed).plan(FaultPlan::without_faults(plan.seed)).run(scripts::everything);
    let quiet = quiet.unwrap_or_else(|failure| panic!("the run without faults failed: {failure}"));
    let run = simulation(plan.seed).plan(plan).run_compared_to(Some(&quiet), scripts::everything);
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A standby whose watches are stalled, or served by a stopped server replica, takes over from a silent leader. Its
/// caches seem up to date, but lack the last creates of that leader until they relist.
#[test]
fn leader_with_stalled_watches_repeats_no_create() {
    const PLANS: [&str; 3] = [
        r##"{"seed": 1024, "faults": [
            {"from_ms":382342,"until_ms":407764,"what":{"CrashAtWrite":{"write":21,"after_effect":false}}},
            {"from_ms":12686,"until_ms":12832,"instance":"b","what":"WatchStalled"}
        ]}"##,
        r##"{"seed": 1854, "faults": [
            {"from_ms":0,"until_ms":0,"instance":"b","what":{"ClockRate":{"numerator":4,"denominator":5}}},
            {"from_ms":153550,"until_ms":153873,"what":"WatchStalled"},
            {"from_ms":362930,"until_ms":370322,"instance":"a","what":"Partition"}
        ]}"##,
        r##"{"seed": 2303, "faults": [
            {"from_ms":91806,"until_ms":109203,"what":"StaleReplica"},
            {"from_ms":216976,"until_ms":219165,"what":{"CrashAtWrite":{"write":21,"after_effect":false}}}
        ]}"##,
    ];
    PLANS.into_iter().for_each(holds);
}
