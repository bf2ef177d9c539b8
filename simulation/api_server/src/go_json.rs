//! JSON as Go's `encoding/json` writes it.
//!
//! Kubernetes escapes `<`, `>`, `&`, U+2028 and U+2029 in all responses. It matters for clients that compare bytes: the
//! controllers compare the data of ControllerRevisions.

use serde::Serialize;

/// Encodes a value. Every value has an encoding.
pub(crate) fn encode(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    escaped(serde_json::to_vec(value).unwrap_or_default())
}

/// Escapes the characters of JSON text. They occur only in strings.
fn escaped(json: Vec<u8>) -> Vec<u8> {
    if !json.iter().any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xE2)) {
        return json;
    }
    let mut escaped = Vec::with_capacity(json.len() + 64);
    let mut rest = json.as_slice();
    while let Some(byte) = rest.first() {
        let (escape, length): (&[u8], _) = match rest {
            [b'<', ..] => (b"\\u003c", 1),
            [b'>', ..] => (b"\\u003e", 1),
            [b'&', ..] => (b"\\u0026", 1),
            [0xE2, 0x80, 0xA8, ..] => (b"\\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (b"\\u2029", 3),
            _ => (std::slice::from_ref(byte), 1),
        };
        escaped.extend_from_slice(escape);
        rest = &rest[length..];
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::encode;
    use serde_json::{Value, json};

    #[test]
    fn text_is_escaped_as_in_go_and_decodes_to_the_same_value() {
        let value = json!({ "a<b": ["&>", "\u{2028}\u{2029}", "\u{2027}\u{e9}\u{20ac}", 1] });
        let bytes = encode(&value);
        let expected =
            concat!(r#"{"a\u003cb":["\u0026\u003e","\u2028\u2029",""#, "\u{2027}\u{e9}\u{20ac}", r#"",1]}"#);
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        assert_eq!(serde_json::from_slice::<Value>(&bytes).ok(), Some(value));
        assert_eq!(encode(&json!("plain")), br#""plain""#);
    }
}
