//! Tables of documents that list the variants of an enum.
//!
//! A table below the line `<!-- variants of NAME in PATH -->` has each variant once, in the order of declaration, as
//! the first code span of a row.

use super::prose::code_spans;
use super::tree::{Finding, RustFile, SourceFile, Tree};

const MARKER: &str = "<!-- variants of ";

/// Compares the marked tables with the enums.
pub(super) fn tables_list_variants(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|page| page_findings(tree, page)).collect()
}

fn page_findings(tree: &Tree, page: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lines = page.text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(marker) = line.strip_prefix(MARKER).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let rows = lines.by_ref().map(|(_, line)| line).take_while(|line| line.starts_with('|'));
        let listed: Vec<&str> = rows.skip(2).filter_map(|row| code_spans(row).next()).collect();
        match marker.split_once(" in ").and_then(|(name, path)| variants(tree, name, path)) {
            Some(declared) if declared == listed => {}
            Some(declared) => findings.push(page.finding(at + 1, format!("list {}", declared.join(", ")))),
            None => findings.push(page.finding(at + 1, format!("there is no enum `{marker}`"))),
        }
    }
    findings
}

/// Returns the variants of an enum.
fn variants(tree: &Tree, name: &str, path: &str) -> Option<Vec<String>> {
    let file = RustFile::new(tree.find(path)?);
    let declaration = format!("enum {name}");
    let at = file.occurrences(&declaration).next()?;
    let open = at + file.code.text()[at..].find('{')?;
    let body = &file.code.text()[open + 1..file.code.closing(open)?];
    let mut depth = 0_usize;
    let mut words = vec![String::new()];
    for c in body.chars() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ if c.is_ascii_alphanumeric() => words.last_mut()?.push(c),
            _ => words.push(String::new()),
        }
    }
    Some(words.into_iter().filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_that_differs_from_its_enum_is_found() {
        let code = "/// Doc.\npub enum State<K> {\n    /// First, Second.\n    #[default]\n    One(K),\n    Two { At: K },\n}\n";
        let table =
            |marker: &str, rows: &str| format!("{MARKER}{marker} -->\n| a | b |\n|---|---|\n{rows}\n");
        let right = table("State in a.rs", "| `One` | `x` |\n| `Two` | |\n");
        let wrong = table("State in a.rs", "| `Two` | |\n| `One` | |\n");
        let unknown = table("Gone in a.rs", "| `One` | |\n");
        let page = format!("{right}{wrong}{unknown}");
        let found: Vec<_> = tables_list_variants(&Tree::of(&[("a.rs", code), ("docs/a.md", &page)]));
        let found: Vec<_> = found.into_iter().map(|finding| (finding.line, finding.message)).collect();
        assert_eq!(
            found,
            [(7, "list One, Two".to_owned()), (13, "there is no enum `Gone in a.rs`".to_owned())]
        );
    }
}
