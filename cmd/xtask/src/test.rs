//! `cargo xtask test`: runs all tests, including their setup.
//!
//! Guarantees: provides the requirements of the tests (the control plane, Helm and Prometheus, if they are not in the
//! user's cache, and the binary under test) before the first test starts. Runs all tests of the workspace even if some
//! fail, and without arguments the hunts of the mutated copy. An ignored test counts as a failure. Without arguments it
//! also generates an operator, builds it, runs its tests, and the tests of the charts install this operator. With
//! `--image` it also builds the image twice and compares the digests.

mod lanes;
mod project;

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use windlass_harness::Assets;

use crate::steps::Steps;
use crate::workspace::{cargo, must};
use crate::{image, mutants};

/// Selection of the tests.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Also builds the image twice, about 20 minutes, and fails if the digests differ.
    #[arg(long)]
    image: bool,

    /// Arguments for `cargo test`: packages (`-p windlass-env`), names of tests, `-- --nocapture`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    cargo_arguments: Vec<String>,
}

/// Builds the requirements, runs the tests, and prints a summary.
///
/// # Errors
/// If anything cannot be built, or a test fails or is ignored.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut steps = Steps::of("test");
    let mut ready = steps.step("control plane", || Assets::ensure().map(drop));
    ready &= steps.step("helm", || windlass_harness::helm().map(drop));
    ready &= steps.step("prometheus", || windlass_harness::prometheus().map(drop));
    // A run of the whole workspace builds the binary with the same features as its tests, before any test starts.
    if ready && names_packages(&arguments.cargo_arguments) {
        ready = steps.step("binary", || {
            must(cargo().args(["build", "--locked", "-p", "windlass-controller-manager"]))
        });
    }
    let mut tally = TestTotals::default();
    if ready {
        match &arguments.cargo_arguments[..] {
            [] => all(&mut steps, &mut tally),
            selected => drop(steps.step("tests", || cargo_test(selected, &mut tally))),
        }
    }
    if arguments.image && steps.passed() {
        steps.step("image", || image::run(&image::Arguments::verification()));
    }
    println!("\n{tally}");
    steps.finish()
}

/// Runs every test of the workspace, and the hunts.
fn all(steps: &mut Steps, tally: &mut TestTotals) {
    let mut programs = Vec::new();
    let built = steps.step("build", || {
        programs = lanes::build()?;
        Ok(())
    });
    if built {
        let mut project = None;
        steps.step("new operator", || {
            let built = project::build()?;
            programs.extend(built.programs);
            project = Some(built.folder);
            Ok(())
        });
        steps.step("tests", || {
            lanes::run(programs, project.as_deref(), tally)?;
            check_ignored(tally)
        });
    }
    steps.step("mutants", || mutants::run(&mutants::Arguments::default()));
}

/// Runs `cargo test` with these arguments.
fn cargo_test(arguments: &[String], tally: &mut TestTotals) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--locked", "--no-fail-fast"]);
    if !names_packages(arguments) {
        command.arg("--workspace");
    }
    let mut child =
        command.args(arguments).stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    let output = child.stdout.take().context("cargo test has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read the output of cargo test")?;
        tally.read(&line);
        println!("{line}");
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    ensure!(status.success(), "cargo test failed ({status})");
    check_ignored(tally)
}

fn check_ignored(tally: &TestTotals) -> Result<()> {
    ensure!(tally.ignored == 0, "{} tests were ignored", tally.ignored);
    Ok(())
}

fn names_packages(arguments: &[String]) -> bool {
    let own = arguments.iter().take_while(|word| *word != "--");
    own.clone().any(|word| word.starts_with("-p") || word == "--package" || word.starts_with("--package="))
}

/// Sum of the result lines of all test programs.
#[derive(Debug, Default)]
struct TestTotals {
    programs: usize,
    passed: usize,
    failed: usize,
    ignored: usize,
    failures: Vec<String>,
    /// First lines of the output of each failed test, below its name.
    outputs: Vec<String>,
    /// Lines that are still added to the last output.
    open: usize,
}

/// Lines of a failed test's output in the summary, which must stay readable where a log is cut to its end.
const OUTPUT_LINES: usize = 12;

/// Characters of such a line.
const OUTPUT_WIDTH: usize = 400;

impl TestTotals {
    fn read(&mut self, line: &str) {
        self.read_output(line);
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        self.programs += 1;
        self.passed += count(counts, " passed");
        self.failed += count(counts, " failed");
        self.ignored += count(counts, " ignored");
    }

    /// Reads the section of outputs that follows the results: `---- name stdout ----`, then lines.
    fn read_output(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.outputs.push(line.to_owned());
            self.open = OUTPUT_LINES;
        } else if line == "failures:" {
            self.open = 0;
        } else if let Some(output) = self.outputs.last_mut().filter(|_| self.open > 0 && !line.is_empty()) {
            output.push('\n');
            output.extend(line.chars().take(OUTPUT_WIDTH));
            self.open -= 1;
        }
    }
}

/// Returns the number before a word, as in `12 passed`.
fn count(counts: &str, word: &str) -> usize {
    let before = counts.split(word).next().unwrap_or_default();
    before.rsplit([' ', ';']).next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

impl fmt::Display for TestTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, passed, failed, ignored, failures, outputs, .. } = self;
        write!(f, "{passed} tests passed, {failed} failed, {ignored} ignored, in {programs} programs")?;
        failures.iter().try_for_each(|name| write!(f, "\n  FAILED {name}"))?;
        outputs.iter().try_for_each(|output| write!(f, "\n\n{output}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_programs_are_summed() {
        let mut tally = TestTotals::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "failures:",
            "",
            "---- a::c stdout ----",
            "",
            "thread 'a::c' panicked at a.rs:1:1:",
            "the reason",
            "",
            "failures:",
            "    a::c",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.01s",
            "test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            tally.read(line);
        }
        let expected = "42 tests passed, 1 failed, 2 ignored, in 2 programs\n  FAILED a::c\n\n\
            ---- a::c stdout ----\nthread 'a::c' panicked at a.rs:1:1:\nthe reason";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn named_package_replaces_the_workspace() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(names_packages(&words("-p windlass-env")));
        assert!(names_packages(&words("--package=windlass-env")));
        assert!(!names_packages(&words("some_test -- -p")));
    }
}
