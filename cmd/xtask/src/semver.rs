//! `cargo xtask semver`: compares the API of the published crates with the last release.
//!
//! The last release is the newest tag `v*` before this commit; `--baseline-rev` selects another revision.
//! cargo-semver-checks builds the documentation of both versions, and fails if a change of the API needs a larger
//! change of the version.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::packages::Workspace;
use crate::tools::{Source, Tool};
use crate::workspace::{must, output, remove_package_variables, root};

const TOOL: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    source: Source::Crate { features: "" },
    duration: "several minutes",
};

/// Selection of the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Revision to compare with; by default the last release.
    #[arg(long, value_name = "REVISION")]
    baseline_rev: Option<String>,

    /// Crate to compare, can be repeated; by default all published crates.
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
}

/// Compares the API. Reports if no release exists and no revision is selected.
///
/// # Errors
/// If the version does not state a change, a crate is not published, or git or the tool fails.
pub(crate) fn run(Arguments { baseline_rev, packages }: &Arguments) -> Result<()> {
    let workspace = Workspace::read()?;
    let published: Vec<&str> = workspace.published().iter().map(|package| &*package.name).collect();
    let packages = selected(&published, packages)?;
    let Some(baseline) = baseline_rev.clone().map_or_else(last_release, |revision| Ok(Some(revision)))?
    else {
        println!(
            "API NOT COMPARED: there is no release before this commit; select a revision by --baseline-rev"
        );
        return Ok(());
    };
    let mut check = Command::new(TOOL.path()?);
    check.current_dir(root()).args(["semver-checks", "--baseline-rev", &baseline]);
    check.args(packages.iter().map(|name| format!("--package={name}")));
    remove_package_variables(&mut check);
    must(&mut check)
}

/// Returns the named crates, or all without a name.
fn selected<'a>(published: &[&'a str], named: &'a [String]) -> Result<Vec<&'a str>> {
    if named.is_empty() {
        return Ok(published.to_vec());
    }
    let unknown: Vec<_> = named.iter().filter(|name| !published.contains(&name.as_str())).collect();
    ensure!(
        unknown.is_empty(),
        "not published: {unknown:?}; the published crates are {}",
        published.join(", ")
    );
    Ok(named.iter().map(String::as_str).collect())
}

/// Returns the newest tag of a release before this commit.
fn last_release() -> Result<Option<String>> {
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(root()).args(arguments));
    let is_shallow = git(&["rev-parse", "--is-shallow-repository"])?;
    ensure!(
        is_shallow.trim() == "false",
        "the checkout is shallow, so releases can be missing; fetch the history"
    );
    // A tag of this commit is the release that is checked.
    let merged = git(&["tag", "--list", "v*", "--sort=-v:refname", "--merged=HEAD", "--no-contains=HEAD"]);
    let tags = merged.context("the releases are unknown")?;
    Ok(tags.lines().next().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_crates_must_be_published() {
        let published = ["windlass-env", "windlass"];
        let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(selected(&published, &[]).expect("all"), published);
        assert_eq!(selected(&published, &named(&["windlass"])).expect("one"), ["windlass"]);
        let error = selected(&published, &named(&["windlass", "xtask"])).expect_err("not published");
        let expected = "not published: [\"xtask\"]; the published crates are windlass-env, windlass";
        assert_eq!(error.to_string(), expected);
    }
}
