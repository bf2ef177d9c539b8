//! The rule about modules: the dependencies between the modules of one folder have no cycle.
//!
//! The rule follows paths from `crate`, `self` and `super`, in imports and elsewhere, and the names that imports add to
//! a module: with `pub use self::request::Target` in `registry.rs`, `super::Target` leads to `registry/request.rs`.
//! Submodules count as their parent module. The rule ignores items of a common parent, and does not follow globs and
//! methods of types of other modules. Tests can use any module.

mod paths;

use std::collections::{BTreeMap, BTreeSet};

use self::paths::{Path, imports, paths};
use super::tree::{Finding, RustFile, Tree};

/// Folders of the crates.
const CRATES: &[&str] = &["runtime/", "simulation/", "controllers/", "cmd/"];

/// Maximum depth of imports of imports, because two that refer to each other have no end.
const MAX_IMPORTS: usize = 8;

/// Sibling modules that each module of a folder uses, with the location of the use.
type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, (&'a str, usize)>>;

/// Production modules of one crate: the names that their imports add, by the path from the crate root.
struct Modules<'a> {
    imports: BTreeMap<Path<'a>, BTreeMap<&'a str, Path<'a>>>,
}

/// Returns the findings. Modules of a cycle cannot be understood, tested or moved separately.
pub(super) fn modules_form_no_cycle(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<RustFile<'_>>> = BTreeMap::new();
    for file in tree.rust(CRATES) {
        if let Some((folder, _)) = file.file.path.split_once("/src/") {
            crates.entry(folder).or_default().push(file);
        }
    }
    let folders =
        |files: &Vec<RustFile<'_>>| -> Vec<Finding> { folders(files).values().flat_map(cycles).collect() };
    crates.values().flat_map(folders).collect()
}

/// Returns the path of a file's module from the crate root; `None` for tests and other programs.
fn module_of(path: &str) -> Option<Path<'_>> {
    let (_, within) = path.split_once("/src/")?;
    let mut module: Path<'_> = within.trim_end_matches(".rs").split('/').collect();
    if module.iter().any(|part| ["tests", "threads", "bin"].contains(part)) {
        return None;
    }
    if matches!(module[..], ["lib" | "main"]) || module.last() == Some(&"mod") {
        module.pop();
    }
    Some(module)
}

/// Returns the uses between the modules of each folder.
fn folders<'a>(files: &'a [RustFile<'_>]) -> BTreeMap<Path<'a>, Uses<'a>> {
    let modules = Modules::of(files);
    let mut folders: BTreeMap<Path<'_>, Uses<'_>> = BTreeMap::new();
    for file in files {
        let Some(module) = module_of(&file.file.path) else { continue };
        for (at, path) in paths(file) {
            let target = modules.resolve(&module, &path, 0);
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                let place = || (file.file.path.as_str(), file.code.line_of(at));
                let uses = folders.entry(module[..shared].to_vec()).or_default();
                uses.entry(from).or_default().entry(to).or_insert_with(place);
            }
        }
    }
    folders
}

impl<'a> Modules<'a> {
    fn of(files: &'a [RustFile<'_>]) -> Self {
        let mut all: BTreeMap<Path<'a>, BTreeMap<&str, Path<'_>>> = BTreeMap::new();
        for file in files {
            if let Some(module) = module_of(&file.file.path) {
                for above in 0..module.len() {
                    all.entry(module[..above].to_vec()).or_default();
                }
                all.entry(module).or_default().extend(imports(file));
            }
        }
        Self { imports: all }
    }

    /// Returns the module that contains the item of this path, which is used in `from`.
    fn resolve(&self, from: &[&'a str], path: &[&'a str], imports: usize) -> Path<'a> {
        let (mut at, mut rest) = (from.to_vec(), path);
        while let [name, after @ ..] = rest {
            match *name {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                name => {
                    let child: Path<'_> = at.iter().copied().chain([name]).collect();
                    if !self.imports.contains_key(&child) {
                        return self.imported(at, name, after, imports);
                    }
                    at = child;
                }
            }
            rest = after;
        }
        at
    }

    /// Follows the import that adds a name to a module. Without an import, the module contains the item.
    fn imported(&self, module: Path<'a>, name: &str, after: &[&'a str], imports: usize) -> Path<'a> {
        let import = self.imports.get(&module).and_then(|names| names.get(name));
        let Some(import) = import.filter(|_| imports < MAX_IMPORTS) else { return module };
        let path: Path<'_> = import.iter().chain(after).copied().collect();
        self.resolve(&module, &path, imports + 1)
    }
}

