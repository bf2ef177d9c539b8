//! `cargo xtask build-times`: measures the production binary and the cost of its build.
//!
//! The chore reports these figures as a table, and as JSON with `--json`:
//! - *Crates linked*: the packages that `cargo tree` resolves for the binary through normal dependencies, on the host
//!   target, with the features of `cargo build --package windlass-controller-manager`. Build scripts, procedural macros
//!   and their dependencies are excluded. The standard library is excluded too.
//! - *Machine code*: the sum of the sizes of all text symbols. The submodule `machine_code` describes how it attributes
//!   symbols to crates. The binary of the dev profile has the features of the whole workspace, as in tests.
//! - *Loadable bytes*: the size of the loadable segments in the file, which approximates the size of a stripped binary.
//! - *Build time*, with `--clean` only: elapsed time, and CPU time of cargo and all its child processes. The sources of
//!   the dependencies are fetched before the clock starts.
//!
//! Guarantees: the figures describe a binary that is built from this checkout; `--check` fails if the number of linked
//! crates or the machine code grew by more than 10 % since `--record`; only `--record` changes the recorded figures.

mod machine_code;
mod record;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::programs::executable;
use crate::workspace::{cargo, must, output, read, remove_directory, target_directory};
use machine_code::MachineCode;
use record::{Figures, Record};

/// The package of the production binary.
const PACKAGE: &str = "windlass-controller-manager";

/// The directory of clean builds, below the target directory.
const CLEAN_DIRECTORY: &str = "build-times";

/// Selects the profile, the report and the check.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Profile of the build.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,

    /// Builds in a fresh target directory and reports CPU time and elapsed time of that build.
    #[arg(long)]
    clean: bool,

    /// Fails if linked crates or machine code exceed the recorded figures by more than 10 %.
    #[arg(long, conflicts_with = "record")]
    check: bool,

    /// Writes linked crates and machine code to `cmd/xtask/build-size.json`.
    #[arg(long)]
    record: bool,

    /// File for the report as JSON.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// A cargo profile with recorded figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Profile {
    /// Unoptimized, as tests use it.
    Dev,
    /// Optimized, as clusters run it.
    Release,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }
}

/// Builds and measures the binary, prints the report, then checks or records the figures.
///
/// # Errors
/// Returns an error if the build or a measurement fails, or if the check finds growth.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let report = measure(arguments.profile, arguments.clean)?;
    print!("{report}");
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report).context("cannot encode the report")?;
        fs::write(path, json + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.check {
        check_figures(&report)?;
    }
    if arguments.record {
        record_figures(&report)?;
    }
    Ok(())
}

/// Builds the binary in the dev profile, prints the report, and compares it with the recorded figures.
///
/// # Errors
/// Returns an error if the build or a measurement fails, or if the figures grew.
pub(crate) fn check_dev() -> Result<()> {
    let report = measure(Profile::Dev, false)?;
    print!("{report}");
    check_figures(&report)
}

fn check_figures(report: &Report) -> Result<()> {
    Record::read()?.check(&report.target, report.profile.name(), report.figures())?;
    println!("build size is within the limit for profile {}", report.profile.name());
    Ok(())
}

fn record_figures(report: &Report) -> Result<()> {
    let mut record = Record::read()?;
    record.set(&report.target, report.profile.name(), report.figures());
    record.write()
}

/// The figures of one binary.
#[derive(Debug, Serialize)]
struct Report {
    target: String,
    profile: Profile,
    linked_crates: usize,
    /// Crates of this workspace among the linked crates.
    linked_workspace_crates: usize,
    machine_code: MachineCode,
    loadable_bytes: u64,
    /// The cost of a clean build; absent for a build that can reuse earlier output.
    clean_build: Option<BuildCost>,
}

impl Report {
    fn figures(&self) -> Figures {
        Figures { linked_crates: self.linked_crates as u64, machine_code_bytes: self.machine_code.total }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "windlass, profile {}, target {}\n", self.profile.name(), self.target)?;
        row(f, "crates linked", self.linked_crates)?;
        row(f, "  of this workspace", self.linked_workspace_crates)?;
        row(f, "machine code (bytes)", self.machine_code.total)?;
        for (name, bytes) in self.machine_code.parts() {
            row(f, &format!("  {name}"), bytes)?;
        }
        row(f, "loadable bytes", self.loadable_bytes)?;
        if let Some(BuildCost { cpu_seconds, elapsed_seconds }) = self.clean_build {
            row(f, "clean build, CPU (s)", format!("{cpu_seconds:.1}"))?;
            row(f, "clean build, elapsed (s)", format!("{elapsed_seconds:.1}"))?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<32} {value:>12}")
}

/// The cost of one build.
#[derive(Clone, Copy, Debug, Serialize)]
struct BuildCost {
    cpu_seconds: f64,
    elapsed_seconds: f64,
}

