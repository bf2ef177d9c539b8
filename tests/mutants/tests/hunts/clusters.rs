//! Families of whole clusters: a script under generated plans.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use windlass_simulation::fixtures::workloads;
use windlass_simulation::guarantees::PlanFamily;
use windlass_simulation::shards;
use windlass_testing::{Fault, FaultAction, FaultPlan, Report, Simulation, Violation};

use crate::plans;
use crate::scripts::Script;
use crate::stray_writes;

pub(crate) const ALONE: PlanFamily = PlanFamily {
    name: "alone",
    generate: plans::late_pods,
    run: |plan| run(Script::Alone, false, plan),
    regressions: &[],
};

/// Also checks that each reconcile reads the earlier writes of its key.
pub(crate) const BUSY_WITH_READ_CHECKS: PlanFamily = PlanFamily {
    name: "reads",
    generate: plans::late_pods,
    run: |plan| run(Script::Busy, true, plan),
    regressions: &[],
};

pub(crate) const FLICKER: PlanFamily = PlanFamily {
    name: "flicker",
    generate: plans::late_owners,
    run: |plan| run(Script::Flicker, false, plan),
    regressions: &[],
};

pub(crate) const SUCCESSION: PlanFamily = PlanFamily {
    name: "succession",
    generate: plans::late_owners,
    run: |plan| run(Script::Succession, false, plan),
    regressions: &[],
};

pub(crate) const BURSTS: PlanFamily = PlanFamily {
    name: "bursts",
    generate: plans::bursts,
    run: |plan| run(Script::Bursts, false, plan),
    regressions: &[],
};

/// Three replicas with sharding; one of them crashes, pauses or is partitioned.
pub(crate) const SHARDS: PlanFamily =
    PlanFamily { name: "shards", generate: one_replica_fails, run: run_shards, regressions: &[] };

/// A controller with dry runs, and with tasks that outlive its reconciles.
pub(crate) const TURNS: PlanFamily =
    PlanFamily { name: "turns", generate: plans::anything, run: run_turns, regressions: &[] };

pub(crate) fn busy(generate: fn(u64) -> FaultPlan) -> PlanFamily {
    PlanFamily { name: "busy", generate, run: |plan| run(Script::Busy, false, plan), regressions: &[] }
}

/// Runs the script under the plan, and compares with a run without faults.
fn run(script: Script, judges_reads: bool, plan: &FaultPlan) -> Result<u64, String> {
    static QUIET: Mutex<BTreeMap<Script, Report>> = Mutex::new(BTreeMap::new());
    let simulation = script.tuned(watching(Simulation::new(1))).with_read_checks(judges_reads);
    let play = |plan: FaultPlan, quiet: Option<&Report>| {
        let run = simulation.clone().plan(plan).run_compared_to(quiet, async |cluster| {
            script.play(cluster, workloads()).await;
        });
        run.map_err(|failure| described(&failure.violation))
    };
    let known = || QUIET.lock().unwrap_or_else(PoisonError::into_inner).get(&script).cloned();
    let quiet = match known() {
        Some(quiet) => quiet,
        None => {
            let quiet = play(FaultPlan::without_faults(plan.seed), None)?;
            QUIET.lock().unwrap_or_else(PoisonError::into_inner).entry(script).or_insert(quiet).clone()
        }
    };
    play(plan.clone(), Some(&quiet)).map(|report| report.writes)
}

fn run_shards(plan: &FaultPlan) -> Result<u64, String> {
    let run = shards::simulation(plan.seed).plan(plan.clone()).run(shards::tenants);
    run.map(|report| report.writes).map_err(|failure| described(&failure.violation))
}

fn run_turns(plan: &FaultPlan) -> Result<u64, String> {
    let run = Simulation::new(1).plan(plan.clone()).run(stray_writes::play);
    run.map(|report| report.writes).map_err(|failure| described(&failure.violation))
}

fn one_replica_fails(seed: u64) -> FaultPlan {
    let action = match seed % 3 {
        0 => FaultAction::Crash,
        1 => FaultAction::Pause,
        _ => FaultAction::Partition,
    };
    let fault = Fault::until(Duration::from_secs(150), action).from(Duration::from_secs(100));
    FaultPlan { seed, faults: vec![fault.for_instance("a")] }
}

/// Formats the variant and its fields first, because hunts search for them.
fn described(violation: &Violation) -> String {
    format!("{violation:?}: {violation}")
}

/// Compares caches with the objects of the server.
fn watching(simulation: Simulation) -> Simulation {
    let simulation = simulation.caches_of::<Pod>().caches_of::<ReplicaSet>();
    simulation.caches_of::<Service>().caches_of::<Endpoints>()
}
