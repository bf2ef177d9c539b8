//! Sets of paths as `fieldsV1`: nested maps whose keys are path elements, with `.` for the value itself.

use serde_json::{Map, Value};

use super::element::{ElementError, PathElement};
use super::set::FieldSet;

impl FieldSet {
    /// Decodes `fieldsV1`. Path elements of unknown kinds are omitted, as in upstream.
    ///
    /// # Errors
    ///
    /// Returns [`ElementError`] if a key is not a path element.
    pub fn from_fields_v1(value: &Value) -> Result<FieldSet, ElementError> {
        let mut set = FieldSet::new();
        let Value::Object(map) = value else { return Ok(set) };
        set.nodes.reserve(map.len());
        for (key, value) in map {
            if key == "." {
                continue;
            }
            let element = match PathElement::parse(key) {
                Ok(element) => element,
                Err(ElementError::Unknown(_)) => continue,
                Err(error) => return Err(error),
            };
            let below = FieldSet::from_fields_v1(value)?;
            let marked = value.get(".").is_some();
            set.put(&element, marked || below.is_empty(), below);
        }
        Ok(set)
    }

    /// Returns whether a path of this set is in an encoded set, or has paths below it there.
    pub(super) fn touches(&self, encoded: &Value) -> bool {
        let Value::Object(encoded) = encoded else { return false };
        self.nodes.iter().any(|node| {
            let inner = encoded.get(&node.element.encoded());
            inner.is_some_and(|inner| node.owned || node.below.touches(inner))
        })
    }

    /// Returns whether all paths of this set are in an encoded set.
    pub(super) fn is_within(&self, encoded: &Value) -> bool {
        let Value::Object(encoded) = encoded else { return self.is_empty() };
        self.nodes.iter().all(|node| match encoded.get(&node.element.encoded()) {
            Some(Value::Object(inner)) if node.owned && !inner.is_empty() && !inner.contains_key(".") => {
                false
            }
            Some(inner) => node.below.is_within(inner),
            None => false,
        })
    }

    /// Encodes the set as `fieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.encoded(false))
    }

    fn encoded(&self, itself: bool) -> Map<String, Value> {
        let own = itself.then(|| (".".to_owned(), Value::Object(Map::new())));
        let nodes = self.nodes.iter().map(|node| {
            let itself = node.owned && !node.below.is_empty();
            (node.element.encoded(), Value::Object(node.below.encoded(itself)))
        });
        own.into_iter().chain(nodes).collect()
    }
}
