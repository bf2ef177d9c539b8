//! The controllers of namespaces and nodes, under crashes and random faults.

use windlass_simulation::{campaign, scripts};
use windlass_testing::{Faults, Simulation, exhaustive_crash};

fn simulation(seed: u64) -> Simulation {
    Simulation::new(seed).resources(["namespaces", "nodes", "serviceaccounts", "configmaps"])
}

#[test]
fn crash_at_any_write_of_housekeeping_changes_nothing() {
    let summary = exhaustive_crash(&simulation(1), scripts::housekeeping);
    let summary = summary.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(summary.runs == 2 * summary.baseline.writes && summary.runs > 10, "{summary:?}");
}

#[test]
fn housekeeping_recovers_from_random_faults() {
    campaign(20, |seed| simulation(seed).faults(Faults::all()), scripts::housekeeping);
}
