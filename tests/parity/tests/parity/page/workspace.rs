//! Files of the workspace, and the tests in a Rust file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CLAIMS: &str = "tests/parity/claims";

/// Attributes of test functions.
const TEST_ATTRIBUTES: [&str; 4] = ["#[test]", "#[tokio::test", "#[windlass::simulation", "#[simulation"];

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths from the root and texts of all Rust files, in the order of paths.
pub(super) fn rust_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    visit(&root(), "", "rs", &mut files);
    files.sort();
    files
}

/// Paths from the root and texts of the files in `claims/`, in the order of paths.
pub(super) fn claim_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    visit(&root().join(CLAIMS), &format!("{CLAIMS}/"), "md", &mut files);
    files.sort();
    files
}

/// Adds the files below a folder. Build output and hidden folders are skipped.
fn visit(folder: &Path, prefix: &str, extension: &str, files: &mut Vec<(String, String)>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot read {prefix:?}: {error}"));
    for entry in entries {
        let path = entry.expect("the entry is readable").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                visit(&path, &format!("{prefix}{name}/"), extension, files);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {name}: {error}"));
            files.push((format!("{prefix}{name}"), text));
        }
    }
}

/// Whether a line is an attribute that turns a function into a test.
pub(super) fn is_test_attribute(line: &str) -> bool {
    TEST_ATTRIBUTES.iter().any(|attribute| line.starts_with(attribute))
}

/// The name of the function whose signature starts on the line.
pub(super) fn name_of(line: &str) -> Option<String> {
    let (modifiers, rest) = line.split_once("fn ")?;
    let is_modifier = |word: &str| word == "async" || word.starts_with("pub");
    if !modifiers.split_whitespace().all(is_modifier) {
        return None;
    }
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The names of the tests of a file: functions right below a test attribute.
pub(super) fn tests_of(source: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let after = |at: usize| lines[at..].iter().take(6).find_map(|line| name_of(line));
    let found = lines.iter().enumerate().filter(|(_, line)| is_test_attribute(line));
    found.filter_map(|(at, _)| after(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_functions_below_a_test_attribute() {
        let source = "    #[tokio::test(start_paused = true)]\n    async fn first() {}\n#[test]\nfn second() {}\n\
                      fn third() {}\n#[windlass::simulation(crashes = all)]\nasync fn fourth() {}\n";
        assert_eq!(tests_of(source), ["first", "fourth", "second"].map(str::to_owned).into());
    }

    #[test]
    fn signature_is_distinguished_from_other_text() {
        assert_eq!(name_of("pub(crate) async fn key() {"), Some("key".to_owned()));
        assert_eq!(name_of("let f: fn () = g;"), None);
        assert_eq!(name_of("impl Fn for X"), None);
    }
}
