//! Encoder of objects in protobuf, by the table of the decoder.
//!
//! Fields that are missing or null in JSON are not encoded; Go encodes some of them as empty values, which mean the
//! same.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};
use windlass_kinds::{Cardinality, Field, FieldType, Message};

use crate::go_duration::go_duration;
use crate::go_json;

/// Prefix of every object.
const MAGIC: &[u8] = b"k8s\0";

/// The error for a field whose value does not have the type of the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot encode field {field} in protobuf: the value has another type")]
pub(super) struct EncodeError {
    field: String,
}

/// Encodes an object; `None` if the kind has no encoding.
pub(super) fn object(object: &Value) -> Result<Option<Vec<u8>>, EncodeError> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (Some(of), Some(object)) = (message_of(version, kind), object.as_object()) else { return Ok(None) };
    let (mut types, mut raw) = (Vec::new(), Vec::new());
    bytes(1, version.as_bytes(), &mut types);
    bytes(2, kind.as_bytes(), &mut types);
    message(of, object, &mut raw)?;
    let mut found = MAGIC.to_vec();
    bytes(1, &types, &mut found);
    bytes(2, &raw, &mut found);
    bytes(3, b"", &mut found);
    bytes(4, b"", &mut found);
    Ok(Some(found))
}

/// Returns the message of a kind. `Status` and the kinds of discovery are in the version `v1`.
pub(super) fn message_of(version: &str, kind: &str) -> Option<Message> {
    let shared = || Message::of_kind(version, kind).filter(|_| version == "v1");
    Message::of_version(version, kind).or_else(shared)
}

/// Appends a field with bytes.
pub(super) fn bytes(number: u64, inside: &[u8], found: &mut Vec<u8>) {
    varint(number << 3 | 2, found);
    varint(inside.len() as u64, found);
    found.extend_from_slice(inside);
}

fn integer(number: u64, value: u64, found: &mut Vec<u8>) {
    varint(number << 3, found);
    varint(value, found);
}

fn varint(mut value: u64, found: &mut Vec<u8>) {
    while value >= 0x80 {
        found.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    found.push(value.to_le_bytes()[0]);
}

fn message(of: Message, object: &Map<String, Value>, found: &mut Vec<u8>) -> Result<(), EncodeError> {
    for field in of.fields() {
        let Some(name) = field.name() else {
            inlined(field, object, found)?;
            continue;
        };
        let value = object.get(name).unwrap_or(&Value::Null);
        encode(field, value, found).transpose()?.ok_or_else(|| EncodeError { field: name.to_owned() })?;
    }
    Ok(())
}

fn inlined(field: &Field, object: &Map<String, Value>, found: &mut Vec<u8>) -> Result<(), EncodeError> {
    let FieldType::Message(of) = field.field_type() else { return Ok(()) };
    let mut inside = Vec::new();
    message(of, object, &mut inside)?;
    if !inside.is_empty() {
        bytes(field.number(), &inside, found);
    }
    Ok(())
}

/// Appends all values of a field; `None` if one has another type. The error is that of an inner field.
fn encode(field: &Field, value: &Value, found: &mut Vec<u8>) -> Option<Result<(), EncodeError>> {
    let (number, of) = (field.number(), field.field_type());
    let mut all = |values: &mut dyn Iterator<Item = Option<Result<Vec<u8>, EncodeError>>>| {
        for value in values {
            match value? {
                Ok(value) => found.extend_from_slice(&value),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(()))
    };
    match (field.cardinality(), value) {
        (_, Value::Null) => Some(Ok(())),
        (Cardinality::One, value) => all(&mut [one(number, of, value)].into_iter()),
        (Cardinality::List, Value::Array(items)) => all(&mut items.iter().map(|item| one(number, of, item))),
        (Cardinality::Map, Value::Object(entries)) => all(&mut entries.iter().map(|(key, value)| {
            let mut entry = Vec::new();
            bytes(1, key.as_bytes(), &mut entry);
            let value = match one(2, of, value)? {
                Ok(value) => value,
                Err(error) => return Some(Err(error)),
            };
            entry.extend_from_slice(&value);
            let mut found = Vec::new();
            bytes(number, &entry, &mut found);
            Some(Ok(found))
        })),
        _ => None,
    }
}

/// Returns one encoded value with its number.
fn one(number: u64, of: FieldType, value: &Value) -> Option<Result<Vec<u8>, EncodeError>> {
    let mut found = Vec::new();
    match of {
        FieldType::Bool => integer(number, value.as_bool()?.into(), &mut found),
        FieldType::Int32 | FieldType::Int64 => integer(number, value.as_i64()?.cast_unsigned(), &mut found),
        FieldType::Double => {
            varint(number << 3 | 1, &mut found);
            found.extend_from_slice(&value.as_f64()?.to_le_bytes());
        }
        FieldType::Message(of) => {
            let mut inside = Vec::new();
            if let Err(error) = message(of, value.as_object()?, &mut inside) {
                return Some(Err(error));
            }
            bytes(number, &inside, &mut found);
        }
        of => bytes(number, &inside(of, value)?, &mut found),
    }
    Some(Ok(found))
}

/// Returns the bytes of a value that is text or has a special JSON form.
fn inside(of: FieldType, value: &Value) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    match (of, value) {
        (FieldType::String, value) => found.extend_from_slice(value.as_str()?.as_bytes()),
        (FieldType::Bytes, value) => return BASE64_STANDARD.decode(value.as_str()?).ok(),
        // The zero time.
        (FieldType::Time | FieldType::MicroTime, Value::Null) => {}
        (FieldType::Time | FieldType::MicroTime, value) => {
            let time: Timestamp = value.as_str()?.parse().ok()?;
            let precise = of == FieldType::MicroTime;
            let nanoseconds = if precise { time.subsec_nanosecond() } else { 0 };
            integer(1, time.as_second().cast_unsigned(), &mut found);
            integer(2, i64::from(nanoseconds).cast_unsigned(), &mut found);
        }
        (FieldType::Duration, value) => {
            let nanoseconds = go_duration(value.as_str()?).ok()?.as_nanos();
            integer(1, u64::try_from(nanoseconds).ok()?, &mut found);
        }
        (FieldType::Quantity, Value::Number(number)) => bytes(1, number.to_string().as_bytes(), &mut found),
        (FieldType::Quantity, value) => bytes(1, value.as_str()?.as_bytes(), &mut found),
        (FieldType::IntOrString, Value::String(text)) => {
            integer(1, 1, &mut found);
            bytes(3, text.as_bytes(), &mut found);
        }
        (FieldType::IntOrString, value) => integer(2, value.as_i64()?.cast_unsigned(), &mut found),
        (FieldType::Json, value) => bytes(1, &go_json::encode(value), &mut found),
        (FieldType::Strings, value) => {
            for text in value.as_array()? {
                bytes(1, text.as_str()?.as_bytes(), &mut found);
            }
        }
        _ => return None,
    }
    Some(found)
}
