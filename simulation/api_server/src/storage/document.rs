//! Objects that are stored as bytes and parsed on first access.
//!
//! Guarantees:
//! - The bytes were encoded by this module, from a value that can be parsed again.
//! - [`Document::read`] and [`Document::pointer`] do not cache the parsed value. Use them to access many objects.
//!
//! Non-goal: documents from external bytes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::go_json;

/// An object that is parsed at its first dereference and then cached. A parsed object needs ten times the memory of
/// its bytes, and most stored objects are never accessed again.
pub struct Document {
    value: OnceLock<Value>,
    bytes: Bytes,
}

impl Document {
    /// Encodes a value. The caller has checked the nesting, so the bytes can be parsed again.
    pub(super) fn encode(value: Value) -> Document {
        let bytes = Bytes::from(go_json::encode(&value));
        Document { value: OnceLock::from(value), bytes }
    }

    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns an unparsed copy.
    pub(super) fn unparsed(&self) -> Document {
        Document { value: OnceLock::new(), bytes: self.bytes.clone() }
    }

    /// Returns whether the object is unparsed.
    pub(crate) fn is_unparsed(&self) -> bool {
        self.value.get().is_none()
    }

    /// Returns the object; an unparsed object stays unparsed.
    pub fn read(&self) -> Cow<'_, Value> {
        self.value.get().map_or_else(|| Cow::Owned(self.decode()), Cow::Borrowed)
    }

    /// Returns the value at a JSON pointer. An unparsed object stays unparsed, and its other parts are skipped.
    pub fn pointer(&self, pointer: &str) -> Option<Cow<'_, Value>> {
        match self.value.get() {
            Some(value) => value.pointer(pointer).map(Cow::Borrowed),
            None => self.seek(pointer).map(Cow::Owned),
        }
    }

    fn seek(&self, pointer: &str) -> Option<Value> {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return None;
        }
        let mut reader = serde_json::Deserializer::from_slice(&self.bytes);
        // Cannot fail, because the whole object can be parsed.
        Seek(pointer).deserialize(&mut reader).ok().flatten()
    }

    fn decode(&self) -> Value {
        let decoded = serde_json::from_slice(&self.bytes);
        debug_assert!(decoded.is_ok(), "encoded document cannot be decoded: {self:?}");
        // Unreachable, see `encode`.
        decoded.unwrap_or_default()
    }
}

impl Deref for Document {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value.get_or_init(|| self.decode())
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

impl PartialEq<Document> for Value {
    fn eq(&self, other: &Document) -> bool {
        *self == **other
    }
}

impl PartialEq<Value> for Document {
    fn eq(&self, other: &Value) -> bool {
        **self == *other
    }
}

/// The rest of a pointer, relative to the value that is read.
struct Seek<'a>(&'a str);

/// Matches one key.
struct IsKey<'a>(&'a str);

impl<'a> Seek<'a> {
    /// Returns the first token and the rest of the pointer.
    fn split(&self) -> (Cow<'a, str>, Seek<'a>) {
        let rest = self.0.strip_prefix('/').unwrap_or_default();
        let (token, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let plain = if token.contains('~') {
            Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
        } else {
            Cow::Borrowed(token)
        };
        (plain, Seek(rest))
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        if self.0.is_empty() {
            return Value::deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Option<Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Option<Value>, A::Error> {
        let (key, rest) = self.split();
        let mut found = None;
        while let Some(is_it) = entries.next_key_seed(IsKey(&key))? {
            if is_it {
                found = entries.next_value_seed(Seek(rest.0))?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<Value>, A::Error> {
        let (index, rest) = self.split();
        let plain = !index.starts_with('+') && (index.len() == 1 || !index.starts_with('0'));
        let wanted = index.parse::<usize>().ok().filter(|_| plain);
        let (mut at, mut found) = (0, None);
        loop {
            let there = if Some(at) == wanted {
                items.next_element_seed(Seek(rest.0))?.map(|it| found = it)
            } else {
                items.next_element::<IgnoredAny>()?.map(drop)
            };
            if there.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }
}

impl<'de> DeserializeSeed<'de> for IsKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsKey<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unparsed_document_reads_equal_and_stays_unparsed() {
        let value = json!({
            "a": {"b": [1, {"c": "x"}, null], "d/e": true, "f~g": 1.5, "": {"": 0}},
            "n": null, "t": "text", "i": -3, "u": 3, "l": [[], [["in"]]],
        });
        let open = Document::encode(value.clone());
        let folded = open.unparsed();
        let pointers = [
            "",
            "/",
            "a",
            "/a",
            "/a/b",
            "/a/b/0",
            "/a/b/1/c",
            "/a/b/2",
            "/a/b/3",
            "/a/b/01",
            "/a/b/+1",
            "/a/b/-",
            "/a/b/1/c/d",
            "/a/d~1e",
            "/a/f~0g",
            "/a/",
            "/a//",
            "/n",
            "/n/x",
            "/t/0",
            "/i/x",
            "/u/x",
            "/a/d~1e/x",
            "/a/f~0g/x",
            "/l/1/0/0",
            "/l/1/0/0/0",
            "/nowhere/at/all",
        ];
        for pointer in pointers {
            let expected = value.pointer(pointer);
            assert_eq!(open.pointer(pointer).as_deref(), expected, "{pointer}");
            assert_eq!(folded.pointer(pointer).as_deref(), expected, "{pointer}");
        }
        assert!(matches!(open.read(), Cow::Borrowed(read) if *read == value));
        assert_eq!(*folded.read(), value);
        assert!(folded.is_unparsed());
        assert_eq!(*folded, value);
        assert!(!folded.is_unparsed(), "but who dereferences it takes it apart");
    }
}
