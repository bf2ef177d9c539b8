//! Release builds of the programs that measurements and the soak test run.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::workspace::cargo;

/// Package of the programs that need a control plane.
const PACKAGE: [&str; 4] = ["--locked", "--release", "--package", "windlass-black-box"];

/// Returns the cargo command for a program that needs a control plane.
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
