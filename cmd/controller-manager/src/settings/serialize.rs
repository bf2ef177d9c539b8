//! The values of all settings as a file, as JSON and as flags.
//!
//! Guarantees: a process that reads the file, or the JSON as a file, has the same values.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::setting::Setting;

/// Settings with their values.
type Rows = Vec<(&'static Setting, Value)>;

/// Returns the YAML file, sorted by field, with the help of each setting as a comment.
pub(super) fn file(mut rows: Rows, header: [(&str, &str); 2]) -> String {
    rows.sort_by_key(|(setting, _)| setting.field);
    let mut file = header.map(|(name, value)| format!("{name}: {value}\n")).concat();
    let mut open: Vec<&str> = Vec::new();
    for (setting, value) in rows {
        let mut sections: Vec<_> = setting.field.split('.').collect();
        let name = sections.pop().unwrap_or_default();
        let common = open.iter().zip(&sections).take_while(|(open, section)| open == section).count();
        for (depth, section) in sections.iter().enumerate().skip(common) {
            let _ = writeln!(file, "{:1$}{section}:", "", depth * 2);
        }
        let indent = sections.len() * 2;
        let _ = writeln!(file, "{:indent$}# {} [--{}]", "", setting.help, setting.flag);
        let _ = writeln!(file, "{:indent$}{name}: {}", "", yaml(&value));
        open = sections;
    }
    file
}

/// Returns JSON on one line, which is YAML if characters outside of ASCII are escaped.
fn yaml(value: &Value) -> String {
    let is_plain = |c: char| c == ' ' || c.is_ascii_graphic();
    let escape = |c: char| if is_plain(c) { c.to_string() } else { format!("\\U{:08x}", u32::from(c)) };
    value.to_string().chars().map(escape).collect()
}

/// Returns the same file as JSON.
pub(super) fn json(rows: Rows, header: [(&str, &str); 2]) -> Value {
    let mut file = json!({});
    for (name, value) in header {
        file[name] = value.into();
    }
    for (setting, value) in rows {
        let section = setting.field.split('.').fold(&mut file, |section, name| &mut section[name]);
        *section = value;
    }
    file
}

/// Returns the value of every flag.
pub(super) fn flags(rows: Rows) -> BTreeMap<String, String> {
    rows.into_iter().map(|(setting, value)| (setting.flag.clone(), flag(&value))).collect()
}

fn flag(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(flag).collect::<Vec<_>>().join(","),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(name, value)| format!("{name}={}", flag(value)));
            entries.collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}
