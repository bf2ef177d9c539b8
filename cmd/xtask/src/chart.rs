//! `cargo xtask chart`: generates roles, default values and documentation of the Helm charts.
//!
//! The roles are those that the built programs print. The tests of `windlass-deploy` fail if a committed file is
//! outdated.

use std::process::Command;

use anyhow::{Context as _, Result};
use windlass_deploy::charts::{self, Program};

use crate::programs::executable;
use crate::workspace::{cargo, output, root};

/// Writes the generated files.
///
/// # Errors
/// If a program cannot be built or run, or a file cannot be written.
pub(crate) fn run() -> Result<()> {
    for file in charts::generate(&print)? {
        let path = root().join(&file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        std::fs::write(&path, &file.text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn print(program: Program, arguments: &[&str]) -> Result<String> {
    let binary = match program {
        Program::Windlass => "windlass",
        Program::SiteOperator => "site-operator",
    };
    // With the features of the whole workspace, as in tests, so that nothing is compiled twice.
    let mut build = cargo();
    build.args(["build", "--locked", "--workspace", "--bin", binary]);
    let path = executable(build.arg("--message-format=json-render-diagnostics"))?;
    output(Command::new(path).args(arguments))
}
