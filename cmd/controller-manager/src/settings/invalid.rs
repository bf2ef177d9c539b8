//! Errors about a value, and about the flag or the field that has it.
//!
//! Guarantees: an error is one printable line that names the flag or the position in the file, the problem and the
//! remedy; it never quotes a URL with credentials.

/// The reason why a text is not a value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidValue {
    problem: String,
    remedy: String,
}

impl InvalidValue {
    pub(crate) fn new(problem: impl ToString, remedy: impl ToString) -> Self {
        Self { problem: problem.to_string(), remedy: remedy.to_string() }
    }

    /// Names the flag, the field or the file that has the value.
    pub(crate) fn at(self, culprit: &str) -> InvalidInput {
        let Self { problem, remedy } = self;
        InvalidInput(format!("{}: {}; {remedy}", printable(culprit), printable(&problem)))
    }
}

/// An error of the command line or of the configuration file, as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidInput(String);

impl InvalidInput {
    pub(crate) fn new(culprit: &str, problem: impl ToString, remedy: impl ToString) -> Self {
        InvalidValue::new(problem, remedy).at(culprit)
    }
}

/// Returns `name=value`. A text that contains an `@` can be a URL with a password.
pub(crate) fn assignment(name: &str, value: &str) -> String {
    format!("{name}={}", if value.contains('@') { "***" } else { value })
}

/// Escapes control characters, and truncates.
fn printable(text: &str) -> String {
    const MAX_LENGTH: usize = 300;
    let escaped = text.chars().take(MAX_LENGTH).map(|c| match c {
        '"' | '\'' | '\\' => c.to_string(),
        c => c.escape_debug().to_string(),
    });
    let end = if text.chars().nth(MAX_LENGTH).is_some() { "\u{2026}" } else { "" };
    escaped.collect::<String>() + end
}
