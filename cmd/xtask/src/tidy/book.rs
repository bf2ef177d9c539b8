//! Rules about the book: its summary, the names in its guides, the messages that it searches for, and the page about
//! Events.
//!
//! A name exists if a source file declares it. The rule about names knows neither modules nor visibility: it finds
//! misspelled and renamed items, not private ones.

use std::collections::{BTreeMap, BTreeSet};

use super::prose::{code_spans, joined, link_targets, prose_lines};
use super::tree::{Finding, RustFile, SourceFile, Tree};

/// The page that defines the chapters.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages whose code spans name items of Windlass.
const GUIDES: &[&str] =
    &["docs/concepts.md", "docs/testing.md", "docs/webhooks.md", "docs/writing-a-controller.md"];

/// The page whose tables name items of other libraries in the first column, and items of Windlass in the second.
const PHRASE_BOOK: &str = "docs/phrase-book.md";

/// Folders whose items guides name.
const SOURCES: &[&str] = &["cmd/", "examples/", "runtime/", "simulation/"];

/// First parts of paths into other crates.
const FOREIGN: &[&str] = &["kube", "k8s_openapi", "tokio", "tracing", "serde_json", "std"];

/// Names of other crates, of Kubernetes and of the reader that guides use without a path.
const FOREIGN_NAMES: &[&str] = &[
    "Accept",
    "Api",
    "Arc",
    "Cargo",
    "Client",
    "ConfigMap",
    "CryptoProvider",
    "CustomResource",
    "Duration",
    "Err",
    "First",
    "Greeting",
    "KUBECONFIG",
    "MAX",
    "Namespace",
    "Node",
    "None",
    "Ok",
    "Pod",
    "Service",
    "Some",
    "The",
    "TryFrom",
    "WINDLASS_TRACE",
    "Warning",
    "expect",
    "is_err",
    "is_ok",
];

/// The page about Events and conditions, and the folder of the code that writes them.
const EVENTS: (&str, &str) = ("docs/events.md", "controllers/src/");

/// Literals of that code with the form of a reason: kinds, strategies, operators and errors of the API.
const NO_REASONS: &[&str] = &[
    "AlreadyExists",
    "DaemonSet",
    "ExternalName",
    "MaxSurge",
    "MaxUnavailable",
    "NamespaceTerminating",
    "NoExecute",
    "NoSchedule",
    "NotIn",
    "OnDelete",
    "ReplicaSet",
    "RollingUpdate",
    "StatefulSet",
];

/// Requires a link in the summary to each page of the book.
pub(super) fn summary_lists_pages(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.find(SUMMARY) else { return Vec::new() };
    let listed: BTreeSet<String> =
        link_targets(&summary.text).map(|target| joined(SUMMARY, target)).collect();
    let pages = tree.files().filter(|file| file.path.starts_with("docs/") && file.path.ends_with(".md"));
    let missing = pages.filter(|page| page.path != SUMMARY && !listed.contains(&page.path));
    missing
        .map(|page| page.finding(0, format!("add the page to {SUMMARY}, which defines the book")))
        .collect()
}

/// Rejects names in guides that no source file declares.
pub(super) fn names_exist(tree: &Tree) -> Vec<Finding> {
    let items = Items::of(tree);
    let mut findings = Vec::new();
    for page in tree.files() {
        let is_phrase_book = page.path == PHRASE_BOOK;
        if !is_phrase_book && !GUIDES.contains(&page.path.as_str()) {
            continue;
        }
        for (line, text) in prose_lines(&page.text) {
            let text = if is_phrase_book { second_cell(text) } else { text };
            let missing = code_spans(text).flat_map(|span| items.missing(span));
            findings
                .extend(missing.map(|name| page.finding(line, format!("no source file declares `{name}`"))));
        }
    }
    findings
}

