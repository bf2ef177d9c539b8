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
    steps.step("without planted defects", without_planted_defects);
    steps.step("documentation", documentation);
    steps.step("build size", build_times::check_dev);
    steps.finish()
}

fn clippy() -> Result<()> {
    must(cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]))
}

/// Builds the Env as users get it. In a build of the whole workspace it has the feature `planted`, because the tests of
/// the simulation have: only alone does it show that nothing can be planted without.
fn without_planted_defects() -> Result<()> {
    must(cargo().args(["check", "--package", "windlass-env", "--all-targets", "--locked"]))
}

/// Documentation that warns is wrong: a link that is broken, or leads to what readers cannot see.
fn documentation() -> Result<()> {
    let mut rustdoc = cargo();
    rustdoc.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "--deny warnings");
    must(&mut rustdoc)
}
