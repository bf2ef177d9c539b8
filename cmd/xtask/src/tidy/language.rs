//! The language rules of `STYLE.md`: words, summaries of documentation, names, length of comments.
//!
//! Guarantees:
//! - A finding names the file, the line, the matched text and the replacement.
//! - Code, code spans, fenced blocks, link targets, parity markers and generated files are not checked.
//! - An exception needs a reason: `// language: <reason>` in Rust, `<!-- language: <reason> -->` in a document, on the
//!   line of the text or on the line before it.

mod identifiers;
mod surface;
mod words;

use regex::{Regex, RegexSet};

use super::tree::{Finding, RustFile, SourceFile, Tree};
use identifiers::{Declarations, SEGMENTS, segments};
use surface::{Passage, Surface};
use words::WORDS;

/// Folders and files that the language rules do not check yet.
const PENDING: &[&str] = &[];

/// Generated files, quoted legal texts, and the word list itself.
const EXEMPT: &[&str] = &["Cargo.lock", "LICENSE", "cmd/xtask/src/tidy/language", "tests/parity/README.md"];

/// Names of files without an extension whose comments start with `#`; other scripts start with `#!`.
const SCRIPTS: &[&str] = &["Containerfile", "Makefile", ".dockerignore", ".gitignore", ".helmignore"];

/// String literals in these folders repeat messages of kube-apiserver.
const QUOTES_UPSTREAM: &[&str] = &["simulation/api_server/", "simulation/schema/", "simulation/patch/"];

/// Maximum length of a `//` comment; longer text belongs to the documentation of the module.
const MAX_COMMENT_LINES: usize = 3;

/// Maximum length of a test name, so that it fits on a line of a test report.
const MAX_TEST_NAME: usize = 70;

/// Words that start a clause, not a summary.
const NO_SUMMARY: &[&str] = &[
    "what",
    "who",
    "whose",
    "whom",
    "how",
    "why",
    "where",
    "which",
    "that",
    "of",
    "nobody",
    "nothing",
    "everything",
    "from",
    "as",
    "until",
];

/// Words that hide the subject of a test.
const NO_TEST_SUBJECT: &[&str] = &[
    "a", "an", "the", "what", "who", "whose", "whom", "whoever", "whatever", "of", "nobody", "however",
    "one", "those",
];

/// Checks every file that is not pending.
pub(super) fn language_is_plain(tree: &Tree) -> Vec<Finding> {
    let checker = Checker::new();
    let is_checked = |file: &&SourceFile| !starts_with_any(&file.path, PENDING);
    tree.files().filter(is_checked).flat_map(|file| checker.findings(file)).collect()
}

/// Rejects declared identifiers that contain a word of the old style.
pub(super) fn identifiers_are_plain(tree: &Tree) -> Vec<Finding> {
    let declarations = Declarations::new();
    tree.rust(&[""]).flat_map(|rust| banned_identifiers(&declarations, &rust)).collect()
}

fn banned_identifiers(declarations: &Declarations, rust: &RustFile<'_>) -> Vec<Finding> {
    let lines: Vec<_> = rust.file.text.lines().collect();
    let is_marked = |line: usize| {
        let nearby = lines.iter().take(line).skip(line.saturating_sub(2));
        nearby.into_iter().any(|line| surface::is_exception(line))
    };
    let mut findings = Vec::new();
    for (at, name) in declarations.of(rust) {
        let words = segments(name);
        let Some((word, remedy)) = SEGMENTS.iter().find(|(word, _)| words.iter().any(|it| it == word)) else {
            continue;
        };
        let message = format!("`{name}` contains \"{word}\": write {remedy} (identifier)");
        findings.push(rust.finding_at(at, message));
    }
    findings.retain(|finding| !is_marked(finding.line));
    findings.sort();
    findings.dedup();
    findings
}

/// Checks the files below `prefixes`, pending or not.
pub(super) fn findings_below(tree: &Tree, prefixes: &[String]) -> Vec<Finding> {
    let checker = Checker::new();
    let is_below = |file: &&SourceFile| prefixes.iter().any(|prefix| file.path.starts_with(prefix.as_str()));
    tree.files().filter(is_below).flat_map(|file| checker.findings(file)).collect()
}

/// Returns the number of marked exceptions.
pub(super) fn exceptions(tree: &Tree) -> usize {
    let checked = tree.files().filter(|file| !starts_with_any(&file.path, EXEMPT));
    checked.map(|file| file.text.lines().filter(|line| surface::is_exception(line)).count()).sum()
}

struct Checker {
    set: RegexSet,
    patterns: Vec<Regex>,
}

impl Checker {
    #[allow(clippy::expect_used, reason = "the patterns are constants, and every test run compiles them")]
    fn new() -> Self {
        let sources = || WORDS.iter().map(|word| word.pattern);
        let set = RegexSet::new(sources()).expect("the word list is valid");
        let patterns =
            sources().map(|pattern| Regex::new(pattern).expect("the word list is valid")).collect();
        Self { set, patterns }
    }

