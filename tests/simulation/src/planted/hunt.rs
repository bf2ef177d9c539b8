//! Looking for a bug: plan after plan, until an oracle objects.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use windlass_controller::Registration;
use windlass_env::Env;
use windlass_testing::{Failure, Flaw, Plan, Report, Server, Simulation};

use super::wrappers::LateServer;
use super::{Bug, How, sound};

/// A bug that was found.
#[derive(Clone, Debug)]
pub struct Caught {
    /// How many plans it took.
    pub plans: u64,
    /// What gave it away.
    pub flaw: Flaw,
    /// Under which plan.
    pub plan: Plan,
}

/// Runs plans with the bug, those of seeds from `first` on and at most so many, until it shows; then the plan that
/// showed it once more, without the bug.
///
/// # Panics
/// When it does not show, shows as something else, or that plan fails without it.
pub fn hunt(bug: &Bug, first: u64, most: u64) -> Caught {
    let script = bug.script;
    let simulation = script.tuned(watching(Simulation::of(1))).judging_reads(bug.judges_reads);
    let quiet = run(&simulation.clone().plan(Plan::quiet(first)), bug, None, sound);
    let quiet = quiet.unwrap_or_else(|failure| panic!("without any fault: {failure}"));
    for plans in 1..=most {
        let plan = (bug.plan)(first + plans - 1);
        let seeded = simulation.clone().plan(plan.clone());
        if let Err(failure) = sick(seeded.clone(), bug, &quiet) {
            assert!((bug.betrays)(&failure.flaw), "{:?} shows as something else: {failure}", bug.name);
            if let Err(failure) = run(&seeded, bug, Some(&quiet), sound) {
                panic!("{:?} was not planted: {failure}", bug.name);
            }
            return Caught { plans, flaw: failure.flaw, plan };
        }
    }
    panic!("no oracle saw {:?} in {most} plans", bug.name)
}

fn sick(simulation: Simulation, bug: &Bug, quiet: &Report) -> Result<Report, Box<Failure>> {
    match bug.how {
        How::Controllers(controllers) => run(&simulation, bug, Some(quiet), controllers),
        How::LateServer(late) => {
            let server = move |env: &Env| -> Arc<dyn Server> { Arc::new(LateServer::new(env, late)) };
            let on_it = watching(Simulation::on(1, server)).plan(simulation.planned());
            run(&bug.script.tuned(on_it), bug, Some(quiet), sound)
        }
        How::Env(defects) => {
            let plant = move |env| defects.iter().copied().fold(env, Env::with_planted);
            run(&simulation.machines(plant), bug, Some(quiet), sound)
        }
    }
}

fn run(
    simulation: &Simulation,
    bug: &Bug,
    quiet: Option<&Report>,
    controllers: fn() -> Vec<Registration>,
) -> Result<Report, Box<Failure>> {
    simulation
        .run_like(quiet, async |cluster| bug.script.play(cluster, controllers()).await)
        .map_err(Box::new)
}

/// Compares caches with what the server holds.
fn watching(simulation: Simulation) -> Simulation {
    let simulation = simulation.caches_of::<Pod>().caches_of::<ReplicaSet>();
    simulation.caches_of::<Service>().caches_of::<Endpoints>()
}
