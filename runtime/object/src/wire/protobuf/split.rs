//! Lists, watch events and headers in protobuf.

use windlass_kinds::{Cardinality, FieldType, Message};

use super::reader::{self, Fields, Value};
use super::{Envelope, MAGIC, ProtobufError};
use crate::wire::{ObjectHeader, RawList, WireError};
use crate::{ObjectKey, ResourceVersion};

/// Number of the metadata of every object and list.
pub(super) const METADATA: u64 = 1;
/// Number of the items of every list.
const ITEMS: u64 = 2;
/// Number of the type of an object.
const TYPES: u64 = 1;
/// Number of the message of an object.
const RAW: u64 = 2;

/// Splits a list. Each item becomes an object in protobuf, with its type.
pub(in crate::wire) fn list(body: &[u8]) -> Result<RawList, WireError> {
    let envelope = Envelope::read(body)?;
    let message = envelope.message()?;
    let Some(types) =
        envelope.kind.strip_suffix("List").and_then(|kind| item_types(&envelope, message, kind))
    else {
        return Err(WireError::Malformed { what: "list", reason: "it has no items".into() });
    };
    let metadata = reader::bytes(envelope.raw, METADATA)?;
    let continue_token = reader::text(reader::bytes(metadata, 3)?)?;
    let remaining = reader::number(metadata, 4)?.cast_signed();
    let mut found = RawList {
        version: ResourceVersion::from_response(reader::text(reader::bytes(metadata, 2)?)?),
        continue_token: (!continue_token.is_empty()).then(|| continue_token.to_owned()),
        remaining: u64::try_from(remaining).ok().filter(|it| *it > 0),
        items: Vec::new(),
    };
    let mut fields = Fields::new(envelope.raw);
    while let Some((number, value)) = fields.next()? {
        if let (ITEMS, Value::Bytes(raw)) = (number, value) {
            found.items.push(enveloped(&types, raw).into());
        }
    }
    Ok(found)
}

/// Returns the encoded type of the items of a list; `None` if its items have another kind.
fn item_types(list: &Envelope<'_>, message: Message, kind: &str) -> Option<Vec<u8>> {
    let items = message.fields().iter().find(|it| it.number() == ITEMS && it.name() == Some("items"))?;
    let item = Message::of_kind(list.api_version, kind)?;
    let expected = (FieldType::Message(item), Cardinality::List);
    let mut types = Vec::new();
    append(&mut types, 1, list.api_version.as_bytes());
    append(&mut types, 2, kind.as_bytes());
    ((items.field_type(), items.cardinality()) == expected).then_some(types)
}

/// The parts of a watch event.
#[derive(Debug)]
pub(in crate::wire) struct WatchEvent<'a> {
    pub(in crate::wire) of_type: &'a str,
    pub(in crate::wire) object: &'a [u8],
}

impl<'a> WatchEvent<'a> {
    pub(in crate::wire) fn read(frame: &'a [u8]) -> Result<Self, ProtobufError> {
        let of_type = reader::text(reader::bytes(frame, 1)?)?;
        Ok(Self { of_type, object: reader::bytes(reader::bytes(frame, 2)?, 1)? })
    }
}

/// Reads the header of an object. Every kind has its metadata in field 1.
pub(in crate::wire) fn header(body: &[u8]) -> Result<ObjectHeader, WireError> {
    let metadata = reader::bytes(Envelope::read(body)?.raw, METADATA)?;
    // An unreadable field counts as absent, as in JSON.
    let text = |number| {
        let bytes = reader::bytes(metadata, number)?;
        Ok::<_, ProtobufError>(reader::text(bytes).ok().filter(|it| !it.is_empty()))
    };
    let name =
        text(1)?.ok_or_else(|| WireError::Malformed { what: "object", reason: "it has no name".into() })?;
    Ok(ObjectHeader {
        key: ObjectKey::new(text(3)?, name),
        uid: text(5)?.map(Into::into),
        version: text(6)?.and_then(ResourceVersion::from_response),
    })
}

/// Returns an object with this encoded type.
pub(super) fn enveloped(types: &[u8], raw: &[u8]) -> Vec<u8> {
    const LONGEST_TAGS: usize = 16;
    let mut object = Vec::with_capacity(MAGIC.len() + types.len() + raw.len() + LONGEST_TAGS);
    object.extend_from_slice(MAGIC);
    append(&mut object, TYPES, types);
    append(&mut object, RAW, raw);
    object
}

/// Appends a field with bytes.
pub(super) fn append(message: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(message, number << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    message.push(value.to_le_bytes()[0]);
}
