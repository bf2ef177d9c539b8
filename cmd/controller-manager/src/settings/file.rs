//! Reads a configuration file: YAML, or JSON, which is YAML too. The text of a field has the syntax of its flag.
//!
//! Guarantees: the whole file is used, or it is rejected. An unknown or repeated field, a list or mapping in the wrong
//! position, another version or kind, and a second document are errors with line, column and remedy.
//!
//! It rejects YAML that hides data from readers: merge keys and tags.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned, UserMessageFormatter};
use windlass::manager::closest;

use super::invalid::{InvalidInput, InvalidValue};
use super::setting::{Position, Setting};
use super::value::ValueShape;

/// The longest file in bytes. All settings with their help are a hundredth of it.
pub(crate) const MAX_SIZE: usize = 1 << 20;

/// Returns the text and the position of each field of `table` in the file, by flag. The file must contain the fields of
/// `header`.
///
/// # Errors
/// The first part of the file that cannot be used.
pub(crate) fn read(
    table: &'static [Setting],
    header: [(&str, &str); 2],
    name: &str,
    bytes: &[u8],
) -> Result<BTreeMap<&'static str, (String, Position)>, InvalidInput> {
    if bytes.len() > MAX_SIZE {
        return Err(InvalidInput::new(name, "longer than 1 MiB", "write settings only"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        InvalidInput::new(&format!("{name}:{line}"), "not UTF-8", "write the file in UTF-8")
    })?;
    let mut reader = Reader { table, name, values: BTreeMap::new() };
    let top = reader.parse(text)?;
    reader.document(top, header)?;
    Ok(reader.values)
}

/// A node of the file with its position.
type Node = Spanned<YamlNode>;

/// The fields of a mapping.
type Fields = Vec<(Spanned<String>, Node)>;

#[derive(Debug)]
enum YamlNode {
    Empty,
    Scalar(String),
    List(Vec<Node>),
    Map(Fields),
}

struct Reader<'a> {
    table: &'static [Setting],
    name: &'a str,
    values: BTreeMap<&'static str, (String, Position)>,
}

impl Reader<'_> {
    fn parse(&self, text: &str) -> Result<Node, InvalidInput> {
        let options = serde_saphyr::options! {
            merge_keys: MergeKeyPolicy::Error,
            strict_booleans: true,
            underscored_numbers_as_strings: true,
            leading_zero_numbers_as_strings: true,
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
            reject_unsupported_tags: true,
            with_snippet: false,
            // A valid file is not nested deeper than a list in a section of a section.
            budget: serde_saphyr::budget! { max_depth: 32 },
        };
        serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| self.invalid(error.location().unwrap_or(Location::UNKNOWN), malformed(&error)))
    }

    fn document(&mut self, top: Node, header: [(&str, &str); 2]) -> Result<(), InvalidInput> {
        let [(version, _), (kind, _)] = header;
        let location = top.referenced;
        let YamlNode::Map(mut fields) = top.value else {
            let remedy = format!("begin with {version} and {kind}");
            return Err(self.invalid(location, InvalidValue::new("not a mapping", remedy)));
        };
        for (name, expected) in header {
            let at = fields.iter().position(|(field, _)| field.value == name);
            let field = at.map(|at| fields.remove(at).1);
            if !field
                .as_ref()
                .is_some_and(|field| matches!(&field.value, YamlNode::Scalar(it) if it == expected))
            {
                let location = field.map_or(location, |field| field.referenced);
                let invalid =
                    InvalidValue::new("not a configuration of windlass", format!("write {name}: {expected}"));
                return Err(self.invalid(location, invalid));
            }
        }
        self.section("", fields)
    }

    fn section(&mut self, prefix: &str, fields: Fields) -> Result<(), InvalidInput> {
        for (name, node) in fields {
            let path = format!("{prefix}{}", name.value);
            let is_section = |setting: &Setting| {
                setting.field.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            let location = node.referenced;
            match (self.table.iter().find(|setting| setting.field == path), node.value) {
                (Some(setting), tree) => {
                    let text = text(setting, tree).map_err(|invalid| self.invalid(location, invalid))?;
                    self.values.insert(&setting.flag, (text, self.position(location)));
                }
                _ if !self.table.iter().any(is_section) => {
                    return Err(self.invalid(name.referenced, self.unknown(&path)));
                }
                (None, YamlNode::Map(fields)) => self.section(&format!("{path}."), fields)?,
                // The fields of the section can be comments.
                (None, YamlNode::Empty) => {}
                (None, _) => {
                    let invalid = InvalidValue::new(format!("{path} is a section"), "write fields below it");
                    return Err(self.invalid(location, invalid));
                }
            }
        }
        Ok(())
    }

    /// Returns an error about an unknown field, with the field that is probably meant.
    fn unknown(&self, path: &str) -> InvalidValue {
        let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
        let fields = || self.table.iter().map(|setting| setting.field);
        let sections = || fields().flat_map(|field| field.match_indices('.').map(|(at, _)| &field[..at]));
        let own = path.rsplit('.').next().unwrap_or(path);
        // First the whole path, then the last name, which can be in the wrong section.
        let near = closest(path, fields().chain(sections()))
            .or_else(|| fields().chain(sections()).find(|field| last(field) == own))
            .or_else(|| {
                closest(own, fields().map(last)).and_then(|near| fields().find(|it| last(it) == near))
            });
        let list = "`windlass --help` lists all fields".to_owned();
        let remedy = near.map_or(list, |field| format!("did you mean {field}?"));
        InvalidValue::new(format!("unknown field {path}"), remedy)
    }

    fn invalid(&self, location: Location, invalid: InvalidValue) -> InvalidInput {
        let Position { file, line, column } = self.position(location);
        invalid.at(&format!("{file}:{line}:{column}"))
    }

    fn position(&self, location: Location) -> Position {
        let (line, column) = (location.line().max(1), location.column().max(1));
        Position { file: self.name.to_owned(), line, column }
    }
}

