//! The workloads. Each has one module.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::results::Sample;

mod cache;
mod informer;
mod queue;

/// Options of all scenarios.
#[derive(Clone, Debug)]
pub struct Context {
    /// Number of rounds. Each round measures all contenders in turn.
    pub rounds: u16,
    /// Numbers of Pods of the scenario `cache`.
    pub pods: Vec<usize>,
}

/// A function that receives each sample when it is measured.
pub type Record<'a> = &'a mut dyn FnMut(Sample) -> Result<()>;

/// A workload, or several workloads that one module measures.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name on the command line.
    pub name: &'static str,
    run: fn(&Context, Record<'_>) -> Result<()>,
}

/// All scenarios, in the order of the results.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "cache", run: cache::run },
    Scenario { name: "queue", run: queue::run },
    Scenario { name: "informer", run: informer::run },
    Scenario { name: "managers", run: |context, record| control_plane("scale", context, record) },
    Scenario { name: "servers", run: |context, record| control_plane("server", context, record) },
];

impl Scenario {
    /// Builds the contenders, then measures them.
    ///
    /// # Errors
    /// If a contender cannot be built or measured.
    pub fn run(&self, context: &Context, record: Record<'_>) -> Result<()> {
        (self.run)(context, record).with_context(|| format!("scenario {}", self.name))
    }
}

/// Returns the path of another program of this build.
fn own_program(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    ensure!(program.exists(), "{} is not built; use `cargo xtask bench`", program.display());
    Ok(program)
}

/// Runs a program of `tests/black-box` that measures on a real control plane and prints one sample per line.
fn control_plane(program: &str, context: &Context, record: Record<'_>) -> Result<()> {
    let mut command = Command::new(own_program(program)?);
    let output = command.arg(context.rounds.to_string()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{program} failed ({})", output.status);
    for line in String::from_utf8(output.stdout)?.lines() {
        record(serde_json::from_str(line).with_context(|| format!("{program} printed {line:?}"))?)?;
    }
    Ok(())
}
