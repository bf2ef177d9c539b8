//! Decoder for objects in protobuf, which `kubectl create` and most Go programs send.
//!
//! Messages are converted to the JSON of the same object, by a table that `cargo xtask describe` generates from
//! upstream's files. Empty fields stay; the schema check removes them later.
//!
//! Non-goal: encoding protobuf. Clients that send it get JSON responses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Prefix of every object.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum nesting, greater than that of any upstream message.
const DEPTH: usize = 64;

const TABLE: &str = include_str!("protobuf.txt");

/// Messages by their full name.
type Messages = BTreeMap<String, BTreeMap<u64, Field>>;

struct Field {
    /// JSON name; `None` if the fields of the inner message are inlined.
    name: Option<&'static str>,
    cardinality: Cardinality,
    field_type: FieldType,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cardinality {
    One,
    List,
    Map,
}

enum FieldType {
    Text,
    Bytes,
    Bool,
    Integer,
    Double,
    Message(String),
}

/// One value in wire format.
enum WireValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The error for bytes that are not an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    #[error("the protobuf message ends in the middle of a field")]
    Truncated,
    #[error("the protobuf message has a field of an unknown kind, or JSON inside of it is none")]
    Malformed,
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Unknown { version: String, kind: String },
    #[error("the protobuf message is nested too deeply")]
    TooDeep,
}

