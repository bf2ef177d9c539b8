//! The rules about dependencies: data flows in one direction, and dependencies follow it.
//!
//! Reads cargo's metadata instead of the manifests, so that the spelling of a dependency does not matter.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::tree::Finding;

/// Folders of the libraries, ordered by the flow of data. A library can depend only on the libraries before it.
const LIBRARIES: &[&str] = &[
    "runtime/env",
    "runtime/kinds",
    "runtime/gotext",
    "runtime/macros",
    "runtime/object",
    "runtime/metrics",
    "runtime/workqueue",
    "runtime/client",
    "runtime/informer",
    "runtime/election",
    "runtime/sharding",
    "runtime/events",
    "runtime/serving",
    "runtime/admin",
    "runtime/controller",
    "runtime/webhook",
    "runtime/manager",
    "runtime/opentelemetry",
    "runtime/app",
    "simulation/schema",
    "simulation/patch",
    "simulation/api_server",
    "simulation/testing",
    "runtime/windlass",
];

/// Folder of the crates that only tests and the demo link.
const SIMULATION: &str = "simulation/";

/// The library that can depend on the simulation, behind a feature that is disabled by default.
const FACADE: &str = "runtime/windlass";

/// Package of the production program.
const BINARY: &str = "windlass-controller-manager";

/// Packages outside the simulation that the program must not link.
const NOT_IN_BINARY: &[&str] = &["ratatui", "windlass-harness", "windlass-mutants"];

/// Features that the program must not enable.
const TEST_FEATURES: &[(&str, &str)] = &[("tokio", "test-util"), ("windlass", "testing")];

/// Dependencies that follow the order but are forbidden.
const FORBIDDEN_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("windlass-workqueue", &["kube", "k8s-openapi", "windlass-object"]),
    ("windlass-informer", &["windlass-workqueue"]),
    ("windlass-object", &["tokio", "hyper", "tower"]),
    ("windlass-controllers", &["windlass-manager"]),
];

/// Packages and the dependencies in their manifests.
#[derive(Debug, Default)]
pub(super) struct Graph {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    name: String,
    /// Folder of its manifest, relative to the root.
    folder: String,
    /// Names of normal and build dependencies; dev-dependencies are not restricted.
    dependencies: Vec<String>,
}

impl Graph {
    /// Reads the metadata of the workspace at `root`.
    ///
    /// # Errors
    /// If cargo fails, or prints unexpected output.
    pub(super) fn of_workspace(root: &Path) -> Result<Self> {
        let printed = cargo(root, &["metadata", "--no-deps", "--format-version=1", "--offline"])?;
        let answer: Value = serde_json::from_str(&printed).context("cargo metadata printed no JSON")?;
        let packages = answer["packages"].as_array().context("cargo metadata listed no packages")?;
        packages.iter().map(|value| package(value, root)).collect::<Option<Vec<_>>>().map_or_else(
            || bail!("cargo metadata listed a package without a name or manifest"),
            |packages| Ok(Self { packages }),
        )
    }

    /// Returns each dependency between two crates of the workspace as the names of both.
    pub(super) fn edges(&self) -> BTreeSet<(&str, &str)> {
        let is_ours = |name: &str| self.packages.iter().any(|package| package.name == name);
        let edges = self.packages.iter().flat_map(|package| {
            let ours = package.dependencies.iter().filter(move |name| is_ours(name));
            ours.map(|name| (package.name.as_str(), name.as_str()))
        });
        edges.collect()
    }

    /// Returns the dependencies that violate the rules.
    pub(super) fn violations(&self) -> Vec<Finding> {
        self.packages.iter().flat_map(|package| self.wrong_lines(package)).collect()
    }

    fn wrong_lines(&self, package: &Package) -> Vec<Finding> {
        let wrong = package.dependencies.iter().filter_map(|dependency| {
            let message = self.violation(package, dependency)?;
            Some(Finding { path: format!("{}/Cargo.toml", package.folder), line: 0, message })
        });
        let mut findings: Vec<_> = wrong.collect();
        findings.extend(unknown_place(package));
        findings
    }

    fn violation(&self, package: &Package, dependency: &str) -> Option<String> {
        let (from, name) = (&package.folder, &package.name);
        let is_library = LIBRARIES.contains(&from.as_str()) || from == "controllers";
        // The controller crate inspects the errors that controllers return; other code in it must not use anyhow.
        if dependency == "anyhow" && is_library && name != "windlass-controller" {
            return Some(format!("{name} depends on anyhow: define error types in the library"));
        }
        let is_production = from.starts_with("runtime/") && from != FACADE || from == "controllers";
        let target = self.packages.iter().find(|other| other.name == dependency);
        if is_production && target.is_some_and(|target| target.folder.starts_with(SIMULATION)) {
            return Some(format!(
                "{name} depends on {dependency}: only tests and the demo link the simulation"
            ));
        }
        let forbidden = FORBIDDEN_DEPENDENCIES
            .iter()
            .find(|(package, _)| package == name)
            .map_or(&[][..], |(_, others)| others);
        if forbidden.contains(&dependency) {
            return Some(format!("{name} must not depend on {dependency}"));
        }
        let wrong = rank(from)? <= rank(&target?.folder)?;
        wrong.then(|| format!("{name} depends on {dependency}, which comes after it in the flow of data"))
    }
}

