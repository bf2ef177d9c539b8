//! Keeps `docs/testing.md` in step with the code: what it shows is what is compiled and run here.

const GUIDE: &str = include_str!("../../docs/testing.md");
const SOURCES: &[&str] = &[
    include_str!("../src/kept_disks.rs"),
    include_str!("../src/leaky_disks.rs"),
    include_str!("plain_client.rs"),
    include_str!("rights.rs"),
];

/// The lines of every fenced block of Rust.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() == "```rust" {
            blocks.push(lines.by_ref().take_while(|line| line.trim_start() != "```").collect());
        }
    }
    blocks
}

/// Whether the lines stand one after the other in `source`, however deeply indented.
fn stands_in(block: &[&str], source: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let block: Vec<&str> = block.iter().map(|line| line.trim()).collect();
    lines.windows(block.len()).any(|window| window == block)
}

#[test]
fn every_block_of_the_guide_stands_in_an_example_that_is_run() {
    let blocks = blocks(GUIDE);
    assert!(blocks.len() >= 5, "the guide shows code: {}", blocks.len());
    for block in blocks {
        let found = SOURCES.iter().any(|source| stands_in(&block, source));
        assert!(found, "in no example, change either:\n{}", block.join("\n"));
    }
}
