//! The linked crates as a software bill of materials (SBOM) in the format CycloneDX 1.5.
//!
//! It lists the packages in the output of `cargo tree`: packages that the binary links, without build scripts,
//! procedural macros and the standard library. It contains no time and no random number, so that it is reproducible.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::binary::target;
use super::layout::{Image, sha256};
use crate::workspace::{cargo, output, root};

/// Returns the list for an image with this program.
///
/// # Errors
/// If cargo fails, or `Cargo.lock` cannot be read.
pub(super) fn read(image: &Image, program: &[u8]) -> Result<String> {
    let target = target();
    let tree = output(cargo().args([
        "tree",
        "--locked",
        "--package=windlass-controller-manager",
        "--target",
        &target,
        "--edges=normal,no-proc-macro",
        "--prefix=depth",
        "--format=|{p}|{l}|",
    ]))?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let crates = Crates::from_tree(&tree, &checksums(&lock))?;
    let document = crates.document(image.digest(), &sha256(program));
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// A linked package.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    name: String,
    version: String,
    license: String,
    /// The checksum of the registry; `None` for packages of this workspace.
    checksum: Option<String>,
    dependencies: BTreeSet<String>,
}

/// Linked packages by package URL. The first package in the tree is the program.
#[derive(Debug, Default)]
pub(super) struct Crates {
    program: String,
    pub(super) all: BTreeMap<String, Package>,
}

impl Crates {
    /// Reads lines of depth, package, path and license. A repeated package has no lines for its dependencies.
    pub(super) fn from_tree(tree: &str, checksums: &BTreeMap<(String, String), String>) -> Result<Self> {
        let mut crates = Self::default();
        // The packages between the program and the current line.
        let mut above: Vec<String> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let mut fields = line.split('|');
            let mut field = || fields.next().with_context(|| format!("cargo tree prints {line:?}"));
            let (depth, package, license) = (field()?.parse::<usize>()?, field()?, field()?);
            let mut words = package.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            let version = words.next().unwrap_or_default().trim_start_matches('v').to_owned();
            let url = format!("pkg:cargo/{name}@{version}");
            above.truncate(depth);
            match above.last() {
                Some(parent) => {
                    let parent = crates.all.get_mut(parent).context("a parent is listed first")?;
                    parent.dependencies.insert(url.clone());
                }
                None => crates.program.clone_from(&url),
            }
            above.push(url.clone());
            crates.all.entry(url).or_insert_with(|| Package {
                checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
                license: license.replace('/', " OR "),
                name,
                version,
                dependencies: BTreeSet::new(),
            });
        }
        Ok(crates)
    }

    pub(super) fn document(&self, image: &str, program: &str) -> Value {
        let component = |(url, linked): (&String, &Package)| {
            let Package { name, version, license, checksum, .. } = linked;
            let is_program = *url == self.program;
            let mut component = json!({
                "type": if is_program { "application" } else { "library" },
                "bom-ref": url,
                "name": name,
                "version": version,
                "purl": url,
                "licenses": [{ "expression": license }],
            });
            let hash = if is_program { Some(program) } else { checksum.as_deref() };
            if let Some(hash) = hash {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": hash }]);
            }
            if is_program {
                component["properties"] = json!([{ "name": "oci:image:digest", "value": image }]);
            }
            component
        };
        let is_program = |(url, _): &(&String, &Package)| **url == self.program;
        let libraries: Vec<_> = self.all.iter().filter(|one| !is_program(one)).map(component).collect();
        let dependencies =
            |(url, linked): (&String, &Package)| json!({ "ref": url, "dependsOn": linked.dependencies });
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "serialNumber": serial_number(image),
            "version": 1,
            "metadata": { "component": self.all.iter().find(is_program).map(component) },
            "components": libraries,
            "dependencies": self.all.iter().map(dependencies).collect::<Vec<_>>(),
        })
    }
}

/// Returns the number that identifies the list, as a UUID. It is determined by the digest of the image.
fn serial_number(image: &str) -> String {
    let hash = sha256(image.as_bytes());
    let parts = [&hash[..8], &hash[8..12], &hash[13..16], &hash[17..20], &hash[20..32]];
    // The digits 8 state the version for own content, and the variant.
    format!("urn:uuid:{}-{}-8{}-8{}-{}", parts[0], parts[1], parts[2], parts[3], parts[4])
}

/// Returns the checksums in a `Cargo.lock`, by name and version.
pub(super) fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |package: &str, name: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.and_then(|rest| rest.strip_suffix('"')).map(str::to_owned)
    };
    let packages = lock.split("[[package]]\n").skip(1);
    packages
        .filter_map(|package| {
            Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?))
        })
        .collect()
}
