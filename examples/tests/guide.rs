//! Compares the Rust code blocks of all pages with the examples, which are compiled and run, and those about charts
//! with the template. Checks the syntax of the shell and JSON blocks, and that cargo resolves the dependencies in TOML
//! blocks.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

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

/// The files of the template's chart.
const CHART: &[&str] = &[
    include_str!("../../templates/operator/chart/Chart.yaml"),
    include_str!("../../templates/operator/chart/templates/NOTES.txt"),
    include_str!("../../templates/operator/chart/templates/operator.yaml"),
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

/// Returns each fenced block in this language.
fn blocks_in(language: &str, text: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line.trim_start() == fence) {
        let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim_start() != "```").collect();
        blocks.push(block.join("\n"));
    }
    blocks
}

/// Returns the error of a shell that parses a script without running it.
fn syntax_error(script: &str) -> Option<String> {
    let mut shell = Command::new("sh");
    shell.arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut parser = shell.spawn().expect("sh");
    parser.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
    let output = parser.wait_with_output().expect("the shell ends");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
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

#[test]
fn shell_and_json_blocks_of_pages_are_valid() {
    let mut count = 0;
    for (name, page) in pages() {
        for block in blocks_in("sh", &page) {
            assert_eq!(syntax_error(&block), None, "{name}:\n{block}");
            count += 1;
        }
        for block in blocks_in("json", &page) {
            let value: Result<serde_json::Value, _> = serde_json::from_str(&block);
            assert!(value.is_ok(), "{name}: {value:?}\n{block}");
            count += 1;
        }
    }
    assert!(count > 30, "the pages have {count} such blocks");
    assert!(syntax_error("if true; then").is_some());
}

/// Returns the error of cargo for a crate with these dependencies.
fn unresolved(dependencies: &str, root: &Path) -> Option<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dependencies");
    fs::create_dir_all(&folder).expect("a folder");
    let section = if dependencies.contains("dependencies]") { "" } else { "[dependencies]\n" };
    let windlass = root.display().to_string();
    let manifest = format!(
        "[package]\nname = \"reader\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n[workspace]\n{section}{}\n",
        dependencies.replace("../windlass", &windlass)
    );
    fs::write(folder.join("Cargo.toml"), manifest).expect("written");
    fs::write(folder.join("lib.rs"), "").expect("written");
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--offline", "--format-version=1", "--manifest-path"])
        .arg(folder.join("Cargo.toml"));
    let output = cargo.output().expect("cargo");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn dependencies_in_pages_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace");
    let mut count = 0;
    for (name, page) in pages() {
        for block in blocks_in("toml", &page) {
            assert_eq!(unresolved(&block, &root), None, "{name}:\n{block}");
            count += 1;
        }
    }
    assert!(count >= 3, "the pages have {count} such blocks");
    let wrong = "windlass = { path = \"../windlass/runtime/windlass\", features = [\"none\"] }";
    assert!(unresolved(wrong, &root).is_some_and(|error| error.contains("none")));
}

#[test]
fn chart_blocks_match_the_template() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/helm.md")).expect("the page");
    let blocks = blocks_in("yaml", &page);
    // A block with other values of the chart is not in the template.
    let found = |block: &&String| {
        let lines: Vec<&str> = block.lines().map(str::trim).collect();
        let without_comments = |file: &&str| {
            file.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
        };
        CHART.iter().map(without_comments).any(|file| is_in(&lines, &file))
    };
    assert_eq!((blocks.iter().filter(found).count(), blocks.len()), (3, 4));
}
