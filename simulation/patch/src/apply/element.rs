//! Path elements: a field, an item by keys, an item by value, or an item by index.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::go_format;

/// One element of a path. Elements are ordered as in upstream: fields, keys, values, indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// Field of a struct or key of a map.
    Field(Arc<str>),
    /// Item of a list whose key fields have these values; sorted by name.
    Key(Vec<(Arc<str>, Scalar)>),
    /// Item of a set with this value.
    Value(Scalar),
    /// Item of a list at this index.
    Index(i64),
}

/// A value that identifies items. Numbers with the same value are equal.
#[derive(Clone, Debug)]
pub struct Scalar(pub Value);

/// Reason why a key in `fieldsV1` is not a path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    /// It begins with an unknown letter; a later version might define it.
    #[error("unknown path element type in {0:?}")]
    Unknown(String),
    /// It is truncated, or the text after the colon is not JSON.
    #[error("{0:?} is not a path element: expected f:<name>, v:<value>, k:<keys> or i:<index>")]
    Malformed(String),
}

impl PathElement {
    /// Returns the path element of a field.
    pub fn field(name: &str) -> PathElement {
        PathElement::Field(name.into())
    }

    /// Parses the `fieldsV1` form.
    ///
    /// # Errors
    ///
    /// Returns [`ElementError`] if the text is not a path element.
    pub fn parse(text: &str) -> Result<PathElement, ElementError> {
        let malformed = || ElementError::Malformed(text.to_owned());
        let (kind, rest) = match text.as_bytes() {
            [kind, b':', ..] => (*kind, &text[2..]),
            _ => return Err(malformed()),
        };
        match kind {
            b'f' => Ok(PathElement::Field(rest.into())),
            b'v' => {
                serde_json::from_str(rest).map(|it| PathElement::Value(Scalar(it))).map_err(|_| malformed())
            }
            b'i' => rest.parse().map(PathElement::Index).map_err(|_| malformed()),
            b'k' => {
                let keys: Map<String, Value> = serde_json::from_str(rest).map_err(|_| malformed())?;
                let mut keys: Vec<(Arc<str>, Scalar)> =
                    keys.into_iter().map(|(name, value)| (Arc::from(name), Scalar(value))).collect();
                keys.sort_by(|one, other| one.0.cmp(&other.0));
                Ok(PathElement::Key(keys))
            }
            _ => Err(ElementError::Unknown(text.to_owned())),
        }
    }

    /// Returns the `fieldsV1` form.
    pub fn encoded(&self) -> String {
        match self {
            PathElement::Field(name) => {
                let mut text = String::with_capacity(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
                text
            }
            PathElement::Value(Scalar(value)) => format!("v:{value}"),
            PathElement::Index(index) => format!("i:{index}"),
            PathElement::Key(keys) => {
                let fields: Vec<_> = keys
                    .iter()
                    .map(|(name, Scalar(value))| format!("{}:{value}", Value::from(&**name)))
                    .collect();
                format!("k:{{{}}}", fields.join(","))
            }
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(formatter, ".{name}"),
            PathElement::Value(Scalar(value)) => write!(formatter, "[={}]", go_format::readable(value)),
            PathElement::Index(index) => write!(formatter, "[{index}]"),
            PathElement::Key(keys) => {
                let fields: Vec<_> = keys
                    .iter()
                    .map(|(name, Scalar(value))| format!("{name}={}", go_format::readable(value)))
                    .collect();
                write!(formatter, "[{}]", fields.join(","))
            }
        }
    }
}

/// Returns a path as in messages: `.spec.containers[name="nginx"].image`.
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(PathElement::to_string).collect()
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Scalar) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Scalar) -> Ordering {
        match (&self.0, &other.0) {
            (Value::String(one), Value::String(other)) => one.cmp(other),
            (Value::Number(one), Value::Number(other)) => numbers(one, other),
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (one, other) => rank(one).cmp(&rank(other)).then_with(|| one.to_string().cmp(&other.to_string())),
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn numbers(one: &Number, other: &Number) -> Ordering {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => {
            let (one, other) = (one.as_f64().unwrap_or_default(), other.as_f64().unwrap_or_default());
            one.total_cmp(&other)
        }
    }
}

/// Returns whether two JSON values are equal; 1 and 1.0 are the same number.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || numbers(one, other) == Ordering::Equal,
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let equal = |((name, one), (their, other)): ((&String, &Value), (&String, &Value))| {
                name == their && same(one, other)
            };
            one.len() == other.len() && one.iter().zip(other).all(equal)
        }
        (one, other) => one == other,
    }
}
