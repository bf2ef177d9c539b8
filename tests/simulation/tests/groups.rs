//! Controllers that are elected in groups, under random faults of every sort: two replicas share the work, each group is
//! led apart, and what a controller writes leaves under the Lease of its group alone.
//!
//! The judge knows which controller is in which group, and holds every write against that Lease. In the end the cluster
//! is as it is without faults.
//!
//! `WINDLASS_PLANS` says how many plans (default 2), `WINDLASS_SEED` which is the first (default 1).

#![expect(clippy::print_stdout, reason = "the plans that failed are part of the result")]

use std::time::Duration;

use windlass_manager::ElectionGroup;
use windlass_simulation::{scripts, simulation, wanted};
use windlass_testing::{Fault, Faults, Flaw, Plan, Simulation, What, shorten};

/// How many plans may fail before the others are spared.
const ENOUGH: usize = 3;

/// Whoever makes pods is in one group, whoever makes Endpoints in another; nobody is left for the main Lease but the
/// controller of ReplicationControllers.
fn grouped(seed: u64) -> Simulation {
    simulation(seed).configured(|config| {
        config.groups = vec![
            ElectionGroup::new("pods", ["replicaset-controller"]),
            ElectionGroup::new("addresses", ["endpoints-controller"]),
        ];
    })
}

#[test]
fn whatever_happens_every_group_writes_under_its_own_lease_and_all_work_is_done() {
    let (plans, first) = (wanted("WINDLASS_PLANS", 2), wanted("WINDLASS_SEED", 1_u64));
    assert!(plans > 0, "no plan proves nothing");
    let quiet = grouped(first).plan(Plan::quiet(first)).run(scripts::everything);
    let quiet = quiet.unwrap_or_else(|failure| panic!("without any fault: {failure}"));
    assert!(quiet.writes > 0, "nobody wrote anything");
    let mut failed = 0;
    for seed in first..first + plans {
        let simulation = grouped(seed).faults(Faults::all());
        if let Err(failure) = simulation.run_like(Some(&quiet), scripts::everything) {
            println!("{}", shorten(&simulation, &quiet, failure, scripts::everything));
            failed += 1;
        }
        if failed == ENOUGH {
            break;
        }
    }
    assert_eq!(failed, 0, "plans failed; they are printed above");
}

#[test]
fn a_group_that_writes_after_its_lease_is_lost_is_found() {
    // Nobody can renew anything, and all other requests get through.
    let lost = Fault::during(Duration::from_secs(400), What::RequestLost { silently: false });
    let plan = Plan { seed: 1, faults: vec![lost.from(Duration::from_secs(40)).on("leases")] };
    let goes_on = grouped(1).plan(plan).machines(|env| env.with_planted("write after lease loss"));
    let flaw = goes_on.run(scripts::everything).expect_err("nobody holds any lease").flaw;
    assert!(matches!(flaw, Flaw::Unfenced { until: Some(_), .. }), "{flaw}");
}
