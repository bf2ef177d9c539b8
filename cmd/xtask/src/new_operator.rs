//! `cargo xtask new-operator NAME`: writes the operator of `templates/operator` as a new project of that name.
//!
//! Guarantees: an existing folder is not changed. The versions of all dependencies are those of this workspace, and the
//! crate `windlass` is a path into this checkout. Needs no network.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::workspace::{cargo, output, root};

/// The template, and the name that a new project replaces.
const TEMPLATE: &str = "templates/operator";
const SAMPLE: &str = "site-operator";

/// Files of the template that a new project does not get: its own manifest is generated, and Helm writes the lock.
const LEFT_OUT: [&str; 2] = ["Cargo.toml", "Chart.lock"];

/// The dependency of the chart in this checkout.
const LIBRARY: &str = "file://../../../deploy/charts/operator-base";

/// Longest name: names of objects are up to 63 characters long and append a suffix.
const MAX_NAME: usize = 40;

/// A new project.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of the program, its package, image and chart: lowercase letters, digits and dashes.
    name: String,

    /// Folder to create; by default a folder with the name of the program.
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,
}

/// Writes the project and prints the next steps.
///
/// # Errors
/// If the name is invalid, the folder exists, or a file cannot be read or written.
pub(crate) fn run(Arguments { name, path }: &Arguments) -> Result<()> {
    let folder = path.clone().unwrap_or_else(|| PathBuf::from(name));
    write(name, &folder)?;
    println!(
        "{} contains the operator {name}. Next:\n\n  cd {}\n  cargo test\n  git init --quiet && git add .\n  cargo run -- \
         --help\n\nThe first build reduces Cargo.lock to the packages of the project, so commit it afterwards.\n\
         README.md continues with a cluster and the chart. Change the kind and the controller in src/lib.rs.",
        folder.display(),
        folder.display()
    );
    Ok(())
}

