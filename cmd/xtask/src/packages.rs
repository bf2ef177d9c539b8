//! The published crates: packs each as `cargo publish` does, and checks the archives. Nothing is compiled or uploaded.
//!
//! Guarantees: each crate that a published crate needs is published too, in an order that exists, and at least at the
//! version of this workspace. Each archive contains the license and the files that its sources include. docs.rs selects
//! a version of the Kubernetes API. Needs no network.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::workspace::{cargo, must, output, read, root};

/// The crate without a default version of the API, and the crate that depends on it.
const API_TYPES: [&str; 2] = ["k8s-openapi", "kube"];

/// The text of the license, in the root and in each archive.
const LICENSE: &str = "LICENSE";

/// Packs the published crates.
///
/// # Errors
/// If a crate cannot be packed, or a user could not build or use it.
pub(crate) fn check() -> Result<()> {
    let workspace = Workspace::read()?;
    let packages = workspace.published();
    ensure!(!packages.is_empty(), "the workspace publishes no crate");
    let mut pack = cargo();
    // Quiet: cargo warns that no crate has a homepage.
    pack.args(["package", "--quiet", "--no-verify", "--locked", "--offline", "--allow-dirty"]);
    pack.args(packages.iter().map(|package| format!("--package={}", package.name)));
    must(&mut pack)?;
    let checks = Checks::new(read(&root().join(LICENSE))?)?;
    let mut findings = Vec::new();
    let mut files = 0;
    for package in &packages {
        findings.extend(package.findings());
        findings.extend(workspace.missing_api_version(package));
        let archive = Archive::read(&workspace.archive(package))?;
        files += archive.0.len();
        let found = checks.findings(&archive);
        findings.extend(found.into_iter().map(|finding| format!("{}: {finding}", package.name)));
    }
    ensure!(findings.is_empty(), "published crates are incomplete:\n  {}", findings.join("\n  "));
    println!("packages: {} crates with {files} files", packages.len());
    Ok(())
}

/// The output of `cargo metadata`.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    version: String,
    description: Option<String>,
    license: Option<String>,
    /// Registries; `None` for all, and empty for none.
    publish: Option<Vec<String>>,
    dependencies: Vec<Dependency>,
    /// Settings of other tools.
    #[serde(default)]
    metadata: Value,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    /// `None` for a normal dependency.
    kind: Option<String>,
    path: Option<PathBuf>,
}

impl Workspace {
    /// Reads the metadata of this workspace.
    ///
    /// # Errors
    /// If cargo fails.
    pub(crate) fn read() -> Result<Self> {
        let metadata = output(cargo().args(["metadata", "--no-deps", "--offline", "--format-version=1"]))?;
        serde_json::from_str(&metadata).context("cannot decode the output of cargo metadata")
    }

    /// Returns the packages that `cargo publish --workspace` publishes.
    pub(crate) fn published(&self) -> Vec<&Package> {
        let is_published = |package: &&Package| package.publish.as_ref().is_none_or(|it| !it.is_empty());
        self.packages.iter().filter(is_published).collect()
    }

    /// Returns whether docs.rs compiles the API types for a package, but selects no version of them.
    fn missing_api_version(&self, package: &Package) -> Option<String> {
        let version = format!("env.K8S_OPENAPI_ENABLED_VERSION='{}'", env!("K8S_OPENAPI_ENABLED_VERSION"));
        let arguments = &package.metadata["docs"]["rs"]["cargo-args"];
        let is_missing = *arguments != json!(["--config", version]) && self.links_api_types(package);
        let remedy = format!("set package.metadata.docs.rs.cargo-args = [\"--config\", \"{version}\"]");
        is_missing.then(|| format!("docs.rs cannot compile {}; {remedy}", package.name))
    }

    fn links_api_types(&self, package: &Package) -> bool {
        package.dependencies.iter().filter(|it| it.kind.is_none()).any(|dependency| {
            let is_linked = |it: &Package| it.name == dependency.name && self.links_api_types(it);
            API_TYPES.contains(&&*dependency.name) || self.packages.iter().any(is_linked)
        })
    }

    fn archive(&self, package: &Package) -> PathBuf {
        let name = format!("{}-{}.crate", package.name, package.version);
        self.target_directory.join("package").join(name)
    }
}

