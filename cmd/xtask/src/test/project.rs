//! An operator of `cargo xtask new-operator`, built with the artifacts of this workspace.
//!
//! The project is a member of a second workspace below the target directory, whose other members are links to those of
//! this one. Cargo identifies a package by its path below the root, so both workspaces share their artifacts, and only
//! the crate of the project is compiled.

use std::collections::BTreeMap;
use std::env::split_paths;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::lanes::{self, Program};
use crate::new_operator;
use crate::workspace::{cargo, output, remove_directory, root, target_directory};

/// The name of the project.
const NAME: &str = "shop-operator";

/// The folder of the second workspace below the target directory.
const WORKSPACE: &str = "new-operator";

/// Files that the second workspace does not link.
const MANIFEST: &str = "Cargo.toml";
const LOCK: &str = "Cargo.lock";

/// The start of the list of members in the manifest.
const MEMBERS: &str = "\nmembers = [\n";

/// A project whose tests are built.
#[derive(Debug)]
pub(super) struct Project {
    pub(super) programs: Vec<Program>,
    pub(super) folder: PathBuf,
}

/// Generates the project, builds it, and checks that its chart is up to date.
///
/// # Errors
/// If the project cannot be written or built, or a file of its chart is outdated.
pub(super) fn build() -> Result<Project> {
    let target = target_directory()?;
    let workspace = target.join(WORKSPACE);
    remove_directory(&workspace)?;
    fs::create_dir_all(&workspace).with_context(|| format!("cannot create {}", workspace.display()))?;
    link(&root(), &workspace, &target)?;
    let folder = new_operator::write_member(NAME, &workspace)?;
    let mut programs = lanes::build_with(cargo().current_dir(&workspace).env("CARGO_TARGET_DIR", &target))?;
    programs.retain(|program| program.is_in(&folder));
    ensure!(!programs.is_empty(), "the project has no tests");
    check_chart(&folder, &target.join("debug").join(NAME))?;
    Ok(Project { programs, folder })
}

/// Writes the manifest and the lock of a workspace with the project as another member, and links to all other files.
fn link(from: &Path, to: &Path, target: &Path) -> Result<()> {
    let manifest = fs::read_to_string(from.join(MANIFEST)).context("cannot read the manifest")?;
    let (head, members) = manifest.split_once(MEMBERS).context("the manifest has no list of members")?;
    fs::write(to.join(MANIFEST), format!("{head}{MEMBERS}    {NAME:?},\n{members}"))?;
    fs::copy(from.join(LOCK), to.join(LOCK))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.path() != target && ![MANIFEST, LOCK, ".git"].iter().any(|own| name == *own) {
            symlink(entry.path(), to.join(&name))
                .with_context(|| format!("cannot link {}", name.display()))?;
        }
    }
    Ok(())
}

/// Generates the files of the chart as the CI of a project does, and compares them with those of the template.
fn check_chart(folder: &Path, program: &Path) -> Result<()> {
    let generated = folder.join("chart/files");
    let before = files(&generated)?;
    // The script calls `cargo run`, which would compile everything again with the features of the project alone.
    let programs = tempfile::tempdir()?;
    let run = programs.path().join("cargo");
    let check = "[ \"$1 $2 $3\" = 'run --quiet --' ] || exit 1";
    fs::write(&run, format!("#!/bin/sh\n{check}\nshift 3\nexec '{}' \"$@\"\n", program.display()))?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755))?;
    let path = std::env::var_os("PATH").context("PATH is unset")?;
    let path = std::env::join_paths([programs.path().to_owned()].into_iter().chain(split_paths(&path)))?;
    output(Command::new("sh").arg(folder.join("chart/generate.sh")).env("PATH", path))?;
    let after = files(&generated)?;
    let is_outdated = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let outdated: Vec<_> = before.keys().filter(is_outdated).collect();
    ensure!(
        outdated.is_empty() && before.len() == after.len(),
        "chart/generate.sh of a new project changes {outdated:?}"
    );
    Ok(())
}

/// Returns the texts of the files in a folder.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.insert(path, text);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    #[test]
    fn second_workspace_has_its_own_manifest_and_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("clone"), folder.path().join("clone/target/second"));
        let manifest = "[workspace]\nmembers = [\n    \"runtime/*\",\n]\n";
        for (path, text) in
            [(MANIFEST, manifest), (LOCK, "lock"), (".git/HEAD", ""), ("runtime/env/a.rs", "a")]
        {
            write(&from.join(path), text);
        }
        fs::create_dir_all(&to).expect("a folder");
        link(&from, &to, &from.join("target")).expect("linked");
        let expected = "[workspace]\nmembers = [\n    \"shop-operator\",\n    \"runtime/*\",\n]\n";
        assert_eq!(fs::read_to_string(to.join(MANIFEST)).expect("a manifest"), expected);
        let is_link = |name: &str| fs::symlink_metadata(to.join(name)).expect("metadata").is_symlink();
        assert_eq!([MANIFEST, LOCK, "runtime"].map(is_link), [false, false, true]);
        assert_eq!(fs::read_to_string(to.join("runtime/env/a.rs")).expect("a file"), "a");
        assert_eq!(fs::read_dir(&to).expect("a folder").count(), 3);
    }

    #[test]
    fn outdated_file_of_the_chart_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, file) = (folder.path().join("shop"), folder.path().join("chart/files/crds.yaml"));
        write(&program, "#!/bin/sh\necho \"$@\"\n");
        let script = "#!/bin/sh\nset -e\ncd \"$(dirname \"$0\")\"\ncargo run --quiet -- manifests crd > files/crds.yaml\n";
        write(&folder.path().join("chart/generate.sh"), script);
        write(&file, "manifests crd\n");
        check_chart(folder.path(), &program).expect("the file is up to date");
        write(&file, "manifests\n");
        let error = check_chart(folder.path(), &program).expect_err("the file is outdated").to_string();
        assert!(error.contains("crds.yaml"), "{error}");
    }
}
