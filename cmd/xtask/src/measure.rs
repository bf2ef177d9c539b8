//! `cargo xtask measure`: compares the controller managers, the API servers, or a part of the runtime with their
//! upstream counterparts.
//!
//! Guarantees: the measured programs are release builds of this checkout. All builds finish before the first
//! measurement starts.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use windlass_harness::Assets;

use crate::workspace::{cargo, must};

/// Package of the measurement programs.
const PACKAGE: [&str; 4] = ["--locked", "--release", "--package", "windlass-black-box"];

/// Subject and number of rounds.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of rounds; each measures both sides in turn.
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Component to compare with its upstream counterpart.
    #[arg(long, value_enum, default_value_t = Component::Managers)]
    what: Component,
}

/// Component to compare with its upstream counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Component {
    /// The controller managers: times, CPU seconds and memory while one ReplicaSet is scaled up and down.
    Managers,
    /// The API servers: requests per second.
    Servers,
    /// The work queues: nanoseconds and allocations per key.
    Queue,
    /// The shared informers: nanoseconds per event, and the time for which readers block the writer.
    Informer,
}

/// Builds all programs, then prints the measurements.
///
/// # Errors
/// If a build or a measurement fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let rounds = arguments.rounds.to_string();
    match arguments.what {
        Component::Managers => {
            Assets::ensure()?;
            let windlass = build_windlass()?;
            must(&mut program("build", "scale"))?;
            must(program("run", "scale").args(["--quiet", "--", &rounds]).env("WINDLASS_BIN", windlass))
        }
        Component::Servers => {
            Assets::ensure()?;
            must(&mut program("build", "server"))?;
            must(program("run", "server").args(["--quiet", "--", &rounds]))
        }
        Component::Queue => compare_with_peers("queue", &rounds),
        Component::Informer => compare_with_peers("informer", &rounds),
    }
}

/// Compares a part of the runtime with its counterparts. Needs Go, but no control plane.
fn compare_with_peers(name: &str, rounds: &str) -> Result<()> {
    let package = ["--locked", "--release", "--package", "windlass-benchmarks", "--bin", name];
    must(cargo().arg("run").args(package).args(["--", rounds]))
}

/// Returns the cargo command for a measurement or soak program.
pub(crate) fn program(chore: &str, name: &str) -> Command {
    let mut command = cargo();
    command.arg(chore).args(PACKAGE).args(["--bin", name]);
    command
}

/// Builds windlass in release mode and returns the path of the binary.
///
/// # Errors
/// If the build fails.
pub(crate) fn build_windlass() -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--locked", "--release", "--package", "windlass-controller-manager"]);
    executable(build.arg("--message-format=json-render-diagnostics"))
}

/// Runs a build and returns the path of the last program.
///
/// # Errors
/// If the build fails.
pub(crate) fn executable(build: &mut Command) -> Result<PathBuf> {
    let output = build.stderr(Stdio::inherit()).output().context("cannot start cargo build")?;
    if !output.status.success() {
        bail!("cargo build failed ({})", output.status);
    }
    let messages = String::from_utf8(output.stdout).context("output of cargo build is not UTF-8")?;
    last_executable(&messages).context("cargo build has built no program")
}

/// Fields of cargo's messages, one JSON object per line.
#[derive(Debug, Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

fn last_executable(messages: &str) -> Option<PathBuf> {
    let mut backwards = messages.lines().rev();
    backwards.find_map(|line| serde_json::from_str::<Message>(line).ok()?.executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","executable":null}
{"reason":"build-script-executed","package_id":"x"}
not JSON, as a build script may print
{"reason":"compiler-artifact","executable":"target/release/windlass"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(last_executable(messages), Some(PathBuf::from("target/release/windlass")));
        assert_eq!(last_executable(""), None);
    }
}
