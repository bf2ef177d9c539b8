//! Compares the Rust code blocks of the guides with the examples, which are compiled and run.

/// Pages with Rust code blocks: name and text.
const GUIDES: &[(&str, &str)] = &[
    ("README.md", include_str!("../../README.md")),
    ("docs/quick-start.md", include_str!("../../docs/quick-start.md")),
    ("docs/testing.md", include_str!("../../docs/testing.md")),
    ("docs/webhooks.md", include_str!("../../docs/webhooks.md")),
    ("docs/writing-a-controller.md", include_str!("../../docs/writing-a-controller.md")),
    ("the front page", include_str!("../../runtime/windlass/src/lib.rs")),
];
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

#[test]
fn guide_code_blocks_match_tested_examples() {
    for (name, guide) in GUIDES {
        let blocks = blocks(guide);
        assert!(blocks.len() >= 2, "{name} has too few code blocks: {}", blocks.len());
        for block in blocks {
            let found = SOURCES.iter().any(|source| is_in(&block, source));
            assert!(found, "{name}: block is in no example; change either:\n{}", block.join("\n"));
        }
    }
}
