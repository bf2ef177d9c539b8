//! Runs many random plans of one simulation on all cores.

#![expect(clippy::print_stdout, reason = "the rate and the failed plans are part of the result")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use windlass_testing::{Cluster, FaultPlan, Report, Simulation, shrink};

use crate::wanted;

/// Number of failed plans after which the remaining plans are skipped.
const ENOUGH: u64 = 5;
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
    let (plans, first): (u64, u64) = (wanted("WINDLASS_PLANS", plans), wanted("WINDLASS_SEED", 1));
    assert!(plans > 0, "a campaign needs at least one plan");
    let campaign = Campaign {
        first,
        plans,
        simulation,
        script,
        taken: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        reports: Mutex::default(),
        begun: Instant::now(),
    };
    let quiet = (campaign.simulation)(first).plan(FaultPlan::quiet(first)).run(&campaign.script);
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
    taken: AtomicU64,
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
            let taken = self.taken.fetch_add(1, Ordering::Relaxed);
            if taken >= self.plans || self.failed.load(Ordering::Relaxed) >= ENOUGH {
                return;
            }
            let simulation = (self.simulation)(self.first.wrapping_add(taken));
            match simulation.run_compared_to(Some(quiet), &self.script) {
                Ok(report) => self.note(report),
                Err(failure) => {
                    println!("{}", shrink(&simulation, quiet, failure, &self.script));
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn note(&self, mut report: Report) {
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
