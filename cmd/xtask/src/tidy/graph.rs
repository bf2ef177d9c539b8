//! The rule about dependencies: data flows one way, and so do the lines in the manifests.
//!
//! Reads what cargo says about the manifests, so that no spelling of a dependency escapes it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::tree::Finding;

/// The folders of `runtime/`, in the order in which data passes through them. Each may depend only on those above.
const RUNTIME: &[&str] = &[
    "env",
    "macros",
    "object",
    "metrics",
    "workqueue",
    "schema",
    "patch",
    "client",
    "api_server",
    "informer",
    "election",
    "events",
    "controller",
    "manager",
    "testing",
    "windlass",
];

/// Lines that obey the order and are wrong all the same: who must not know whom.
const STRANGERS: &[(&str, &[&str])] = &[
    ("windlass-workqueue", &["kube", "k8s-openapi", "windlass-object"]),
    ("windlass-informer", &["windlass-workqueue"]),
    ("windlass-object", &["tokio", "hyper", "tower"]),
    ("windlass-controllers", &["windlass-manager"]),
];

/// Packages and what their manifests ask for.
#[derive(Debug, Default)]
pub(super) struct Graph {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    name: String,
    /// The folder of its manifest, relative to the root.
    folder: String,
    /// Names of normal and build dependencies; tests may reach further.
    dependencies: Vec<String>,
}

impl Graph {
    /// Asks cargo about the workspace at `root`.
    ///
    /// # Errors
    /// If cargo fails, or says something unexpected.
    pub(super) fn of_workspace(root: &Path) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
            .current_dir(root)
            .output()
            .context("cannot start cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let answer: Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
        let packages = answer["packages"].as_array().context("cargo metadata listed no packages")?;
        packages.iter().map(|value| package(value, root)).collect::<Option<Vec<_>>>().map_or_else(
            || bail!("cargo metadata listed a package without a name or manifest"),
            |packages| Ok(Self { packages }),
        )
    }

    /// Every line in a manifest that points the wrong way.
    pub(super) fn violations(&self) -> Vec<Finding> {
        self.packages.iter().flat_map(|package| self.wrong_lines(package)).collect()
    }

    fn wrong_lines(&self, package: &Package) -> Vec<Finding> {
        let wrong = package.dependencies.iter().filter_map(|dependency| {
            let message = self.objection(package, dependency)?;
            Some(Finding { path: format!("{}/Cargo.toml", package.folder), line: 0, message })
        });
        let mut findings: Vec<_> = wrong.collect();
        findings.extend(unknown_place(package));
        findings
    }

    fn objection(&self, package: &Package, dependency: &str) -> Option<String> {
        let (from, name) = (&package.folder, &package.name);
        if dependency == "anyhow" && (from.starts_with("runtime/") || from == "controllers") {
            return Some(format!("{name} depends on anyhow: a library returns error types of its own"));
        }
        let strangers =
            STRANGERS.iter().find(|(stranger, _)| stranger == name).map_or(&[][..], |(_, others)| others);
        if strangers.contains(&dependency) {
            return Some(format!("{name} depends on {dependency}, of which it must know nothing"));
        }
        let target = self.packages.iter().find(|other| other.name == dependency)?;
        let wrong = rank(from)? <= rank(&target.folder)?;
        wrong.then(|| format!("{name} depends on {dependency}, which comes after it in the flow of data"))
    }
}

fn package(value: &Value, root: &Path) -> Option<Package> {
    let manifest = Path::new(value["manifest_path"].as_str()?);
    let folder = manifest.parent()?.strip_prefix(root).ok()?.to_str()?.to_owned();
    let dependencies = value["dependencies"].as_array()?.iter();
    let dependencies = dependencies.filter(|line| line["kind"].as_str() != Some("dev"));
    let dependencies = dependencies.filter_map(|line| line["name"].as_str().map(str::to_owned)).collect();
    Some(Package { name: value["name"].as_str()?.to_owned(), folder, dependencies })
}

/// A folder of `runtime/` that the order does not know yet.
fn unknown_place(package: &Package) -> Option<Finding> {
    let folder = package.folder.strip_prefix("runtime/")?;
    (!RUNTIME.contains(&folder)).then(|| Finding {
        path: format!("{}/Cargo.toml", package.folder),
        line: 0,
        message: format!("give `{folder}` a place in the flow of data, in cmd/xtask/src/tidy/graph.rs"),
    })
}

/// A package's place in the flow; packages outside it (tests, chores) have none.
fn rank(folder: &str) -> Option<usize> {
    if let Some(name) = folder.strip_prefix("runtime/") {
        return RUNTIME.iter().position(|known| *known == name);
    }
    match folder {
        "controllers" => Some(RUNTIME.len()),
        _ if folder.starts_with("cmd/") => Some(RUNTIME.len() + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objections(packages: &[(&str, &str, &[&str])]) -> Vec<String> {
        let packages = packages.iter().map(|(name, folder, dependencies)| Package {
            name: (*name).to_owned(),
            folder: (*folder).to_owned(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        });
        let graph = Graph { packages: packages.collect() };
        graph.violations().into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_line_against_the_flow_is_found() {
        let found = objections(&[
            ("windlass-env", "runtime/env", &["windlass-client", "tokio"]),
            ("windlass-client", "runtime/client", &["windlass-env"]),
            ("windlass-controllers", "controllers", &["windlass-client"]),
            ("cli", "cmd/cli", &["windlass-controllers", "anyhow"]),
        ]);
        assert_eq!(
            found,
            ["windlass-env depends on windlass-client, which comes after it in the flow of data"]
        );
    }

    #[test]
    fn who_must_not_know_whom_is_found() {
        let found = objections(&[
            ("windlass-workqueue", "runtime/workqueue", &["kube"]),
            ("windlass-informer", "runtime/informer", &["windlass-workqueue", "anyhow"]),
        ]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_crate_without_a_place_in_the_flow_is_found() {
        assert_eq!(objections(&[("windlass-new", "runtime/new", &[])]).len(), 1);
    }

    #[test]
    fn test_crates_may_depend_on_anything() {
        let tests = ("windlass-black-box", "tests/black-box", &["windlass-env", "anyhow"][..]);
        assert_eq!(objections(&[tests, ("windlass-env", "runtime/env", &[])]), [""; 0]);
    }
}
