//! The text form of a pod template that upstream hashes: go-spew with the verb `%#v`, without methods, with sorted keys
//! and without addresses.
//!
//! Lists and maps that are empty print like missing ones, because the controller manager decodes protobuf, which cannot
//! distinguish them.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::fields::{Field, Scalar, Shape, TEMPLATE, Types, types};
use crate::quantity::GoQuantity;

/// The zero value of `time.Time`.
const ZERO_TIME: &str = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}";

/// Failure to print a value as a pod template.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpError {
    /// A value does not have the type of its field.
    #[error("value of Go type {go_type} has another JSON type")]
    WrongType {
        /// The type of the field.
        go_type: &'static str,
    },
    /// A quantity is malformed.
    #[error("malformed quantity {text:?}")]
    Quantity {
        /// The text of the quantity.
        text: String,
    },
}

/// Returns the text form of a pod template.
///
/// # Errors
/// [`DumpError`] if the value is not a pod template.
pub fn dump_template(template: &Value) -> Result<String, DumpError> {
    let mut printer = Printer { types: types(), text: String::with_capacity(4096) };
    printer.typed(TEMPLATE, Some(template))?;
    Ok(printer.text)
}

struct Printer {
    types: &'static Types,
    text: String,
}

impl Printer {
    /// Prints a value after its type in parentheses.
    fn typed(&mut self, go_type: &'static str, value: Option<&Value>) -> Result<(), DumpError> {
        let _ = write!(self.text, "({go_type})");
        self.untyped(go_type, value)
    }

    fn untyped(&mut self, go_type: &'static str, value: Option<&Value>) -> Result<(), DumpError> {
        let wrong = DumpError::WrongType { go_type };
        let value = value.filter(|value| !value.is_null());
        match self.types.shape(go_type).ok_or(wrong)? {
            Shape::Pointer(target) => match value {
                // A time prints differently in each process upstream.
                Some(_) if target == "v1.Time" => self.nil(),
                Some(_) => self.untyped(target, value),
                None => self.nil(),
            },
            Shape::List(element) => self.list(go_type, element, value),
            Shape::Map(element) => self.map(go_type, element, value),
            Shape::Struct(fields) => self.object(go_type, fields, value),
            Shape::Scalar(scalar) => self.scalar(go_type, scalar, value),
            Shape::Quantity => self.quantity(value),
            Shape::Time => self.push(ZERO_TIME),
            Shape::IntOrString => self.int_or_string(go_type, value),
            Shape::RawJson => self.raw_json(value),
        }
    }

    fn push(&mut self, text: &str) -> Result<(), DumpError> {
        self.text.push_str(text);
        Ok(())
    }

    fn nil(&mut self) -> Result<(), DumpError> {
        self.push("<nil>")
    }

    fn list(
        &mut self,
        go_type: &'static str,
        element: &'static str,
        value: Option<&Value>,
    ) -> Result<(), DumpError> {
        let items =
            value.map(|value| value.as_array().ok_or(DumpError::WrongType { go_type })).transpose()?;
        let Some(items) = items.filter(|items| !items.is_empty()) else { return self.nil() };
        self.text.push('[');
        for (index, item) in items.iter().enumerate() {
            self.separate(index);
            self.untyped(element, Some(item))?;
        }
        self.push("]")
    }

    fn map(
        &mut self,
        go_type: &'static str,
        element: &'static str,
        value: Option<&Value>,
    ) -> Result<(), DumpError> {
        let entries = members(go_type, value)?;
        let Some(entries) = entries.filter(|entries| !entries.is_empty()) else { return self.nil() };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.as_bytes());
        self.text.push_str("map[");
        for (index, (key, value)) in entries.into_iter().enumerate() {
            self.separate(index);
            let _ = write!(self.text, "{key}:");
            self.untyped(element, Some(value))?;
        }
        self.push("]")
    }

    fn object(
        &mut self,
        go_type: &'static str,
        fields: &[Field],
        value: Option<&Value>,
    ) -> Result<(), DumpError> {
        let present = members(go_type, value)?;
        self.text.push('{');
        for (index, field) in fields.iter().enumerate() {
            self.separate(index);
            let _ = write!(self.text, "{}:", field.go_name);
            let inner = match field.json_name {
                Some(name) => present.and_then(|members| members.get(name)),
                None => value,
            };
            self.typed(field.go_type, inner)?;
        }
        self.push("}")
    }

    fn scalar(
        &mut self,
        go_type: &'static str,
        scalar: Scalar,
        value: Option<&Value>,
    ) -> Result<(), DumpError> {
        let wrong = DumpError::WrongType { go_type };
        match (scalar, value) {
            (Scalar::Text, None) => {}
            (Scalar::Text, Some(value)) => self.text.push_str(value.as_str().ok_or(wrong)?),
            (Scalar::Bool, None) => self.text.push_str("false"),
            (Scalar::Bool, Some(value)) => {
                self.text.push_str(if value.as_bool().ok_or(wrong)? { "true" } else { "false" });
            }
            (Scalar::Integer, None) => self.text.push('0'),
            (Scalar::Integer, Some(value)) => {
                let _ = write!(self.text, "{}", value.as_i64().ok_or(wrong)?);
            }
        }
        Ok(())
    }

    fn quantity(&mut self, value: Option<&Value>) -> Result<(), DumpError> {
        let text = match value {
            None => return self.push(&GoQuantity::default().to_string()),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let quantity = GoQuantity::parse(&text).map_err(|_| DumpError::Quantity { text })?;
        let _ = write!(self.text, "{quantity}");
        Ok(())
    }

    fn int_or_string(&mut self, go_type: &'static str, value: Option<&Value>) -> Result<(), DumpError> {
        let (kind, number, text) = match value {
            None => (0, 0, ""),
            Some(Value::String(text)) => (1, 0, text.as_str()),
            Some(number) => (0, number.as_i64().ok_or(DumpError::WrongType { go_type })?, ""),
        };
        let _ =
            write!(self.text, "{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}");
        Ok(())
    }

    fn raw_json(&mut self, value: Option<&Value>) -> Result<(), DumpError> {
        self.text.push_str("{Raw:([]uint8)");
        match value {
            None => self.text.push_str("<nil>"),
            Some(value) => {
                let bytes: Vec<_> = value.to_string().bytes().map(|byte| byte.to_string()).collect();
                let _ = write!(self.text, "[{}]", bytes.join(" "));
            }
        }
        self.push("}")
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.text.push(' ');
        }
    }
}

fn members<'a>(
    go_type: &'static str,
    value: Option<&'a Value>,
) -> Result<Option<&'a Map<String, Value>>, DumpError> {
    value.map(|value| value.as_object().ok_or(DumpError::WrongType { go_type })).transpose()
}
