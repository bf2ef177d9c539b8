//! `cargo xtask chart`: generates roles, default values and documentation of the Helm charts.
//!
//! The roles are those that the built programs print. The tests of `windlass-deploy` fail if a committed file is
//! outdated.

use anyhow::{Context as _, Result};
use windlass_deploy::charts::{self, Program};

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
    let selected = match program {
        Program::Windlass => ["windlass-controller-manager", "windlass"],
        Program::Sites => ["windlass-examples", "sites"],
    };
    let [package, binary] = selected;
    let mut command = cargo();
    command.args(["run", "--quiet", "--locked", "--package", package, "--bin", binary, "--"]);
    output(command.args(arguments))
}
