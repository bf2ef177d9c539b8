//! Many runs of one script: a crash at every write; random plans, and the shortest of those that fail.

use std::time::Duration;

use windlass_api_server::faults::{Fault, FaultAction, FaultPlan};

use crate::cluster::Cluster;
use crate::simulation::{Report, Simulation};
use crate::violation::{SimulationFailure, Violation};

/// How many runs shortening a plan may take. Random plans have up to ten faults or so, and each is tried by itself.
const SHORTENING: usize = 200;

/// What a campaign did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignSummary {
    /// How many runs there were, the one without faults apart.
    pub runs: u64,
    /// The run without faults.
    pub quiet: Report,
}

/// Runs a script and panics if any oracle objects, with all that is needed to see it again.
///
/// # Panics
/// With the failure.
pub fn simulate(simulation: Simulation, script: impl AsyncFnOnce(Cluster)) -> Report {
    let report = simulation.run(script).unwrap_or_else(|failure| panic!("{failure}"));
    simulation.check_unused().unwrap_or_else(|failure| panic!("{failure}"));
    report
}

/// Runs a script without faults to count its writes, then twice for each of them: the writer dies just before the
/// write leaves, and just after it took effect. Every run has to end as the first did.
///
/// # Errors
/// With the first run that does not, or the first objection of any oracle.
pub fn exhaustive_crash(
    simulation: &Simulation,
    script: impl AsyncFn(Cluster),
) -> Result<CampaignSummary, Box<SimulationFailure>> {
    let seed = simulation.fault_plan().seed;
    let quiet = simulation.clone().plan(FaultPlan::quiet(seed)).run(&script)?;
    let mut runs = 0;
    for write in 1..=quiet.writes {
        for after_effect in [false, true] {
            let crash = Fault::during(Duration::ZERO, FaultAction::CrashAtWrite { write, after_effect });
            let plan = FaultPlan { seed, faults: vec![crash] };
            simulation.clone().plan(plan).run_compared_to(Some(&quiet), &script)?;
            runs += 1;
        }
    }
    simulation.check_unused()?;
    Ok(CampaignSummary { runs, quiet })
}

/// Runs a script under `count` random plans, whose seeds follow that of `simulation`. Every run has to end as one
/// without faults does.
///
/// # Errors
/// With the first run that does not, or the first objection of any oracle, under the shortest plan that still fails.
/// With [`Violation::ProvesNothing`] if the plans would be one and the same, or none of them has any fault.
pub fn random_plans(
    simulation: &Simulation,
    count: u64,
    script: impl AsyncFn(Cluster),
) -> Result<CampaignSummary, Box<SimulationFailure>> {
    let first = simulation.fault_plan().seed;
    can_fail(simulation, count)?;
    let quiet = simulation.clone().plan(FaultPlan::quiet(first)).run(&script)?;
    for run in 0..count {
        let seeded = simulation.clone().with_seed(first.wrapping_add(run));
        if let Err(failure) = seeded.run_compared_to(Some(&quiet), &script) {
            return Err(Box::new(shrink(&seeded, &quiet, failure, &script)));
        }
    }
    simulation.check_unused()?;
    Ok(CampaignSummary { runs: count, quiet })
}

/// Runs a script under a plan, such as one that a failure printed. It has to end as without faults.
///
/// # Errors
/// With the first objection of any oracle, in either of the two runs.
pub fn replay(
    simulation: &Simulation,
    plan: FaultPlan,
    script: impl AsyncFn(Cluster),
) -> Result<Report, Box<SimulationFailure>> {
    let quiet = simulation.clone().plan(FaultPlan::quiet(plan.seed)).run(&script)?;
    let report = simulation.clone().plan(plan).run_compared_to(Some(&quiet), &script)?;
    simulation.check_unused()?;
    Ok(report)
}

/// Refuses a campaign of random plans that are not random, or are none.
fn can_fail(simulation: &Simulation, count: u64) -> Result<(), Box<SimulationFailure>> {
    let first = simulation.fault_plan().seed;
    let planned = |run: u64| simulation.clone().with_seed(first.wrapping_add(run)).fault_plan();
    let why = if planned(1).seed == first {
        "`.plan(..)` was called, and every run would have that one plan: leave it out and say `.faults(..)`, or run it \
         once with `Simulation::run_like`"
    } else if (0..count).all(|run| planned(run).faults.is_empty()) {
        "no run would have any fault: say which with `.faults(Faults::all())`, and a count above zero"
    } else {
        return Ok(());
    };
    Err(Box::new(SimulationFailure {
        flaw: Violation::ProvesNothing(why.to_owned()),
        plan: simulation.fault_plan(),
        trace: String::new(),
    }))
}

/// Takes faults out of the plan of a failure, first many at a time, then one by one, for as long as a run still fails
/// in the same way; then shortens those that are left. `quiet` is the run without faults that runs were compared with, if
/// they were.
pub fn shrink<'a>(
    simulation: &Simulation,
    quiet: impl Into<Option<&'a Report>>,
    failure: SimulationFailure,
    script: impl AsyncFn(Cluster),
) -> SimulationFailure {
    let quiet = quiet.into();
    let mut shortest = failure;
    let mut left = SHORTENING;
    let mut fails = |plan: FaultPlan, like: &SimulationFailure| -> Option<SimulationFailure> {
        left = left.checked_sub(1)?;
        let failure = simulation.clone().plan(plan).run_compared_to(quiet, &script).err()?;
        let same = std::mem::discriminant(&failure.flaw) == std::mem::discriminant(&like.flaw);
        same.then_some(failure)
    };
    let mut size = shortest.plan.faults.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < shortest.plan.faults.len() {
            let mut plan = shortest.plan.clone();
            plan.faults.drain(at..(at + size).min(shortest.plan.faults.len()));
            match fails(plan, &shortest) {
                Some(failure) => shortest = failure,
                None => at += size,
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    for at in 0..shortest.plan.faults.len() {
        for simpler in simpler(&shortest.plan.faults[at]) {
            let mut plan = shortest.plan.clone();
            plan.faults[at] = simpler;
            if let Some(failure) = fails(plan, &shortest) {
                shortest = failure;
            }
        }
    }
    shortest
}

/// Simpler faults of the same sort: shorter, and striking always.
fn simpler(fault: &Fault) -> Vec<Fault> {
    let length = fault.until_ms.saturating_sub(fault.from_ms);
    let shorter = |length: u64| Fault { until_ms: fault.from_ms + length, ..fault.clone() };
    let mut simpler = vec![shorter(length / 2), shorter(length / 4)];
    if fault.permille < 1000 {
        simpler.push(fault.clone().permille(1000));
    }
    simpler
}
