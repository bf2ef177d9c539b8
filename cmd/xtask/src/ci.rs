//! `cargo xtask ci`: what a change must pass, in the order in which it is cheap to fail.

use anyhow::Result;

use crate::steps::Steps;
use crate::{lint, test};

/// Runs both halves, whatever the first says.
///
/// # Errors
/// If either fails.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::of("ci");
    steps.step("lint", lint::run);
    steps.step("test", || test::run(&test::Arguments::default()));
    steps.finish()
}