/// Returns a finding for each use between two modules of a cycle.
fn cycles(uses: &Uses<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (from, used) in uses {
        let members: Vec<_> =
            uses.keys().copied().filter(|it| reaches(uses, from, it) && reaches(uses, it, from)).collect();
        for (to, (path, line)) in used.iter().filter(|(to, _)| members.contains(to)) {
            let message = format!(
                "{from} uses {to}, which leads back to it, in the cycle of {}: move what both need below them",
                members.join(", ")
            );
            findings.push(Finding { path: (*path).to_owned(), line: *line, message });
        }
    }
    findings
}

fn reaches(uses: &Uses<'_>, from: &str, to: &str) -> bool {
    let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
    while let Some(module) = left.pop() {
        if module == to {
            return true;
        }
        let next = uses.get(module).into_iter().flat_map(BTreeMap::keys).copied();
        left.extend(next.filter(|next| seen.insert(next)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize, String)> {
        let found = modules_form_no_cycle(&Tree::of(files)).into_iter();
        found.map(|it| (it.path.replace("runtime/a/src/", ""), it.line, it.message)).collect()
    }

    fn places(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        found(files).into_iter().map(|(path, line, _)| (path, line)).collect()
    }

    fn at(path: &str, line: usize) -> (String, usize) {
        (path.to_owned(), line)
    }

    #[test]
    fn module_cycle_is_found_outside_tests() {
        let found = places(&[
            ("runtime/a/src/lib.rs", "mod queue; mod state; mod worker;"),
            ("runtime/a/src/queue.rs", "use crate::{Key, state::{worker, State}};"),
            ("runtime/a/src/state/inner.rs", "// crate::queue\nuse crate::worker::Worker;"),
            ("runtime/a/src/worker.rs", "fn f(_: super::queue::Queue) {}"),
            ("runtime/b/src/queue.rs", "use crate::state;\n#[cfg(test)]\nmod tests {\n}"),
            ("runtime/b/src/state.rs", "use crate::Queue;\n#[cfg(test)]\nmod tests {\nuse crate::queue;\n}"),
            ("runtime/b/src/state/tests.rs", "use crate::queue;"),
        ]);
        assert_eq!(found, [at("queue.rs", 1), at("state/inner.rs", 2), at("worker.rs", 1)]);
    }

    #[test]
    fn cycle_within_a_folder_names_its_members_and_each_use() {
        let found = found(&[
            ("runtime/a/src/http.rs", "mod options; mod query; mod media;\nuse self::query::Query;"),
            ("runtime/a/src/http/media.rs", "use super::options::Options;"),
            (
                "runtime/a/src/http/options.rs",
                "use crate::registry;\nuse super::Meta;\nuse super::query::list;",
            ),
            (
                "runtime/a/src/http/query.rs",
                "fn f() -> crate::http::options::Options {}\nuse super::options::A;",
            ),
            ("runtime/a/src/registry.rs", ""),
        ]);
        let members =
            "which leads back to it, in the cycle of options, query: move what both need below them";
        assert_eq!(
            found,
            [
                ("http/options.rs".to_owned(), 3, format!("options uses query, {members}")),
                ("http/query.rs".to_owned(), 1, format!("query uses options, {members}")),
            ]
        );
    }

    #[test]
    fn modules_below_a_sibling_count_as_the_sibling() {
        let found = places(&[
            ("runtime/a/src/registry/kinds.rs", "mod pods;"),
            ("runtime/a/src/registry/kinds/pods.rs", "use super::super::create;\nuse super::Kind;"),
            ("runtime/a/src/registry/create.rs", "use super::kinds;"),
        ]);
        assert_eq!(found, [at("registry/create.rs", 1), at("registry/kinds/pods.rs", 1)]);
    }

    #[test]
    fn names_that_a_parent_imports_are_followed() {
        let found = places(&[
            ("runtime/a/src/lib.rs", "mod registry; mod service;\npub use registry::Target;"),
            ("runtime/a/src/registry.rs", "pub use self::request::{Target, Verb as Method};"),
            ("runtime/a/src/registry/request.rs", "use super::writer;"),
            ("runtime/a/src/registry/writer.rs", "use super::{Registry,\nMethod};"),
            ("runtime/a/src/registry/kinds.rs", "use crate::service;"),
            ("runtime/a/src/service.rs", "use crate::Target;"),
        ]);
        let registry = [at("registry/kinds.rs", 1), at("service.rs", 1)];
        let below = [at("registry/request.rs", 1), at("registry/writer.rs", 1)];
        assert_eq!(found, [registry, below].concat());
    }

    #[test]
    fn resolution_of_mutual_imports_terminates() {
        let found = places(&[
            ("runtime/a/src/b.rs", "pub use crate::c::X;"),
            ("runtime/a/src/c.rs", "pub use crate::b::X;"),
        ]);
        assert_eq!(found, [at("b.rs", 1), at("c.rs", 1)]);
    }
}
