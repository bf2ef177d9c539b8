//! Runs many random plans of one simulation on all cores.

#![expect(clippy::print_stdout, reason = "the rate and the failed plans are part of the result")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use windlass_testing::{Cluster, FaultPlan, Report, Simulation, shrink};

use crate::env_or;

/// Number of failed plans after which the remaining plans are skipped.
const MAX_FAILURES: u64 = 5;
/// Number of plans between two outputs of the rate.
const PROGRESS_INTERVAL: u64 = 250;

/// Runs `WINDLASS_PLANS` random plans (default `plans`) from seed `WINDLASS_SEED` on and returns their reports. Each
/// plan must end in the state of the run without faults. A failed plan is shrunk and printed.
///
/// # Panics
/// Panics if a plan fails, or the run without faults.
pub fn campaign<S, A>(plans: u64, simulation: S, script: A) -> Vec<Report>
where
    S: Fn(u64) -> Simulation + Sync,
    A: AsyncFn(Cluster) + Sync,
{
    let (plans, first): (u64, u64) = (env_or("WINDLASS_PLANS", plans), env_or("WINDLASS_SEED", 1));
    assert!(plans > 0, "a campaign needs at least one plan");
    let campaign = Campaign {
        first,
        plans,
        simulation,
        script,
        started: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        reports: Mutex::default(),
        begun: Instant::now(),
    };
    let quiet = (campaign.simulation)(first).plan(FaultPlan::without_faults(first)).run(&campaign.script);
    let quiet = quiet.unwrap_or_else(|failure| panic!("the run without faults failed: {failure}"));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| campaign.work(&quiet)))));
    let failed = campaign.failed.into_inner();
    assert_eq!(failed, 0, "plans failed; they are printed above");
    campaign.reports.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Plans and their results.
struct Campaign<S, A> {
    first: u64,
    plans: u64,
    simulation: S,
    script: A,
    started: AtomicU64,
    failed: AtomicU64,
    reports: Mutex<Vec<Report>>,
    begun: Instant,
}

impl<S, A> Campaign<S, A>
where
    S: Fn(u64) -> Simulation + Sync,
    A: AsyncFn(Cluster) + Sync,
{
    /// Runs plans until none is left, or the limit of failed plans is reached.
    fn work(&self, quiet: &Report) {
        loop {
            let started = self.started.fetch_add(1, Ordering::Relaxed);
            if started >= self.plans || self.failed.load(Ordering::Relaxed) >= MAX_FAILURES {
                return;
            }
            let simulation = (self.simulation)(self.first.wrapping_add(started));
            match simulation.run_compared_to(Some(quiet), &self.script) {
                Ok(report) => self.add_report(report),
                Err(failure) => {
                    println!("{}", shrink(&simulation, quiet, failure, &self.script));
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn add_report(&self, mut report: Report) {
        // The final state is large, and has been compared.
        report.state = Default::default();
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.push(report);
        let plans = reports.len() as u64;
        if plans.is_multiple_of(PROGRESS_INTERVAL) || plans == self.plans {
            let rate = plans as f64 / self.begun.elapsed().as_secs_f64();
            println!("{plans} plans, {rate:.2} per second");
        }
    }
}