    fn findings(&self, file: &SourceFile) -> Vec<Finding> {
        if starts_with_any(&file.path, EXEMPT) {
            return Vec::new();
        }
        self.passages(file, &passages_of(file))
    }

    fn passages(&self, file: &SourceFile, passages: &[Passage]) -> Vec<Finding> {
        let kept = passages.iter().filter(|passage| !passage.is_exception);
        kept.flat_map(|passage| self.words(file, passage).into_iter().chain(form(file, passage))).collect()
    }

    fn words(&self, file: &SourceFile, passage: &Passage) -> Vec<Finding> {
        let mut findings = Vec::new();
        for at in self.set.matches(&passage.text) {
            let word = &WORDS[at];
            if word.only_in_sentences && passage.surface == Surface::Heading {
                continue;
            }
            for found in self.patterns[at].find_iter(&passage.text) {
                let message = format!("\"{}\": {} ({})", found.as_str().trim(), word.remedy, word.name);
                findings.push(file.finding(passage.line_at(found.start()), message));
            }
        }
        findings
    }
}

/// Returns the passages of a file by its type; data and foreign text have none.
fn passages_of(file: &SourceFile) -> Vec<Passage> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "rs" => {
            let mut passages = surface::of_rust(&RustFile::new(file));
            let strings = !is_test(&file.path) && !starts_with_any(&file.path, QUOTES_UPSTREAM);
            passages.retain(|passage| strings || passage.surface != Surface::Message);
            passages
        }
        // A chart prints NOTES.txt after an installation.
        "md" | "tpl" => surface::of_document(&file.text),
        "txt" if name == "NOTES.txt" => surface::of_document(&file.text),
        "go" | "mod" => surface::of_comments(&file.text, "//"),
        "yaml" | "yml" => surface::of_yaml(&file.text),
        "sh" | "toml" => surface::of_comments(&file.text, "#"),
        _ if SCRIPTS.contains(&name) || file.text.starts_with("#!") => surface::of_comments(&file.text, "#"),
        _ => Vec::new(),
    }
}

