//! `cargo xtask chart`: generates roles, default values and documentation of the Helm charts, or packages the charts.
//!
//! The roles are those that the built programs print. The tests of `windlass-deploy` fail if a committed file is
//! outdated.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use windlass_deploy::charts::{self, Program};

use crate::programs::executable;
use crate::workspace::{cargo, must, output, root};

/// The charts of a release.
const CHARTS: [&str; 2] = ["deploy/charts/operator-base", "deploy/charts/windlass"];

/// Selection of the output.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Writes the packages of the charts into this folder, and generates nothing.
    #[arg(long, value_name = "PATH")]
    package: Option<PathBuf>,
}

/// Writes the generated files, or the packages.
///
/// # Errors
/// If a program cannot be built or run, or a file cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.package.as_deref().map_or_else(generate, package)
}

/// Packages the charts with their dependencies.
fn package(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let folder = std::path::absolute(folder)?;
    let helm = windlass_harness::helm()?;
    for chart in CHARTS {
        let helm =
            |arguments: &[&str]| must(Command::new(&helm).current_dir(root()).args(arguments).arg(chart));
        helm(&["dependency", "build"])?;
        let folder = folder.to_str().context("the name of the folder is not UTF-8")?;
        helm(&["package", "--destination", folder])?;
    }
    Ok(())
}

fn generate() -> Result<()> {
    for file in charts::generate(&print)? {
        let path = root().join(&file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        std::fs::write(&path, &file.text).with_context(|| format!("cannot write {}", path.display()))?;
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
