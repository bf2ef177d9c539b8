//! Runs the test programs of the workspace in two concurrent lanes.
//!
//! Programs that start a control plane mostly wait. The other programs mostly compute. Each lane runs one program after
//! the other. The computing lane has a lower priority, so that the waiting lane meets its deadlines on two cores.
//!
//! Guarantees: each program runs, even after the failure of another program. It runs in the folder of its package, as
//! with `cargo test`. Its output is printed as one block after it exits.

use std::ffi::OsString;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use super::TestTotals;
use crate::programs::{Message, messages};
use crate::workspace::{cargo, output};

/// Folders of the packages whose tests start control planes.
const WAITING_PACKAGES: [&str; 4] = ["tests/black-box", "tests/contract", "tests/deploy", "tests/harness"];

/// Tests of a waiting program that run at the same time: they use a fraction of a core each.
const WAITING_TESTS: &str = "4";

/// Niceness of the computing lane.
const NICENESS: i32 = 10;

/// A built test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    executable: PathBuf,
    /// The folder of its package.
    package: PathBuf,
}

/// Builds the test programs of the workspace.
///
/// # Errors
/// If the build fails.
pub(super) fn build() -> Result<Vec<Program>> {
    build_with(&mut cargo())
}

/// Builds the test programs of a workspace with its cargo.
///
/// # Errors
/// If the build fails.
pub(super) fn build_with(cargo: &mut Command) -> Result<Vec<Program>> {
    cargo.args(["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let programs = programs(&messages(cargo)?);
    ensure!(!programs.is_empty(), "cargo test has built no program");
    Ok(programs)
}

fn programs(messages: &str) -> Vec<Program> {
    let message = |line| {
        let Message { executable, manifest_path, profile } = serde_json::from_str(line).ok()?;
        let package = manifest_path?.parent()?.to_owned();
        Some(Program { executable: executable.filter(|_| profile.test)?, package })
    };
    messages.lines().filter_map(message).collect()
}

/// Runs all programs and the documentation tests, and adds their results. The tests of the charts install the operator
/// in the folder `project`, if there is one.
///
/// # Errors
/// If a program fails or cannot be started.
pub(super) fn run(programs: Vec<Program>, project: Option<&Path>, totals: &mut TestTotals) -> Result<()> {
    let libraries = library_folder()?;
    let command = |program: &Program| {
        let mut command = program.command(&libraries);
        command.envs(project.map(|folder| (windlass_deploy::PROJECT, folder)));
        command
    };
    let (waiting, computing): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::waits);
    let mut documentation = cargo();
    documentation.args(["test", "--locked", "--workspace", "--no-fail-fast", "--doc"]);
    let mut computing: Vec<_> = computing.iter().map(command).collect();
    computing.push(documentation);
    let mut waiting: Vec<_> = waiting.iter().map(command).collect();
    for program in &mut waiting {
        program.env("RUST_TEST_THREADS", WAITING_TESTS);
    }

    let count = waiting.len() + computing.len();
    let totals = Mutex::new((0, totals));
    let lane = |commands: Vec<Command>| {
        let outcomes: Vec<_> = commands.into_iter().map(|it| run_program(it, count, &totals)).collect();
        outcomes.into_iter().filter_map(Result::err).collect::<Vec<_>>()
    };
    let failures = std::thread::scope(|scope| {
        let computing = scope.spawn(|| match lower_priority() {
            Ok(()) => lane(computing),
            Err(error) => vec![error],
        });
        let mut failures = lane(waiting);
        failures.extend(computing.join().unwrap_or_else(|_| vec![anyhow::anyhow!("a lane panicked")]));
        failures
    });
    match &failures[..] {
        [] => Ok(()),
        failures => {
            let lines: Vec<_> = failures.iter().map(|failure| format!("{failure:#}")).collect();
            bail!("{} programs failed:\n  {}", failures.len(), lines.join("\n  "))
        }
    }
}

/// Returns the folder of the standard library, to which tests of procedural macros are linked dynamically.
fn library_folder() -> Result<OsString> {
    let mut query = Command::new("rustc");
    query.current_dir(crate::workspace::root()).args(["--print", "target-libdir"]);
    Ok(output(&mut query)?.trim().into())
}

impl Program {
    /// Returns whether the program belongs to the package in this folder.
    pub(super) fn is_in(&self, package: &Path) -> bool {
        self.package == package
    }

    fn waits(&self) -> bool {
        WAITING_PACKAGES.iter().any(|folder| self.package.ends_with(Path::new(folder)))
    }

    fn command(&self, libraries: &OsString) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command.env("LD_LIBRARY_PATH", libraries);
        command
    }
}

/// Lowers the priority of this thread and of the programs that it starts.
fn lower_priority() -> Result<()> {
    rustix::process::nice(NICENESS).map(drop).context("cannot lower the priority of a lane")
}

/// Runs one program of `count`, prints its output and adds its results. The number counts the programs that have ended.
fn run_program(mut command: Command, count: usize, totals: &Mutex<(usize, &mut TestTotals)>) -> Result<()> {
    let name = format!("{command:?}");
    let started = Instant::now();
    let (status, text) = run_captured(&mut command).with_context(|| format!("cannot run {name}"))?;
    let mut guard = totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (ended, totals) = &mut *guard;
    *ended += 1;
    println!("\n     Running {name} ({ended} of {count}, {:.1} s)\n{text}", started.elapsed().as_secs_f64());
    text.lines().for_each(|line| totals.read(line));
    ensure!(status.success(), "{name} ({status})");
    Ok(())
}

/// Runs a command and returns its output and error output in their order.
fn run_captured(command: &mut Command) -> Result<(ExitStatus, String)> {
    let mut file = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let status = command.status()?;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_messages_contain_test_programs() {
        let messages = r#"{"executable":null,"manifest_path":"/w/a/Cargo.toml","profile":{"test":true}}
{"reason":"build-script-executed","package_id":"x"}
{"executable":"/t/windlass","manifest_path":"/w/cmd/Cargo.toml","profile":{"test":false}}
{"executable":"/t/a-1","manifest_path":"/w/a/Cargo.toml","profile":{"test":true}}
{"executable":"/t/b-1","manifest_path":"/w/tests/black-box/Cargo.toml","profile":{"test":true}}"#;
        let found = programs(messages);
        let names: Vec<_> = found.iter().map(|it| (it.executable.to_str(), it.waits())).collect();
        assert_eq!(names, [(Some("/t/a-1"), false), (Some("/t/b-1"), true)]);
    }

    #[test]
    fn programs_of_a_lowered_thread_have_a_lower_priority() {
        let niceness = || output(&mut Command::new("nice")).expect("a number").trim().parse::<i32>();
        let lowered = || {
            let before = niceness().expect("a number");
            lower_priority().expect("lowered");
            (before, niceness().expect("a number"))
        };
        let (before, after) = std::thread::scope(|scope| scope.spawn(lowered).join()).expect("no panic");
        // The kernel limits the niceness to 19.
        assert_eq!(after, (before + NICENESS).min(19));
    }

    #[test]
    fn totals_contain_results_and_failures_of_each_program() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let mut totals = TestTotals::default();
        let shared = Mutex::new((0, &mut totals));
        run_program(shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored' >&2"), 2, &shared)
            .expect("passed");
        let failing =
            "echo 'test a ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101";
        let error = run_program(shell(failing), 2, &shared).expect_err("failed").to_string();
        assert!(error.contains("101"), "{error}");
        assert_eq!((totals.programs, totals.passed, totals.failed), (2, 3, 1));
        assert_eq!(totals.failures, ["a"]);
    }
}
