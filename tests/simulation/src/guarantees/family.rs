//! Families of plans: generating, running and shrinking them.

#![expect(
    clippy::print_stdout,
    reason = "how fast it went, and the plans that failed, are part of the result"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{self, Either};
use tokio::runtime::Builder;
use windlass_env::{Env, PollMonitor, catch_panic};
use windlass_testing::FaultPlan;

use crate::env_or;

/// Number of failed plans after which the remaining plans are skipped.
const MAX_FAILURES: usize = 3;
/// Limit of a run in virtual time.
const MAX_VIRTUAL_TIME: Duration = Duration::from_secs(24 * 3600);
/// Message of panics that belong to a script.
pub(crate) const ON_PURPOSE: &str = "on purpose";

/// A set of similar simulations, one for each plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanFamily {
    /// Name in the output of a run.
    pub name: &'static str,
    /// Generates the plan of a seed.
    pub generate: fn(u64) -> FaultPlan,
    /// Runs a plan. Returns the number of checks, or the first violation.
    pub run: fn(&FaultPlan) -> Result<u64, String>,
    /// Plans that once failed.
    pub regressions: &'static [&'static str],
}

impl PlanFamily {
    /// Runs a plan; a panic is also a violation.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn try_plan(&self, plan: &FaultPlan) -> Result<u64, String> {
        silence_intended_panics();
        let ran = catch_unwind(AssertUnwindSafe(|| (self.run)(plan)));
        ran.unwrap_or_else(|_| Err("the run panicked; see above".to_owned()))
    }
}

/// Runs a script in its own world.
pub(crate) fn run_script<F>(plan: &FaultPlan, script: impl FnOnce(Env) -> F) -> Result<u64, String>
where
    F: Future<Output = Result<u64, String>>,
{
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let poll_monitor = PollMonitor::new();
        let env = Env::virtual_time(plan.seed).with_poll_monitor(&poll_monitor);
        let broken = async {
            match future::select(pin!(poll_monitor.livelocked()), pin!(env.sleep(MAX_VIRTUAL_TIME))).await {
                Either::Left((task, _)) => Err(format!("{task} is polled without time passing")),
                Either::Right(_) => Err(format!("it runs for more than {MAX_VIRTUAL_TIME:?}")),
            }
        };
        let script = pin!(catch_panic(script(env.clone())));
        match future::select(pin!(broken), script).await {
            Either::Left((broken, _)) => broken,
            Either::Right((done, _)) => done.unwrap_or_else(|message| Err(format!("panicked: {message}"))),
        }
    })
}

/// Runs the plans of a family.
///
/// # Panics
/// Panics with the plan if a check reports a violation.
pub fn campaign(family: &PlanFamily) {
    for plan in family.regressions {
        let plan = FaultPlan::from_json(plan).expect("a printed plan");
        family.try_plan(&plan).unwrap_or_else(|violation| panic!("{violation}\n{plan}"));
    }
    let campaign = Campaign {
        family,
        plans: env_or("WINDLASS_PLANS", 50),
        first: env_or("WINDLASS_SEED", 1),
        started: AtomicU64::new(0),
        checks: AtomicU64::new(0),
        failures: Mutex::default(),
    };
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| campaign.work()))));
    let (checks, took) = (campaign.checks.into_inner(), begun.elapsed());
    println!("{}: {} plans, {checks} checks, {took:.1?}", family.name, campaign.plans);
    let failures = campaign.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failures.is_empty(), "{} plans failed; they are printed above", failures.len());
    assert!(checks > campaign.plans, "too few checks: the campaign proves nothing");
}

struct Campaign<'a> {
    family: &'a PlanFamily,
    plans: u64,
    first: u64,
    started: AtomicU64,
    checks: AtomicU64,
    failures: Mutex<Vec<FaultPlan>>,
}

impl Campaign<'_> {
    fn work(&self) {
        loop {
            let started = self.started.fetch_add(1, Ordering::Relaxed);
            if started >= self.plans || self.failed().len() >= MAX_FAILURES {
                return;
            }
            let plan = (self.family.generate)(self.first.wrapping_add(started));
            match self.run(&plan) {
                Ok(checks) => drop(self.checks.fetch_add(checks, Ordering::Relaxed)),
                Err(violation) => self.shrink_and_report(plan, violation),
            }
        }
    }

    fn run(&self, plan: &FaultPlan) -> Result<u64, String> {
        self.family.try_plan(plan)
    }

    /// Removes faults one by one while the plan still fails.
    fn shrink_and_report(&self, mut plan: FaultPlan, mut violation: String) {
        let mut at = 0;
        while at < plan.faults.len() {
            let mut shorter = plan.clone();
            shorter.faults.remove(at);
            match self.run(&shorter) {
                Ok(_) => at += 1,
                Err(other) => (plan, violation) = (shorter, other),
            }
        }
        println!("{}: {violation}\n{plan}", self.family.name);
        self.failed().push(plan);
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Vec<FaultPlan>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Scripts panic in handlers and workers thousands of times, and each panic would print a stack.
fn silence_intended_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&ON_PURPOSE) {
                usual(panic);
            }
        }));
    });
}
