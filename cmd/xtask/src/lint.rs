//! `cargo xtask lint`: runs all static checks.
//!
//! Fast steps come first. All steps run, even after a failure.

use anyhow::Result;

use crate::steps::Steps;
use crate::workspace::{cargo, must, root};
use crate::{book, build_times, dependencies, packages, tidy, workflows};

/// Runs all checks.
///
/// # Errors
/// If any check fails.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::of("lint");
    steps.step("formatting", || must(cargo().args(["fmt", "--all", "--check"])));
    steps.step("tidy", || tidy::run(&root()));
    steps.step("book", book::run);
    steps.step("workflows", workflows::check);
    steps.step("dependencies", dependencies::check);
    steps.step("packages", packages::check);
    steps.step("clippy", clippy);
    steps.step("documentation", documentation);
    steps.step("build size", build_times::check_dev);
    steps.finish()
}

fn clippy() -> Result<()> {
    let mut clippy = cargo();
    // The tests compile without the second feature.
    let features = "--features=windlass-mutants/hunts,windlass-controller-manager/opentelemetry";
    clippy.args(["clippy", "--workspace", "--all-targets", features, "--locked"]);
    must(clippy.args(["--", "--deny", "warnings"]))
}

/// Builds the documentation and rejects warnings, such as broken or private links.
fn documentation() -> Result<()> {
    let mut rustdoc = cargo();
    rustdoc.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "--deny warnings");
    must(&mut rustdoc)
}