/// Returns the second cell of a row, or nothing.
fn second_cell(line: &str) -> &str {
    let mut ends = line.match_indices('|').map(|(at, _)| at).filter(|at| !line[..*at].ends_with('\\'));
    let (Some(_), Some(start), Some(end)) = (ends.next(), ends.next(), ends.next()) else { return "" };
    &line[start + 1..end]
}

/// The items that source files declare.
#[derive(Debug, Default)]
struct Items {
    names: BTreeSet<String>,
    /// Names by file.
    files: Vec<BTreeSet<String>>,
    /// Files with a definition or an `impl` of a type.
    types: BTreeMap<String, Vec<usize>>,
    /// Flags of the command lines.
    flags: BTreeSet<String>,
}

impl Items {
    fn of(tree: &Tree) -> Self {
        let mut items = Self::default();
        for file in tree.rust(SOURCES).filter(|file| !file.file.path.contains("tests")) {
            items.add(&file);
        }
        items
    }

    fn add(&mut self, file: &RustFile<'_>) {
        let mut declared = BTreeSet::new();
        let mut types = BTreeSet::new();
        for line in file.code.text().lines() {
            let words: Vec<&str> = identifiers(line).collect();
            for pair in words.windows(2) {
                match pair[0] {
                    "struct" | "enum" | "trait" | "type" => types.insert(pair[1].to_owned()),
                    "fn" | "const" | "mod" | "static" | "macro_rules" => declared.insert(pair[1].to_owned()),
                    _ => continue,
                };
            }
            if line.trim_start().starts_with("impl") {
                types.extend(words.iter().filter(|word| is_type(word)).map(|word| (*word).to_owned()));
            }
            declared.extend(variant_or_field(line).map(str::to_owned));
        }
        // Most flags are made from fields; others are literals.
        self.flags.extend(declared.iter().map(|name| name.replace('_', "-")));
        let literals = file.file.text.match_indices("--").map(|(at, _)| &file.file.text[at + 2..]);
        self.flags.extend(
            literals
                .filter_map(|rest| rest.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next())
                .map(str::to_owned),
        );
        self.names.extend(declared.iter().cloned());
        for name in &types {
            self.types.entry(name.clone()).or_default().push(self.files.len());
        }
        self.files.push(declared);
        self.names.extend(types);
    }

    /// Returns the names of a code span that no file declares.
    fn missing(&self, span: &str) -> Vec<String> {
        if let Some(flag) = span.strip_prefix("--") {
            let flag = flag.split(['=', ' ']).next().unwrap_or_default();
            return if self.flags.contains(flag) { Vec::new() } else { vec![format!("--{flag}")] };
        }
        // Paths, endpoints, attributes and commands.
        let is_code = !span.contains('/') && !span.starts_with(['#', '-']) && !span.contains(" --");
        let paths = if is_code { paths(span) } else { Vec::new() };
        paths.into_iter().filter(|path| !self.has(path)).map(|path| path.join("::")).collect()
    }

    fn has(&self, path: &[String]) -> bool {
        let [.., name] = path else { return true };
        if FOREIGN.contains(&path[0].as_str()) || FOREIGN_NAMES.contains(&path[0].as_str()) {
            return true;
        }
        let owner = path.len().checked_sub(2).map(|at| path[at].as_str()).filter(|owner| is_type(owner));
        match owner {
            Some("Self") => true,
            Some(owner) => self
                .types
                .get(owner)
                .is_some_and(|files| files.iter().any(|at| self.files[*at].contains(name))),
            None => self.names.contains(name) || FOREIGN_NAMES.contains(&name.as_str()),
        }
    }
}

