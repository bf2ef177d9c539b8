//! `cargo xtask mutants`: a copy of the workspace with defects, and the tests that must find them.
//!
//! Guarantees:
//! - The copy contains the files of the working tree that git tracks or would track, with all mutations of
//!   `tests/mutants/`. A mutation that does not apply is an error.
//! - A file is written only if its content differs, so that a second run builds only what changed.
//! - The copy builds into the target directory of the original. Its packages have another version, so neither replaces
//!   the artifacts of the other, and both use the same artifacts of registry crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};
use windlass_mutants::mutations;

use crate::workspace::{cargo, must, output, root, target_directory};

/// The folder of the copy, in the target directory.
const COPY: &str = "mutants";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Passed on to the test program: names of hunts, `--nocapture`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    test_arguments: Vec<String>,
}

/// Makes or updates the copy, and runs the hunts in it.
///
/// # Errors
/// If a mutation does not apply, the copy does not build, or a hunt does not find its defect.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let target = target_directory()?;
    let copy = target.join(COPY);
    let files = mutated(files_of(&root())?)?;
    remove_others(&copy, &files)?;
    let written = write(&copy, &files)?;
    println!("{written} of {} files changed in {}", files.len(), copy.display());
    // With the features that all packages need together, as in a test of the workspace: registry crates are built once.
    let mut tests = cargo();
    tests.current_dir(&copy).env("CARGO_TARGET_DIR", target);
    tests.args(["test", "--workspace", "--test=hunts", "--features=windlass-mutants/hunts"]);
    must(tests.arg("--").args(&arguments.test_arguments))
}

/// Content by path, relative to the root.
type Files = BTreeMap<String, Vec<u8>>;

/// Returns the files of the working tree, with uncommitted changes, without ignored files.
fn files_of(root: &Path) -> Result<Files> {
    let mut list = Command::new("git");
    list.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = output(&mut list)?;
    let mut files = Files::new();
    for path in listed.split_terminator('\0') {
        match fs::read(root.join(path)) {
            Ok(content) => drop(files.insert(path.to_owned(), content)),
            // Deleted, and not yet in the index.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        }
    }
    Ok(files)
}

fn mutated(mut files: Files) -> Result<Files> {
    for mutation in mutations() {
        let missing =
            || anyhow!("mutation {:?} names {}, which does not exist", mutation.name, mutation.file);
        let content = files.get_mut(mutation.file).ok_or_else(missing)?;
        let text = std::str::from_utf8(content).with_context(|| format!("{} is not UTF-8", mutation.file))?;
        *content = mutation.apply(text)?.into_bytes();
    }
    Ok(files)
}

/// Writes the files whose content differs, and returns their number.
fn write(copy: &Path, files: &Files) -> Result<usize> {
    let mut written = 0;
    for (path, content) in files {
        let file = copy.join(path);
        if fs::read(&file).is_ok_and(|old| old == *content) {
            continue;
        }
        let folder = file.parent().unwrap_or(copy);
        let done = fs::create_dir_all(folder).and_then(|()| fs::write(&file, content));
        done.with_context(|| format!("cannot write {}", file.display()))?;
        written += 1;
    }
    Ok(written)
}

/// Removes the files that the original no longer has.
fn remove_others(copy: &Path, files: &Files) -> Result<()> {
    let mut folders = vec![copy.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
        };
        for entry in entries {
            let path = entry?.path();
            let relative = path.strip_prefix(copy)?.to_string_lossy().replace('\\', "/");
            if path.is_dir() {
                folders.push(path);
            } else if !files.contains_key(&relative) {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn copy_follows_the_original_and_writes_only_what_differs() -> Result<()> {
        let copy = tempfile::tempdir()?;
        let update = |files: &Files| {
            remove_others(copy.path(), files)?;
            write(copy.path(), files)
        };
        let first = files(&[("a/one.rs", "1"), ("a/two.rs", "2"), ("three.rs", "3")]);
        assert_eq!((update(&first)?, update(&first)?), (3, 0));
        assert_eq!(update(&files(&[("a/one.rs", "1"), ("three.rs", "4")]))?, 1);
        assert!(!copy.path().join("a/two.rs").exists());
        assert_eq!(fs::read(copy.path().join("three.rs"))?, b"4");
        Ok(())
    }

    #[test]
    fn mutation_of_a_missing_file_is_an_error_that_names_it() {
        let error = mutated(Files::new()).expect_err("there are no files").to_string();
        assert!(error.contains("names Cargo.toml, which does not exist"), "{error}");
    }
}
