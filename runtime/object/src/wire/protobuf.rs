//! Objects in protobuf: conversion to JSON, values of fields, headers, and removal of parts.
//!
//! Guarantees:
//! - The JSON equals the JSON that kube-apiserver sends for the same object, except for the order of fields and for
//!   empty fields that Go writes although they are empty.
//! - One pass over the bytes writes the text; no intermediate value exists.
//! - Malformed bytes are an error. They cause neither a panic, nor unbounded recursion, nor an allocation that exceeds
//!   a small multiple of the input. Text that is not UTF-8 is malformed.
//! - Fields that the table of [`windlass_kinds`] does not contain are skipped: a newer server sends them.
//!
//! This module does not encode protobuf.

use std::borrow::Cow;

use windlass_kinds::Message;

use crate::ResourceKind;

mod converter;
mod field_value;
mod json;
mod reader;
mod split;
mod strip;
mod transcode;

pub(crate) use self::converter::Converter;
pub(crate) use self::field_value::FieldValue;
pub(super) use self::split::{WatchEvent, header, list};
pub(super) use self::strip::{metadata_alone, without_managed_fields};
use self::transcode::Writer;

/// Prefix of every object.
const MAGIC: &[u8] = b"k8s\0";

/// The error for bytes that are not an object in protobuf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The prefix of objects is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// A field is longer than its message.
    #[error("the protobuf message ends in the middle of a field")]
    Truncated,
    /// A field does not have the encoding of its type, or its value has no JSON form.
    #[error("the protobuf message has a field with an invalid value")]
    Malformed,
    /// Embedded JSON is invalid.
    #[error("the protobuf message contains invalid JSON")]
    EmbeddedJson,
    /// Text is not UTF-8.
    #[error("the protobuf message contains text that is not UTF-8")]
    InvalidUtf8,
    /// A field occurs again after another field.
    #[error("the protobuf message has a field twice")]
    Repeated,
    /// The table does not contain the kind.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    UnknownKind {
        /// The `apiVersion` of the object.
        version: String,
        /// The kind of the object.
        kind: String,
    },
    /// Messages are nested too deeply.
    #[error("the protobuf message is nested too deeply")]
    TooDeep,
    /// The JSON is longer than the limit.
    #[error("the JSON of the protobuf message is longer than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
}

/// A converter of objects from protobuf to JSON.
///
/// # Examples
///
/// ```
/// use windlass_object::wire::protobuf::Transcoder;
///
/// let object = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x09\x0a\x03\x0a\x01a\x12\x02\x0a\x00";
/// let mut json = Vec::new();
/// Transcoder::new().object(object, &mut json)?;
/// assert_eq!(json, br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"":""}}"#);
/// # Ok::<(), windlass_object::wire::protobuf::ProtobufError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Transcoder {
    drops_managed_fields: bool,
    limit: usize,
}

/// The parts of an object that are converted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parts {
    /// All, and the type.
    All,
    /// The metadata.
    Metadata,
}

/// An object and its type, before conversion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    /// The type, encoded.
    types: &'a [u8],
    /// The message of the object.
    raw: &'a [u8],
}

impl Transcoder {
    /// Creates a transcoder that keeps all fields, without a limit.
    pub const fn new() -> Self {
        Self { drops_managed_fields: false, limit: usize::MAX }
    }

    /// Drops `metadata.managedFields` without reading them.
    #[must_use]
    pub const fn dropping_managed_fields(self) -> Self {
        Self { drops_managed_fields: true, ..self }
    }

    /// Rejects objects with a JSON longer than about this number of bytes.
    #[must_use]
    pub const fn with_limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Appends the JSON of an object with its type metadata.
    ///
    /// # Errors
    ///
    /// [`ProtobufError`]; `json` then has its previous content.
    pub fn object(&self, body: &[u8], json: &mut Vec<u8>) -> Result<(), ProtobufError> {
        self.parts(body, Parts::All, json).map(drop)
    }

    /// Appends the JSON of parts of an object. Returns whether a type that is generated from upstream's descriptions is
    /// known to decode them.
    ///
    /// # Errors
    ///
    /// [`ProtobufError`]; `json` then has its previous content.
    pub(super) fn parts(&self, body: &[u8], parts: Parts, json: &mut Vec<u8>) -> Result<bool, ProtobufError> {
        let envelope = Envelope::read(body)?;
        let message = envelope.message()?;
        let start = json.len();
        let (drops_managed_fields, limit) = (self.drops_managed_fields, self.limit.saturating_add(start));
        let mut writer = Writer { json, limit, drops_managed_fields, is_decodable: true };
        let written = match parts {
            Parts::All => writer.object(&envelope, message),
            Parts::Metadata => writer.metadata(&envelope, message),
        };
        let is_decodable = writer.is_decodable;
        if written.is_err() {
            json.truncate(start);
        }
        written.map(|()| is_decodable)
    }
}

impl Default for Transcoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns whether bytes are an object in protobuf.
pub fn is_protobuf(raw: &[u8]) -> bool {
    raw.starts_with(MAGIC)
}

/// Returns an object as JSON: unchanged, or converted from protobuf.
///
/// # Errors
///
/// [`ProtobufError`] for an object in protobuf.
///
/// # Examples
///
/// ```
/// use windlass_object::wire::protobuf::to_json;
///
/// let object = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01a";
/// assert_eq!(*to_json(object)?, *br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
/// assert_eq!(*to_json(b"{}")?, *b"{}");
/// # Ok::<(), windlass_object::wire::protobuf::ProtobufError>(())
/// ```
pub fn to_json(raw: &[u8]) -> Result<Cow<'_, [u8]>, ProtobufError> {
    if !is_protobuf(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut json = Vec::new();
    Transcoder::new().object(raw, &mut json)?;
    Ok(Cow::Owned(json))
}

/// Returns whether an object in protobuf has this type.
fn is_of(body: &[u8], api_version: &str, kind: &str) -> bool {
    Envelope::read(body).is_ok_and(|it| it.api_version == api_version && it.kind == kind)
}

/// Returns whether bytes are the start of an object in protobuf.
pub(super) fn may_become_protobuf(start: &[u8]) -> bool {
    MAGIC.starts_with(start)
}

/// Checks that the table contains the kind of an object. Other errors are found when the object is decoded.
pub(super) fn check_kind(body: &[u8]) -> Result<(), ProtobufError> {
    Envelope::read(body).map_or(Ok(()), |envelope| envelope.message().map(drop))
}

/// Returns whether objects of a kind can be requested in protobuf.
pub fn supports(kind: &ResourceKind) -> bool {
    Message::of_version(&kind.api_version(), &kind.kind).is_some()
}

impl<'a> Envelope<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let unknown = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
        let types = reader::bytes(unknown, 1)?;
        Ok(Envelope {
            api_version: reader::text(reader::bytes(types, 1)?)?,
            kind: reader::text(reader::bytes(types, 2)?)?,
            types,
            raw: reader::bytes(unknown, 2)?,
        })
    }

    fn message(&self) -> Result<Message, ProtobufError> {
        let (version, kind) = (self.api_version, self.kind);
        Message::of_kind(version, kind)
            .ok_or_else(|| ProtobufError::UnknownKind { version: version.to_owned(), kind: kind.to_owned() })
    }
}

#[cfg(test)]
pub(crate) mod tests;