/// Decodes the object in a body.
pub(crate) fn read(body: &[u8]) -> Result<Value, WireError> {
    let outer = body.strip_prefix(MAGIC).ok_or(WireError::NoMagic)?;
    let (mut kind, mut raw) = (&[][..], &[][..]);
    for (number, value) in fields(outer)? {
        match (number, value) {
            (1, WireValue::Bytes(bytes)) => kind = bytes,
            (2, WireValue::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (mut version, mut name) = (String::new(), String::new());
    for (number, value) in fields(kind)? {
        match (number, value) {
            (1, WireValue::Bytes(bytes)) => version = text(bytes),
            (2, WireValue::Bytes(bytes)) => name = text(bytes),
            _ => {}
        }
    }
    let unknown = || WireError::Unknown { version: version.clone(), kind: name.clone() };
    let message = message_of(&version, &name).ok_or_else(unknown)?;
    let mut object = message_value(&message, raw, 0)?;
    object.insert("apiVersion".to_owned(), json!(version));
    object.insert("kind".to_owned(), json!(name));
    Ok(Value::Object(object))
}

/// Returns the message name of a kind. Options exist in every group.
fn message_of(version: &str, kind: &str) -> Option<String> {
    let (group, version) = version.split_once('/').unwrap_or(("core", version));
    let group = group.split('.').next().unwrap_or_default();
    let own = format!("k8s.io.api.{group}.{version}.{kind}");
    let shared = format!("k8s.io.apimachinery.pkg.apis.meta.v1.{kind}");
    [own, shared].into_iter().find(|name| messages().contains_key(name))
}

fn message_value(name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, WireError> {
    if depth > DEPTH {
        return Err(WireError::TooDeep);
    }
    let mut found = Map::new();
    let Some(described) = messages().get(name) else { return Ok(found) };
    for (number, wire) in fields(bytes)? {
        let Some(field) = described.get(&number) else { continue };
        if field.cardinality == Cardinality::Map {
            let (key, value) = entry(field, wire, depth)?;
            let map = found.entry(field.name.unwrap_or_default()).or_insert_with(|| json!({}));
            map[key] = value;
            continue;
        }
        match (field.name, value(&field.field_type, wire, depth)?) {
            (Some(name), value) if field.cardinality == Cardinality::List => {
                let list = found.entry(name).or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.push(value.clone()));
            }
            (Some(name), value) => {
                found.insert(name.to_owned(), value);
            }
            (None, Value::Object(inside)) => found.extend(inside),
            (None, _) => {}
        }
    }
    Ok(found)
}

fn entry(field: &Field, wire: WireValue<'_>, depth: usize) -> Result<(String, Value), WireError> {
    let WireValue::Bytes(bytes) = wire else { return Err(WireError::Malformed) };
    let (mut key, mut found) = (String::new(), None);
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (1, WireValue::Bytes(bytes)) => key = text(bytes),
            (2, wire) => found = Some(value(&field.field_type, wire, depth)?),
            _ => {}
        }
    }
    let empty = || value(&field.field_type, WireValue::Bytes(&[]), depth);
    Ok((key, found.map_or_else(empty, Ok)?))
}

fn value(of: &FieldType, wire: WireValue<'_>, depth: usize) -> Result<Value, WireError> {
    Ok(match (of, wire) {
        (FieldType::Text, WireValue::Bytes(bytes)) => json!(text(bytes)),
        (FieldType::Bytes, WireValue::Bytes(bytes)) => json!(BASE64_STANDARD.encode(bytes)),
        (FieldType::Bool, WireValue::Number(number)) => json!(number != 0),
        (FieldType::Integer, WireValue::Number(number)) => json!(number.cast_signed()),
        (FieldType::Double, WireValue::Number(number)) => json!(f64::from_bits(number)),
        (FieldType::Message(name), WireValue::Bytes(bytes)) => message(name, bytes, depth)?,
        _ => return Err(WireError::Malformed),
    })
}

/// Decodes an inner message. Some messages have a special JSON form.
fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Value, WireError> {
    const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1.";
    let plain = || message_value(name, bytes, depth + 1);
    let number = |found: &Map<String, Value>, name: &str| found.get(name).and_then(Value::as_i64);
    match name.strip_prefix(META).unwrap_or(name) {
        "Time" | "MicroTime" => Ok(time(&plain()?, name.ends_with("MicroTime"))),
        "Duration" => Ok(json!(duration(number(&plain()?, "duration").unwrap_or_default()))),
        "FieldsV1" | "k8s.io.apimachinery.pkg.runtime.RawExtension" => raw(bytes),
        "k8s.io.apimachinery.pkg.api.resource.Quantity" => {
            let found = plain()?;
            Ok(found.get("string").cloned().unwrap_or_else(|| json!("0")))
        }
        "k8s.io.apimachinery.pkg.util.intstr.IntOrString" => {
            let found = plain()?;
            Ok(match number(&found, "type") {
                Some(1) => found.get("strVal").cloned().unwrap_or_else(|| json!("")),
                _ => json!(number(&found, "intVal").unwrap_or_default()),
            })
        }
        _ => match messages().get(name).and_then(|it| it.get(&1)) {
            Some(Field { name: None, cardinality: Cardinality::List, field_type }) => {
                list(field_type, bytes, depth)
            }
            _ => plain().map(Value::Object),
        },
    }
}

/// Decodes a message that is a list in JSON.
fn list(of: &FieldType, bytes: &[u8], depth: usize) -> Result<Value, WireError> {
    let items = fields(bytes)?.into_iter().map(|(_, wire)| value(of, wire, depth));
    items.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

/// Decodes embedded JSON. Empty bytes are null, as in Go.
fn raw(bytes: &[u8]) -> Result<Value, WireError> {
    let found = fields(bytes)?.into_iter().find_map(|(number, wire)| match (number, wire) {
        (1, WireValue::Bytes(bytes)) if !bytes.is_empty() => Some(bytes),
        _ => None,
    });
    let Some(json) = found else { return Ok(Value::Null) };
    serde_json::from_slice(json).map_err(|_| WireError::Malformed)
}

/// Returns a time as JSON; the zero time is null.
fn time(found: &Map<String, Value>, precise: bool) -> Value {
    let number = |name: &str| found.get(name).and_then(Value::as_i64);
    let Some(seconds) = number("seconds") else { return Value::Null };
    let nanoseconds = i32::try_from(number("nanos").unwrap_or_default()).unwrap_or_default();
    match Timestamp::new(seconds, nanoseconds) {
        Ok(time) if precise => json!(format!("{time:.6}")),
        Ok(time) => json!(format!("{time:.0}")),
        Err(_) => Value::Null,
    }
}

/// Formats a duration as Go does.
fn duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let whole = nanoseconds.unsigned_abs();
    let (seconds, rest) = (whole / 1_000_000_000, whole % 1_000_000_000);
    if seconds == 0 && rest > 0 {
        return format!("{sign}{rest}ns");
    }
    let fraction = format!("{rest:09}");
    let fraction = match fraction.trim_end_matches('0') {
        "" => String::new(),
        digits => format!(".{digits}"),
    };
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{sign}{seconds}{fraction}s"),
        (0, minutes, seconds) => format!("{sign}{minutes}m{seconds}{fraction}s"),
        (hours, minutes, seconds) => format!("{sign}{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

fn text(bytes: &[u8]) -> String {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    }
}

/// Returns the fields of a message in wire order.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, WireValue<'_>)>, WireError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = number(&mut bytes)?;
        let wire = match tag & 7 {
            0 => WireValue::Number(number(&mut bytes)?),
            1 => {
                let (value, rest) = bytes.split_first_chunk::<8>().ok_or(WireError::Truncated)?;
                bytes = rest;
                WireValue::Number(u64::from_le_bytes(*value))
            }
            2 => {
                let length = usize::try_from(number(&mut bytes)?).map_err(|_| WireError::Truncated)?;
                let (value, rest) = bytes.split_at_checked(length).ok_or(WireError::Truncated)?;
                bytes = rest;
                WireValue::Bytes(value)
            }
            _ => return Err(WireError::Malformed),
        };
        found.push((tag >> 3, wire));
    }
    Ok(found)
}

/// Decodes a varint.
fn number(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut found = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(WireError::Truncated)?;
        *bytes = rest;
        found |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(found);
        }
    }
    Err(WireError::Malformed)
}

