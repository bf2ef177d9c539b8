//! Runs cargo-deny: licenses, sources, duplicates and known vulnerabilities of the dependencies.
//!
//! The tool is compiled once, at a pinned version, into the user's cache. The advisory database is fetched from the
//! network; without a network the other checks still run, and the output names the missing one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{cache, cargo, must, root};

/// Version for which `deny.toml` is written.
const VERSION: &str = "0.20.2";

/// Checks the dependency graph.
///
/// # Errors
/// If the tool cannot be installed, or reports a violation.
pub(crate) fn check() -> Result<()> {
    let tool = tool()?;
    must(deny(&tool).args(["check", "bans", "licenses", "sources"]))?;
    let fetched = deny(&tool).args(["fetch", "db"]).output().context("cannot start cargo-deny")?;
    if !fetched.status.success() {
        println!("advisories NOT CHECKED: the database could not be fetched; the other checks have passed");
        return Ok(());
    }
    must(deny(&tool).args(["check", "--disable-fetch", "advisories"]))
}

fn deny(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(root()).args(["--log-level", "warn"]);
    command
}

/// Returns the path of the tool. Compiles it first if this version is missing.
fn tool() -> Result<PathBuf> {
    let folder = cache()?.join("tools").join(format!("cargo-deny-{VERSION}"));
    let path = folder.join("bin").join("cargo-deny");
    if path.is_file() {
        return Ok(path);
    }
    println!("compiling cargo-deny {VERSION}, once for this user (about a minute)");
    // Unoptimized and without most network features: it runs for two seconds.
    let mut install = cargo();
    install.args([
        "install",
        "cargo-deny",
        "--version",
        VERSION,
        "--locked",
        "--debug",
        "--no-default-features",
    ]);
    install.args(["--config", "profile.dev.debug=false", "--root"]).arg(&folder);
    // A separate folder, so that the build output of the workspace is not replaced.
    install.env_remove("CARGO_TARGET_DIR");
    must(&mut install)?;
    Ok(path)
}
