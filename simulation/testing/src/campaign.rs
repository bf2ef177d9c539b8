//! Repeated runs of one script: a crash or a rejection at every write, or random plans with shrinking of those that
//! fail.

use std::fmt;
use std::time::Duration;

use windlass_api_server::faults::{Fault, FaultAction, FaultPlan};

use crate::cluster::Cluster;
use crate::progress::Progress;
use crate::simulation::{Report, Simulation};
use crate::trace_excerpt::Trace;
use crate::violation::{SimulationFailure, Violation};

/// Maximum number of runs to shrink a plan. Random plans have about ten faults, and each fault is removed on its own.
const SHORTENING: usize = 200;

/// Summary of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignSummary {
    /// Number of runs, without the run without faults.
    pub runs: u64,
    /// The run without faults.
    pub baseline: Report,
    /// Number of faults in the plans of all runs.
    pub faults: u64,
    /// Number of these faults that began after the script of their run had returned. No user changes objects then.
    pub faults_after_script: u64,
}

impl CampaignSummary {
    fn new(baseline: Report) -> Self {
        Self { runs: 0, baseline, faults: 0, faults_after_script: 0 }
    }

    fn add(&mut self, run: &Report) {
        self.runs += 1;
        self.faults += run.faults;
        self.faults_after_script += run.faults_after_script;
    }
}

impl fmt::Display for CampaignSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, baseline, faults, faults_after_script } = self;
        let plural = if *runs == 1 { "" } else { "s" };
        write!(f, "{runs} run{plural} with {faults} faults, compared with a run without faults: {baseline}")?;
        if faults_after_script * 2 > *faults {
            write!(
                f,
                "\nwarning: {faults_after_script} of the {faults} faults began after the script had returned; let it \
                 change objects for as long as faults are injected"
            )?;
        }
        Ok(())
    }
}

