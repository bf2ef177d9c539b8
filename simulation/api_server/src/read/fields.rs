//! Field selectors: `metadata.name=a,status.phase!=Running`.
//!
//! The registry provides each kind's fields and its message for unsupported fields ([`FieldTable`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::status::Status;
use crate::storage::{Document, Stored};

/// A parsed field selector. The default selects all objects.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// Fields by which the objects of a kind can be selected.
#[derive(Clone, Debug)]
pub struct FieldTable {
    readers: BTreeMap<Cow<'static, str>, FieldReader>,
    refusal: fn(&str) -> String,
}

/// A way to read the value of a field. A missing field reads as an empty text.
#[derive(Clone, Debug)]
pub enum FieldReader {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// The value at a JSON pointer (`/status/phase`).
    Pointer(Cow<'static, str>),
    /// The first value that is present at one of several JSON pointers, for fields with several names.
    FirstOf(Vec<Cow<'static, str>>),
    /// The result of a function of the object.
    With(fn(&Value) -> String),
}

#[derive(Clone, Debug)]
struct Term {
    reader: FieldReader,
    equal: bool,
    value: Arc<str>,
}

/// Returns the message of most kinds for an unsupported field.
pub fn not_supported(field: &str) -> String {
    format!("field label not supported: {field}")
}

impl FieldTable {
    /// Returns a table with name and namespace only, for kinds without other fields.
    pub fn metadata() -> FieldTable {
        let refusal = |field: &str| {
            format!(r#"{field:?} is not a known field selector: only "metadata.name", "metadata.namespace""#)
        };
        FieldTable { readers: BTreeMap::new(), refusal }
            .with("metadata.name", FieldReader::Name)
            .with("metadata.namespace", FieldReader::Namespace)
    }

    /// Returns a table without fields; `refusal` returns the error message, for instance [`not_supported`].
    pub fn empty(refusal: fn(&str) -> String) -> FieldTable {
        FieldTable { readers: BTreeMap::new(), refusal }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, field: impl Into<Cow<'static, str>>, reader: FieldReader) -> FieldTable {
        self.readers.insert(field.into(), reader);
        self
    }

    /// Adds a field whose name is its path.
    #[must_use]
    pub fn with_path(self, field: impl Into<Cow<'static, str>>) -> FieldTable {
        let field = field.into();
        let pointer = format!("/{}", field.replace('.', "/"));
        self.with(field, FieldReader::Pointer(pointer.into()))
    }
}

impl FieldSelector {
    /// Parses the selector of a request.
    ///
    /// # Errors
    /// 400, with the upstream message.
    pub fn parse(text: &str, table: &FieldTable) -> Result<FieldSelector, Status> {
        let terms = parts(text).map(|part| {
            let (field, equal, value) = part?;
            match table.readers.get(field) {
                Some(reader) => Ok(Term { reader: reader.clone(), equal, value: value.into() }),
                None => Err(Status::bad_request((table.refusal)(field))),
            }
        });
        Ok(FieldSelector { terms: terms.collect::<Result<_, Status>>()? })
    }

    /// Checks the syntax of the selector of a request.
    ///
    /// # Errors
    /// 400, with the upstream message.
    pub(crate) fn check_syntax(text: &str) -> Result<(), Status> {
        parts(text).try_for_each(|part| part.map(|_| ()))
    }

    /// Returns a selector for one object name.
    pub fn name(name: impl Into<Arc<str>>) -> FieldSelector {
        FieldSelector { terms: vec![Term { reader: FieldReader::Name, equal: true, value: name.into() }] }
    }

    /// Returns whether the selector selects all objects.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the only name that the selector allows, if there is one.
    pub fn required_name(&self) -> Option<&str> {
        let named = |it: &&Term| it.equal && matches!(it.reader, FieldReader::Name);
        self.terms.iter().find(named).map(|it| &*it.value)
    }

    /// Returns whether the selector matches the object.
    pub fn matches(&self, stored: &Stored) -> bool {
        self.terms.iter().all(|term| (*term.reader.read(stored) == *term.value) == term.equal)
    }
}

impl FieldReader {
    fn read<'a>(&self, stored: &'a Stored) -> Cow<'a, str> {
        match self {
            FieldReader::Name => Cow::Borrowed(&stored.key.name),
            FieldReader::Namespace => Cow::Borrowed(&stored.key.namespace),
            FieldReader::With(read) => Cow::Owned(read(&stored.value.read())),
            FieldReader::Pointer(pointer) => text_at(&stored.value, pointer),
            FieldReader::FirstOf(pointers) => {
                let texts = pointers.iter().map(|it| text_at(&stored.value, it));
                texts.into_iter().find(|it| !it.is_empty()).unwrap_or_default()
            }
        }
    }
}

fn text_at<'a>(object: &'a Document, pointer: &str) -> Cow<'a, str> {
    match object.pointer(pointer) {
        Some(Cow::Borrowed(Value::String(text))) => Cow::Borrowed(text),
        Some(Cow::Owned(Value::String(text))) => Cow::Owned(text),
        Some(other) if !matches!(&*other, Value::Null | Value::Object(_) | Value::Array(_)) => {
            Cow::Owned(other.to_string())
        }
        _ => Cow::Borrowed(""),
    }
}

/// Returns field, equality and value of each term.
fn parts(text: &str) -> impl Iterator<Item = Result<(&str, bool, String), Status>> {
    let mut parts = split_terms(text);
    parts.sort_unstable();
    parts.into_iter().filter(|part| !part.is_empty()).map(move |part| {
        let (field, equal, value) = split_term(part).ok_or_else(|| {
            Status::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"))
        })?;
        Ok((field, equal, unescape(value)?))
    })
}

/// Splits a selector at its commas; a backslash escapes a comma.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits a term at its first operator into field, whether it must be equal, and value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let equals = term.find('=')?;
    let at = if term[..equals].ends_with('!') { equals - 1 } else { equals };
    let (field, rest) = term.split_at(at);
    let (equal, value) = match rest.strip_prefix("!=") {
        Some(value) => (false, value),
        None => (true, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?),
    };
    Some((field, equal, value))
}

fn unescape(value: &str) -> Result<String, Status> {
    let wrong = |why: String| Status::bad_request(format!("invalid field selector: {why}"));
    let (mut plain, mut characters) = (String::with_capacity(value.len()), value.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => return Err(wrong(format!("invalid escape sequence: \\{other}"))),
                None => return Err(wrong("invalid escape sequence: \\".to_owned())),
            },
            // Upstream reports the character as a number.
            ',' | '=' => {
                return Err(wrong(format!("unescaped character in value: {}", u32::from(character))));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}
