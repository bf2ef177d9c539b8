//! Removes parts of an object in protobuf that are not stored.

use super::reader::{self, Fields};
use super::split::{METADATA, append, enveloped};
use super::transcode::MANAGED_FIELDS;
use super::{Envelope, ProtobufError};

/// Returns an object without `metadata.managedFields`; `None` if it has none.
pub(in crate::wire) fn without_managed_fields(body: &[u8]) -> Result<Option<Vec<u8>>, ProtobufError> {
    let Envelope { types, raw, .. } = Envelope::read(body)?;
    let metadata = reader::bytes(raw, METADATA)?;
    let kept = other_fields(metadata, MANAGED_FIELDS)?;
    if kept.len() == metadata.len() {
        return Ok(None);
    }
    let mut object = Vec::with_capacity(raw.len());
    append(&mut object, METADATA, &kept);
    object.extend_from_slice(&other_fields(raw, METADATA)?);
    Ok(Some(enveloped(types, &object)))
}

/// Returns an object with only its metadata, without `managedFields`.
pub(in crate::wire) fn metadata_alone(body: &[u8]) -> Result<Vec<u8>, ProtobufError> {
    let Envelope { types, raw, .. } = Envelope::read(body)?;
    let mut object = Vec::new();
    append(&mut object, METADATA, &other_fields(reader::bytes(raw, METADATA)?, MANAGED_FIELDS)?);
    Ok(enveloped(types, &object))
}

/// Returns the fields of a message with other numbers.
fn other_fields(message: &[u8], number: u64) -> Result<Vec<u8>, ProtobufError> {
    let (mut fields, mut rest, mut kept) = (Fields::new(message), message, Vec::with_capacity(message.len()));
    while let Some((next, _)) = fields.next()? {
        let (field, after) = rest.split_at(rest.len() - fields.len());
        if next != number {
            kept.extend_from_slice(field);
        }
        rest = after;
    }
    Ok(kept)
}
