//! Generates `tests/parity/README.md` from `claims/*.md` and from markers on tests.
//!
//! A claim is a row of a table in `claims/`. Its id is unique. A test shows claims if a marker stands directly above
//! its attributes:
//!
//! ```text
//! // parity: get-by-key, index-field
//! #[test]
//! ```
//!
//! `WRITE_DOCS=1 cargo test -p windlass-parity page` writes the page.

mod claims;
mod guarantees;
mod markers;
mod render;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use claims::{Block, Claim};
use markers::MarkedTest;

/// The generated page, relative to the root of the workspace.
const PAGE: &str = "tests/parity/README.md";

/// The tests of this suite, relative to the root of the workspace.
const SUITE: &str = "tests/parity/tests/parity/";

/// The tests of client-go for informers and queues, by file.
const UPSTREAM: &str = include_str!("../../client-go-tests.txt");

/// Claims that no test and no reason supports, and ids that do not match.
fn mismatches(claims: &[&Claim], tests: &[MarkedTest]) -> Vec<String> {
    let mut known: BTreeMap<&str, &Claim> = BTreeMap::new();
    let mut problems = Vec::new();
    for claim in claims {
        if let Some(first) = known.insert(&claim.id, claim) {
            let (place, id, first) = (&claim.place, &claim.id, &first.place);
            problems.push(format!("{place}: id `{id}` is already used at {first}; choose another id"));
        }
    }
    for test in tests {
        let unknown = test.ids.iter().filter(|id| !known.contains_key(id.as_str()));
        problems.extend(unknown.map(|id| {
            let MarkedTest { path, line, name, .. } = test;
            format!("{path}:{line}: {name} shows the unknown claim `{id}`; add it to tests/parity/claims/ or correct the id")
        }));
    }
    let shown: BTreeSet<&str> = tests.iter().flat_map(|test| &test.ids).map(String::as_str).collect();
    let is_bare = |claim: &&&Claim| !shown.contains(claim.id.as_str()) && !claim.has_reason();
    problems.extend(claims.iter().filter(is_bare).map(|Claim { place, id, .. }| {
        format!(
            "{place}: no test shows `{id}`; add `// parity: {id}` above a test, or add a reason as the note"
        )
    }));
    problems
}

/// The content of `claims/`.
fn all_blocks() -> Vec<Block> {
    let files = workspace::claim_files();
    let parsed = files.iter().map(|(path, text)| claims::parse(path, text));
    let (blocks, problems): (Vec<_>, Vec<_>) = parsed.unzip();
    let problems = problems.concat();
    assert!(problems.is_empty(), "claims are invalid:\n{}", problems.join("\n"));
    blocks.into_iter().flatten().collect()
}

/// The tests of the workspace that have a marker, in the order of paths and lines.
fn all_marked_tests() -> Vec<MarkedTest> {
    let files = workspace::rust_files();
    let parsed = files.iter().map(|(path, text)| markers::parse(path, text));
    let (tests, problems): (Vec<_>, Vec<_>) = parsed.unzip();
    let problems = problems.concat();
    assert!(problems.is_empty(), "markers are invalid:\n{}", problems.join("\n"));
    tests.into_iter().flatten().collect()
}

#[test]
fn generated_page_matches_claims_and_markers() {
    let (blocks, tests) = (all_blocks(), all_marked_tests());
    let claims: Vec<&Claim> = blocks.iter().filter_map(Block::claim).collect();
    let problems = mismatches(&claims, &tests);
    assert!(problems.is_empty(), "claims and markers do not match:\n{}", problems.join("\n"));
    let page = render::page(&blocks, &tests);
    let path = workspace::root().join(PAGE);
    if std::env::var_os("WRITE_DOCS").is_some() {
        fs::write(&path, &page).expect("the page is writable");
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|text| text == page);
    assert!(is_current, "{PAGE} is out of date: run `WRITE_DOCS=1 cargo test -p windlass-parity page`");
}

#[test]
fn every_test_of_this_suite_has_a_marker() {
    let marked: BTreeSet<(String, String)> =
        all_marked_tests().into_iter().map(|test| (test.path, test.name)).collect();
    let is_generator = |path: &str| path.starts_with(&format!("{SUITE}page"));
    let files = workspace::rust_files();
    let suite = files.iter().filter(|(path, _)| path.starts_with(SUITE) && !is_generator(path));
    let tests =
        suite.flat_map(|(path, text)| workspace::tests_of(text).into_iter().map(|name| (path.clone(), name)));
    let unmarked: Vec<String> = tests
        .filter(|test| !marked.contains(test))
        .map(|(path, name)| {
            format!("{path}: {name} has no marker; add `// parity: <id>` above its attributes")
        })
        .collect();
    assert!(unmarked.is_empty(), "tests of this suite show no claim:\n{}", unmarked.join("\n"));
}

#[test]
fn every_test_of_client_go_has_a_claim() {
    let blocks = all_blocks();
    let there: String = blocks.iter().filter_map(Block::claim).map(|claim| claim.there.as_str()).collect();
    let files =
        UPSTREAM.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let tests: Vec<&str> = files.flat_map(|(_, tests)| tests.split(' ')).collect();
    let missing: Vec<&&str> = tests.iter().filter(|test| !there.contains(&format!("`{test}`"))).collect();
    assert!(missing.is_empty(), "tests of client-go are in no claim: {missing:?}; add them to claims/");
    assert!(tests.len() > 200, "client-go-tests.txt lists only {} tests", tests.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: &str, note: &str) -> Claim {
        let place = format!("claims/a.md:{}", id.len());
        Claim { id: id.into(), there: "there".into(), here: "here".into(), note: note.into(), place }
    }

    fn test_of(ids: &[&str]) -> MarkedTest {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        MarkedTest { ids, name: "key_is_kept".into(), path: "runtime/a.rs".into(), line: 3 }
    }

    #[test]
    fn mismatches_name_place_id_and_remedy() {
        let claims =
            [claim("shown", ""), claim("shown", ""), claim("bare", "otherwise"), claim("no", "not done: x")];
        let claims: Vec<&Claim> = claims.iter().collect();
        assert_eq!(
            mismatches(&claims, &[test_of(&["shown", "unknown"])]),
            [
                "claims/a.md:5: id `shown` is already used at claims/a.md:5; choose another id",
                "runtime/a.rs:3: key_is_kept shows the unknown claim `unknown`; add it to tests/parity/claims/ or \
                 correct the id",
                "claims/a.md:4: no test shows `bare`; add `// parity: bare` above a test, or add a reason as the note",
            ]
        );
    }

    #[test]
    fn claims_with_test_or_reason_match() {
        let claims = [claim("shown", ""), claim("deviation", "otherwise"), claim("no", "not done: x")];
        let claims: Vec<&Claim> = claims.iter().collect();
        assert_eq!(mismatches(&claims, &[test_of(&["shown", "deviation"])]), [""; 0]);
    }
}