/// Rules about the form of a passage.
fn form(file: &SourceFile, passage: &Passage) -> Option<Finding> {
    let first = passage.text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_lowercase();
    let line = passage.line_at(0);
    match passage.surface {
        Surface::Summary if NO_SUMMARY.contains(&first.as_str()) => {
            let remedy = "start a function with a verb in the third person, anything else with a noun";
            Some(file.finding(line, format!("summary starts with \"{first}\": {remedy} (summary)")))
        }
        Surface::TestName
            if NO_TEST_SUBJECT.contains(&first.as_str()) || passage.text.starts_with("all that ") =>
        {
            Some(file.finding(
                line,
                format!("test name starts with \"{first}\": start with the subject (test-name)"),
            ))
        }
        Surface::TestName if passage.text.len() > MAX_TEST_NAME => {
            let length = passage.text.len();
            Some(file.finding(
                line,
                format!("test name has {length} characters: use at most {MAX_TEST_NAME} (test-name)"),
            ))
        }
        Surface::Comment { lines } if lines > MAX_COMMENT_LINES => {
            Some(file.finding(
                line,
                format!("comment has {lines} lines: use at most {MAX_COMMENT_LINES} (comment)"),
            ))
        }
        _ => None,
    }
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn starts_with_any(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text)]);
        let found = findings_below(&tree, &[String::new()]);
        found.into_iter().map(|found| format!("{}: {}", found.line, found.message)).collect()
    }

    fn names(path: &str, text: &str) -> Vec<String> {
        let name =
            |message: String| message.rsplit_once('(').map(|(_, name)| name.trim_end_matches(')').to_owned());
        messages(path, text).into_iter().filter_map(name).collect()
    }

    #[test]
    fn words_are_found_in_documents_but_not_in_code() {
        let text = "The caller is\ntold `told` [x](told).\n\n```\ntold\n```\n\n# Whoever\n";
        assert_eq!(names("docs/a.md", text), ["tell", "whoever"]);
        assert!(messages("docs/a.md", text)[0].starts_with("2: \"told\""));
    }

    #[test]
    fn words_are_found_in_comments_messages_and_test_names() {
        let text = "//! Told.\n// told\nfn f() { g(\"is told\", \"told\"); } // told\n\
                    #[cfg(test)]\nmod tests {\n#[test]\nfn told_twice() { h(\"is told\") }\n}\n";
        assert_eq!(names("runtime/a/src/lib.rs", text), ["tell"; 5]);
        assert_eq!(names("simulation/patch/src/lib.rs", text), ["tell"; 4]);
    }

    #[test]
    fn words_are_found_in_scripts_charts_and_go() {
        for (path, text) in [
            (".ci/run", "#!/usr/bin/env bash\n# It is told.\n"),
            ("deploy/Containerfile", "# It is told.\nFROM scratch\n"),
            ("a/templates/_x.tpl", "{{- /* It is told. */ -}}\n"),
            ("a/templates/NOTES.txt", "It is told.\n"),
            ("a/main.go", "// It is\n// told.\nfunc told() {}\n"),
            ("a.yaml", "# It is told.\nkey: value\n"),
            ("a.yaml", "description: It is told.\n"),
            ("a.sh", "# It is told.\necho told\n"),
        ] {
            assert_eq!(names(path, text), ["tell"], "{path}");
        }
        assert_eq!(names("corpus/a.txt", "It is told.\n"), [""; 0]);
    }

    #[test]
    fn exception_with_reason_is_accepted() {
        assert_eq!(names("a.rs", "// language: client-go's term\n/// It is told.\nfn f() {}\n"), [""; 0]);
        assert_eq!(names("a.md", "<!-- language: a quotation -->\nIt is told.\n"), [""; 0]);
    }

    #[test]
    fn exception_without_reason_or_in_code_span_is_no_exception() {
        assert_eq!(names("a.rs", "// language: \n/// It is told.\nfn f() {}\n"), ["tell"]);
        assert_eq!(names("a.md", "<!-- language: -->\nIt is told.\n"), ["tell"]);
        let page = "Mark it by `// language: <reason>`. It is told.\n";
        assert_eq!(names("a.md", page), ["tell"]);
        assert_eq!(exceptions(&Tree::of(&[("a.md", page), ("b.sh", "# language: a quotation\n")])), 1);
    }

    #[test]
    fn free_relative_is_allowed_in_headings_and_questions() {
        assert_eq!(
            names("a.md", "## What works\n\nWhat works? It is. What works is this.\n"),
            ["free-relative"]
        );
    }

    #[test]
    fn summary_must_not_start_with_clause() {
        assert_eq!(names("a.rs", "/// How long it takes.\n///\n/// How it works.\nfn f() {}\n"), ["summary"]);
        assert_eq!(names("a.rs", "//! Until then.\n"), ["summary"]);
        assert_eq!(names("a.rs", "/// `What` it returns.\nfn f() {}\n"), [""; 0]);
    }

    #[test]
    fn test_name_must_be_short_and_start_with_its_subject() {
        let long = "x".repeat(71);
        assert_eq!(
            names("a.rs", &format!("#[tokio::test(start_paused = true)]\nasync fn {long}() {{}}\n")),
            ["test-name"]
        );
        assert_eq!(names("a.rs", "#[test]\nfn a_key_is_kept() {}\nfn a_helper() {}\n"), ["test-name"]);
        assert_eq!(names("a.rs", "#[test]\n#[should_panic]\nfn key_is_kept() {}\n"), [""; 0]);
    }

    #[test]
    fn name_of_contract_behavior_is_checked_like_test_name() {
        let source =
            "async fn a_pod_is_created(case: Case) -> anyhow::Result<()> {}\nfn a_pod(name: &str) {}\n";
        assert_eq!(names("tests/contract/src/behaviors/pods.rs", source), ["test-name"]);
        assert_eq!(names("tests/black-box/src/pods.rs", source), [""; 0]);
    }

    #[test]
    fn banned_word_is_found_in_each_kind_of_declaration() {
        let found = |source: &str| identifiers_are_plain(&Tree::of(&[("a.rs", source)])).len();
        for source in [
            "fn told() {}",
            "struct ToldKeys;",
            "const MAX_TOLD: u8 = 1;",
            "mod told;",
            "enum E { #[a] A(u8), Told { at: u8 } }",
            "struct S { is_told: bool }",
            "fn f(told: u8) {}",
            "fn f() { let (mut told, b) = g(); }",
            "fn f() { if let Some(told) = g() {} }",
            "fn f() { for (told, b) in g() {} }",
            "fn f() { g(|told| 1) }",
        ] {
            assert_eq!(found(source), 1, "{source}");
        }
        for source in [
            "fn untold() { g(\"told\"); told(); self.told(); } // told",
            "// language: upstream's name\nfn told() {}",
        ] {
            assert_eq!(found(source), 0, "{source}");
        }
    }

    #[test]
    fn long_comment_is_found() {
        assert_eq!(names("a.rs", "// a\n// b\n// c\n// d\nfn f() {}\n"), ["comment"]);
        assert_eq!(names("a.rs", "// a\n// b\n// c\nfn f() {}\n"), [""; 0]);
    }

    #[test]
    fn parity_marker_is_not_checked() {
        let source = "// a\n// b\n// c\n// parity: told\n// parity: anew\n#[test]\nfn key_is_kept() {}\n";
        assert_eq!(names("a.rs", source), [""; 0]);
    }
}
