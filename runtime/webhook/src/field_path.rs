//! Finds the field at a position of a JSON document, so that a decoding error names a field and not a column.

use std::iter::Peekable;
use std::str::CharIndices;

/// A container around the position.
#[derive(Debug)]
enum Level {
    /// An object, with its current key.
    Object(String),
    /// A list, with the current index.
    List(usize),
}

/// Returns the path of the field that could not be decoded, such as `spec.ports[0].port`; empty for the document
/// itself.
pub(crate) fn field_of(text: &str, error: &serde_json::Error) -> String {
    let before = error.line().saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    // The character at the end is the first that does not matter: it can close the container with the error.
    let mut levels = levels_before(text, (start + error.column()).saturating_sub(1));
    let message = error.to_string();
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    if let (Some(missing), Some(Level::Object(key))) = (missing, levels.last_mut()) {
        missing.clone_into(key);
    }
    shown(&levels)
}

/// Returns the containers around the byte at `end`, from the outside.
fn levels_before(text: &str, end: usize) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let mut is_key = false;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if at >= end {
            break;
        }
        match character {
            '{' => {
                levels.push(Level::Object(String::new()));
                is_key = true;
            }
            '[' => levels.push(Level::List(0)),
            '}' | ']' => drop(levels.pop()),
            ',' => match levels.last_mut() {
                Some(Level::List(index)) => *index += 1,
                Some(Level::Object(_)) => is_key = true,
                None => {}
            },
            '"' => {
                let name = string(&mut characters);
                if let (true, Some(Level::Object(key))) = (is_key, levels.last_mut()) {
                    *key = name;
                    is_key = false;
                }
            }
            _ => {}
        }
    }
    levels
}

/// Returns the rest of a string whose opening quote has been read. Escapes stay as they are.
fn string(characters: &mut Peekable<CharIndices<'_>>) -> String {
    let mut text = String::new();
    while let Some((_, character)) = characters.next() {
        match character {
            '"' => break,
            '\\' => {
                text.push(character);
                text.extend(characters.next().map(|(_, escaped)| escaped));
            }
            other => text.push(other),
        }
    }
    text
}

fn shown(levels: &[Level]) -> String {
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Object(key) if key.is_empty() => {}
            Level::Object(key) if path.is_empty() => path.push_str(key),
            Level::Object(key) => {
                path.push('.');
                path.push_str(key);
            }
            Level::List(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    /// Returns the field of the error of decoding `text` as a Pod.
    fn of(text: &str) -> String {
        let error = serde_json::from_str::<Pod>(text).expect_err("not a Pod");
        field_of(text, &error)
    }

    #[test]
    fn path_names_field_of_wrong_type() {
        assert_eq!(of(r#"{"metadata":{"name":5}}"#), "metadata.name");
        assert_eq!(
            of(r#"{"spec":{"containers":[{"name":"a"},{"name":"b","stdin":"yes"}]}}"#),
            "spec.containers[1].stdin"
        );
        assert_eq!(
            of("{\n \"metadata\": {\n  \"labels\": { \"a\": \"x\", \"b\\\"\": 1 }\n}}"),
            "metadata.labels.b\\\""
        );
        assert_eq!(of(r#"{"spec":{"containers":"none"}}"#), "spec.containers");
        assert_eq!(of("5"), "");
    }

    #[test]
    fn path_names_object_with_missing_field() {
        #[derive(Debug, serde::Deserialize)]
        struct Outer {
            #[expect(dead_code, reason = "only its decoding matters")]
            spec: Inner,
        }
        #[derive(Debug, serde::Deserialize)]
        struct Inner {
            #[expect(dead_code, reason = "only its decoding matters")]
            size: u8,
        }
        let text = r#"{"spec":{"color":"blue"}}"#;
        let error = serde_json::from_str::<Outer>(text).expect_err("no size");
        assert_eq!(field_of(text, &error), "spec.size");
    }
}
