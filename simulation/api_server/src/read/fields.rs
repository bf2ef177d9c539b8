//! Field selectors: `metadata.name=a,status.phase!=Running`.
//!
//! Which fields a kind can be selected by, and what is said about others, the registry knows ([`FieldTable`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::status::Status;
use crate::storage::{Document, Stored};

/// What is asked of fields. The default asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// By which fields objects of a kind can be selected.
#[derive(Clone, Debug)]
pub struct FieldTable {
    readers: BTreeMap<Cow<'static, str>, FieldReader>,
    refusal: fn(&str) -> String,
}

/// How a field is read. What is not there reads as the empty text.
#[derive(Clone, Debug)]
pub enum FieldReader {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// What lies at a JSON pointer (`/status/phase`).
    Pointer(Cow<'static, str>),
    /// What lies at the first of some JSON pointers where there is something: fields that have several names.
    FirstOf(Vec<Cow<'static, str>>),
    /// What a function makes of the object.
    With(fn(&Value) -> String),
}

#[derive(Clone, Debug)]
struct Term {
    reader: FieldReader,
    equal: bool,
    value: Arc<str>,
}

/// What most kinds with fields of their own say about a field they do not know.
pub fn not_supported(field: &str) -> String {
    format!("field label not supported: {field}")
}

impl FieldTable {
    /// Name and namespace only, as for kinds without fields of their own.
    pub fn metadata() -> FieldTable {
        let refusal = |field: &str| {
            format!(r#"{field:?} is not a known field selector: only "metadata.name", "metadata.namespace""#)
        };
        FieldTable { readers: BTreeMap::new(), refusal }
            .with("metadata.name", FieldReader::Name)
            .with("metadata.namespace", FieldReader::Namespace)
    }

    /// No field at all; `refusal` says so, for instance [`not_supported`].
    pub fn empty(refusal: fn(&str) -> String) -> FieldTable {
        FieldTable { readers: BTreeMap::new(), refusal }
    }

    /// The same, with one field more.
    #[must_use]
    pub fn with(mut self, field: impl Into<Cow<'static, str>>, reader: FieldReader) -> FieldTable {
        self.readers.insert(field.into(), reader);
        self
    }

    /// The same, with a field that lies where its name says.
    #[must_use]
    pub fn with_path(self, field: impl Into<Cow<'static, str>>) -> FieldTable {
        let field = field.into();
        let pointer = format!("/{}", field.replace('.', "/"));
        self.with(field, FieldReader::Pointer(pointer.into()))
    }
}

impl FieldSelector {
    /// The selector that a request has.
    ///
    /// # Errors
    /// 400, in upstream's words.
    pub fn parse(text: &str, table: &FieldTable) -> Result<FieldSelector, Status> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let terms = parts.into_iter().filter(|part| !part.is_empty()).map(|part| {
            let (field, equal, value) = split_term(part).ok_or_else(|| {
                Status::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            let value = unescape(value)?.into();
            match table.readers.get(field) {
                Some(reader) => Ok(Term { reader: reader.clone(), equal, value }),
                None => Err(Status::bad_request((table.refusal)(field))),
            }
        });
        Ok(FieldSelector { terms: terms.collect::<Result<_, _>>()? })
    }

    /// The object of a name.
    pub fn name(name: impl Into<Arc<str>>) -> FieldSelector {
        FieldSelector { terms: vec![Term { reader: FieldReader::Name, equal: true, value: name.into() }] }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The only name that is selected, if there is one.
    pub fn required_name(&self) -> Option<&str> {
        let named = |it: &&Term| it.equal && matches!(it.reader, FieldReader::Name);
        self.terms.iter().find(named).map(|it| &*it.value)
    }

    /// Whether the object has such fields.
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

/// The parts between commas; one behind a backslash does not count.
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

/// Field, whether it is to be equal, and value. The first operator counts.
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
            // Upstream names the character by its number.
            ',' | '=' => {
                return Err(wrong(format!("unescaped character in value: {}", u32::from(character))));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}
