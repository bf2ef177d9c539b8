//! Hunts for the defects of the mutated copy, one test for each defect.
//!
//! A hunt activates a defect and runs plans until a check reports a violation. The same plan must pass without the
//! defect, so that the defect causes the violation. `WINDLASS_SEED` is the first seed (default 1); `--nocapture` shows
//! the number of plans per defect, and the violation.

mod clusters;
mod controllers;
mod election;
mod informer;
mod plans;
mod scripts;
mod stray_writes;
mod workqueue;

use windlass_mutants::{defects, with_defects};
use windlass_simulation::env_or;
use windlass_simulation::guarantees::PlanFamily;
use windlass_testing::FaultPlan;

/// Requires that a check reports the defect in one of the first `within` plans, with one of the texts of `reports`.
///
/// The first of `names` is the defect; the others are defects that it needs to have an effect. `within` includes a
/// margin, because other changes affect the plans of a seed.
#[expect(clippy::print_stdout, reason = "the number of plans and the violation are part of the result")]
fn hunt(names: &'static [&'static str], family: &PlanFamily, within: u64, reports: &[&str]) {
    let name = names[0];
    let first = env_or("WINDLASS_SEED", 1);
    // Also performs the run without faults for comparison, which must not have the defect.
    passes_without(name, family, &(family.generate)(first));
    for plans in 1..=within {
        let plan = (family.generate)(first + plans - 1);
        let Err(violation) = with_defects(names, || family.try_plan(&plan)) else { continue };
        let is_expected = reports.iter().any(|text| violation.contains(text));
        assert!(is_expected, "unexpected violation for {name:?}: {violation}\n{plan}");
        if plans > 1 {
            passes_without(name, family, &plan);
        }
        let shown: String = violation.chars().take(120).collect();
        println!("{:<10} {name:<40} {plans:>3} plans  {}", family.name, shown.replace('\n', " "));
        return;
    }
    panic!(
        "no check reported {name:?} in {within} plans; hunts run in the copy of `cargo xtask mutants` only"
    );
}

fn passes_without(name: &str, family: &PlanFamily, plan: &FaultPlan) {
    if let Err(violation) = family.try_plan(plan) {
        panic!("a violation without {name:?}: {violation}\n{plan}");
    }
}

#[test]
fn every_defect_is_hunted_by_exactly_one_test() {
    const SOURCES: [&str; 4] = [
        include_str!("controllers.rs"),
        include_str!("election.rs"),
        include_str!("informer.rs"),
        include_str!("workqueue.rs"),
    ];
    let tests: Vec<&str> = SOURCES.iter().flat_map(|source| source.split("#[test]\n").skip(1)).collect();
    for defect in defects() {
        let hunted = format!("&[{defect:?}");
        let hunts = tests.iter().filter(|test| test.contains(&hunted)).count();
        assert_eq!(hunts, 1, "number of tests that hunt {defect:?}");
    }
}
