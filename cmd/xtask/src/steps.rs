//! A task of several steps. Each step is announced, timed and reported, and the next steps run after a failure.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

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

    /// Runs one step and returns whether it succeeded. A failure is printed and counted in [`Steps::finish`].
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> bool {
        println!("\n=== {}: {name}", self.chore);
        let started = Instant::now();
        let outcome = work();
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
