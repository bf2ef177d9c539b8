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

/// Runs a build and returns the path of the last program.
///
/// # Errors
/// If the build fails.
pub(crate) fn executable(build: &mut Command) -> Result<PathBuf> {
    last_executable(&messages(build)?).context("cargo build has built no program")
}

/// Runs a build with `--message-format`, and returns cargo's messages: one JSON object per line, see [`Message`].
///
/// # Errors
/// If the build fails.
pub(crate) fn messages(build: &mut Command) -> Result<String> {
    let output = build.stderr(Stdio::inherit()).output().context("cannot start cargo build")?;
    if !output.status.success() {
        bail!("cargo build failed ({})", output.status);
    }
    String::from_utf8(output.stdout).context("output of cargo build is not UTF-8")
}

/// Fields of a message.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) executable: Option<PathBuf>,
    pub(crate) manifest_path: Option<PathBuf>,
    #[serde(default)]
    pub(crate) profile: Profile,
}

/// The profile of a built target.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Profile {
    /// Whether the target contains tests.
    pub(crate) test: bool,
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
