//! Reads the markers of tests: `// parity: <id>, <id>`, one or several lines, directly above the attributes of a test.

use std::collections::BTreeSet;

use super::claims::is_id;
use super::workspace::{is_test_attribute, name_of};

const MARKER: &str = "// parity:";

/// A test and the claims that it shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MarkedTest {
    pub(super) ids: Vec<String>,
    pub(super) name: String,
    pub(super) path: String,
    /// The line of the first marker.
    pub(super) line: usize,
}

/// Reads a file. The second value lists invalid markers.
pub(super) fn parse(path: &str, source: &str) -> (Vec<MarkedTest>, Vec<String>) {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let (mut tests, mut problems) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(skipped) = lines[at..].iter().position(|line| line.starts_with(MARKER)) {
        let start = at + skipped;
        at = start + lines[start..].iter().take_while(|line| line.starts_with(MARKER)).count();
        let parsed =
            ids(&lines[start..at]).and_then(|ids| Ok((ids, test_below(&lines[at..]).ok_or(MISPLACED)?)));
        match parsed {
            Ok((ids, name)) => {
                tests.push(MarkedTest { ids, name, path: path.to_owned(), line: start + 1 });
            }
            Err(problem) => problems.push(format!("{path}:{}: {problem}", start + 1)),
        }
    }
    (tests, problems)
}

const MISPLACED: &str =
    "marker does not precede a test function; move it directly above the attributes of a test";

fn ids(lines: &[&str]) -> Result<Vec<String>, String> {
    let mut found = BTreeSet::new();
    let mut ids = Vec::new();
    for id in lines.iter().flat_map(|line| line[MARKER.len()..].split(',')).map(str::trim) {
        if !is_id(id) {
            return Err(format!("`{id}` is not a valid id; write `{MARKER} <id>, <id>`"));
        }
        if !found.insert(id) {
            return Err(format!("marker repeats `{id}`; remove one of them"));
        }
        ids.push(id.to_owned());
    }
    Ok(ids)
}

/// The name of the test that starts at the first line, or `None` if no test starts there.
fn test_below(lines: &[&str]) -> Option<String> {
    let mut is_test = false;
    let mut depth = 0;
    for line in lines {
        if depth == 0 && !line.starts_with("#[") {
            return name_of(line).filter(|_| is_test);
        }
        is_test = is_test || is_test_attribute(line);
        depth += line.matches('[').count();
        depth = depth.saturating_sub(line.matches(']').count());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids and name of each test.
    fn parsed(source: &str) -> Vec<(String, String)> {
        let (tests, problems) = parse("a.rs", source);
        assert_eq!(problems, [""; 0]);
        tests.into_iter().map(|test| (test.ids.join(" "), test.name)).collect()
    }

    fn problem(source: &str) -> String {
        let (tests, problems) = parse("a.rs", source);
        assert_eq!(tests, []);
        problems.join("\n")
    }

    fn pair(ids: &str, name: &str) -> (String, String) {
        (ids.to_owned(), name.to_owned())
    }

    #[test]
    fn marker_is_joined_with_the_test_below() {
        let source = "fn f() {}\n\n/// Doc.\n// parity: a-b, c\n#[test]\nfn key_is_kept() {}\n\n    // parity: d\n    \
                      #[tokio::test(start_paused = true)]\n    async fn key_is_lost() {}\n";
        assert_eq!(parsed(source), [pair("a-b c", "key_is_kept"), pair("d", "key_is_lost")]);
        let (tests, _) = parse("a.rs", source);
        assert_eq!((tests[0].line, tests[1].line), (4, 8));
    }

    #[test]
    fn marker_of_several_lines_is_one_marker() {
        let source =
            "// parity: a, b\n// parity: c\n#[windlass::simulation(crashes = all)]\nasync fn f() {}\n";
        assert_eq!(parsed(source), [pair("a b c", "f")]);
    }

    #[test]
    fn attributes_can_span_lines_and_come_in_any_order() {
        let source = "// parity: a\n#[allow(\n    clippy::x,\n    reason = \"[y]\"\n)]\n#[test]\npub(crate) fn f() {}\n";
        assert_eq!(parsed(source), [pair("a", "f")]);
    }

    #[test]
    fn marker_away_from_a_test_is_reported() {
        for below in
            ["", "fn f() {}", "\n#[test]\nfn f() {}", "#[inline]\nfn f() {}", "// x\n#[test]\nfn f() {}"]
        {
            let found = problem(&format!("// parity: a\n{below}\n"));
            assert_eq!(found, format!("a.rs:1: {MISPLACED}"), "{below:?}");
        }
        assert_eq!(problem("// parity: a\n#[test]\nstruct S;\n"), format!("a.rs:1: {MISPLACED}"));
    }

    #[test]
    fn invalid_and_repeated_ids_are_reported() {
        let below = "\n#[test]\nfn f() {}\n";
        let remedy = "is not a valid id; write `// parity: <id>, <id>`";
        assert_eq!(problem(&format!("// parity:{below}")), format!("a.rs:1: `` {remedy}"));
        assert_eq!(problem(&format!("// parity: a b{below}")), format!("a.rs:1: `a b` {remedy}"));
        assert_eq!(problem(&format!("// parity: a,{below}")), format!("a.rs:1: `` {remedy}"));
        assert_eq!(
            problem(&format!("// parity: a\n// parity: a{below}")),
            "a.rs:1: marker repeats `a`; remove one of them"
        );
    }

    #[test]
    fn text_that_mentions_a_marker_is_not_a_marker() {
        assert_eq!(parsed("//! // parity: a\nlet text = \"// parity: a\";\nf(); // parity: a\n"), []);
    }
}