fn measure(profile: Profile, clean: bool) -> Result<Report> {
    let linked = LinkedCrates::from_tree(&output(cargo().args([
        "tree",
        "--locked",
        "--package",
        PACKAGE,
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ]))?);
    let target = host_target()?;
    let (binary, clean_build) = if clean { clean_build(profile, &target)? } else { warm_build(profile)? };
    let (machine_code, loadable_bytes) = machine_code::read(&binary, &linked.workspace_crate_names())?;
    Ok(Report {
        linked_crates: linked.all.len(),
        linked_workspace_crates: linked.workspace.len(),
        target,
        profile,
        machine_code,
        loadable_bytes,
        clean_build,
    })
}

fn build_command(profile: Profile) -> Command {
    let mut build = cargo();
    build.args(["build", "--locked", "--bin", "windlass", "--profile", profile.name()]);
    match profile {
        // The tests reuse this build, because it has the features of the whole workspace.
        Profile::Dev => build.arg("--workspace"),
        Profile::Release => build.args(["--package", PACKAGE]),
    };
    build.arg("--message-format=json-render-diagnostics");
    build
}

fn warm_build(profile: Profile) -> Result<(Vec<u8>, Option<BuildCost>)> {
    Ok((read(&executable(&mut build_command(profile))?)?, None))
}

/// Builds in a fresh target directory and deletes the directory afterwards.
fn clean_build(profile: Profile, target: &str) -> Result<(Vec<u8>, Option<BuildCost>)> {
    let directory = target_directory()?.join(CLEAN_DIRECTORY);
    remove_directory(&directory)?;
    must(cargo().args(["fetch", "--locked", "--target", target]))?;
    let (cpu_before, started) = (cpu_time_of_children()?, Instant::now());
    let path = executable(build_command(profile).arg("--target-dir").arg(&directory))?;
    let (elapsed, cpu) = (started.elapsed(), cpu_time_of_children()?.saturating_sub(cpu_before));
    let binary = read(&path)?;
    remove_directory(&directory)?;
    let cost = BuildCost { cpu_seconds: cpu.as_secs_f64(), elapsed_seconds: elapsed.as_secs_f64() };
    Ok((binary, Some(cost)))
}

fn host_target() -> Result<String> {
    let version = output(cargo().args(["--version", "--verbose"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("cargo --version --verbose printed no host target")?.to_owned())
}

/// Returns the user and system time of all children that this process has waited for, with their own children.
fn cpu_time_of_children() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let ticks = child_ticks(&stat).context("/proc/self/stat contains no CPU times")?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Returns the sum of `cutime` and `cstime`, fields 16 and 17 of a `stat` file.
fn child_ticks(stat: &str) -> Option<u64> {
    // The name in field 2 can contain spaces and parentheses. Field 3 is the first one after it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(16 - 3);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// The packages that the binary links, each with its version.
#[derive(Debug, Default, PartialEq, Eq)]
struct LinkedCrates {
    all: BTreeSet<String>,
    /// Names of the packages with a path, which are those of this workspace.
    workspace: BTreeSet<String>,
}

impl LinkedCrates {
    /// Reads the output of `cargo tree`: name, version, and the path if the package has one.
    fn from_tree(tree: &str) -> Self {
        let mut linked = Self::default();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let line = line.trim_end_matches(" (*)");
            let mut words = line.splitn(3, ' ');
            let name = words.next().unwrap_or_default();
            if words.nth(1).is_some_and(|path| path.starts_with("(/")) {
                linked.workspace.insert(name.to_owned());
            }
            linked.all.insert(line.to_owned());
        }
        linked
    }

    fn workspace_crate_names(&self) -> BTreeSet<String> {
        self.workspace.iter().map(|name| name.replace('-', "_")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_crates_are_counted_once_per_version() {
        let linked = LinkedCrates::from_tree(
            "windlass-controller-manager v0.1.0 (/w/cmd/controller-manager)\nbase64 v0.22.1\nbase64 v0.23.1\n\
             base64 v0.23.1 (*)\nwindlass-env v0.1.0 (/w/runtime/env)\nwindlass-env v0.1.0 (/w/runtime/env) (*)\n",
        );
        assert_eq!(linked.all.len(), 4, "{linked:?}");
        let names: Vec<_> = linked.workspace_crate_names().into_iter().collect();
        assert_eq!(names, ["windlass_controller_manager", "windlass_env"]);
    }

    #[test]
    fn child_ticks_are_read_after_name_with_parentheses() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 200 0 0 11 12 300 40 20 0 1 0 5";
        assert_eq!(child_ticks(stat), Some(340));
        assert_eq!(child_ticks("7 (a) S 1"), None);
    }
}
