//! `cargo xtask measure`: both controller managers side by side, on planes of the same kind.
//!
//! Guarantees: what is measured is built in release and from this checkout; builds are over before
//! the first measurement begins.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use windlass_harness::Assets;

use crate::workspace::{cargo, must};

/// The program that measures.
const SCALE: [&str; 6] = ["--locked", "--release", "--package", "windlass-black-box", "--bin", "scale"];

/// How often to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many rounds, each measuring both managers in turn.
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
}

/// Builds everything, then prints both managers' times, CPU seconds and memory.
///
/// # Errors
/// When something cannot be built, or a measurement fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    Assets::ensure()?;
    let windlass = build_windlass()?;
    must(cargo().arg("build").args(SCALE))?;
    let rounds = arguments.rounds.to_string();
    must(cargo().args(["run", "--quiet"]).args(SCALE).args(["--", &rounds]).env("WINDLASS_BIN", windlass))
}

/// Builds windlass in release and returns where cargo has put it.
fn build_windlass() -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--locked", "--release", "--package", "windlass-controller-manager"]);
    executable(build.arg("--message-format=json-render-diagnostics"))
}

fn executable(build: &mut Command) -> Result<PathBuf> {
    let output = build.stderr(Stdio::inherit()).output().context("cannot start cargo build")?;
    if !output.status.success() {
        bail!("cargo build failed ({})", output.status);
    }
    let messages = String::from_utf8(output.stdout).context("cargo does not write UTF-8")?;
    last_executable(&messages).context("cargo has built no program")
}

/// What is read of cargo's messages, one JSON object per line.
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
    fn the_program_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","executable":null}
{"reason":"build-script-executed","package_id":"x"}
not JSON, as a build script may print
{"reason":"compiler-artifact","executable":"target/release/windlass"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(last_executable(messages), Some(PathBuf::from("target/release/windlass")));
        assert_eq!(last_executable(""), None);
    }
}
