//! Compares the Rust code blocks of all pages with the examples, which are compiled and run.

use std::fs;
use std::path::Path;

/// Pages that must have code blocks.
const GUIDES: &[&str] = &[
    "README.md",
    "docs/quick-start.md",
    "docs/testing.md",
    "docs/webhooks.md",
    "docs/writing-a-controller.md",
];

/// The front page of the documentation of the library.
const FRONT_PAGE: &str = "runtime/windlass/src/lib.rs";

const SOURCES: &[&str] = &[
    include_str!("../src/bin/hello.rs"),
    include_str!("../src/bin/lamps.rs"),
    include_str!("../src/fixed_disks.rs"),
    include_str!("../src/lamps.rs"),
    include_str!("../src/leaky_disks.rs"),
    include_str!("../src/node_count.rs"),
    include_str!("bench.rs"),
    include_str!("plain_client.rs"),
    include_str!("permissions.rs"),
    include_str!("views.rs"),
    include_str!("webhooks.rs"),
    include_str!("../../templates/operator/src/lib.rs"),
    include_str!("../../templates/operator/tests/simulation.rs"),
];

/// Returns the lines of each fenced Rust block, without lines that rustdoc hides.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(|line| line.trim_start().trim_start_matches("//!").trim());
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block = lines.by_ref().take_while(|line| *line != "```");
        let shown = block.filter(|line| *line != "#" && !line.starts_with("# ")).collect();
        // In rustdoc, a block without a language is Rust.
        if language == "rust" || language == "no_run" || (language.is_empty() && text.starts_with("//!")) {
            blocks.push(shown);
        }
    }
    blocks
}

/// Returns whether `source` contains the lines consecutively, regardless of indentation and blank lines.
fn is_in(block: &[&str], source: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let block: Vec<&str> = block.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    lines.windows(block.len()).any(|window| window == block)
}

/// Returns the paths of all pages with their texts.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = vec!["README.md".to_owned(), FRONT_PAGE.to_owned()];
    for entry in fs::read_dir(root.join("docs")).expect("docs/") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name in UTF-8");
        if name.ends_with(".md") {
            paths.push(format!("docs/{name}"));
        }
    }
    let read =
        |path: &String| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    paths.iter().map(|path| (path.clone(), read(path))).collect()
}

#[test]
fn code_blocks_of_pages_match_tested_examples() {
    for (name, page) in pages() {
        let blocks = blocks(&page);
        let is_guide = name == FRONT_PAGE || GUIDES.contains(&name.as_str());
        assert!(!is_guide || blocks.len() >= 2, "{name} has too few code blocks: {}", blocks.len());
        for block in blocks {
            let found = SOURCES.iter().any(|source| is_in(&block, source));
            assert!(found, "{name}: block is in no example; change either:\n{}", block.join("\n"));
        }
    }
}
