//! Splits files into the passages that readers see: paragraphs, comments, messages, test names.

use crate::tidy::tree::RustFile;

/// Attributes of test functions.
const TEST_ATTRIBUTES: &[&str] = &["#[test]", "#[tokio::test", "#[windlass::simulation", "#[simulation"];

/// The crate whose behaviors are plain functions; a macro generates the tests from their names.
const CONTRACT: &str = "tests/contract/";

/// The parameters of a contract behavior.
const BEHAVIOR_PARAMETER: &str = "(case: Case)";

/// The comment that names the claims of a test. `tests/parity/` reads it.
const PARITY_MARKER: &str = "// parity:";

/// One passage with code removed.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) surface: Surface,
    /// One line; code spans and link targets are replaced.
    pub(super) text: String,
    /// The line of each byte of `text`.
    lines: Vec<usize>,
    /// The author marked it as an exception and gave a reason.
    pub(super) is_exception: bool,
}

/// The kind of a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    /// A paragraph, list item or table row of a document, or a later paragraph of documentation.
    Prose,
    Heading,
    /// The first paragraph of the documentation of an item or a module.
    Summary,
    /// A `//` comment with its number of lines.
    Comment {
        lines: usize,
    },
    /// A string literal with a space.
    Message,
    TestName,
}

impl Passage {
    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.lines.get(offset).or(self.lines.last()).copied().unwrap_or_default()
    }
}

/// Returns whether a line marks an exception and gives a reason. A marker in a code span explains the notation.
pub(super) fn is_exception(line: &str) -> bool {
    ["// language: ", "<!-- language: ", "# language: "].into_iter().any(|marker| {
        line.split_once(marker).is_some_and(|(before, reason)| {
            let is_quoted = before.matches('`').count() % 2 == 1;
            !is_quoted && reason.trim_end_matches("-->").contains(char::is_alphabetic)
        })
    })
}

/// Returns the passages of a Markdown document.
pub(super) fn of_document(text: &str) -> Vec<Passage> {
    let lines: Vec<_> = text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
    paragraphs(&lines, &lines, Surface::Prose)
}

/// Returns the comments of a file whose comment lines start with `marker`.
pub(super) fn of_comments(text: &str, marker: &str) -> Vec<Passage> {
    let all: Vec<_> = text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
    let lines: Vec<_> =
        all.iter().map(|(at, line)| (*at, comment(line, marker).unwrap_or_default())).collect();
    paragraphs(&lines, &all, Surface::Prose)
}

/// Returns the comments of YAML, and each other line as a message: descriptions of alerts and of fields.
pub(super) fn of_yaml(text: &str) -> Vec<Passage> {
    let all: Vec<_> = text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
    let values = all.iter().filter(|(_, line)| comment(line, "#").is_none());
    let messages = values.map(|value| passage(Surface::Message, &[*value], &all));
    messages.chain(of_comments(text, "#")).collect()
}

/// Returns the text of a comment line.
fn comment<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    line.trim_start().strip_prefix(marker)
}

/// Returns the comments, messages and test names of a Rust file.
pub(super) fn of_rust(rust: &RustFile<'_>) -> Vec<Passage> {
    let source = rust.file.text.as_str();
    let all: Vec<_> = source.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
    let mut passages = Vec::new();
    let mut block = Block::default();
    for range in rust.code.blanks() {
        let (text, line) = (&source[range.clone()], rust.code.line_of(range.start));
        if text.starts_with(PARITY_MARKER) {
            continue;
        }
        let Some(marker) = marker(text) else {
            if text.contains(' ') && text.contains('"') && !in_tests(rust, range.start) {
                passages.extend(paragraphs(&string_lines(text, line), &all, Surface::Message));
            }
            continue;
        };
        let trails_code = !source[..range.start].rsplit('\n').next().unwrap_or_default().trim().is_empty();
        if !block.continues(marker, line) || trails_code {
            passages.extend(std::mem::take(&mut block).passages(&all));
        }
        block.push(marker, line, &text[marker.len()..]);
    }
    passages.extend(block.passages(&all));
    passages.extend(test_names(rust, &all));
    passages
}

/// Returns the marker of a line comment.
fn marker(text: &str) -> Option<&'static str> {
    ["///", "//!", "//"].into_iter().find(|marker| text.starts_with(marker))
}

/// Consecutive comment lines.
#[derive(Default)]
struct Block<'a> {
    marker: &'static str,
    lines: Vec<(usize, &'a str)>,
}

impl<'a> Block<'a> {
    fn continues(&self, marker: &str, line: usize) -> bool {
        self.marker == marker && self.lines.last().is_some_and(|(last, _)| last + 1 == line)
    }

    fn push(&mut self, marker: &'static str, line: usize, text: &'a str) {
        self.marker = marker;
        self.lines.push((line, text));
    }

    fn passages(self, all: &[(usize, &str)]) -> Vec<Passage> {
        let surface = match self.marker {
            "//" => Surface::Comment { lines: self.lines.len() },
            _ => Surface::Summary,
        };
        let mut passages = paragraphs(&self.lines, all, surface);
        for later in passages.iter_mut().skip(1) {
            later.surface = Surface::Prose;
        }
        passages
    }
}

