//! `cargo xtask soak`: one process under churn and faults on a real control plane, and what it holds.
//!
//! Guarantees: what runs is built in release and from this checkout, before the clock starts; it fails when memory,
//! threads, open files or tasks grow.

use anyhow::Result;
use windlass_harness::Assets;

use crate::measure::{build_windlass, program};
use crate::workspace::must;

/// For how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many minutes of churn; it tells what grew in bytes for each object that was made. A quarter of an hour, several
    /// thousand objects, shows a leak of a kilobyte for each.
    #[arg(long, default_value_t = 15, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
}

/// Builds everything, then churns.
///
/// # Errors
/// When something cannot be built or started, or grows.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    Assets::ensure()?;
    let windlass = build_windlass()?;
    must(&mut program("build", "soak"))?;
    let minutes = arguments.minutes.to_string();
    must(program("run", "soak").args(["--quiet", "--", &minutes]).env("WINDLASS_BIN", windlass))
}
