//! `cargo xtask soak`: runs one process under churn and faults on a real control plane, and checks its resource usage.
//!
//! Guarantees: the process is the binary of the image, from this checkout, and is built before the clock starts. The
//! command fails if memory, threads, open files or tasks grow.

use anyhow::Result;
use windlass_harness::Assets;

use crate::image::build_binary;
use crate::programs::program;
use crate::workspace::must;

/// Duration of the run.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Minutes of churn. Growth is reported in bytes per created object: in 15 minutes, with several thousand objects,
    /// a leak of 1 KiB per object is detected.
    #[arg(long, default_value_t = 15, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
}

/// Builds all programs, then runs the churn.
///
/// # Errors
/// If a build or a start fails, or if the resource usage grows.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    Assets::ensure()?;
    let windlass = build_binary()?;
    must(&mut program("build", "soak"))?;
    let minutes = arguments.minutes.to_string();
    must(program("run", "soak").args(["--quiet", "--", &minutes]).env("WINDLASS_BIN", windlass))
}