/// Returns the lines of a string literal without escaped line ends.
fn string_lines(text: &str, first: usize) -> Vec<(usize, &str)> {
    let content = text.split_once('"').map_or(text, |(_, content)| content).trim_end_matches(['#', '"']);
    let lines = content.lines().enumerate();
    lines.map(|(at, line)| (first + at, line.trim_end_matches('\\').trim_end_matches("\\n"))).collect()
}

/// Returns whether an offset is in a module that only tests compile.
fn in_tests(rust: &RustFile<'_>, offset: usize) -> bool {
    rust.occurrences("#[cfg(test)]").filter(|at| *at < offset).any(|at| {
        let open = rust.code.text()[at..].find('{').map(|open| at + open);
        open.and_then(|open| rust.code.closing(open)).is_some_and(|end| offset < end)
    })
}

fn test_names(rust: &RustFile<'_>, all: &[(usize, &str)]) -> Vec<Passage> {
    let code = rust.code.text();
    let attributes = TEST_ATTRIBUTES.iter().flat_map(|attribute| code.match_indices(attribute));
    let tests = attributes.filter_map(|(at, _)| {
        let start = at + code[at..].find("fn ")? + "fn ".len();
        let end = start + code[start..].find(['(', '<'])?;
        Some((start, end))
    });
    let is_contract = rust.file.path.starts_with(CONTRACT);
    let behaviors = code.match_indices(BEHAVIOR_PARAMETER).filter(|_| is_contract).filter_map(|(end, _)| {
        let start = code[..end].rfind("fn ")? + "fn ".len();
        code[start..end]
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            .then_some((start, end))
    });
    let names = tests.chain(behaviors).map(|(start, end)| (rust.code.line_of(start), &code[start..end]));
    names.map(|(line, name)| passage(Surface::TestName, &[(line, &name.replace('_', " "))], all)).collect()
}

/// Splits lines into paragraphs, list items, table rows and headings; skips fenced blocks.
fn paragraphs(lines: &[(usize, &str)], all: &[(usize, &str)], surface: Surface) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut current: Vec<(usize, &str)> = Vec::new();
    let mut fenced = false;
    let mut flush = |current: &mut Vec<(usize, &str)>, surface| {
        if !current.is_empty() {
            passages.push(passage(surface, current, all));
            current.clear();
        }
    };
    for (at, line) in lines {
        let text = line.trim();
        if text.starts_with("```") {
            fenced = !fenced;
            flush(&mut current, surface);
            continue;
        }
        if fenced || text.is_empty() || text.starts_with("<!--") {
            flush(&mut current, surface);
            continue;
        }
        if is_heading(text) {
            flush(&mut current, surface);
            flush(&mut vec![(*at, text.trim_start_matches('#').trim_start())], Surface::Heading);
            continue;
        }
        let item = list_item(text);
        if item.is_some() || text.starts_with('|') {
            flush(&mut current, surface);
        }
        current.push((*at, item.unwrap_or(text)));
    }
    flush(&mut current, surface);
    passages
}

fn is_heading(text: &str) -> bool {
    text.starts_with('#') && text.trim_start_matches('#').starts_with(' ')
}

/// Returns the text of a list item.
fn list_item(text: &str) -> Option<&str> {
    let bullet = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
    bullet.or_else(|| {
        text.split_once(". ").filter(|(number, _)| number.parse::<u8>().is_ok()).map(|(_, rest)| rest)
    })
}

fn passage(surface: Surface, lines: &[(usize, &str)], all: &[(usize, &str)]) -> Passage {
    let mut bytes = Vec::new();
    let mut numbers = Vec::new();
    for (number, line) in lines {
        if !bytes.is_empty() {
            bytes.push(b' ');
            numbers.push(*number);
        }
        bytes.extend(line.trim().as_bytes());
        numbers.resize(bytes.len(), *number);
    }
    let (first, last) = (lines.first().map_or(0, |line| line.0), lines.last().map_or(0, |line| line.0));
    let marked = all.iter().filter(|(at, _)| *at + 1 >= first && *at <= last);
    let is_exception = marked.into_iter().any(|(_, line)| is_exception(line));
    if surface != Surface::TestName {
        replace_code(&mut bytes);
    }
    Passage { surface, text: String::from_utf8_lossy(&bytes).into_owned(), lines: numbers, is_exception }
}

/// Replaces code spans, link targets and URLs by `x`, which keeps all offsets.
fn replace_code(bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = if rest.starts_with(b"`") {
            rest[1..].iter().position(|byte| *byte == b'`').map(|end| end + 2)
        } else if rest.starts_with(b"](") {
            rest.iter().position(|byte| *byte == b')').map(|end| end + 1)
        } else if rest.starts_with(b"http://") || rest.starts_with(b"https://") {
            Some(rest.iter().position(|byte| b" )>".contains(byte)).unwrap_or(rest.len()))
        } else {
            None
        };
        let end = at + length.unwrap_or(1);
        if length.is_some() {
            bytes[at..end].fill(b'_');
        }
        at = end;
    }
}
