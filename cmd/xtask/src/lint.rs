//! `cargo xtask lint`: everything that can be said about the code without running it.
//!
//! Cheap steps come first. All of them run, whatever the others say.

use anyhow::Result;

use crate::steps::Steps;
use crate::workspace::{cargo, must, root};
use crate::{build_times, dependencies, tidy};

/// Runs every check.
///
/// # Errors
/// If any check fails.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::of("lint");
    steps.step("formatting", || must(cargo().args(["fmt", "--all", "--check"])));
    steps.step("tidy", || tidy::run(&root()));
    steps.step("dependencies", dependencies::check);
    steps.step("clippy", clippy);
    steps.step("documentation", documentation);
    steps.step("build size", build_times::check_dev);
    steps.finish()
}

fn clippy() -> Result<()> {
    let mut clippy = cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--features=windlass-mutants/hunts", "--locked"]);
    must(clippy.args(["--", "--deny", "warnings"]))
}

/// Documentation that warns is wrong: a link that is broken, or leads to what readers cannot see.
fn documentation() -> Result<()> {
    let mut rustdoc = cargo();
    rustdoc.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "--deny warnings");
    must(&mut rustdoc)
}
