//! The rule about modules: within a crate, what one top-level module uses never leads back to it.
//!
//! It follows paths that name a module (`crate::queue::..`). Not followed are names that the root of a crate exports again,
//! methods of a type of another module, and what the modules of one folder use of each other. Tests may use anything.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Finding, RustFile, Tree};

/// Where the crates are.
const CRATES: &[&str] = &["runtime/", "simulation/", "controllers/", "cmd/"];

/// Which module uses which, and where.
type Uses = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// A module that is part of a cycle cannot be understood, tested or moved without the others.
pub(super) fn modules_form_no_cycle(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<RustFile<'_>>> = BTreeMap::new();
    for file in tree.rust(CRATES) {
        if let Some((folder, _)) = file.file.path.split_once("/src/") {
            crates.entry(folder).or_default().push(file);
        }
    }
    crates.values().flat_map(|files| cycles(&uses(files))).collect()
}

/// The top-level module of a file; none for the root of the crate, and for tests.
fn module_of(path: &str) -> Option<&str> {
    let (_, within) = path.split_once("/src/")?;
    let is_test = within.split('/').any(|part| ["tests", "tests.rs", "threads.rs", "bin"].contains(&part));
    let top = within.split('/').next()?.trim_end_matches(".rs");
    (!is_test && !["lib", "main"].contains(&top)).then_some(top)
}

fn uses(files: &[RustFile<'_>]) -> Uses {
    let modules: BTreeSet<&str> = files.iter().filter_map(|file| module_of(&file.file.path)).collect();
    let mut uses = Uses::new();
    for file in files {
        let Some(from) = module_of(&file.file.path) else { continue };
        for (at, name) in named(file) {
            if name != from && modules.contains(name) {
                let place = || (file.file.path.clone(), file.code.line_of(at));
                uses.entry(from.to_owned()).or_default().entry(name.to_owned()).or_insert_with(place);
            }
        }
    }
    uses
}

/// The names that follow the root of the crate in the paths of a file, outside its tests.
fn named<'a>(file: &'a RustFile<'_>) -> Vec<(usize, &'a str)> {
    let code = file.code.text();
    let end = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    let is_top = !file.file.path.split_once("/src/").is_some_and(|(_, within)| within.contains('/'));
    let roots: &[&str] = if is_top { &["crate::", "super::"] } else { &["crate::"] };
    let mut found = Vec::new();
    for root in roots {
        for at in file.occurrences(root).filter(|at| *at < end) {
            let path = at + root.len();
            if code[path..].starts_with('{') {
                let close = file.code.closing(path).unwrap_or(path);
                found.extend(first_names(&code[path + 1..close.max(path + 1)]).map(|name| (at, name)));
            } else {
                found.push((at, first_word(&code[path..])));
            }
        }
    }
    found
}

/// The first name of each path in a group: `a::{b, c}, d` has `a` and `d`.
fn first_names(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let paths = group.split(move |c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    paths.map(|path| first_word(path.trim_start()))
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// One finding for each use that leads back to where it is.
fn cycles(uses: &Uses) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (from, used) in uses {
        for (to, (path, line)) in used {
            if reaches(uses, to, from) {
                let message =
                    format!("{from} uses {to}, which leads back to it: move what both need below them");
                findings.push(Finding { path: path.clone(), line: *line, message });
            }
        }
    }
    findings
}

fn reaches(uses: &Uses, from: &str, to: &str) -> bool {
    let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
    while let Some(module) = left.pop() {
        if module == to {
            return true;
        }
        let next = uses.get(module).into_iter().flat_map(BTreeMap::keys);
        left.extend(next.map(String::as_str).filter(|next| seen.insert(next)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_of_modules_is_found_and_tests_may_close_one() {
        let tree = Tree::of(&[
            ("runtime/a/src/lib.rs", "mod queue; mod state; mod worker;"),
            ("runtime/a/src/queue.rs", "use crate::{Key, state::{worker, State}};"),
            ("runtime/a/src/state/inner.rs", "// crate::queue\nuse crate::worker::Worker;"),
            ("runtime/a/src/worker.rs", "fn f(_: super::queue::Queue) {}"),
            ("runtime/b/src/queue.rs", "use crate::state;\n#[cfg(test)]\nmod tests {\n}"),
            ("runtime/b/src/state.rs", "use crate::Queue;\n#[cfg(test)]\nmod tests {\nuse crate::queue;\n}"),
            ("runtime/b/src/state/tests.rs", "use crate::queue;"),
        ]);
        let found: Vec<_> = modules_form_no_cycle(&tree).into_iter().map(|it| (it.path, it.line)).collect();
        let in_a = |file: &str, line| (format!("runtime/a/src/{file}.rs"), line);
        assert_eq!(found, [in_a("queue", 1), in_a("state/inner", 2), in_a("worker", 1)]);
    }
}