impl Package {
    /// Returns missing metadata, and requirements of another version than the one that is published with this package.
    fn findings(&self) -> Vec<String> {
        let Self { name, version, .. } = self;
        let mut findings = Vec::new();
        for (field, value) in [("description", &self.description), ("license", &self.license)] {
            if value.as_ref().is_none_or(String::is_empty) {
                findings.push(format!("{name} has no {field}, which crates.io requires"));
            }
        }
        // Cargo leaves a dev-dependency without a version out.
        let siblings = self.dependencies.iter().filter(|it| it.path.is_some() && it.req != "*");
        let outdated = siblings.filter(|it| it.req != format!("^{version}"));
        findings.extend(outdated.map(|Dependency { name: other, req, .. }| {
            format!("{name} requires {other} {req}; require {version} in the root Cargo.toml")
        }));
        findings
    }
}

/// The files of a published crate by path, relative to its root.
struct Archive(BTreeMap<String, Vec<u8>>);

impl Archive {
    fn read(path: &Path) -> Result<Self> {
        let open = || -> Result<Self> {
            let mut archive = tar::Archive::new(GzDecoder::new(File::open(path)?));
            let mut files = BTreeMap::new();
            for entry in archive.entries()? {
                let mut entry = entry?;
                let path = entry.path()?.to_string_lossy().into_owned();
                let Some((_, path)) = path.split_once('/') else { bail!("{path} is in no folder") };
                let mut content = Vec::new();
                entry.read_to_end(&mut content)?;
                files.insert(path.to_owned(), content);
            }
            Ok(Self(files))
        };
        open().with_context(|| format!("cannot read {}", path.display()))
    }
}

/// The checks of one archive.
struct Checks {
    license: Vec<u8>,
    /// The start of a macro that includes a file.
    include: Regex,
    /// Its argument: a path relative to the source file, or to the package.
    argument: Regex,
    /// The path of a module.
    module: Regex,
}

impl Checks {
    fn new(license: Vec<u8>) -> Result<Self> {
        Ok(Self {
            license,
            include: Regex::new(r"\binclude(?:_str|_bytes)?!\s*[(\[{]\s*")?,
            argument: Regex::new(
                r#"^(concat!\s*\(\s*env!\s*\(\s*"CARGO_MANIFEST_DIR"\s*\)\s*,\s*)?"([^"]*)""#,
            )?,
            module: Regex::new(r#"#\[path\s*=\s*"([^"]*)""#)?,
        })
    }

    fn findings(&self, Archive(files): &Archive) -> Vec<String> {
        let mut findings = Vec::new();
        if files.get(LICENSE) != Some(&self.license) {
            findings.push(format!(
                "the text of the license is missing; link {LICENSE} in the folder of the crate"
            ));
        }
        for (path, content) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
            let code = without_comments(&String::from_utf8_lossy(content));
            for included in self.included(path, &code) {
                match included {
                    Ok(file) if files.contains_key(&file) => {}
                    Ok(file) => findings.push(format!("{path} includes {file}, which is not published")),
                    Err(text) => findings.push(format!("{path} includes {text}, outside of the package")),
                }
            }
        }
        findings
    }

    /// Returns the files that a source includes, or the text of a path that leaves the package.
    fn included(&self, source: &str, code: &str) -> Vec<Result<String, String>> {
        let folder = source.rsplit_once('/').map_or("", |(folder, _)| folder);
        let macros = self.include.find_iter(code).map(|found| {
            let rest = &code[found.end()..];
            let Some(argument) = self.argument.captures(rest) else {
                return Err(rest.lines().next().unwrap_or_default().to_owned());
            };
            let (target, is_of_package) = (&argument[2], argument.get(1).is_some());
            let folder = if is_of_package { "" } else { folder };
            let is_absolute = target.starts_with('/') && !is_of_package;
            resolved(folder, target).filter(|_| !is_absolute).ok_or_else(|| target.to_owned())
        });
        let modules = self
            .module
            .captures_iter(code)
            .map(|found| resolved(folder, &found[1]).ok_or_else(|| found[1].to_owned()));
        macros.chain(modules).collect()
    }
}

/// Removes lines that are comments, and keeps the others.
fn without_comments(text: &str) -> String {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| [line, "\n"]).collect()
}

