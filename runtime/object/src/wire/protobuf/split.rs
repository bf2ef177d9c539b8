//! Lists, watch events and headers in protobuf.

use bytes::Bytes;

use super::reader::{self, Fields, Value};
use super::table::{Cardinality, FieldType};
use super::{Envelope, MAGIC, ProtobufError, Transcoder};
use crate::wire::{ObjectHeader, RawList, WireError};
use crate::{ObjectKey, ResourceVersion};

/// Number of the items of every list.
const ITEMS: u64 = 2;

/// Splits a list, and converts its items. An item that cannot be converted is returned in protobuf: its header can be
/// read, and it cannot be decoded.
pub(in crate::wire) fn list(transcoder: &Transcoder, body: &[u8]) -> Result<RawList, WireError> {
    let envelope = Envelope::read(body)?;
    let fields = envelope.message()?.fields();
    let items = fields.iter().find(|it| it.number() == ITEMS && it.name() == Some("items"));
    let Some((FieldType::Message(item), Cardinality::List)) =
        items.map(|it| (it.field_type(), it.cardinality()))
    else {
        return Err(WireError::Malformed { what: "list", reason: "it has no items".into() });
    };
    let metadata = reader::bytes(envelope.raw, 1)?;
    let continue_token = reader::text(reader::bytes(metadata, 3)?)?;
    let remaining = reader::number(metadata, 4)?.cast_signed();
    let mut found = RawList {
        version: ResourceVersion::from_response(reader::text(reader::bytes(metadata, 2)?)?),
        continue_token: (!continue_token.is_empty()).then(|| continue_token.to_owned()),
        remaining: u64::try_from(remaining).ok().filter(|it| *it > 0),
        items: Vec::new(),
    };
    let (mut fields, mut json) = (Fields::new(envelope.raw), Vec::new());
    while let Some((number, value)) = fields.next()? {
        if let (ITEMS, Value::Bytes(raw)) = (number, value) {
            json.clear();
            found.items.push(match transcoder.write(None, item, raw, &mut json) {
                Ok(()) => Bytes::copy_from_slice(&json),
                Err(_) => enveloped(raw),
            });
        }
    }
    Ok(found)
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
    let metadata = reader::bytes(Envelope::read(body)?.raw, 1)?;
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

/// Returns an item of a list as an object without type.
fn enveloped(raw: &[u8]) -> Bytes {
    let mut object = MAGIC.to_vec();
    object.push(2 << 3 | 2);
    let mut length = raw.len();
    while length >= 0x80 {
        object.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    object.push(length.to_le_bytes()[0]);
    object.extend_from_slice(raw);
    object.into()
}