/// Returns the parsed table. Invalid lines are skipped; a test checks all lines.
fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let (mut package, mut message, mut found) = ("", String::new(), Messages::new());
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.trim_start().split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("package"), Some(name), None) => package = name,
                (Some("message"), Some(name), None) => {
                    message = format!("{package}.{name}");
                    found.insert(message.clone(), BTreeMap::new());
                }
                (Some(number), Some(name), Some(of)) => {
                    if let (Ok(number), Some(fields)) = (number.parse(), found.get_mut(&message)) {
                        fields.insert(number, Field::parse(package, name, of));
                    }
                }
                _ => {}
            }
        }
        found
    })
}

impl Field {
    fn parse(package: &str, name: &'static str, of: &'static str) -> Field {
        let (cardinality, of) = match (of.strip_prefix("[]"), of.strip_prefix("{}")) {
            (Some(of), _) => (Cardinality::List, of),
            (_, Some(of)) => (Cardinality::Map, of),
            _ => (Cardinality::One, of),
        };
        let of = match of.strip_prefix('.') {
            Some(name) if name.contains('.') => FieldType::Message(name.to_owned()),
            Some(name) => FieldType::Message(format!("{package}.{name}")),
            None => match of {
                "bytes" => FieldType::Bytes,
                "bool" => FieldType::Bool,
                "int32" | "int64" => FieldType::Integer,
                "double" => FieldType::Double,
                _ => FieldType::Text,
            },
        };
        Field { name: (name != "-").then_some(name), cardinality, field_type: of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a bytes field.
    fn bytes(number: u8, inside: &[u8]) -> Vec<u8> {
        let length = u8::try_from(inside.len()).expect("a short field");
        assert!(length < 128, "a short field");
        [&[number << 3 | 2, length], inside].concat()
    }

    fn object(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let of = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC, &bytes(1, &of), &bytes(2, raw)].concat()
    }

    #[test]
    fn config_map_is_decoded_from_protobuf() {
        let metadata = [bytes(1, b"a"), bytes(2, b""), bytes(8, b"")].concat();
        let entry = [bytes(1, b"k"), bytes(2, b"v")].concat();
        let raw = [bytes(1, &metadata), bytes(2, &entry)].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
            "metadata": {"name": "a", "generateName": "", "creationTimestamp": null},
        });
        assert_eq!(read(&object("v1", "ConfigMap", &raw)), Ok(expected));
    }

    #[test]
    fn messages_with_special_json_form_are_converted() {
        let port =
            [bytes(1, b"http"), vec![3 << 3, 80], bytes(4, &[1 << 3, 1, 3 << 3 | 2, 1, b'w'])].concat();
        let spec = bytes(1, &port);
        let service = read(&object("v1", "Service", &bytes(2, &spec))).expect("a service");
        assert_eq!(service["spec"]["ports"], json!([{"name": "http", "port": 80, "targetPort": "w"}]));

        let volume = [bytes(1, b"v"), bytes(2, &bytes(2, b""))].concat();
        let pod = read(&object("v1", "Pod", &bytes(2, &bytes(1, &volume)))).expect("a pod");
        assert_eq!(pod["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));

        assert_eq!(duration(90_500_000_000), "1m30.5s");
        assert_eq!(
            time(&Map::from_iter([("seconds".into(), json!(0))]), true),
            "1970-01-01T00:00:00.000000Z"
        );
    }

    #[test]
    fn invalid_protobuf_is_rejected_without_panic() {
        assert_eq!(read(b"{}"), Err(WireError::NoMagic));
        let unknown = WireError::Unknown { version: "v9".into(), kind: "Pod".into() };
        assert_eq!(read(&object("v9", "Pod", b"")), Err(unknown));
        let good = object("v1", "Pod", &bytes(1, &bytes(1, b"a")));
        for end in MAGIC.len()..good.len() {
            let _refused_or_less = read(&good[..end]);
        }
        assert_eq!(read(&[MAGIC, &[10, 200]].concat()), Err(WireError::Truncated));
    }

    #[test]
    fn embedded_json_is_decoded_or_rejected() {
        let revision =
            |json: &[u8]| read(&object("apps/v1", "ControllerRevision", &bytes(2, &bytes(1, json))));
        assert_eq!(revision(br#"{"a":[1]}"#).expect("a revision")["data"], json!({"a": [1]}));
        assert_eq!(revision(b"").expect("a revision")["data"], Value::Null);
        for broken in [&br#"{"a":"#[..], b"nonsense", b"\xff", b"{} {}"] {
            assert_eq!(revision(broken), Err(WireError::Malformed));
        }
    }

    #[test]
    fn every_table_line_is_valid_and_every_name_has_a_message() {
        let lines = TABLE.lines().filter(|line| line.starts_with(' ')).count();
        let described: usize = messages().values().map(BTreeMap::len).sum();
        assert_eq!(described, lines);
        for (name, fields) in messages() {
            for field in fields.values() {
                if let FieldType::Message(of) = &field.field_type {
                    assert!(messages().contains_key(of), "{name} speaks of {of}");
                }
            }
        }
    }
}