/// Returns a field in the syntax of its flag.
fn text(setting: &Setting, tree: YamlNode) -> Result<String, InvalidValue> {
    let scalar = |node: Node| match node.value {
        YamlNode::Scalar(text) => Some(text),
        _ => None,
    };
    let text = match (setting.shape, tree) {
        (_, YamlNode::Empty) => Some(String::new()),
        (ValueShape::Switch | ValueShape::Scalar, YamlNode::Scalar(text)) => Some(text),
        (ValueShape::List, YamlNode::List(items)) => {
            items.into_iter().map(scalar).collect::<Option<Vec<_>>>().map(|it| it.join(","))
        }
        (ValueShape::Map, YamlNode::Map(fields)) => {
            let entries =
                fields.into_iter().map(|(name, node)| Some(format!("{}={}", name.value, scalar(node)?)));
            entries.collect::<Option<Vec<_>>>().map(|it| it.join(","))
        }
        _ => None,
    };
    text.ok_or_else(|| {
        let (shape, example) = match setting.shape {
            ValueShape::Switch | ValueShape::Scalar => ("a single value", setting.unit),
            ValueShape::List => ("a list of single values", "[a, b]"),
            ValueShape::Map => ("a mapping of names to true or false", "{Name: true}"),
        };
        let name = setting.field.rsplit('.').next().unwrap_or_default();
        InvalidValue::new(format!("{} is not {shape}", setting.field), format!("write {name}: {example}"))
    })
}

fn malformed(error: &serde_saphyr::Error) -> InvalidValue {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            let problem = format!("field {} is repeated", key.as_deref().unwrap_or_default());
            InvalidValue::new(problem, "leave one of them out")
        }
        serde_saphyr::Error::MergeKeyNotAllowed { .. } => {
            InvalidValue::new("merge keys are not supported", "write the fields themselves")
        }
        other => {
            let message = other.render_with_formatter(&UserMessageFormatter);
            // The position is in the error already.
            let problem = message.lines().next().and_then(|line| line.split(" at line ").next());
            InvalidValue::new(problem.unwrap_or_default().trim_end_matches('.'), "correct the YAML")
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

macro_rules! visit_scalars {
    ($($visit:ident: $type:ty),+) => { $(
        fn $visit<E>(self, scalar: $type) -> Result<YamlNode, E> {
            Ok(YamlNode::Scalar(scalar.to_string()))
        }
    )+ };
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = YamlNode;

    visit_scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Empty)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(YamlNode::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlNode, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(YamlNode::Map(map))
    }
}
