//! `cargo xtask bench`: measures Windlass next to its peers and prints one table.
//!
//! Guarantees: the measured programs are release builds of this checkout, and the controller manager is the binary of
//! the image. All builds of a scenario finish before its first measurement. Results of scenarios that do not run are
//! kept.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use windlass_harness::Assets;

use crate::image::build_binary;
use crate::programs::program;
use crate::workspace::{cargo, must, remove_package_variables, root, target_directory};

/// Scenarios and number of rounds.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scenarios to run; all scenarios by default.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// Number of rounds; each measures all contenders in turn.
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Numbers of Pods of the scenario `cache`, separated by commas. Curves need at least two.
    #[arg(long, default_value = "10000", value_name = "NUMBERS")]
    pods: String,

    /// Folder of the results; `bench` in the target directory by default.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// Write the table to `docs/performance.md` and the curves to `docs/performance/`.
    #[arg(long)]
    update_docs: bool,
}

/// A workload, or several workloads that one module of `tests/benchmarks/src/scenarios/` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    /// Caches of Pods: memory per Pod, peak memory, CPU time and elapsed time until synced.
    Cache,
    /// The work queues: nanoseconds and allocations per key.
    Queue,
    /// The shared informers: nanoseconds per event, and the time for which readers block the writer.
    Informer,
    /// The controller managers: times, CPU time and memory while one ReplicaSet is scaled up and down.
    Managers,
    /// The API servers: requests per second.
    Servers,
}

impl Scenario {
    const ALL: [Scenario; 5] =
        [Scenario::Cache, Scenario::Queue, Scenario::Informer, Scenario::Managers, Scenario::Servers];

    const fn name(self) -> &'static str {
        match self {
            Scenario::Cache => "cache",
            Scenario::Queue => "queue",
            Scenario::Informer => "informer",
            Scenario::Managers => "managers",
            Scenario::Servers => "servers",
        }
    }

    /// Returns the program of `tests/black-box` that measures on a control plane.
    const fn control_plane_program(self) -> Option<&'static str> {
        match self {
            Scenario::Managers => Some("scale"),
            Scenario::Servers => Some("server"),
            Scenario::Cache | Scenario::Queue | Scenario::Informer => None,
        }
    }
}

/// Builds all programs, then measures.
///
/// # Errors
/// If a build or a measurement fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let scenarios =
        if arguments.scenarios.is_empty() { Scenario::ALL.to_vec() } else { arguments.scenarios.clone() };
    must(cargo().args(["build", "--locked", "--release", "--package", "windlass-benchmarks", "--bins"]))?;
    let target = target_directory()?;
    let mut bench = Command::new(target.join("release").join("bench"));
    // The program builds peers with cargo.
    remove_package_variables(&mut bench);
    build_for_control_plane(&scenarios, &mut bench)?;
    bench.args(["--rounds", &arguments.rounds.to_string(), "--pods", &arguments.pods, "--output"]);
    bench.arg(arguments.output.clone().unwrap_or_else(|| target.join("bench")));
    if arguments.update_docs {
        bench.arg("--document").arg(root().join("docs").join("performance.md"));
    }
    must(bench.args(scenarios.iter().map(|scenario| scenario.name())))
}

/// Builds the programs of scenarios that need a control plane.
fn build_for_control_plane(scenarios: &[Scenario], bench: &mut Command) -> Result<()> {
    let programs: Vec<&str> =
        scenarios.iter().filter_map(|scenario| scenario.control_plane_program()).collect();
    if programs.is_empty() {
        return Ok(());
    }
    Assets::ensure()?;
    programs.iter().try_for_each(|name| must(&mut program("build", name)))?;
    if scenarios.contains(&Scenario::Managers) {
        bench.env("WINDLASS_BIN", build_binary()?);
    }
    Ok(())
}
