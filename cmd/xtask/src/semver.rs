//! `cargo xtask semver`: compares the API of the published crates with the last release.
//!
//! The last release is the newest tag `v*` before this commit. cargo-semver-checks builds the documentation of both
//! versions, and fails if a change of the API needs a larger change of the version.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::packages::Workspace;
use crate::tools::{Source, Tool};
use crate::workspace::{must, output, remove_package_variables, root};

const TOOL: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    source: Source::Crate { features: "" },
    duration: "several minutes",
};

/// Compares the API with the last release. Reports if no release exists.
///
/// # Errors
/// If the version does not state a change, or if git or the tool fails.
pub(crate) fn run() -> Result<()> {
    let Some(release) = last_release()? else {
        println!("API NOT COMPARED: there is no release before this commit");
        return Ok(());
    };
    let workspace = Workspace::read()?;
    let mut check = Command::new(TOOL.path()?);
    check.current_dir(root()).args(["semver-checks", "--baseline-rev", &release]);
    check.args(workspace.published().iter().map(|package| format!("--package={}", package.name)));
    remove_package_variables(&mut check);
    must(&mut check)
}

/// Returns the newest tag of a release before this commit.
fn last_release() -> Result<Option<String>> {
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(root()).args(arguments));
    let is_shallow = git(&["rev-parse", "--is-shallow-repository"])?;
    ensure!(
        is_shallow.trim() == "false",
        "the checkout is shallow, so releases can be missing; fetch the history"
    );
    // A tag of this commit is the release that is checked.
    let merged = git(&["tag", "--list", "v*", "--sort=-v:refname", "--merged=HEAD", "--no-contains=HEAD"]);
    let tags = merged.context("the releases are unknown")?;
    Ok(tags.lines().next().map(str::to_owned))
}
