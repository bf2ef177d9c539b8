//! Runs cargo-deny: licenses, sources, duplicates and known vulnerabilities of the dependencies.
//!
//! The advisory database is fetched from the network. Without a network `cargo xtask lint` still runs the other checks,
//! and its output names the missing one; `cargo xtask advisories` fails.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::tools::{Source, Tool};
use crate::workspace::{must, root};

/// The version for which `deny.toml` is written, without most network features.
const TOOL: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    source: Source::Crate { features: "" },
    duration: "about a minute",
};

/// Checks the dependency graph.
///
/// # Errors
/// If the tool cannot be installed, or reports a violation.
pub(crate) fn check() -> Result<()> {
    let tool = TOOL.path()?;
    must(deny(&tool).args(["check", "bans", "licenses", "sources"]))?;
    let fetched = deny(&tool).args(["fetch", "db"]).output().context("cannot start cargo-deny")?;
    if !fetched.status.success() {
        println!("advisories NOT CHECKED: the database could not be fetched; the other checks have passed");
        return Ok(());
    }
    must(deny(&tool).args(["check", "--disable-fetch", "advisories"]))
}

/// Checks the dependencies for known vulnerabilities and withdrawn versions.
///
/// # Errors
/// If there is one, the tool cannot be installed, or the database cannot be fetched.
pub(crate) fn check_advisories() -> Result<()> {
    must(deny(&TOOL.path()?).args(["check", "advisories"]))
}

fn deny(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(root()).args(["--log-level", "warn"]);
    command
}
