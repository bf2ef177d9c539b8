//! Progress of a campaign that takes long in real time.

use std::io::Write as _;
use std::time::Duration;

use windlass_env::{Env, Instant};

/// Real time between two lines of progress. A shorter campaign prints none.
const INTERVAL: Duration = Duration::from_secs(5);

/// Reports how many runs of a campaign have ended.
#[derive(Debug)]
pub(crate) struct Progress {
    env: Env,
    begun: Instant,
    printed: Instant,
    planned: String,
    ended: u64,
}

impl Progress {
    /// Starts to count the runs of a campaign with this number of runs.
    pub(crate) fn of(planned: u64) -> Self {
        Self::new(format!("{planned} runs"))
    }

    /// Starts to count the runs that reduce the plan of a failed run.
    pub(crate) fn of_reduction(limit: usize) -> Self {
        Self::new(format!("at most {limit} runs that reduce the plan of a failed run"))
    }

    fn new(planned: String) -> Self {
        let env = Env::system("campaign");
        let now = env.now();
        Self { env, begun: now, printed: now, planned, ended: 0 }
    }

    /// Counts a run that has ended. Prints a line if the last one is older than the interval.
    ///
    /// The line goes to stderr itself, because the test harness shows the output of `eprintln!` only after a failure.
    pub(crate) fn run_ended(&mut self) {
        self.ended += 1;
        let now = self.env.now();
        if now.saturating_duration_since(self.printed) < INTERVAL {
            return;
        }
        self.printed = now;
        let line = self.line(now.saturating_duration_since(self.begun));
        // A closed stderr must not fail the test.
        let _written = writeln!(std::io::stderr(), "{line}");
    }

    fn line(&self, elapsed: Duration) -> String {
        let current = std::thread::current();
        let test = current.name().unwrap_or("simulation");
        format!("{test}: {} of {} after {} s", self.ended, self.planned, elapsed.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_the_test_its_runs_and_the_time() {
        let mut progress = Progress::of(840);
        (0..120).for_each(|_| progress.run_ended());
        let line = progress.line(Duration::from_millis(12_400));
        let expected =
            "progress::tests::line_names_the_test_its_runs_and_the_time: 120 of 840 runs after 12 s";
        assert_eq!(line, expected);
        let mut reduction = Progress::of_reduction(200);
        reduction.run_ended();
        let line = reduction.line(Duration::from_secs(5));
        assert!(
            line.ends_with(": 1 of at most 200 runs that reduce the plan of a failed run after 5 s"),
            "{line}"
        );
    }
}
