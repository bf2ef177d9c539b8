//! Rules about the location of code.

use super::tree::{Finding, SourceFile, Tree};

/// Modules of `controllers/` that all controllers can use.
const SHARED: &[&str] = &["lib", "shared", "options", "check"];

/// Requires each library to state its guarantees in the crate documentation.
pub(super) fn crates_state_their_guarantees(tree: &Tree) -> Vec<Finding> {
    let is_face = |path: &str| {
        let mut parts = path.split('/');
        matches!(parts.next(), Some("runtime" | "simulation"))
            && parts.nth(1) == Some("src")
            && parts.next() == Some("lib.rs")
    };
    let faces = tree.files().filter(|file| is_face(&file.path));
    faces.filter_map(guarantees).collect()
}

fn guarantees(file: &SourceFile) -> Option<Finding> {
    let opening: Vec<_> = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
    if opening.is_empty() {
        return Some(
            file.finding(1, "begin the crate with `//!`: its purpose, its guarantees and its limits"),
        );
    }
    let states = opening.iter().any(|line| line.to_lowercase().contains("guarantee"));
    (!states).then(|| file.finding(1, "state the guarantees of the crate in its `//!` documentation"))
}

/// Rejects imports between controllers. They can use the runtime and the shared modules.
pub(super) fn controllers_stand_alone(tree: &Tree) -> Vec<Finding> {
    let mut controllers: Vec<_> = tree.files().filter_map(|file| controller_of(&file.path)).collect();
    controllers.dedup();
    let mut findings = Vec::new();
    for file in tree.rust(&["controllers/src/"]) {
        let Some(own) = module_of(&file.file.path).filter(|module| *module != "lib") else { continue };
        for other in controllers.iter().filter(|other| **other != own) {
            let path = format!("crate::{other}");
            let places = file.occurrences(&path);
            findings.extend(places.map(|at| {
                file.finding_at(at, format!("`{own}` imports `{other}`: move what both need to `shared`"))
            }));
        }
    }
    findings
}

/// Returns the module directly below `controllers/src` of a path.
fn module_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("controllers/src/")?;
    rest.split('/').next()?.split('.').next()
}

fn controller_of(path: &str) -> Option<&str> {
    module_of(path).filter(|module| !SHARED.contains(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_crate_without_guarantees_is_found() {
        let tree = Tree::of(&[
            ("runtime/a/src/lib.rs", "//! Does one thing.\n//!\n//! # Guarantees\n//! - It does it.\n"),
            ("runtime/b/src/lib.rs", "//! Does one thing.\nuse a;\n// guarantee\n"),
            ("runtime/c/src/lib.rs", "use a;\n"),
            ("runtime/c/src/inner.rs", "use a;\n"),
        ]);
        let paths: Vec<_> =
            crates_state_their_guarantees(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["runtime/b/src/lib.rs", "runtime/c/src/lib.rs"]);
    }

    #[test]
    fn controller_that_imports_a_sibling_is_found() {
        let tree = Tree::of(&[
            ("controllers/src/lib.rs", "use crate::endpoints; use crate::replicaset;"),
            ("controllers/src/endpoints.rs", "use crate::shared::x;\nuse crate::replicaset::plan;"),
            ("controllers/src/replicaset/plan.rs", "use crate::replicaset::status;"),
            ("controllers/src/shared/x.rs", "use crate::endpoints::y;"),
        ]);
        let found: Vec<_> = controllers_stand_alone(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(
            found,
            [("controllers/src/endpoints.rs".into(), 2), ("controllers/src/shared/x.rs".into(), 1)]
        );
    }
}
