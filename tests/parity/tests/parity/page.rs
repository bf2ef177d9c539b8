//! Checks the tests that `docs/parity.md` and `docs/guarantees.md` name.
//!
//! A page names a test by a link: the text is the name of the test, the target is its file. The file must have a test of
//! that name. Each row of a table has three cells; the last cell names a test or begins with a marker of its page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A page of tables whose last column names tests.
struct Page {
    path: &'static str,
    /// Markers that can replace a test at the start of the last cell.
    markers: &'static [&'static str],
    /// Minimum number of links to tests.
    min_links: usize,
}

const PARITY: Page = Page {
    path: "docs/parity.md",
    markers: &["not done:", "otherwise:", "shown by its type:"],
    min_links: 100,
};

const GUARANTEES: Page = Page { path: "docs/guarantees.md", markers: &[], min_links: 200 };

const PAGES: [Page; 2] = [PARITY, GUARANTEES];

impl Page {
    fn text(&self) -> String {
        fs::read_to_string(root().join(self.path)).expect("the page is readable")
    }
}

/// The tests of client-go that concern informers and queues, by file.
const UPSTREAM: &str = include_str!("../../client-go-tests.txt");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A link to a file of Rust: what it says, and where it leads from the root.
fn links(text: &str) -> impl Iterator<Item = (String, String)> {
    text.match_indices("](../").filter_map(|(at, open)| {
        let name = text[..at].rsplit_once('[')?.1;
        let (path, _) = text[at + open.len()..].split_once(')')?;
        path.ends_with(".rs").then(|| (name.trim_matches('`').to_owned(), path.to_owned()))
    })
}

/// The tests of a file: functions right below an attribute that turns them into tests.
fn tests_of(source: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let attributes = ["#[test", "#[tokio::test", "#[windlass::simulation"];
    let is_test = |line: &str| attributes.iter().any(|attribute| line.starts_with(attribute));
    let after = |at: usize| lines[at..].iter().take(6).find_map(|line| name_of(line));
    let found = lines.iter().enumerate().filter(|(_, line)| is_test(line));
    found.filter_map(|(at, _)| after(at)).collect()
}

fn name_of(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("fn ")?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The rows of tables: line number and cells. The two lines that begin a table are none.
fn rows(text: &str) -> Vec<(usize, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &str| line.starts_with("|--") || line.starts_with("| --");
    let heads = |at: usize| lines.get(at + 1).is_some_and(|next| is_rule(next));
    let body =
        lines.iter().enumerate().filter(|(at, line)| line.starts_with('|') && !is_rule(line) && !heads(*at));
    body.map(|(at, line)| (at + 1, line.trim_matches('|').split(" | ").map(str::trim).collect())).collect()
}

#[test]
fn every_test_on_the_page_exists() {
    for page in &PAGES {
        let text = page.text();
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
        assert!(missing.is_empty(), "{} names tests that do not exist:\n{}", page.path, missing.join("\n"));
        assert!(links(&text).count() >= page.min_links, "{} has lost its tests", page.path);
    }
}

#[test]
fn every_row_names_a_test_or_says_why_not() {
    for page in &PAGES {
        let text = page.text();
        let is_bare = |(_, cells): &&(usize, Vec<&str>)| {
            let last = cells.last().copied().unwrap_or_default();
            links(last).next().is_none() && !page.markers.iter().any(|marker| last.starts_with(marker))
        };
        let rows = rows(&text);
        let bare: Vec<String> =
            rows.iter().filter(is_bare).map(|(line, cells)| format!("{line}: {}", cells[0])).collect();
        assert!(bare.is_empty(), "{}: rows without a test or a marker:\n{}", page.path, bare.join("\n"));
        let ragged: Vec<_> =
            rows.iter().filter(|(_, cells)| cells.len() != 3).map(|(line, _)| line).collect();
        assert!(ragged.is_empty(), "{}: rows without exactly three cells: {ragged:?}", page.path);
    }
}

#[test]
fn guarantees_page_has_no_pending_rows() {
    let text = GUARANTEES.text();
    let pending: Vec<&str> = text.lines().filter(|line| line.contains("PENDING(")).collect();
    assert!(pending.is_empty(), "guarantees without a test:\n{}", pending.join("\n"));
}

#[test]
fn every_test_of_this_suite_is_on_the_page() {
    let named: BTreeSet<(String, String)> = links(&PARITY.text()).collect();
    let folder = root().join("tests/parity/tests/parity");
    let mut unnamed = Vec::new();
    for entry in fs::read_dir(folder).expect("this folder") {
        let file = entry.expect("an entry").path();
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let path = format!("tests/parity/tests/parity/{name}");
        if name == "page.rs" {
            continue;
        }
        let tests = tests_of(&fs::read_to_string(&file).expect("a file"));
        unnamed.extend(tests.into_iter().filter(|test| !named.contains(&(test.clone(), path.clone()))));
    }
    assert!(unnamed.is_empty(), "these tests stand in no table:\n{}", unnamed.join("\n"));
}

#[test]
fn every_test_of_client_go_is_on_the_page() {
    let page = PARITY.text();
    let files =
        UPSTREAM.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let tests: Vec<&str> = files.flat_map(|(_, tests)| tests.split(' ')).collect();
    let missing: Vec<&&str> = tests.iter().filter(|test| !page.contains(&format!("`{test}`"))).collect();
    assert!(missing.is_empty(), "these tests of client-go have no row: {missing:?}");
    assert!(tests.len() > 200, "the list has lost its tests");
}

#[test]
fn what_is_read_off_a_page_and_off_a_file_is_what_stands_there() {
    let text =
        "| a | b | c |\n|---|---|---|\n| x | [`is_so`](../a/b.rs), see [c](../d.md) | not done: yet |\n";
    assert_eq!(links(text).collect::<Vec<_>>(), [("is_so".to_owned(), "a/b.rs".to_owned())]);
    assert_eq!(rows(text).len(), 1);
    assert_eq!(rows(text)[0].1.len(), 3);
    let source = "    #[tokio::test(start_paused = true)]\n    async fn one_is() {}\n#[test]\nfn two_are() {}\nfn three() {}\n#[windlass::simulation(crashes = all)]\nasync fn four_is() {}\n";
    assert_eq!(tests_of(source), ["four_is", "one_is", "two_are"].map(str::to_owned).into());
}
