//! `cargo xtask miri`: the parts that many threads or many owners share, under an interpreter that objects to undefined
//! behavior, data races, leaks, and threads that all wait for each other.
//!
//! Nothing here has `unsafe` of its own; what is looked at is how it uses the libraries that do (imbl, arc-swap, tokio,
//! hashbrown), under memory orders that this machine never shows, and whether a wakeup is lost. Each seed has the threads
//! take other turns. It needs a nightly toolchain with `miri`: `rustup +nightly component add miri`.
//!
//! A test that belongs here is in a module called `threads`, needs no socket and no TLS, which cannot be interpreted, and
//! does under `cfg(miri)` a few rounds of what it does a thousand times otherwise.

use anyhow::{Result, bail};
use clap::Args;

use crate::steps::Steps;
use crate::workspace::{must, nightly};

/// What `cargo xtask miri` is told.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Under how many seeds each part is interpreted; they run side by side.
    #[arg(default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// Only the part of this package, for instance windlass-workqueue.
    #[arg(long)]
    part: Option<String>,
}

/// What is interpreted: packages, and the tests whose names contain one of these. Every order of the queue's threads and of
/// the fan-out's is next to this what the models go through (`runtime/workqueue/tests/models`, `tests/models`).
const SHARED: &[(&str, &[&str])] = &[
    ("windlass-env", &["threads::", "cells::", "aside::"]),
    ("windlass-workqueue", &["threads::", "on_real_threads_"]),
    ("windlass-client", &["threads::"]),
    ("windlass-informer", &["threads::", "many_readers_"]),
    ("windlass-controller", &["threads::"]),
    ("windlass-admin", &["threads::"]),
    ("windlass-sharding", &["threads::"]),
];

/// Interprets them.
///
/// # Errors
/// When the interpreter objects, a test fails, or there is no such part.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { seeds, part } = arguments;
    let is_part = |package: &str| part.as_deref().is_none_or(|part| part == package);
    if let Some(part) = part
        && !SHARED.iter().any(|(package, _)| is_part(package))
    {
        bail!("no part is called {part}: name one of SHARED in cmd/xtask/src/miri.rs, or none for all");
    }
    let mut steps = Steps::of("miri");
    for (package, names) in SHARED.iter().filter(|(package, _)| is_part(package)) {
        steps.step(package, || {
            let mut command = nightly();
            command.args(["miri", "test", "--package", package, "--lib", "--"]).args(*names);
            must(command.env("MIRIFLAGS", format!("-Zmiri-many-seeds=0..{seeds}")))
        });
    }
    steps.finish()
}
