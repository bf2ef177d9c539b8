//! Rules about documents, and about the text of all files.

use super::tree::{Finding, SourceFile, Tree};

/// The document that can name deleted files.
const HISTORY: &str = "CHANGELOG.md";

/// Generated files with foreign text, and this file, which contains the searched words.
const UNREAD: &[&str] = &["Cargo.lock", "go.sum", "LICENSE", "cmd/xtask/src/tidy/prose.rs"];

/// Words that refer to one machine or network.
const OF_ONE_MACHINE: &[(&str, &str)] = &[
    ("/root/", "a path of one machine; take it from the environment or from a temporary folder"),
    ("/home/", "a path of one machine; take it from the environment or from a temporary folder"),
    ("/tmp/", "a path of one machine; take it from the environment or from a temporary folder"),
    ("artifactory", "a registry of one network; leave it to the machine's own configuration"),
    ("GOPROXY=", "a registry of one network; leave it to the machine's own configuration"),
    ("index.crates.io", "a registry of one network; leave it to the machine's own configuration"),
];

/// Rejects paths in documents that do not exist.
pub(super) fn named_paths_exist(tree: &Tree) -> Vec<Finding> {
    let is_map = |path: &str| path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/"));
    let maps = tree.files().filter(|file| is_map(&file.path) && file.path != HISTORY);
    maps.flat_map(|file| named_paths(tree, file)).collect()
}

fn named_paths(tree: &Tree, file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in prose_lines(&file.text) {
        for path in code_spans(text).filter(|span| is_path(tree, span)) {
            let path = path.trim_end_matches('/');
            if !tree.has(path) {
                findings.push(file.finding(line, format!("`{path}` does not exist")));
            }
        }
    }
    findings
}

/// Returns whether a code span is a path from the root: it begins with an existing folder, or is the name of a
/// document.
fn is_path(tree: &Tree, span: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !span.chars().all(legal) || span.contains("..") {
        return false;
    }
    match span.split_once('/') {
        Some((first, _)) => tree.has(first) && !first.is_empty(),
        None => span.ends_with(".md") || span.ends_with(".toml"),
    }
}

/// Returns the lines outside of fenced blocks, counted from 1.
pub(super) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((at + 1, line))
    })
}

pub(super) fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Rejects relative links to missing files and headings.
pub(super) fn links_resolve(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|file| dead_links(tree, file)).collect()
}

fn dead_links(tree: &Tree, file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in prose_lines(&file.text) {
        for target in links(text).filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
            if let Some(problem) = dead(tree, file, target) {
                findings.push(file.finding(line, problem));
            }
        }
    }
    findings
}

/// Returns the targets of `[text](target)`, except in code spans.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let prose = line.split('`').step_by(2);
    prose.flat_map(|part| part.match_indices("](").map(move |(at, _)| &part[at + 2..])).filter_map(|rest| {
        let target = rest.split(')').next()?;
        Some(target.split_whitespace().next().unwrap_or_default())
    })
}

/// Returns the link targets of a page.
pub(crate) fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    prose_lines(text).flat_map(|(_, line)| links(line))
}

/// Returns the page with other link targets.
pub(crate) fn with_links(text: &str, mut change: impl FnMut(&str) -> String) -> String {
    let mut page = String::with_capacity(text.len());
    let mut rest = text;
    for target in link_targets(text) {
        // A target is a slice of `text`, so its offset is exact.
        let (start, end) = (target.as_ptr().addr() - rest.as_ptr().addr(), target.len());
        page += &rest[..start];
        page += &change(target);
        rest = &rest[start + end..];
    }
    page + rest
}

fn dead(tree: &Tree, file: &SourceFile, target: &str) -> Option<String> {
    let (path, fragment) = target.split_once('#').map_or((target, None), |(path, id)| (path, Some(id)));
    let path = if path.is_empty() { file.path.clone() } else { joined(&file.path, path) };
    if !path.is_empty() && !tree.has(&path) {
        return Some(format!("the link leads to `{path}`, which does not exist"));
    }
    let (page, id) = (tree.find(&path)?, fragment?);
    let missing = !prose_lines(&page.text).filter_map(|(_, line)| anchor(line)).any(|anchor| anchor == id);
    missing.then(|| format!("`{path}` has no heading `#{id}`"))
}

/// Resolves a link target to a path from the root.
pub(crate) fn joined(document: &str, target: &str) -> String {
    let mut parts: Vec<_> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the fragment of a heading.
fn anchor(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?.trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
}

/// Rejects paths and registries of one machine or network.
pub(super) fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    let read = |file: &&SourceFile| !UNREAD.iter().any(|name| file.path.ends_with(name));
    tree.files().filter(read).flat_map(machine_paths).collect()
}

fn machine_paths(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for (word, remedy) in OF_ONE_MACHINE.iter().filter(|(word, _)| stands_alone(line, word)) {
            findings.push(file.finding(at + 1, format!("`{word}`: {remedy}")));
        }
    }
    findings
}

/// Returns whether `word` occurs at the start of a path or name.
fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !word.starts_with('/') || before.is_none_or(|c| !(c.is_alphanumeric() || "_-.}/".contains(c)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        let findings = rule(&Tree::of(files)).into_iter();
        findings.map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.message)).collect()
    }

    #[test]
    fn missing_path_in_document_is_found() {
        let map = "See `runtime/env/` and `runtime/gone.rs`, `STYLE.md`, `a/b`, `Env`, `cargo xtask ci`.\n\
                   ```\n`runtime/fenced`\n```\n";
        let files = [("ARCHITECTURE.md", map), ("CHANGELOG.md", map), ("runtime/env/src/lib.rs", "")];
        assert_eq!(
            messages(named_paths_exist, &files),
            [
                "ARCHITECTURE.md:1: `runtime/gone.rs` does not exist",
                "ARCHITECTURE.md:1: `STYLE.md` does not exist"
            ]
        );
    }

    #[test]
    fn broken_link_is_found() {
        let page =
            "[a](../README.md) [b](gone.md) [c](https://x.y/z) [d](#here) [e](#there) `[f](no)`\n\n## Here\n";
        let files = [("docs/a.md", page), ("README.md", "# Top")];
        assert_eq!(
            messages(links_resolve, &files),
            [
                "docs/a.md:1: the link leads to `docs/gone.md`, which does not exist",
                "docs/a.md:1: `docs/a.md` has no heading `#there`",
            ]
        );
    }

    #[test]
    fn machine_specific_path_is_found() {
        let rule = no_machine_paths;
        assert_eq!(messages(rule, &[("a.sh", "cd /root/project\n")]).len(), 1);
        assert_eq!(messages(rule, &[("a.rs", "let p = \"/tmp/x\";\n")]).len(), 1);
        assert_eq!(messages(rule, &[("a.rs", "join(\"cache/tmp/x\"), \"$HOME/home/\"\n")]), [""; 0]);
        assert_eq!(messages(rule, &[("Cargo.lock", "index.crates.io")]), [""; 0]);
    }
}
