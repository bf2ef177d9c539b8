//! JSON as Go's `encoding/json` prints it: keys sorted by bytes, no spaces, and escapes for characters that HTML and
//! JavaScript interpret.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Maximum integer below which each integer is a 64-bit float.
const MAX_EXACT: u64 = 1 << 53;

/// The form of integers beyond 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Rounded to a 64-bit float, as upstream does for StatefulSets.
    Float,
    /// Exact, as upstream does for DaemonSets.
    Integer,
}

/// Appends text in quotes.
pub(crate) fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                // Writing to a string does not fail.
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

/// Appends a number. With [`Numbers::Float`], an integer is rounded to a 64-bit float.
pub(crate) fn push_number(json: &mut String, number: &Number, numbers: Numbers) {
    let is_exact = number.as_i64().is_none_or(|integer| integer.unsigned_abs() <= MAX_EXACT);
    let rounded = number.as_f64().filter(|_| numbers == Numbers::Float && !is_exact);
    let _ = match rounded {
        Some(float) => write!(json, "{float}"),
        None => write!(json, "{number}"),
    };
}

/// Appends any value.
pub(crate) fn push_value(json: &mut String, value: &Value, numbers: Numbers) {
    match value {
        Value::Null => json.push_str("null"),
        Value::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => push_number(json, number, numbers),
        Value::String(text) => push_text(json, text),
        Value::Array(items) => {
            push_list(json, items, |json, item| push_value(json, item, numbers));
        }
        Value::Object(members) => {
            let encoded = members.iter().map(|(key, value)| {
                let mut text = String::new();
                push_value(&mut text, value, numbers);
                (key.as_str(), text)
            });
            push_object(json, encoded.collect());
        }
    }
}

/// Appends a list.
pub(crate) fn push_list<T>(json: &mut String, items: &[T], mut push: impl FnMut(&mut String, &T)) {
    json.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        push(json, item);
    }
    json.push(']');
}

/// Appends an object with members in JSON.
pub(crate) fn push_object(json: &mut String, mut members: Vec<(&str, String)>) {
    members.sort_unstable_by_key(|(key, _)| *key);
    json.push('{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_text(json, key);
        json.push(':');
        json.push_str(value);
    }
    json.push('}');
}