/// Returns the paths of a piece of code that name items: paths with `::`, calls, and names of types. Generic arguments
/// and literals are skipped, because they come from the user.
fn paths(code: &str) -> Vec<Vec<String>> {
    let code = without_nested(&code.replace("->", " ").replace("=>", " "));
    let mut paths = Vec::new();
    let mut rest = code.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let is_own = !rest[..start].ends_with(['"', '\'']);
        let end = rest[start..].find(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
        let end = end.map_or(rest.len(), |length| start + length);
        let path: Vec<String> =
            rest[start..end].trim_end_matches(':').split("::").map(str::to_owned).collect();
        let is_call = rest[end..].starts_with(['(', '!']);
        let names_item = path.len() > 1 || is_call || path.iter().all(|name| is_type(name));
        if is_own && names_item && !path.iter().any(|name| name.contains(':') || name.len() == 1) {
            paths.push(path);
        }
        rest = &rest[end..];
    }
    paths
}

/// Removes generic arguments and string literals.
fn without_nested(code: &str) -> String {
    let (mut depth, mut is_text) = (0_usize, false);
    let mut kept = String::new();
    for c in code.chars() {
        match c {
            '"' => is_text = !is_text,
            _ if is_text => {}
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}

/// Returns the name of a variant or a field that a line declares.
fn variant_or_field(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    let name = identifiers(line).next()?;
    let rest = line.strip_prefix(name)?;
    let is_variant =
        is_type(name) && (rest.is_empty() || rest.starts_with([',', '(']) || rest.starts_with(" {"));
    (is_variant || rest.starts_with(": ")).then_some(name)
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

fn is_type(name: &str) -> bool {
    name.len() > 1 && name.starts_with(|c: char| c.is_ascii_uppercase())
}

/// Requires the page about Events to list each reason and condition in the sources of the controllers, and no other.
pub(super) fn event_reasons_are_listed(tree: &Tree) -> Vec<Finding> {
    let (page, folder) = EVENTS;
    let Some(page) = tree.find(page) else { return Vec::new() };
    let mut written = BTreeMap::new();
    let own = |path: &str| path.starts_with(folder) && !path.contains("tests") && path.ends_with(".rs");
    for file in tree.files().filter(|file| own(&file.path)) {
        for (line, reason) in reasons(file) {
            written.entry(reason).or_insert((file, line));
        }
    }
    let listed: BTreeMap<&str, usize> = prose_lines(&page.text)
        .flat_map(|(line, text)| {
            code_spans(text).filter(|span| is_reason(span)).map(move |span| (span, line))
        })
        .collect();
    let missing =
        written.iter().filter(|(reason, _)| !listed.contains_key(*reason)).map(|(reason, (file, line))| {
            file.finding(*line, format!("add the reason `{reason}` to {}", page.path))
        });
    let surplus = listed.iter().filter(|(reason, _)| !written.contains_key(*reason));
    let surplus = surplus
        .map(|(reason, line)| page.finding(*line, format!("no controller writes the reason `{reason}`")));
    missing.chain(surplus).collect()
}

/// Returns the literals of a file before its tests that have the form of a reason.
fn reasons(file: &SourceFile) -> Vec<(usize, &str)> {
    let code = file.text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let literals =
        code.flat_map(|(at, line)| line.split('"').skip(1).step_by(2).map(move |text| (at + 1, text)));
    literals.filter(|(_, text)| is_reason(text) && !NO_REASONS.contains(text)).collect()
}

/// Returns whether a text has at least two words in camel case.
fn is_reason(text: &str) -> bool {
    let is_word =
        text.chars().all(|c| c.is_ascii_alphabetic()) && text.starts_with(|c: char| c.is_uppercase());
    is_word
        && text.chars().skip(1).any(char::is_uppercase)
        && text.chars().nth(1).is_some_and(char::is_lowercase)
}

/// Requires the texts that commands in documents search for in the log of a Pod to occur in the sources.
pub(super) fn searched_messages_exist(tree: &Tree) -> Vec<Finding> {
    let sources: Vec<&str> = tree
        .files()
        .filter(|file| {
            file.path.ends_with(".rs") && SOURCES.iter().any(|folder| file.path.starts_with(folder))
        })
        .map(|file| file.text.as_str())
        .collect();
    let mut findings = Vec::new();
    for page in tree.files().filter(|file| file.path.ends_with(".md")) {
        for (at, line) in page.text.lines().enumerate() {
            let texts = searched(line).filter(|text| !sources.iter().any(|source| source.contains(text)));
            findings.extend(texts.map(|text| page.finding(at + 1, format!("no source contains `{text}`"))));
        }
    }
    findings
}

/// Returns the alternatives of the pattern in `kubectl logs ... | grep 'pattern'`.
fn searched(line: &str) -> impl Iterator<Item = &str> {
    let command = line.split_once(" logs ").and_then(|(_, rest)| rest.split_once("| grep "));
    let pattern = command.and_then(|(_, pattern)| pattern.split('\'').nth(1)).unwrap_or_default();
    pattern.split(['|', '(', ')']).map(str::trim).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        let findings = rule(&Tree::of(files)).into_iter();
        findings.map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.message)).collect()
    }

    #[test]
    fn page_without_entry_in_summary_is_found() {
        let files = [(SUMMARY, "- [A](a.md)\n- [S](../SECURITY.md)\n"), ("docs/a.md", ""), ("docs/b.md", "")];
        assert_eq!(
            messages(summary_lists_pages, &files),
            ["docs/b.md:0: add the page to docs/SUMMARY.md, which defines the book"]
        );
    }

    #[test]
    fn name_that_no_source_declares_is_found() {
        let code = "pub struct Setup {\n    pub rate: u8,\n}\nimpl Setup {\n    pub fn watch(&self) {}\n}\n\
                    pub fn by_self() {}\n// fn gone() {}\n";
        let outcome = "pub enum Outcome {\n    Done,\n}\n";
        let rows = "| theirs | Windlass | notes |\n|---|---|---|\n\
            | `For()` | `setup.watch::<Gone<K>>()`, `Outcome::Done`, `--v` | `Gone` |\n\
            | `a \\| b` | `setup.gone()`, `Setup::Done`, `Setup::rate` | |\n\
            | `c` | `kube::Api`, `Setup`, `Gone`, `\"Gone\"`, `by_self`, `gone(x)`, `--gone=1` | |\n";
        let code = [
            ("runtime/a/src/lib.rs", code),
            ("cmd/a/src/main.rs", "v: u8,"),
            ("runtime/b/src/lib.rs", outcome),
        ];
        let found = messages(names_exist, &[&code[..], &[(PHRASE_BOOK, rows)]].concat());
        assert_eq!(found.len(), 5, "{found:?}");
        for name in ["`gone`", "`Setup::Done`", "`Gone`", "`--gone`"] {
            assert!(found.iter().any(|message| message.contains(name)), "{name}: {found:?}");
        }
        let guide = ("docs/testing.md", "`Outcome::Gone` and `a.gone()`, `Setup`\n");
        assert_eq!(messages(names_exist, &[&code[..], &[guide]].concat()).len(), 2);
    }

    #[test]
    fn searched_message_that_no_source_contains_is_found() {
        let page =
            "kubectl logs \"$POD\" | grep -E 'pod (failed|gone)|pod deleted'\nkubectl get pods | grep gone\n";
        let files = [("runtime/a/src/lib.rs", "\"pod failed\", \"pod deleted\""), ("docs/a.md", page)];
        assert_eq!(messages(searched_messages_exist, &files), ["docs/a.md:1: no source contains `gone`"]);
    }

    #[test]
    fn reason_without_row_and_row_without_reason_are_found() {
        let code = "const A: &str = \"FailedCreate\";\n// \"NotCode\"\nlet kind = \"ReplicaSet\";\n#[cfg(test)]\n\"InTest\"";
        let files = [("docs/events.md", "| `ScalingUp` | `Pod` |\n"), ("controllers/src/a.rs", code)];
        assert_eq!(
            messages(event_reasons_are_listed, &files),
            [
                "controllers/src/a.rs:1: add the reason `FailedCreate` to docs/events.md",
                "docs/events.md:1: no controller writes the reason `ScalingUp`",
            ]
        );
    }
}
