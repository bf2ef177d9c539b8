//! Renders the page.

use super::claims::{Block, Claim};
use super::markers::MarkedTest;

const TABLE_HEAD: &str = "| there | here | shown by |\n|---|---|---|\n";

/// The page: the text of the files, and each claim with the tests that show it.
pub(super) fn page(blocks: &[Block], tests: &[MarkedTest]) -> String {
    let mut page = String::new();
    for block in blocks {
        match block {
            Block::Text(line) if line.starts_with("## ") && !page.ends_with("\n\n") => {
                page += &format!("\n{line}\n");
            }
            Block::Text(line) => page += &format!("{line}\n"),
            Block::TableHead => page += TABLE_HEAD,
            Block::Claim(claim) => page += &row(claim, tests),
        }
    }
    page
}

fn row(claim: &Claim, tests: &[MarkedTest]) -> String {
    let shows = |test: &&MarkedTest| test.ids.contains(&claim.id);
    let links: Vec<String> = tests.iter().filter(shows).map(link).collect();
    let Claim { there, here, note, .. } = claim;
    let separator = match (note.is_empty() || links.is_empty(), claim.has_reason()) {
        (true, _) => "",
        (false, true) => "; ",
        (false, false) => ": ",
    };
    format!("| {there} | {here} | {note}{separator}{} |\n", links.join(", "))
}

fn link(test: &MarkedTest) -> String {
    format!("[{}]({})", test.name, relative(&test.path))
}

/// A path from the root of the workspace as a link from `tests/parity/`.
fn relative(path: &str) -> String {
    match (path.strip_prefix("tests/parity/"), path.strip_prefix("tests/")) {
        (Some(rest), _) => rest.to_owned(),
        (None, Some(rest)) => format!("../{rest}"),
        (None, None) => format!("../../{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(note: &str, ids: &[&str]) -> String {
        let claim = Claim {
            id: "a".into(),
            there: "b".into(),
            here: "c".into(),
            note: note.into(),
            place: String::new(),
        };
        let test = |id: &&str| MarkedTest {
            ids: vec![(*id).to_owned()],
            name: "f".into(),
            path: "tests/x.rs".into(),
            line: 1,
        };
        row(&claim, &ids.iter().map(test).collect::<Vec<_>>())
    }

    #[test]
    fn last_cell_has_note_and_tests() {
        assert_eq!(rendered("", &["a", "b", "a"]), "| b | c | [f](../x.rs), [f](../x.rs) |\n");
        assert_eq!(rendered("otherwise", &["a"]), "| b | c | otherwise: [f](../x.rs) |\n");
        assert_eq!(rendered("otherwise: why", &["a"]), "| b | c | otherwise: why; [f](../x.rs) |\n");
        assert_eq!(rendered("not done: why", &[]), "| b | c | not done: why |\n");
    }

    #[test]
    fn links_are_relative_to_the_page() {
        assert_eq!(relative("tests/parity/tests/parity/a.rs"), "tests/parity/a.rs");
        assert_eq!(relative("tests/contract/a.rs"), "../contract/a.rs");
        assert_eq!(relative("runtime/a.rs"), "../../runtime/a.rs");
    }

    #[test]
    fn sections_are_separated_by_an_empty_line() {
        let text = |line: &str| Block::Text(line.to_owned());
        let blocks = [text("# A"), text("## B"), Block::TableHead];
        assert_eq!(page(&blocks, &[]), format!("# A\n\n## B\n{TABLE_HEAD}"));
    }
}
