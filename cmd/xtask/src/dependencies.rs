//! cargo-deny: licences, sources, duplicates and known weaknesses of what we depend on.
//!
//! The tool is compiled once, at a pinned version, into the user's cache. The database of advisories comes over the
//! network; where there is none, everything else is still checked and the output says what was not.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{cache, cargo, must, root};

/// The version that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// Checks the dependency graph.
///
/// # Errors
/// If the tool cannot be had, or objects to something.
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

/// The tool's path; compiled now if it is not there in this version.
fn tool() -> Result<PathBuf> {
    let folder = cache()?.join("tools").join(format!("cargo-deny-{VERSION}"));
    let path = folder.join("bin").join("cargo-deny");
    if path.is_file() {
        return Ok(path);
    }
    println!("compiling cargo-deny {VERSION}, once for this user (about a minute)");
    // Unoptimised and without what only its own network access needs: it runs for two seconds.
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
    // Its own folder, so that the workspace's build output stays the workspace's.
    install.env_remove("CARGO_TARGET_DIR");
    must(&mut install)?;
    Ok(path)
}