/// Returns the packages in the production program that only tests and the demo can link.
///
/// # Errors
/// If cargo fails.
pub(super) fn links_of_binary(root: &Path) -> Result<Vec<Finding>> {
    let arguments =
        ["tree", "--package", BINARY, "--edges=normal", "--prefix=none", "--format={p}|{f}", "--locked"];
    let tree = cargo(root, &arguments)?;
    let simulation = format!("({}", root.join(SIMULATION).display());
    let findings = tree.lines().filter_map(|link| link_violation(link, &simulation)).collect::<BTreeSet<_>>();
    let finding =
        |message| Finding { path: "cmd/controller-manager/Cargo.toml".to_owned(), line: 0, message };
    Ok(findings.into_iter().map(finding).collect())
}

/// Returns the violation in a line of `cargo tree`: package, version, folder for workspace packages, and features.
/// `simulation` is the prefix of folders that must not be linked.
fn link_violation(link: &str, simulation: &str) -> Option<String> {
    let (package, features) = link.split_once('|')?;
    let name = package.split(' ').next()?;
    let features = features.split([',', ' ']);
    if NOT_IN_BINARY.contains(&name) || package.contains(simulation) {
        return Some(format!("the binary links {name}, which only tests and the demo may"));
    }
    let test_feature = features.into_iter().find(|feature| TEST_FEATURES.contains(&(name, *feature)))?;
    Some(format!("the binary links {name} with its feature {test_feature}, which only tests may"))
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot start cargo {}", arguments[0]))?;
    if !output.status.success() {
        bail!("cargo {} failed: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("the output of cargo is not UTF-8")
}

fn package(value: &Value, root: &Path) -> Option<Package> {
    let manifest = Path::new(value["manifest_path"].as_str()?);
    let folder = manifest.parent()?.strip_prefix(root).ok()?.to_str()?.to_owned();
    let dependencies = value["dependencies"].as_array()?.iter();
    let dependencies = dependencies.filter(|line| line["kind"].as_str() != Some("dev"));
    let dependencies = dependencies.filter_map(|line| line["name"].as_str().map(str::to_owned)).collect();
    Some(Package { name: value["name"].as_str()?.to_owned(), folder, dependencies })
}

/// Returns a finding for a library folder that is not in the order.
fn unknown_place(package: &Package) -> Option<Finding> {
    let folder = &package.folder;
    let is_library = folder.starts_with("runtime/") || folder.starts_with(SIMULATION);
    (is_library && rank(folder).is_none()).then(|| Finding {
        path: format!("{folder}/Cargo.toml"),
        line: 0,
        message: format!("add `{folder}` to the order of libraries in cmd/xtask/src/tidy/graph.rs"),
    })
}

/// Returns the position of a package in the order; tests and tasks have none.
fn rank(folder: &str) -> Option<usize> {
    match folder {
        "controllers" => Some(LIBRARIES.len()),
        _ if folder.starts_with("cmd/") => Some(LIBRARIES.len() + 1),
        _ => LIBRARIES.iter().position(|known| *known == folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency_violations(packages: &[(&str, &str, &[&str])]) -> Vec<String> {
        let packages = packages.iter().map(|(name, folder, dependencies)| Package {
            name: (*name).to_owned(),
            folder: (*folder).to_owned(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        });
        let graph = Graph { packages: packages.collect() };
        graph.violations().into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn dependency_against_the_flow_is_found() {
        let found = dependency_violations(&[
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
    fn forbidden_dependency_is_found() {
        let found = dependency_violations(&[
            ("windlass-workqueue", "runtime/workqueue", &["kube"]),
            ("windlass-informer", "runtime/informer", &["windlass-workqueue", "anyhow"]),
        ]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn crate_without_position_is_found() {
        assert_eq!(dependency_violations(&[("windlass-new", "runtime/new", &[])]).len(), 1);
    }

    #[test]
    fn production_that_links_the_simulation_is_found() {
        let server = ("windlass-api-server", "simulation/api_server", &[][..]);
        let manager = ("windlass-manager", "runtime/manager", &["windlass-api-server"][..]);
        let facade = ("windlass", "runtime/windlass", &["windlass-api-server"][..]);
        assert_eq!(dependency_violations(&[server, facade]), [""; 0]);
        let found = dependency_violations(&[server, manager]);
        assert!(found.len() == 1 && found[0].contains("only tests and the demo"), "{found:?}");
        for (link, is_wrong) in [
            ("windlass-schema v0.1.0 (/w/simulation/schema)|", true),
            ("windlass-env v0.1.0 (/w/runtime/env)|", false),
            ("windlass-env v0.1.0 (/w/a/simulation/runtime/env)|", false),
            ("ratatui v0.30.2|crossterm,std (*)", true),
            ("tokio v1.54.1|rt,test-util (*)", true),
            ("tokio v1.54.1|rt,time", false),
        ] {
            assert_eq!(link_violation(link, "(/w/simulation/").is_some(), is_wrong, "{link}");
        }
    }

    #[test]
    fn test_crates_may_depend_on_anything() {
        let tests = ("windlass-black-box", "tests/black-box", &["windlass-env", "anyhow"][..]);
        assert_eq!(dependency_violations(&[tests, ("windlass-env", "runtime/env", &[])]), [""; 0]);
    }
}
