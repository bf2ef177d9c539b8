//! `cargo xtask miri`: runs the tests of data structures that threads share under Miri, which reports undefined
//! behavior, data races, leaks and deadlocks.
//!
//! This workspace has no `unsafe` code. The tests check its use of libraries with such code (imbl, arc-swap, tokio,
//! hashbrown) under memory orders that this machine never produces, and lost wakeups. Each seed uses another schedule
//! of the threads. Needs a nightly toolchain with `miri`: `rustup +nightly component add miri`.
//!
//! Tests for Miri are in modules called `threads`, use neither sockets nor TLS, which Miri does not support, and run
//! fewer rounds under `cfg(miri)`.

use anyhow::{Result, bail};
use clap::Args;

use crate::steps::Steps;
use crate::workspace::{must, nightly};

/// Arguments of `cargo xtask miri`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Number of seeds for each package; they run in parallel.
    #[arg(default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// Runs only this package, for example windlass-workqueue.
    #[arg(long = "part")]
    package: Option<String>,
}

/// Packages, and substrings of the names of their tests. Loom checks all orders of the queue and the fan-out in
/// addition (`runtime/workqueue/tests/models`, `tests/models`).
const SHARED: &[(&str, &[&str])] = &[
    ("windlass-env", &["threads::", "cells::", "dedicated_runtime::"]),
    ("windlass-workqueue", &["threads::", "real_threads"]),
    ("windlass-client", &["threads::"]),
    ("windlass-informer", &["threads::", "readers_get_ordered_snapshots"]),
    ("windlass-controller", &["threads::"]),
    ("windlass-admin", &["threads::"]),
    ("windlass-serving", &["threads::"]),
    ("windlass-sharding", &["threads::"]),
];

/// Runs the tests of all packages, or of one.
///
/// # Errors
/// If Miri reports an error, a test fails, or the package is unknown.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { seeds, package } = arguments;
    let is_selected = |name: &str| package.as_deref().is_none_or(|package| package == name);
    if let Some(package) = package
        && !SHARED.iter().any(|(package, _)| is_selected(package))
    {
        bail!("unknown package {package}; use one of SHARED in cmd/xtask/src/miri.rs, or omit it for all");
    }
    let mut steps = Steps::of("miri");
    for (package, names) in SHARED.iter().filter(|(package, _)| is_selected(package)) {
        steps.step(package, || {
            let mut command = nightly();
            command.args(["miri", "test", "--package", package, "--lib", "--"]).args(*names);
            must(command.env("MIRIFLAGS", format!("-Zmiri-many-seeds=0..{seeds}")))
        });
    }
    steps.finish()
}
