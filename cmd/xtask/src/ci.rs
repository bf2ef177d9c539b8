//! `cargo xtask ci`: the checks that a change must pass, fastest first.

use anyhow::Result;

use crate::steps::Steps;
use crate::{lint, test};

/// Runs `lint` and `test`, even if the first fails.
///
/// # Errors
/// If either fails.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::of("ci");
    steps.step("lint", lint::run);
    steps.step("test", || test::run(&test::Arguments::default()));
    steps.finish()
}
