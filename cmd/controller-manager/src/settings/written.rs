//! Settings written down: as a file, as JSON, as flags.
//!
//! Guarantees: what is written as a file is read again with the same meaning, whatever the values; fields stand in the
//! order of the table, each below its help.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::table::Setting;
use super::{API_VERSION, KIND, Settings};

impl Settings {
    /// The file that says all of this, with help.
    pub(crate) fn to_file(&self) -> String {
        let mut file = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        Branch::of(self.written()).write(&mut file, 0);
        file
    }

    /// The same as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let mut top = Map::from_iter([
            ("apiVersion".to_owned(), Value::from(API_VERSION)),
            ("kind".to_owned(), Value::from(KIND)),
        ]);
        top.extend(Branch::of(self.written()).into_json());
        Value::Object(top)
    }

    /// Every flag with its value, as a command line would have it.
    pub(crate) fn to_flags(&self) -> BTreeMap<String, String> {
        let flags = self.written().into_iter();
        flags.map(|(setting, value)| (setting.name.to_owned(), as_flag(&value))).collect()
    }
}

/// A value in the words of a command line.
fn as_flag(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(as_flag).collect::<Vec<_>>().join(","),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(name, value)| format!("{name}={}", as_flag(value)));
            entries.collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

/// What stands below a field that is no setting itself, in the order of the table.
#[derive(Default)]
struct Branch(Vec<(&'static str, Node)>);

enum Node {
    Branch(Branch),
    Leaf(&'static Setting, Value),
}

impl Branch {
    fn of(values: Vec<(&'static Setting, Value)>) -> Self {
        let mut top = Self::default();
        for (setting, value) in values {
            top.insert(setting.field, setting, value);
        }
        top
    }

    fn insert(&mut self, path: &'static str, setting: &'static Setting, value: Value) {
        let Some((first, rest)) = path.split_once('.') else {
            self.0.push((path, Node::Leaf(setting, value)));
            return;
        };
        if !self.0.iter().any(|(name, _)| *name == first) {
            self.0.push((first, Node::Branch(Self::default())));
        }
        if let Some((_, Node::Branch(branch))) = self.0.iter_mut().find(|(name, _)| *name == first) {
            branch.insert(rest, setting, value);
        }
    }

    fn into_json(self) -> Map<String, Value> {
        let json = |node| match node {
            Node::Branch(branch) => Value::Object(branch.into_json()),
            Node::Leaf(_, value) => value,
        };
        self.0.into_iter().map(|(name, node)| (name.to_owned(), json(node))).collect()
    }

    fn write(&self, file: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        for (name, node) in &self.0 {
            // Writing to a string cannot fail.
            let _ = match node {
                Node::Branch(branch) => {
                    let _ = writeln!(file, "{indent}{name}:");
                    branch.write(file, depth + 1);
                    Ok(())
                }
                Node::Leaf(setting, value) => {
                    let _ = writeln!(file, "{indent}# {} [--{}]", setting.sentence(), setting.name);
                    writeln!(file, "{indent}{name}: {}", inline(value))
                }
            };
        }
    }
}

/// A value on one line: JSON is YAML, but for characters that YAML wants escaped.
fn inline(value: &Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        let seen = c == ' ' || c.is_ascii_graphic();
        match u16::try_from(u32::from(c)) {
            _ if seen => line.push(c),
            Ok(unit) => {
                let _ = write!(line, "\\u{unit:04x}");
            }
            Err(_) => {
                let _ = write!(line, "\\U{:08x}", u32::from(c));
            }
        }
    }
    line
}
