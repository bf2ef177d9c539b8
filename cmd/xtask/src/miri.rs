//! `cargo xtask miri`: the parts that many threads or many owners share, under an interpreter that objects to undefined
//! behaviour, data races and leaks.
//!
//! Nothing here has `unsafe` of its own; what is looked at is how it uses the libraries that do (imbl, arc-swap, tokio,
//! hashbrown), under memory orders that this machine never shows. It needs a nightly toolchain with `miri`:
//! `rustup +nightly component add miri`.

use anyhow::Result;

use crate::steps::Steps;
use crate::workspace::{must, nightly};

/// What is interpreted: packages, and the tests whose names contain one of these. The others take too long, or say
/// nothing about threads; every order of the queue's threads is what `tests/models` of its crate goes through.
const SHARED: &[(&str, &[&str])] = &[
    ("windlass-env", &["cell", "waiters"]),
    ("windlass-informer", &["processor::", "store::", "indexer::"]),
    ("windlass-workqueue", &["tests::workers::", "tests::tenants::"]),
];

/// Interprets them.
///
/// # Errors
/// When the interpreter objects, or a test fails.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::of("miri");
    for (package, names) in SHARED {
        steps.step(package, || {
            let mut command = nightly();
            command.args(["miri", "test", "--package", package, "--lib", "--"]).args(*names);
            // Tests may read the clock. Eight cases are many where each takes a thousand times as long.
            must(command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "8"))
        });
    }
    steps.finish()
}
