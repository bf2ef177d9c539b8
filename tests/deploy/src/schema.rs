//! The JSON schema of a chart's values, from which default values and documentation are generated.
//!
//! Properties keep their order. Only the parts of a schema that the generated files contain are read; Helm validates
//! values against all of it.

use std::fmt;

use anyhow::{Context as _, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// Width of comments in the file of default values.
const WIDTH: usize = 110;

/// Values that Helm reserves for itself; charts do not document them.
const RESERVED: [&str; 2] = ["global", "operator-base"];

/// A value, or an object of values.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Schema {
    #[serde(default, rename = "type")]
    kind: Value,
    #[serde(default, rename = "$ref")]
    reference: Option<String>,
    #[serde(default, rename = "enum")]
    choices: Vec<Value>,
    #[serde(default)]
    description: String,
    default: Option<Value>,
    /// The values of an object.
    #[serde(default)]
    pub properties: Properties,
}

/// Named values in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Properties(pub Vec<(String, Schema)>);

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Properties;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("properties")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
                let mut properties = Vec::new();
                while let Some(property) = map.next_entry()? {
                    properties.push(property);
                }
                Ok(Properties(properties))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Schema {
    /// Returns the property `name`.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Schema> {
        self.properties.0.iter().find(|(known, _)| known == name).map(|(_, schema)| schema)
    }

    /// Returns the paths of all values, with dots.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.rows("").into_iter().map(|(path, _)| path).collect()
    }

    /// Returns the default values as YAML, with descriptions as comments.
    ///
    /// # Errors
    /// Returns an error if a default cannot be written as YAML.
    pub fn values_file(&self) -> Result<String> {
        let mut file = String::new();
        self.write(0, &mut file)?;
        Ok(file)
    }

    /// Returns the default values as YAML below `exports.defaults`.
    pub(crate) fn exported(&self) -> Result<String> {
        let lines = self.values_file()?;
        let indented = |line: &str| if line.is_empty() { "\n".into() } else { format!("    {line}\n") };
        Ok(lines.trim_start().lines().map(indented).collect())
    }

    fn write(&self, depth: usize, file: &mut String) -> Result<()> {
        let indent = "  ".repeat(depth);
        let mut properties = self.properties.0.iter().filter(|(name, _)| !is_reserved(depth, name));
        properties.try_for_each(|(name, schema)| {
            if depth == 0 {
                file.push('\n');
            }
            for line in wrapped(&schema.description, WIDTH - indent.len()) {
                *file += &format!("{indent}# {line}\n");
            }
            match &schema.default {
                None if schema.properties.0.is_empty() => *file += &format!("{indent}# {name}:\n"),
                None => {
                    *file += &format!("{indent}{name}:\n");
                    schema.write(depth + 1, file)?;
                }
                Some(value) => *file += &assignment(&indent, name, value).context(name.clone())?,
            }
            Ok(())
        })
    }

    /// Returns a Markdown table of all values.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::from("| value | type | default | meaning |\n|---|---|---|---|\n");
        for (path, schema) in self.rows("") {
            let default = match &schema.default {
                None => "none".to_owned(),
                Some(value) => format!("`{value}`"),
            };
            let cells = [format!("`{path}`"), schema.type_name(), default, schema.description.clone()];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            table += &format!("| {} |\n", cells.join(" | "));
        }
        table
    }

    /// Returns all values that are not objects of other values, with their paths.
    fn rows(&self, above: &str) -> Vec<(String, &Schema)> {
        let depth = usize::from(!above.is_empty());
        let properties = self.properties.0.iter().filter(|(name, _)| !is_reserved(depth, name));
        properties
            .flat_map(|(name, schema)| {
                let path = format!("{above}{name}");
                match schema.properties.0.is_empty() {
                    true => vec![(path, schema)],
                    false => schema.rows(&format!("{path}.")),
                }
            })
            .collect()
    }

    fn type_name(&self) -> String {
        if !self.choices.is_empty() {
            return self.choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ");
        }
        let reference = self.reference.as_ref().and_then(|path| path.rsplit('/').next());
        reference.or(self.kind.as_str()).unwrap_or("any").to_owned()
    }
}

fn is_reserved(depth: usize, name: &str) -> bool {
    depth == 0 && RESERVED.contains(&name)
}

/// Returns `name: value` as YAML; empty containers and scalars on one line.
fn assignment(indent: &str, name: &str, value: &Value) -> Result<String> {
    let below = match value {
        Value::Array(items) if !items.is_empty() => "",
        Value::Object(fields) if !fields.is_empty() => "  ",
        _ => return Ok(format!("{indent}{name}: {value}\n")),
    };
    let text = serde_saphyr::to_string(value)?;
    let lines = text.lines().map(|line| format!("{indent}{below}{line}\n"));
    Ok(format!("{indent}{name}:\n{}", lines.collect::<String>()))
}

/// Splits a text into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let text = r##"{"properties": {
            "zebra": {"type": "integer", "default": 1, "description": "A number."},
            "apple": {"properties": {
                "kind": {"enum": ["a", "b"], "default": "a", "description": "A | choice."},
                "limits": {"type": "object", "default": {"cpu": "1"}, "description": "Limits."},
                "time": {"$ref": "#/$defs/duration", "description": "Optional."}
            }},
            "global": {"type": "object", "default": {}}
        }}"##;
        serde_json::from_str(text).expect("a schema")
    }

    #[test]
    fn values_keep_their_order_and_have_comments() {
        let expected = "\n# A number.\nzebra: 1\n\napple:\n  # A | choice.\n  kind: \"a\"\n  # Limits.\n  limits:\n    \
                        cpu: \"1\"\n  # Optional.\n  # time:\n";
        let file = schema().values_file().expect("YAML");
        let unquoted = file.replace("cpu: '1'", "cpu: \"1\"");
        assert_eq!(unquoted, expected);
    }

    #[test]
    fn table_lists_path_type_default_and_meaning() {
        let table = schema().table();
        for row in [
            "| `zebra` | integer | `1` | A number. |",
            "| `apple.kind` | `\"a\"`, `\"b\"` | `\"a\"` | A \\| choice. |",
            "| `apple.time` | duration | none | Optional. |",
        ] {
            assert!(table.contains(row), "{row}: {table}");
        }
        assert!(!table.contains("global"), "{table}");
    }
}
