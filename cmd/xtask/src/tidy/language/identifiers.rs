//! Words that identifiers must not contain, and the search for declared identifiers.
//!
//! Guarantees:
//! - A word matches a whole segment of a name: `told` matches `told_keys` and `ToldKeys`, not `untold`.
//! - Items, variants, fields, parameters and bindings of `let`, `for` and closures are checked. Other uses of a name
//!   are not, so a rename is reported where it starts.

use regex::Regex;

use crate::tidy::tree::RustFile;

/// The word list: segments of the old style, in lowercase, each with its replacement.
pub(super) const SEGMENTS: &[(&str, &str)] = &[
    ("ageing", "aging"),
    ("anew", "again"),
    ("anybody", "any caller"),
    ("aside", "parked, temporary"),
    ("behaviour", "behavior"),
    ("behaviours", "behaviors"),
    ("beside", "next_to"),
    ("besides", "also"),
    ("catalogue", "catalog"),
    ("colour", "color"),
    ("colours", "colors"),
    ("custodian", "oracle, or the type of the value"),
    ("doubt", "unknown_outcome"),
    ("doubts", "unknown_outcomes"),
    ("everybody", "all_clients"),
    ("favour", "favor"),
    ("flaw", "violation"),
    ("handover", "handoff"),
    ("handovers", "handoffs"),
    ("judge", "oracle, check"),
    ("labelled", "labeled"),
    ("laggard", "unsynced"),
    ("laggards", "unsynced"),
    ("ledger", "tracker, usage"),
    ("mend", "fix, heal"),
    ("mended", "fixed, healed"),
    ("neighbour", "neighbor"),
    ("neighbours", "neighbors"),
    ("nobody", "anonymous, no_client"),
    ("objection", "violation"),
    ("patience", "timeout"),
    ("predecessor", "previous_holder"),
    ("recognised", "recognized"),
    ("serialised", "serialized"),
    ("somebody", "another_client"),
    ("steward", "shard_handoff"),
    ("stranger", "foreign"),
    ("strangers", "foreign"),
    ("tell", "notify, send, report"),
    ("telling", "report"),
    ("tells", "reports, sends"),
    ("threat", "fault"),
    ("threats", "faults"),
    ("told", "notified, received, reported"),
    ("vigil", "poll_monitor"),
    ("whoever", "the name of the actor"),
    ("whom", "the name of the actor"),
    ("wishes", "requests"),
];

/// The search for declared identifiers.
pub(super) struct Declarations {
    item: Regex,
    typed: Regex,
    pattern: Regex,
    variants: Regex,
    name: Regex,
}

impl Declarations {
    #[allow(clippy::expect_used, reason = "the patterns are constants, and every test run compiles them")]
    pub(super) fn new() -> Self {
        let regex = |pattern: &str| Regex::new(pattern).expect("the pattern is valid");
        Self {
            item: regex(
                r"\b(?:fn|struct|enum|union|trait|type|const|static|mod)\s+(?:mut\s+)?([A-Za-z_]\w*)",
            ),
            // Fields and parameters: a name before a colon that does not start a path.
            typed: regex(r"\b([A-Za-z_]\w*)\s*:(?:[^:]|$)"),
            pattern: regex(
                r"\blet\s+([^=;]*)|\bfor\s+([^;{}=<>]*?)\s+in\b|[(,=]\s*(?:move\s+)?\|([^|;{}=]*)\|",
            ),
            variants: regex(r"\benum\s+\w+[^{;]*\{"),
            name: regex(r"\b[a-z_]\w*"),
        }
    }

    /// Returns the offsets and names of the declared identifiers of a file. A name can be returned more than once.
    pub(super) fn of<'a>(&self, rust: &'a RustFile<'_>) -> Vec<(usize, &'a str)> {
        let code = rust.code.text();
        let first = |captures: regex::Captures<'a>| captures.iter().skip(1).flatten().next();
        let found = self.item.captures_iter(code).chain(self.typed.captures_iter(code)).filter_map(first);
        let mut names: Vec<_> = found.map(|found| (found.start(), found.as_str())).collect();
        for pattern in self.pattern.captures_iter(code).filter_map(first) {
            let bound = self.name.find_iter(pattern.as_str());
            names.extend(bound.map(|bound| (pattern.start() + bound.start(), bound.as_str())));
        }
        let bodies = self.variants.find_iter(code).map(|header| header.end() - 1);
        names.extend(bodies.flat_map(|open| variants(rust, open)));
        names
    }
}

/// Returns the variants of the enum whose body starts at `open`.
fn variants<'a>(rust: &'a RustFile<'_>, open: usize) -> Vec<(usize, &'a str)> {
    let code = rust.code.text();
    let (mut names, mut at, mut is_start) = (Vec::new(), open + 1, true);
    let end = rust.code.closing(open).unwrap_or(code.len());
    while at < end {
        let rest = &code[at..end];
        let c = rest.chars().next().unwrap_or_default();
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        at = match c {
            '{' | '(' | '[' => rust.code.closing(at).map_or(end, |close| close + 1),
            _ if length > 0 => {
                if is_start {
                    names.push((at, &rest[..length]));
                }
                is_start = false;
                at + length
            }
            _ => {
                is_start |= c == ',';
                at + c.len_utf8()
            }
        };
    }
    names
}

/// Returns the words of a name in snake case or camel case, in lowercase.
pub(super) fn segments(name: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            segments.push(String::new());
        }
        if let Some(last) = segments.last_mut().filter(|_| c != '_') {
            last.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_segments() {
        for (name, expected) in [
            ("told_keys", vec!["told", "keys"]),
            ("ToldKeys2", vec!["told", "keys2"]),
            ("MAX_TOLD", vec!["max", "told"]),
            ("_untold", vec!["untold"]),
        ] {
            assert_eq!(segments(name), expected, "{name}");
        }
    }
}
