//! Reads a configuration file: YAML, or JSON, which is YAML too.
//!
//! Guarantees: nothing in a file is overlooked. Fields that do not exist, fields twice, values of another type, another
//! version or kind and a second document are refused, each with line, column and what to write instead; a file is read as
//! a whole or not at all.
//!
//! It refuses what only YAML has beyond JSON's data and would make a file say more than is seen: merge keys and tags.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{Location, Spanned, UserMessageFormatter};
use windlass::manager::closest;

use super::kinds::Shape;
use super::raw::{Place, Raw, Word, quoted, shown};
use super::table::Setting;
use super::{API_VERSION, FileValues, KIND, TABLE};

/// The longest file that is read. All settings with their help are a hundredth of it.
pub(crate) const LONGEST: usize = 1 << 20;

/// A file that cannot be used, or the place in it that cannot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}; {remedy}", shown(file), place.map(|it| format!(":{}:{}", it.line, it.column)).unwrap_or_default())]
pub(crate) struct InvalidFile {
    file: Arc<str>,
    place: Option<Place>,
    problem: String,
    remedy: String,
}

/// Takes a file apart into settings; `file` is what messages call it.
///
/// # Errors
/// The first thing in it that nobody would read, or that is of another type than the setting.
pub(crate) fn read(file: &str, bytes: &[u8]) -> Result<FileValues, InvalidFile> {
    let file: Arc<str> = file.into();
    let refuse =
        |place, Refused(problem, remedy)| InvalidFile { file: Arc::clone(&file), place, problem, remedy };
    if bytes.len() > LONGEST {
        let refused = refused("longer than a mebibyte", "write settings only");
        return Err(refuse(None, refused));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line_start = good.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let characters = String::from_utf8_lossy(&good[line_start..]).chars().count();
        let lines = good.iter().filter(|byte| **byte == b'\n').count();
        let place = Place { line: lines as u64 + 1, column: characters as u64 + 1 };
        refuse(Some(place), refused("not UTF-8", "write the file in UTF-8"))
    })?;
    let top = parse(text).map_err(|(place, refused)| refuse(place, refused))?;
    let values = Reader { text }.document(&top).map_err(|(place, refused)| refuse(Some(place), refused))?;
    Ok(FileValues { file: Arc::clone(&file), values })
}

/// What is wrong, and what to write instead.
#[derive(Debug)]
struct Refused(String, String);

fn refused(problem: impl Into<String>, remedy: impl Into<String>) -> Refused {
    Refused(problem.into(), remedy.into())
}

/// A node of the file.
type Node = Spanned<Tree>;

/// What a node is, in the types of JSON.
#[derive(Debug)]
enum Tree {
    Null,
    Switch(bool),
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Spanned<String>, Node)>),
}

impl Tree {
    /// For messages.
    fn noun(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Switch(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

fn parse(text: &str) -> Result<Node, (Option<Place>, Refused)> {
    let options = serde_saphyr::options! {
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        leading_zero_numbers_as_strings: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        with_snippet: false,
        // Nothing in this file is nested deeper than a list in a section of a section.
        budget: serde_saphyr::budget! { max_depth: 32 },
    };
    serde_saphyr::from_str_with_options::<Node>(text, options)
        .map_err(|error| (error.location().map(place), malformed(&error)))
}

fn malformed(error: &serde_saphyr::Error) -> Refused {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map(shown).unwrap_or_default();
            refused(format!("field {key} is given twice"), "leave one of them out")
        }
        serde_saphyr::Error::MergeKeyNotAllowed { .. } => {
            refused("merge keys are not read", "write the fields themselves")
        }
        other => {
            let message = other.render_with_formatter(&UserMessageFormatter);
            let line = message.lines().next().unwrap_or_default();
            // Where it is stands before it already.
            let line = line.split(" at line ").next().unwrap_or_default();
            refused(shown(line.trim_end_matches('.')), "correct the YAML")
        }
    }
}

fn place(location: Location) -> Place {
    Place { line: location.line(), column: location.column() }
}

/// Finds settings in the nodes of a text.
struct Reader<'a> {
    text: &'a str,
}

