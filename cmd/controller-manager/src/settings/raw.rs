//! Values as somebody wrote them, before they mean anything, and what is said of one that means nothing.

use std::fmt;
use std::sync::Arc;

use super::table::Setting;

/// A line and a column of a file, both from 1; zeros where there is no file.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// One word of a value. Two are equal if they say the same, wherever they stand.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) place: Place,
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Word {}

impl Word {
    /// Of a command line.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: Place::default() }
    }

    /// Without the spaces around it.
    pub(crate) fn trimmed(&self) -> Self {
        Self { text: self.text.trim().to_owned(), place: self.place }
    }
}

/// A value as it was written.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    /// One text.
    One(Word),
    /// Several.
    Many(Vec<Word>),
    /// One for each of several names.
    Named(Vec<(Word, Word)>),
}

impl Raw {
    /// The words of a list, or the only one.
    pub(crate) fn words(&self) -> &[Word] {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Many(words) => words,
            Self::Named(_) => &[],
        }
    }

    /// The only word; an empty one where there is none.
    pub(crate) fn text(&self) -> &str {
        self.words().first().map_or("", |word| word.text.as_str())
    }

    /// Names and what is said of each.
    pub(crate) fn named(&self) -> &[(Word, Word)] {
        match self {
            Self::Named(entries) => entries,
            Self::One(_) | Self::Many(_) => &[],
        }
    }
}

/// As it would be written on a command line.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |words: &[Word]| words.iter().map(|it| it.text.as_str()).collect::<Vec<_>>().join(",");
        match self {
            Self::One(word) => f.write_str(&word.text),
            Self::Many(words) => f.write_str(&joined(words)),
            Self::Named(entries) => {
                let entries = entries.iter().map(|(name, word)| format!("{}={}", name.text, word.text));
                f.write_str(&entries.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// What is wrong with a value, by whoever tried to read it.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) problem: String,
    pub(crate) remedy: String,
    /// Which of its words, if it has several.
    pub(crate) culprit: Option<Word>,
    /// Whether the value is not to be shown.
    pub(crate) is_secret: bool,
}

impl Wrong {
    pub(crate) fn new(problem: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self { problem: problem.to_string(), remedy: remedy.to_string(), culprit: None, is_secret: false }
    }

    /// Of a value that may hold what nobody should see.
    pub(crate) fn secret(problem: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self { is_secret: true, ..Self::new(problem, remedy) }
    }

    /// Of this word above all.
    pub(crate) fn at(self, word: &Word) -> Self {
        Self { culprit: Some(word.clone()), ..self }
    }
}

/// Who gave a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody: it is the table's.
    Default,
    /// The command line.
    Flag,
    /// This file, here.
    File(Arc<str>, Place),
}

/// A setting whose value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidSetting(Box<Blame>);

/// In a box, so that whoever returns it on failure does not move it about on success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}; {remedy}", blamed(setting, value, origin))]
struct Blame {
    setting: &'static Setting,
    value: String,
    origin: Origin,
    problem: String,
    remedy: String,
}

impl InvalidSetting {
    pub(crate) fn new(setting: &'static Setting, value: &Raw, origin: &Origin, wrong: Wrong) -> Self {
        let Wrong { problem, remedy, culprit, is_secret } = wrong;
        // In a file the word itself can be pointed at; a command line is short, and is quoted as it was written.
        let (value, origin) = match (origin, culprit) {
            (Origin::File(file, _), Some(word)) => (word.text, Origin::File(Arc::clone(file), word.place)),
            _ if is_secret => ("***".to_owned(), origin.clone()),
            _ => (value.to_string(), origin.clone()),
        };
        Self(Box::new(Blame { setting, value, origin, problem, remedy }))
    }
}

fn blamed(setting: &Setting, value: &str, origin: &Origin) -> String {
    let Setting { name: flag, field, .. } = setting;
    let value = shown(value);
    match origin {
        Origin::Default => format!("--{flag}={value} (the default)"),
        Origin::Flag => format!("--{flag}={value}"),
        Origin::File(file, Place { line, column }) => {
            // On a command line nothing stands for an empty text. In a file a pair of quotes does.
            let value = if value.is_empty() { quoted(&value) } else { value };
            format!("{}:{line}:{column}: {field}={value}", shown(file))
        }
    }
}

/// A text fit for one line of a terminal: what would not be seen, or would move the cursor, is escaped, and the end of a
/// long one is left out.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut shown = String::new();
    for (at, c) in text.chars().enumerate() {
        match c {
            _ if at == LONGEST => {
                shown.push('\u{2026}');
                break;
            }
            // Nothing is quoted here, so nothing is escaped for the sake of quotes.
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// The same in quotes.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text))
}