/// Ends a test with the result of its campaign: prints the summary, which `cargo test -- --show-output` shows.
///
/// # Panics
/// Panics with the failure.
pub fn assert_passed(result: Result<impl fmt::Display, Box<SimulationFailure>>) {
    match result {
        #[expect(clippy::print_stdout, reason = "the test harness captures it")]
        Ok(summary) => println!("{summary}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Runs a script and panics if an oracle reports a violation. The message contains all data to reproduce the run.
///
/// # Panics
/// Panics with the failure.
pub fn simulate(simulation: Simulation, script: impl AsyncFnOnce(Cluster)) -> Report {
    let report = simulation.run(script).unwrap_or_else(|failure| panic!("{failure}"));
    simulation.check_unused().unwrap_or_else(|failure| panic!("{failure}"));
    report
}

/// Runs a script without faults to count its writes, then twice for each write: the process crashes just before the
/// write is sent, or just after it took effect. Every run must end in the state of the first run.
///
/// A crash before a write differs from one after the previous write, because other clients change objects in between.
///
/// # Errors
/// Returns the first run that ends in a different state, or the first violation of any oracle. Returns
/// [`Violation::VacuousCampaign`] if the run without faults sends no write.
pub fn exhaustive_crash(
    simulation: &Simulation,
    script: impl AsyncFn(Cluster),
) -> Result<CampaignSummary, Box<SimulationFailure>> {
    each_write(simulation, script, |write| {
        [false, true].map(|after_effect| {
            vec![Fault::until(Duration::ZERO, FaultAction::CrashAtWrite { write, after_effect })]
        })
    })
}

/// Runs a script without faults to count its writes, then twice for each write: the server rejects the write, or the
/// write takes effect and its sender gets 504, as if the server had timed out. The rejection is a conflict, and 500 for
/// a write that creates an object. Every run must end in the state of the first run.
///
/// It finds controllers that ignore an error, or that repeat a create whose outcome is unknown under another name.
///
/// # Errors
/// Returns the first run that ends in a different state, or the first violation of any oracle. Returns
/// [`Violation::VacuousCampaign`] if the run without faults sends no write.
pub fn exhaustive_rejection(
    simulation: &Simulation,
    script: impl AsyncFn(Cluster),
) -> Result<CampaignSummary, Box<SimulationFailure>> {
    each_write(simulation, script, |write| {
        let at = |action| Fault::at_write(write, action);
        // The first fault that applies decides. A conflict does not apply if the object does not exist.
        [vec![at(FaultAction::Conflict), at(FaultAction::InternalError)], vec![at(FaultAction::TimedOut)]]
    })
}

/// Runs a script without faults to count its writes, then for each write under the plans with these faults.
fn each_write<const PLANS: usize>(
    simulation: &Simulation,
    script: impl AsyncFn(Cluster),
    faults_of: impl Fn(u64) -> [Vec<Fault>; PLANS],
) -> Result<CampaignSummary, Box<SimulationFailure>> {
    let seed = simulation.fault_plan().seed;
    let baseline = simulation.clone().plan(FaultPlan::without_faults(seed)).run(&script)?;
    if baseline.writes == 0 {
        return Err(vacuous(
            simulation,
            "the run without faults sends no write: `cluster.run(..)` the controllers",
        ));
    }
    let mut progress = Progress::of(u64::try_from(PLANS).unwrap_or(1) * baseline.writes);
    let mut summary = CampaignSummary::new(baseline);
    for write in 1..=summary.baseline.writes {
        for faults in faults_of(write) {
            let plan = FaultPlan { seed, faults };
            match simulation.clone().plan(plan).run_compared_to(Some(&summary.baseline), &script) {
                Ok(run) => summary.add(&run),
                Err(failure) => {
                    return Err(Box::new(shrink(simulation, &summary.baseline, failure, &script)));
                }
            }
            progress.run_ended();
        }
    }
    simulation.check_unused()?;
    Ok(summary)
}

/// Runs a script under `count` random plans. Their seeds follow the seed of `simulation`. Every run must end in the
/// state of a run without faults.
///
/// # Errors
/// Returns the first run that ends in a different state, or the first violation of any oracle, with the shortest plan
/// that still fails. Returns [`Violation::VacuousCampaign`] if all plans would be identical or no plan has a fault.
pub fn random_plans(
    simulation: &Simulation,
    count: u64,
    script: impl AsyncFn(Cluster),
) -> Result<CampaignSummary, Box<SimulationFailure>> {
    let first = simulation.fault_plan().seed;
    can_fail(simulation, count)?;
    let baseline = simulation.clone().plan(FaultPlan::without_faults(first)).run(&script)?;
    let mut progress = Progress::of(count);
    let mut summary = CampaignSummary::new(baseline);
    for run in 0..count {
        let seeded = simulation.clone().with_seed(first.wrapping_add(run));
        match seeded.run_compared_to(Some(&summary.baseline), &script) {
            Ok(run) => summary.add(&run),
            Err(failure) => return Err(Box::new(shrink(&seeded, &summary.baseline, failure, &script))),
        }
        progress.run_ended();
    }
    simulation.check_unused()?;
    Ok(summary)
}

/// Runs a script under a given plan, for example a plan from a failure message. The run must end in the state of a run
/// without faults.
///
/// # Errors
/// Returns the first violation of any oracle, in either of the two runs.
pub fn replay(
    simulation: &Simulation,
    plan: FaultPlan,
    script: impl AsyncFn(Cluster),
) -> Result<Report, Box<SimulationFailure>> {
    let baseline = simulation.clone().plan(FaultPlan::without_faults(plan.seed)).run(&script)?;
    let report = simulation.clone().plan(plan).run_compared_to(Some(&baseline), &script)?;
    simulation.check_unused()?;
    Ok(report)
}

/// Rejects a campaign whose plans are all identical or have no fault.
fn can_fail(simulation: &Simulation, count: u64) -> Result<(), Box<SimulationFailure>> {
    let first = simulation.fault_plan().seed;
    let planned = |run: u64| simulation.clone().with_seed(first.wrapping_add(run)).fault_plan();
    let why = if planned(1).seed == first {
        "`.plan(..)` gives every run the same plan: use `.faults(..)` instead, or run the plan once with \
         `Simulation::run_compared_to`"
    } else if (0..count).all(|run| planned(run).faults.is_empty()) {
        "no run has a fault: set `.faults(Faults::all())` and a count above zero"
    } else {
        return Ok(());
    };
    Err(vacuous(simulation, why))
}

fn vacuous(simulation: &Simulation, why: &str) -> Box<SimulationFailure> {
    Box::new(SimulationFailure {
        violation: Violation::VacuousCampaign(why.to_owned()),
        unfinished: Vec::new(),
        plan: simulation.fault_plan(),
        trace: Trace::default(),
    })
}

/// Shrinks the plan of a failure while a run still fails with the same kind of violation: first removes many faults at
/// a time, then single faults, then simplifies the remaining faults. `baseline` is the run without faults that the runs
/// were compared with, if any.
pub fn shrink<'a>(
    simulation: &Simulation,
    baseline: impl Into<Option<&'a Report>>,
    failure: SimulationFailure,
    script: impl AsyncFn(Cluster),
) -> SimulationFailure {
    let baseline = baseline.into();
    let mut shortest = failure;
    let mut left = SHORTENING;
    let mut progress = Progress::of_reduction(SHORTENING);
    let mut fails = |plan: FaultPlan, like: &SimulationFailure| -> Option<SimulationFailure> {
        left = left.checked_sub(1)?;
        let result = simulation.clone().plan(plan).run_compared_to(baseline, &script);
        progress.run_ended();
        let failure = result.err()?;
        let same = std::mem::discriminant(&failure.violation) == std::mem::discriminant(&like.violation);
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

/// Returns simpler variants of a fault: shorter, or injected always.
fn simpler(fault: &Fault) -> Vec<Fault> {
    let length = fault.until_ms.saturating_sub(fault.from_ms);
    let shorter = |length: u64| Fault { until_ms: fault.from_ms + length, ..fault.clone() };
    let mut simpler = vec![shorter(length / 2), shorter(length / 4)];
    if fault.permille < 1000 {
        simpler.push(fault.clone().permille(1000));
    }
    simpler
}