type Values = BTreeMap<&'static str, (Raw, Place)>;

impl Reader<'_> {
    fn document(&self, top: &Node) -> Result<Values, (Place, Refused)> {
        let Tree::Map(fields) = &top.value else {
            let problem = format!("{} where the configuration should be", top.value.noun());
            let start = if matches!(top.value, Tree::Null) { Place { line: 1, column: 1 } } else { at(top) };
            return Err((
                start,
                refused(problem, format!("begin with apiVersion: {API_VERSION} and kind: {KIND}")),
            ));
        };
        for (name, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            self.must_say(top, fields, name, expected)?;
        }
        let mut values = Values::new();
        let rest = fields.iter().filter(|(name, _)| !matches!(name.value.as_str(), "apiVersion" | "kind"));
        rest.into_iter().try_for_each(|(name, node)| self.field(&name.value, name, node, &mut values))?;
        Ok(values)
    }

    fn must_say(
        &self,
        top: &Node,
        fields: &[(Spanned<String>, Node)],
        name: &str,
        expected: &str,
    ) -> Result<(), (Place, Refused)> {
        let remedy = format!("write {name}: {expected}");
        match fields.iter().find(|(field, _)| field.value == name) {
            None => Err((at(top), refused(format!("{name} is missing"), remedy))),
            Some((_, Spanned { value: Tree::Text(text), .. })) if text == expected => Ok(()),
            Some((_, node)) => {
                let problem = format!("{name}={}: not this program's configuration", self.source(node));
                Err((at(node), refused(problem, remedy)))
            }
        }
    }

    /// One field, which is a setting or has some below it.
    fn field(
        &self,
        path: &str,
        name: &Spanned<String>,
        node: &Node,
        values: &mut Values,
    ) -> Result<(), (Place, Refused)> {
        if let Some(setting) = TABLE.iter().find(|it| it.field == path) {
            let raw = self.raw(setting, node)?;
            values.insert(setting.name, (raw, at(node)));
            return Ok(());
        }
        if !TABLE.iter().any(|it| it.field.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))) {
            return Err((place(name.referenced), unknown(path)));
        }
        match &node.value {
            // A section whose fields are all commented out.
            Tree::Null => Ok(()),
            Tree::Map(fields) => fields.iter().try_for_each(|(name, node)| {
                self.field(&format!("{path}.{}", name.value), name, node, values)
            }),
            _ => {
                let problem = format!("{path}={} is no section", self.source(node));
                Err((at(node), refused(problem, "write fields below it")))
            }
        }
    }

    /// A node in the shape of a setting.
    fn raw(&self, setting: &Setting, node: &Node) -> Result<Raw, (Place, Refused)> {
        let one = |node: &Node, text: &str| Word { text: text.to_owned(), place: at(node) };
        let raw = match (setting.shape, &node.value) {
            (Shape::Switch, Tree::Switch(on)) => {
                Some(Raw::One(one(node, if *on { "true" } else { "false" })))
            }
            (Shape::Number, Tree::Number(text)) => {
                let source = self.source(node);
                // As it was written: an infinite number has another name in YAML.
                Some(Raw::One(one(node, if source.is_empty() { text } else { &source })))
            }
            (Shape::Text, Tree::Text(text)) => Some(Raw::One(one(node, text))),
            (Shape::List, Tree::List(items)) => Some(Raw::Many(self.texts(setting, items)?)),
            (Shape::Switches, Tree::Map(fields)) => {
                let switch = |(name, node): &(Spanned<String>, Node)| match &node.value {
                    Tree::Switch(on) => {
                        let name = Word { text: name.value.clone(), place: place(name.referenced) };
                        Ok((name, one(node, if *on { "true" } else { "false" })))
                    }
                    _ => Err(self.mistyped(
                        &format!("{}.{}", setting.field, name.value),
                        node,
                        "true or false",
                    )),
                };
                Some(Raw::Named(fields.iter().map(switch).collect::<Result<_, _>>()?))
            }
            _ => None,
        };
        raw.ok_or_else(|| self.mistyped(setting.field, node, wanted(setting.shape)))
    }

    fn texts(&self, setting: &Setting, items: &[Node]) -> Result<Vec<Word>, (Place, Refused)> {
        let text = |node: &Node| match &node.value {
            Tree::Text(text) if text.trim().is_empty() => {
                let problem = format!("{}={}: an entry is empty", setting.field, self.source(node));
                Err((at(node), refused(problem, "leave it out")))
            }
            Tree::Text(text) => Ok(Word { text: text.clone(), place: at(node) }),
            _ => Err(self.mistyped(setting.field, node, "a text for each entry")),
        };
        items.iter().map(text).collect()
    }

    fn mistyped(&self, field: &str, node: &Node, wanted: &str) -> (Place, Refused) {
        let source = self.source(node);
        let value = if source.is_empty() { source } else { format!("={source}") };
        let problem = format!("{}{value}: {} where {wanted} should be", shown(field), node.value.noun());
        (at(node), refused(problem, format!("write {wanted}{}", hint(&node.value, wanted))))
    }

    /// A node as it was written, on one line, and no more of it than says which it is.
    fn source(&self, node: &Node) -> String {
        shown(&self.unshortened(node))
    }

    fn unshortened(&self, node: &Node) -> String {
        let span = node.defined.span();
        let slice = || {
            let start = usize::try_from(span.byte_offset()?).ok()?;
            let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
            self.text.get(start..end)
        };
        match &node.value {
            // An address with a name or a password in it, wherever it was put.
            Tree::Text(text) if text.contains('@') => "***".to_owned(),
            Tree::Text(text) => quoted(text),
            Tree::Null | Tree::Switch(_) | Tree::Number(_) => shown(slice().unwrap_or_default().trim()),
            Tree::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.unshortened(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Tree::Map(fields) => {
                let field = |(name, node): &(Spanned<String>, Node)| {
                    format!("{}: {}", shown(&name.value), self.unshortened(node))
                };
                format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn at(node: &Node) -> Place {
    place(node.referenced)
}

/// What a shape is in words.
fn wanted(shape: Shape) -> &'static str {
    match shape {
        Shape::Switch => "true or false",
        Shape::Number => "a number",
        Shape::Text => "a text",
        Shape::List => "a list of texts",
        Shape::Switches => "true or false for each name",
    }
}

/// What is often meant.
fn hint(found: &Tree, wanted: &str) -> &'static str {
    match found {
        Tree::Null => ", or leave the field out",
        Tree::Number(_) | Tree::Switch(_) if wanted.starts_with("a text") => {
            " in quotes; a duration has a unit, as 15s"
        }
        Tree::Text(_) if wanted == "a number" || wanted.starts_with("true") => " without quotes",
        _ => "",
    }
}

/// Of a field that nobody reads, with the one that is spelled most like it.
fn unknown(path: &str) -> Refused {
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let fields = || TABLE.iter().map(|setting| setting.field).chain(["apiVersion", "kind"]);
    let sections = || {
        TABLE.iter().flat_map(|setting| {
            setting.field.match_indices('.').map(|(at, _)| &setting.field[..at]).collect::<Vec<_>>()
        })
    };
    let own = path.rsplit('.').next().unwrap_or(path);
    // The whole path first; then the name alone, which may stand in the wrong section.
    let near = closest(path, fields().chain(sections()))
        .or_else(|| fields().chain(sections()).find(|field| last(field) == own))
        .or_else(|| {
            closest(own, fields().map(last)).and_then(|near| fields().find(|field| last(field) == near))
        });
    let remedy = match near {
        Some(field) => format!("did you mean {field}?"),
        None => "`windlass --help` names every field".to_owned(),
    };
    refused(format!("unknown field {}", shown(path)), remedy)
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, on: bool) -> Result<Tree, E> {
        Ok(Tree::Switch(on))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(Tree::Number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Tree, E> {
        Ok(Tree::Number(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Tree::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Tree::Map(map))
    }
}
