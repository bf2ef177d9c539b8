//! Checks the tests that `docs/guarantees.md` names.
//!
//! The page names a test by a link: the text is the name of the test, the target is its file. The file must have a test
//! of that name. Each row of a table has three cells; the last cell names a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::claims::cells;
use super::workspace::{root, tests_of};

const PAGE: &str = "docs/guarantees.md";

/// A smaller number means that the page lost its links.
const MIN_LINKS: usize = 200;

fn text() -> String {
    fs::read_to_string(root().join(PAGE)).expect("the page is readable")
}

/// Links to Rust files: the text of the link, and the path from the root.
fn links(text: &str) -> impl Iterator<Item = (String, String)> {
    text.match_indices("](../").filter_map(|(at, open)| {
        let name = text[..at].rsplit_once('[')?.1;
        let (path, _) = text[at + open.len()..].split_once(')')?;
        path.ends_with(".rs").then(|| (name.trim_matches('`').to_owned(), path.to_owned()))
    })
}

/// The rows of tables: line number and cells. The two lines that begin a table are skipped.
fn rows(text: &str) -> Vec<(usize, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &str| line.starts_with("|--") || line.starts_with("| --");
    let is_head = |at: usize| lines.get(at + 1).is_some_and(|next| is_rule(next));
    let body = lines.iter().enumerate().filter(|(at, line)| !is_rule(line) && !is_head(*at));
    body.filter_map(|(at, line)| Some((at + 1, cells(line)?))).collect()
}

#[test]
fn every_named_test_exists() {
    let text = text();
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    for (name, path) in links(&text) {
        let tests = known.entry(path.clone()).or_insert_with(|| {
            let source = fs::read_to_string(root().join(&path)).unwrap_or_default();
            tests_of(&source)
        });
        if !tests.contains(&name) {
            missing.push(format!("{path}: {name}"));
        }
    }
    assert!(missing.is_empty(), "{PAGE} names tests that do not exist:\n{}", missing.join("\n"));
    assert!(links(&text).count() >= MIN_LINKS, "{PAGE} has fewer than {MIN_LINKS} links to tests");
}

#[test]
fn every_row_names_a_test() {
    let text = text();
    let rows = rows(&text);
    let ragged: Vec<_> = rows.iter().filter(|(_, cells)| cells.len() != 3).map(|(line, _)| line).collect();
    assert!(ragged.is_empty(), "{PAGE}: rows without exactly three cells: {ragged:?}");
    let is_bare = |(_, cells): &&(usize, Vec<&str>)| links(cells[2]).next().is_none();
    let bare: Vec<String> =
        rows.iter().filter(is_bare).map(|(line, cells)| format!("{line}: {}", cells[0])).collect();
    assert!(bare.is_empty(), "{PAGE}: rows without a test:\n{}", bare.join("\n"));
}

#[test]
fn no_row_is_pending() {
    let text = text();
    let pending: Vec<&str> = text.lines().filter(|line| line.contains("PENDING(")).collect();
    assert!(pending.is_empty(), "{PAGE} has guarantees without a test:\n{}", pending.join("\n"));
}

#[test]
fn links_and_rows_are_read() {
    let text =
        "| a | b | c |\n|---|---|---|\n| x | [`key_is_kept`](../a/b.rs), see [c](../d.md) | pending: yet |\n";
    assert_eq!(links(text).collect::<Vec<_>>(), [("key_is_kept".to_owned(), "a/b.rs".to_owned())]);
    assert_eq!(rows(text).len(), 1);
    assert_eq!(rows(text)[0].1.len(), 3);
}
