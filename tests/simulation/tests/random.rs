//! Random plans of ten minutes each, and a long run under continuous faults.
//!
//! `WINDLASS_PLANS` sets the number of plans (default 20), `WINDLASS_SEED` the first seed (default 1), and
//! `WINDLASS_DAYS` the days of continuous faults (default: six hours).

#![expect(clippy::print_stdout, reason = "the speed is part of the result")]

use std::time::{Duration, Instant};

use windlass_simulation::{campaign, env_or, housekeeping_simulation, scripts, simulation};
use windlass_testing::{FaultPlan, Faults};

#[test]
fn controllers_recover_from_random_faults() {
    campaign(20, |seed| simulation(seed).faults(Faults::all()), scripts::everything);
}

#[test]
fn deployments_recover_from_random_faults() {
    campaign(20, |seed| simulation(seed).faults(Faults::all()), scripts::deployment);
}

#[test]
fn stateful_sets_recover_from_random_faults() {
    campaign(20, |seed| simulation(seed).faults(Faults::all()), scripts::stateful_set);
}

#[test]
fn daemon_sets_recover_from_random_faults() {
    campaign(20, |seed| simulation(seed).faults(Faults::all()), scripts::daemon_set);
}

#[test]
fn housekeeping_recovers_from_random_faults() {
    campaign(20, |seed| housekeeping_simulation(seed).faults(Faults::all()), scripts::housekeeping);
}

#[test]
fn controllers_recover_from_days_of_faults() {
    let hours = env_or::<u64>("WINDLASS_DAYS", 0).checked_mul(24).filter(|it| *it > 0).unwrap_or(6);
    let seed = env_or("WINDLASS_SEED", 3);
    let span = Duration::from_secs(hours * 3600);
    let quiet = simulation(seed)
        .fault_duration(span)
        .plan(FaultPlan::without_faults(seed))
        .run(scripts::hours(hours));
    let quiet = quiet.unwrap_or_else(|failure| panic!("the run without faults failed: {failure}"));
    let simulation = simulation(seed).fault_duration(span).faults(Faults::all());
    let begun = Instant::now();
    let report = simulation.run_compared_to(Some(&quiet), scripts::hours(hours));
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    let (virtually, really) = (report.virtual_duration.as_secs_f64(), begun.elapsed().as_secs_f64());
    println!("{hours} hours: {:.0} virtual seconds per second, {} writes", virtually / really, report.writes);
}
