//! Random plans of ten minutes each, and a long time under steady faults.
//!
//! `WINDLASS_PLANS` says how many plans (default 20), `WINDLASS_SEED` which is the first (default 1), `WINDLASS_DAYS`
//! for how many days the steady faults go on (default: six hours).

#![expect(
    clippy::print_stdout,
    reason = "how fast it went, and the plans that failed, are part of the result"
)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use windlass_simulation::{scripts, simulation, wanted};
use windlass_testing::{Failure, Faults, Plan, shorten};

/// How many plans may fail before the others are spared.
const ENOUGH: usize = 5;

/// Plans that are taken one by one, and what became of them.
struct Campaign {
    first: u64,
    plans: u64,
    taken: AtomicU64,
    failures: Mutex<Vec<Failure>>,
    begun: Instant,
}

impl Campaign {
    /// Takes plans until there are none, or enough of them failed.
    fn work(&self) {
        let quiet = simulation(self.first).plan(Plan::quiet(self.first)).run(scripts::everything);
        let quiet = quiet.unwrap_or_else(|failure| panic!("without any fault: {failure}"));
        loop {
            let taken = self.taken.fetch_add(1, Ordering::Relaxed);
            if taken >= self.plans || self.failures.lock().expect("nobody panicked").len() >= ENOUGH {
                return;
            }
            let simulation = simulation(self.first.wrapping_add(taken)).faults(Faults::all());
            if let Err(failure) = simulation.run_like(Some(&quiet), scripts::everything) {
                let failure = shorten(&simulation, &quiet, failure, scripts::everything);
                println!("{failure}");
                self.failures.lock().expect("nobody panicked").push(failure);
            }
            if taken % 250 == 249 {
                self.tell(taken + 1);
            }
        }
    }

    fn tell(&self, plans: u64) {
        let rate = plans as f64 / self.begun.elapsed().as_secs_f64();
        println!("{plans} plans, {rate:.1} per second");
    }
}

#[test]
fn the_controllers_get_over_random_faults() {
    let (plans, first): (u64, u64) = (wanted("WINDLASS_PLANS", 20), wanted("WINDLASS_SEED", 1));
    assert!(plans > 0, "no plan proves nothing");
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let campaign = Campaign {
        first,
        plans,
        taken: AtomicU64::new(0),
        failures: Mutex::default(),
        begun: Instant::now(),
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| campaign.work()))));
    campaign.tell(plans.min(campaign.taken.load(Ordering::Relaxed)));
    let failures = campaign.failures.into_inner().expect("nobody panicked");
    assert!(failures.is_empty(), "{} plans failed; they are printed above", failures.len());
}

#[test]
fn the_controllers_get_over_days_of_faults() {
    let hours = wanted::<u64>("WINDLASS_DAYS", 0).checked_mul(24).filter(|it| *it > 0).unwrap_or(6);
    let seed = wanted("WINDLASS_SEED", 3);
    let span = Duration::from_secs(hours * 3600);
    let quiet = simulation(seed).lasting(span).plan(Plan::quiet(seed)).run(scripts::hours(hours));
    let quiet = quiet.unwrap_or_else(|failure| panic!("without any fault: {failure}"));
    let simulation = simulation(seed).lasting(span).faults(Faults::all());
    let begun = Instant::now();
    let report = simulation.run_like(Some(&quiet), scripts::hours(hours));
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    let (virtually, really) = (report.lasted.as_secs_f64(), begun.elapsed().as_secs_f64());
    println!("{hours} hours: {:.0} virtual seconds per second, {} writes", virtually / really, report.writes);
}
