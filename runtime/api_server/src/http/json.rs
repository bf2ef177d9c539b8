//! JSON, read with an eye on fields that are given twice. The last one counts, as upstream.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How many complaints are kept of one body, as upstream.
const COMPLAINTS: usize = 100;

/// A value, and what is to be complained of: `duplicate field "spec.replicas"`.
pub(crate) fn read(body: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut place = Place::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = place.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, place.complaints))
}

/// Where the reader is.
#[derive(Debug, Default)]
struct Place {
    path: String,
    complaints: Vec<String>,
}

impl Place {
    fn complain(&mut self) {
        let complaint = format!("duplicate field {:?}", self.path);
        if self.complaints.len() < COMPLAINTS && !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Place {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Place {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let outside = self.path.len();
        let mut found = Vec::new();
        loop {
            self.path.push_str(&format!("[{}]", found.len()));
            let item = items.next_element_seed(&mut *self)?;
            self.path.truncate(outside);
            match item {
                Some(item) => found.push(item),
                None => return Ok(Value::Array(found)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let outside = self.path.len();
        let mut found = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if outside > 0 {
                self.path.push('.');
            }
            self.path.push_str(&name);
            if found.contains_key(&name) {
                self.complain();
            }
            let value = fields.next_value_seed(&mut *self)?;
            found.insert(name, value);
            self.path.truncate(outside);
        }
        Ok(Value::Object(found))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_given_twice_is_named_with_its_path_and_the_last_one_counts() {
        let body = br#"{"a": 1, "b": {"c": [{"d": 1}, {"d": 1, "d": "x"}], "c.e": null}, "a": -2.5}"#;
        let (value, complaints) = read(body).expect("JSON");
        assert_eq!(value, json!({"a": -2.5, "b": {"c": [{"d": 1}, {"d": "x"}], "c.e": null}}));
        assert_eq!(complaints, ["duplicate field \"b.c[1].d\"", "duplicate field \"a\""]);
    }

    #[test]
    fn it_reads_what_serde_json_reads() {
        let texts =
            ["", "{", "{} x", "[1,]", "null", "18446744073709551615", "1e400", "\"\\u00e9\"", "{\"a\":{}}"];
        for text in texts {
            let expected: Result<Value, _> = serde_json::from_str(text);
            let found = read(text.as_bytes()).map(|(value, _)| value);
            assert_eq!(found.ok(), expected.ok(), "{text}");
        }
    }
}
