//! Random plans of ten minutes each, and a long time under steady faults.
//!
//! `WINDLASS_PLANS` says how many plans (default 40), `WINDLASS_SEED` which is the first (default 1), `WINDLASS_DAYS`
//! for how many days the steady faults go on (default 1).

mod support;

use std::str::FromStr;
use std::time::Instant;

use support::simulation;
use windlass_simulation::scripts;
use windlass_testing::{Faults, random_plans};

fn wanted<T: FromStr>(variable: &str, default: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn the_controllers_get_over_random_faults() {
    let (plans, first): (u64, u64) = (wanted("WINDLASS_PLANS", 40), wanted("WINDLASS_SEED", 1));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (from, to) = (plans * thread / threads, plans * (thread + 1) / threads);
            scope.spawn(move || {
                let simulation = simulation(first + from).faults(Faults::all());
                random_plans(&simulation, to - from, scripts::everything)
                    .unwrap_or_else(|failure| panic!("{failure}"));
            });
        }
    });
    println!("{:.1} plans per second on {threads} threads", plans as f64 / begun.elapsed().as_secs_f64());
}

#[test]
fn the_controllers_get_over_days_of_faults() {
    let days: u64 = wanted("WINDLASS_DAYS", 1);
    let simulation = simulation(3).days(days).faults(Faults::all());
    let begun = Instant::now();
    let report = simulation.run(scripts::days(days)).unwrap_or_else(|failure| panic!("{failure}"));
    let (virtually, really) = (report.lasted.as_secs_f64(), begun.elapsed().as_secs_f64());
    println!("{days} days: {:.0} virtual seconds per second, {} writes", virtually / really, report.writes);
}
