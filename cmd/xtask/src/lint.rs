//! `cargo xtask lint`: everything that can be said about the code without running it.
//!
//! Cheap steps come first. All of them run, whatever the others say.

use anyhow::Result;

use crate::steps::Steps;
use crate::workspace::{cargo, must, root};
use crate::{dependencies, tidy};

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
    steps.finish()
}

fn clippy() -> Result<()> {
    must(cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]))
}

/// Documentation that warns is wrong: a link that is broken, or leads to what readers cannot see.
fn documentation() -> Result<()> {
    let mut rustdoc = cargo();
    rustdoc.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "--deny warnings");
    must(&mut rustdoc)
}
