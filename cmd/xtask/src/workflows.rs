//! Runs actionlint: syntax, expressions, types and permissions of the workflows.
//!
//! `cargo xtask tidy` checks what actionlint does not: each action is pinned by its commit, and each command exists.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::tools::{Source, Tool};
use crate::workspace::{must, root};

const TOOL: Tool = Tool {
    name: "actionlint",
    version: "1.7.12",
    source: Source::Go { package: "github.com/rhysd/actionlint/cmd/actionlint" },
    duration: "about half a minute",
};

/// Folders of workflows: of this repository, and of new operators.
const FOLDERS: [&str; 2] = [".github/workflows", "templates/operator/.github/workflows"];

/// Checks all workflows.
///
/// # Errors
/// If the tool cannot be installed, or reports an error.
pub(crate) fn check() -> Result<()> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        let entries =
            std::fs::read_dir(root().join(folder)).with_context(|| format!("cannot read {folder}"))?;
        for entry in entries {
            files.push(entry?.path());
        }
    }
    ensure!(!files.is_empty(), "there are no workflows in {}", FOLDERS.join(" and "));
    files.sort();
    // Without the programs that it would run if the machine had them: the result is the same everywhere.
    must(Command::new(TOOL.path()?).current_dir(root()).args(["-shellcheck=", "-pyflakes="]).args(files))
}
