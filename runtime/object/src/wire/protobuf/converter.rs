//! Objects in JSON for a decoder, which reads one object after the other. Compiled once for all types.

use std::fmt;

use super::{Parts, ProtobufError, Transcoder, is_protobuf};

/// Maximum size of the buffer between two objects, in bytes.
const MAX_BUFFER: usize = 256 * 1024;

/// The conversion of objects whose format is not known. `managedFields` are dropped unless they are kept.
pub(crate) struct Converter {
    transcoder: Transcoder,
    json: Vec<u8>,
}

impl Converter {
    /// Creates a converter that rejects objects with a JSON longer than about `limit` bytes.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { transcoder: Transcoder::new().with_limit(limit).dropping_managed_fields(), json: Vec::new() }
    }

    pub(crate) const fn keep_managed_fields(&mut self) {
        self.transcoder.drops_managed_fields = false;
    }

    /// Returns an object as JSON with at least these parts. An object in JSON is returned unchanged.
    ///
    /// # Errors
    ///
    /// [`ProtobufError`] for an object in protobuf.
    pub(crate) fn json<'a>(&'a mut self, raw: &'a [u8], parts: Parts) -> Result<&'a [u8], ProtobufError> {
        if !is_protobuf(raw) {
            return Ok(raw);
        }
        self.convert(raw, parts)?;
        Ok(&self.json)
    }

    /// Returns whether a type that is generated from upstream's descriptions of this kind decodes an object in
    /// protobuf. `false` if that is not known.
    pub(crate) fn is_decodable(&mut self, raw: &[u8], api_version: &str, kind: &str) -> bool {
        super::is_of(raw, api_version, kind) && self.convert(raw, Parts::All) == Ok(true)
    }

    fn convert(&mut self, raw: &[u8], parts: Parts) -> Result<bool, ProtobufError> {
        self.json.clear();
        self.json.shrink_to(MAX_BUFFER);
        self.transcoder.parts(raw, parts, &mut self.json)
    }
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Converter").field("transcoder", &self.transcoder).finish_non_exhaustive()
    }
}