fn write(name: &str, folder: &Path) -> Result<()> {
    check_name(name)?;
    ensure!(
        !folder.exists(),
        "{} exists; choose another name, or another folder by --path",
        folder.display()
    );
    let manifest = manifest(name, &package()?)?;
    let template = root().join(TEMPLATE);
    for file in files(&template)? {
        let from = template.join(&file);
        let text = fs::read_to_string(&from).with_context(|| format!("reading {}", from.display()))?;
        let to = folder.join(&file);
        create(&to, &renamed(name, &text))?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
    }
    create(&folder.join("Cargo.toml"), &manifest)?;
    create(&folder.join(".gitignore"), "/target\n/chart/charts\n")?;
    for shared in ["Cargo.lock", "rustfmt.toml"] {
        let text = fs::read_to_string(root().join(shared)).with_context(|| format!("reading {shared}"))?;
        create(&folder.join(shared), &text)?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let is_valid = name.starts_with(|it: char| it.is_ascii_lowercase())
        && name.ends_with(|it: char| it.is_ascii_lowercase() || it.is_ascii_digit())
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-');
    ensure!(
        is_valid,
        "{name:?} is not a name of objects and packages; use lowercase letters, digits and dashes, such as shop-operator"
    );
    ensure!(name.len() <= MAX_NAME, "{name:?} is longer than {MAX_NAME} characters; use a shorter name");
    ensure!(name != "windlass" && name != "test", "a package cannot be named {name:?}; use another name");
    Ok(())
}

/// Returns the files of the template, relative to it and sorted.
fn files(template: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![template.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                // Helm writes the first, cargo the second.
                if !path.ends_with("chart/charts") && !path.ends_with("target") {
                    folders.push(path);
                }
            } else if !LEFT_OUT.iter().any(|name| path.ends_with(name)) {
                files.push(path.strip_prefix(template)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn renamed(name: &str, text: &str) -> String {
    let library = format!("file://{}", root().join("deploy/charts/operator-base").display());
    let text = text.replace(LIBRARY, &library).replace(SAMPLE, name);
    text.replace(&SAMPLE.replace('-', "_"), &name.replace('-', "_"))
}

fn create(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// The output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    edition: String,
    rust_version: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    kind: Option<String>,
    features: Vec<String>,
    uses_default_features: bool,
    path: Option<PathBuf>,
}

/// Returns the package of the template.
fn package() -> Result<Package> {
    let metadata = output(cargo().args(["metadata", "--no-deps", "--offline", "--format-version=1"]))?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("the output of cargo metadata")?;
    let found = metadata.packages.into_iter().find(|package| package.name == SAMPLE);
    found.with_context(|| format!("the workspace has no package {SAMPLE}"))
}

/// Returns the manifest of the project. Outside of this workspace a program selects the version of the API types itself.
fn manifest(name: &str, package: &Package) -> Result<String> {
    let mut text = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"{}\"\npublish = false\n",
        package.edition
    );
    if let Some(version) = &package.rust_version {
        writeln!(text, "rust-version = \"{version}\"")?;
    }
    for (section, kind) in [("dependencies", None), ("dev-dependencies", Some("dev"))] {
        let selected = package.dependencies.iter().filter(|it| it.kind.as_deref() == kind);
        let lines: BTreeMap<&str, String> = selected.map(|it| (&*it.name, it.specification())).collect();
        writeln!(text, "\n[{section}]")?;
        lines
            .iter()
            .try_for_each(|(name, specification)| writeln!(text, "{name} = {{ {specification} }}"))?;
    }
    if package.dependencies.is_empty() {
        bail!("the template has no dependencies");
    }
    // Otherwise cargo rejects a project below another workspace, such as this one.
    text.push_str("\n[workspace]\n");
    Ok(text)
}

impl Dependency {
    fn specification(&self) -> String {
        let mut features = self.features.clone();
        if self.name == "k8s-openapi" && self.kind.is_none() {
            features.push(format!("v{}", env!("K8S_OPENAPI_ENABLED_VERSION").replace('.', "_")));
        }
        let mut parts = match &self.path {
            Some(path) => vec![format!("path = {:?}", path.display().to_string())],
            None => vec![format!("version = {:?}", self.req.trim_start_matches('^'))],
        };
        if !self.uses_default_features {
            parts.push("default-features = false".to_owned());
        }
        if !features.is_empty() {
            parts.push(format!("features = {features:?}"));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_names_are_rejected_with_remedy() {
        for (name, remedy) in [
            ("Shop", "lowercase"),
            ("-shop", "lowercase"),
            ("shop-", "lowercase"),
            ("shop_operator", "lowercase"),
            ("", "lowercase"),
            (&"a".repeat(41), "shorter"),
            ("test", "another name"),
        ] {
            let error = check_name(name).expect_err(name).to_string();
            assert!(error.contains(remedy), "{error}");
        }
        check_name("shop-operator2").expect("a valid name");
    }

    #[test]
    fn existing_folder_is_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = write("shop-operator", folder.path()).expect_err("it exists").to_string();
        assert!(error.ends_with("exists; choose another name, or another folder by --path"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn project_has_its_own_name_and_resolves_without_network() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("shop");
        write("shop-operator", &folder).expect("written");
        let all = files(&folder).expect("files");
        for file in
            ["src/main.rs", "chart/generate.sh", "chart/files/webhooks.yaml", ".github/workflows/ci.yml"]
        {
            assert!(all.contains(&PathBuf::from(file)), "{file} is missing in {all:?}");
        }
        for file in all {
            let text = fs::read_to_string(folder.join(&file)).expect("text");
            // The lock lists the packages of the workspace until the first build.
            let is_renamed =
                file.ends_with("Cargo.lock") || !(text.contains(SAMPLE) || text.contains("site_operator"));
            assert!(is_renamed, "{}", file.display());
        }
        let chart = fs::read_to_string(folder.join("chart/Chart.yaml")).expect("text");
        let library = chart.split("file://").nth(1).and_then(|rest| rest.lines().next()).expect("a path");
        assert!(Path::new(library).join("Chart.yaml").is_file(), "{chart}");
        let tree = output(cargo().current_dir(&folder).args(["tree", "--offline", "--prefix=none"]));
        let tree = tree.expect("it resolves");
        assert!(tree.contains("\nwindlass-webhook v"), "{tree}");
    }
}
