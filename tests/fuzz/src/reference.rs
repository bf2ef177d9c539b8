//! JSON by a full decode, independent of the code under test.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Returns the value if the bytes are completely valid JSON.
pub(crate) fn decode(raw: &[u8]) -> Option<Value> {
    serde_json::from_slice(raw).ok()
}

/// Returns whether an object, or one two levels inside it, has a duplicate field. Servers write none, and readers
/// differ: they use the last one, or reject it.
pub(crate) fn has_duplicate_field(raw: &[u8]) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(raw);
    Twice { depth: 2 }.deserialize(&mut reader).unwrap_or(true)
}

#[derive(Clone, Copy)]
struct Twice {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Twice {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        if self.depth == 0 {
            return serde::Deserialize::deserialize(deserializer).map(|_: IgnoredAny| false);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Twice {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        let (mut seen, mut twice) = (BTreeSet::new(), false);
        while let Some(key) = entries.next_key::<String>()? {
            twice |= !seen.insert(key);
            twice |= entries.next_value_seed(Twice { depth: self.depth - 1 })?;
        }
        Ok(twice)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}
