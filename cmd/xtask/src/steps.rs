//! A task of several steps. Each step is announced, timed and reported, and the next steps run after a failure.
//!
//! A step of more than five seconds prints its elapsed time at intervals, also if its program prints nothing.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time after which a running step prints its elapsed time, and the interval of the next lines.
const FIRST_REPORT: Duration = Duration::from_secs(5);
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Runs `work` and prints its elapsed time at intervals.
pub(crate) fn with_progress<T>(title: &str, work: impl FnOnce() -> T) -> T {
    let (running, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let started = Instant::now();
            let mut wait = FIRST_REPORT;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                println!("--- {title}: {} s", started.elapsed().as_secs());
                wait = REPORT_INTERVAL;
            }
        });
        let outcome = work();
        // Disconnects the channel, also if `work` panics.
        drop(running);
        outcome
    })
}

/// Steps and their results, in order.
#[derive(Debug)]
pub(crate) struct Steps {
    chore: &'static str,
    done: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    took: Duration,
    failed: bool,
}

impl Steps {
    pub(crate) fn of(chore: &'static str) -> Self {
        Self { chore, done: Vec::new() }
    }

    /// Returns whether no step has failed yet.
    pub(crate) fn passed(&self) -> bool {
        self.done.iter().all(|step| !step.failed)
    }

    /// Runs one step and returns whether it succeeded. A failure is printed and counted in [`Steps::finish`].
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> bool {
        let title = format!("{}: step {}, {name}", self.chore, self.done.len() + 1);
        println!("\n=== {title}");
        let started = Instant::now();
        let outcome = with_progress(&title, work);
        if let Err(error) = &outcome {
            eprintln!("error: {error:#}");
        }
        self.done.push(Step { name, took: started.elapsed(), failed: outcome.is_err() });
        outcome.is_ok()
    }

    /// Prints one line per step.
    ///
    /// # Errors
    /// If a step failed.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n=== {}: summary", self.chore);
        for Step { name, took, failed } in &self.done {
            let verdict = if *failed { "FAILED" } else { "ok" };
            println!("{verdict:>6}  {name} ({:.1} s)", took.as_secs_f64());
        }
        let failed: Vec<_> = self.done.iter().filter(|step| step.failed).map(|step| step.name).collect();
        match failed.as_slice() {
            [] => Ok(()),
            names => bail!("{} failed: {}", self.chore, names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_steps_run_after_failure() {
        let mut steps = Steps::of("chore");
        assert!(!steps.step("first", || bail!("broken")));
        assert!(steps.step("second", || Ok(())));
        assert_eq!(steps.finish().unwrap_err().to_string(), "chore failed: first");
    }
}