/// Returns a path from the root of the package, or nothing if it leaves the package.
fn resolved(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        Checks::new(b"text".to_vec()).expect("checks").findings(&Archive(files.collect()))
    }

    #[test]
    fn missing_or_other_license_is_found() {
        assert_eq!(findings(&[(LICENSE, "text")]), [""; 0]);
        for files in [&[][..], &[(LICENSE, "another")]] {
            let found = findings(files);
            assert!(found.len() == 1 && found[0].contains("license is missing"), "{found:?}");
        }
    }

    #[test]
    fn included_file_must_be_in_the_archive() {
        let found = findings(&[
            (LICENSE, "text"),
            ("src/table.txt", ""),
            ("src/a/mod.rs", "const A: &str = include_str!(\"../table.txt\");\n// include_str!(\"no.txt\")"),
            ("src/b.rs", "#[path = \"a/mod.rs\"]\nmod a;\n#![doc = include_str!(\"../README.md\")]"),
            ("src/c.rs", "include_bytes!(\n  \"../../docs/page.md\"\n)"),
            ("src/d.rs", "include!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../x.rs\"))"),
            (
                "src/e.rs",
                "include_str!(\"/etc/hosts\"); include!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/src/b.rs\"))",
            ),
            ("src/f.rs", "include_str!(PATH)"),
            ("src/g.rs", "#[path = \"../../other/src/lib.rs\"] mod other;"),
        ]);
        let expected = [
            "src/b.rs includes README.md, which is not published",
            "src/c.rs includes ../../docs/page.md, outside of the package",
            "src/d.rs includes /../x.rs, outside of the package",
            "src/e.rs includes /etc/hosts, outside of the package",
            "src/f.rs includes PATH), outside of the package",
            "src/g.rs includes ../../other/src/lib.rs, outside of the package",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn outdated_requirement_and_missing_metadata_are_found() {
        let metadata = json!({ "target_directory": "/target", "packages": [
            { "name": "a", "version": "0.2.0", "license": "MIT", "publish": null, "dependencies": [
                { "name": "b", "req": "^0.1.0", "path": "/b" },
                { "name": "c", "req": "^0.2.0", "path": "/c" },
                { "name": "d", "req": "*", "path": "/d" },
                { "name": "serde", "req": "^1", "path": null },
            ] },
            { "name": "b", "version": "0.2.0", "publish": [], "dependencies": [] },
        ] });
        let workspace: Workspace = serde_json::from_value(metadata).expect("metadata");
        let [package] = workspace.published()[..] else { panic!("one package is published") };
        let expected = [
            "a has no description, which crates.io requires",
            "a requires b ^0.1.0; require 0.2.0 in the root Cargo.toml",
        ];
        assert_eq!(package.findings(), expected);
        assert_eq!(workspace.archive(package), Path::new("/target/package/a-0.2.0.crate"));
    }

    #[test]
    fn crate_whose_documentation_has_no_api_version_is_found() {
        let package = |name: &str, dependency: Value, metadata: Value| json!({ "name": name, "version": "1.0.0", "dependencies": [dependency], "metadata": metadata });
        let version = format!("env.K8S_OPENAPI_ENABLED_VERSION='{}'", env!("K8S_OPENAPI_ENABLED_VERSION"));
        let selected = json!({ "docs": { "rs": { "cargo-args": ["--config", version] } } });
        let packages = json!([
            package("a", json!({ "name": "kube", "req": "*" }), selected),
            package("b", json!({ "name": "a", "req": "*" }), Value::Null),
            package("c", json!({ "name": "kube", "req": "*", "kind": "dev" }), Value::Null),
        ]);
        let workspace = json!({ "target_directory": "/target", "packages": packages });
        let workspace: Workspace = serde_json::from_value(workspace).expect("metadata");
        let found = workspace.packages.iter().filter_map(|it| workspace.missing_api_version(it));
        let found: Vec<_> = found.collect();
        assert!(found.len() == 1 && found[0].starts_with("docs.rs cannot compile b; set"), "{found:?}");
    }

    #[test]
    fn archive_is_read_without_its_folder() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a-0.1.0.crate");
        let gzip = flate2::write::GzEncoder::new(File::create(&path)?, flate2::Compression::fast());
        let mut builder = tar::Builder::new(gzip);
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        header.set_cksum();
        builder.append_data(&mut header, "a-0.1.0/src/lib.rs", &b"text"[..])?;
        builder.into_inner()?.finish()?;
        assert_eq!(Archive::read(&path)?.0, BTreeMap::from([("src/lib.rs".to_owned(), b"text".to_vec())]));
        Ok(())
    }
}
