//! Splits bytes into lists, watch frames and statuses, without decoding the objects.
//!
//! Guarantees:
//! - List items and objects of frames are not decoded, so one item cannot fail the others. Each has the format in which
//!   it was received, JSON or [`protobuf`].
//! - [`object_header`] reads only the key, UID and version of an object. An object in JSON must be valid and contain
//!   each of these fields at most once. The rest of an object in protobuf is not read.
//! - [`peek_header`] returns the same header for every object that has one, and stops as soon as it is complete. Use it
//!   for objects that are discarded: it does not validate the rest.
//! - The first bytes of a body, stream or object determine its format, not a header: a server that was sent a request
//!   for protobuf can return JSON, and the reverse.
//! - Frames do not depend on the chunk boundaries of the stream, and their size is limited.
//! - Errors and `Debug` output do not contain the content of objects, because an object can be a Secret.

use std::fmt;
use std::marker::PhantomData;

use self::protobuf::ProtobufError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

mod frames;
mod list;
mod parts;
mod peek;
pub mod protobuf;
mod status;
mod strip;

pub use self::{
    frames::{Frame, FrameDecoder},
    list::{list, object_header},
    parts::{ObjectHeader, RawList},
    peek::peek_header,
    status::status,
    strip::{metadata_alone, without_managed_fields},
};

/// Error for bytes that do not have the API's wire format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// An invalid response in protobuf, or of a kind that can be read only in JSON.
    #[error("cannot decode the response: {0}")]
    Protobuf(#[from] ProtobufError),
    /// Neither JSON nor protobuf; usually the error page of a proxy.
    #[error("expected JSON, got {excerpt:?}")]
    NotJson {
        /// The first characters of the body.
        excerpt: String,
    },
    /// JSON with an unexpected structure.
    #[error("malformed {what}: {reason}")]
    Malformed {
        /// The item that was parsed.
        what: &'static str,
        /// The error of the JSON parser, with line and column.
        reason: String,
    },
    /// A watch frame above the size limit. The rest of the stream cannot be read.
    #[error("a watch frame is longer than {limit} bytes")]
    FrameTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The stream ended inside a frame.
    #[error("the watch stream ended inside a frame, after {bytes} bytes of it")]
    Truncated {
        /// The number of bytes of the frame that had arrived.
        bytes: usize,
    },
}

impl WireError {
    fn malformed(what: &'static str, reason: &serde_json::Error) -> Self {
        WireError::Malformed { what, reason: reason_without_values(reason) }
    }
}

/// Formats an error of the JSON parser without quoted values: they can be from a Secret, and errors are logged.
pub(crate) fn reason_without_values(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    match (reason.find('"'), reason.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            format!("{}\"...\"{}", &reason[..first], &reason[last + 1..])
        }
        _ => reason,
    }
}

impl WireError {
    /// Returns whether the server sent a kind in protobuf that can be read only in JSON.
    pub const fn is_unknown_kind(&self) -> bool {
        matches!(self, WireError::Protobuf(ProtobufError::UnknownKind { .. }))
    }
}

/// Checks that a body starts like a JSON object.
fn expect_json(body: &[u8]) -> Result<(), WireError> {
    match body.trim_ascii_start() {
        [b'{', ..] => Ok(()),
        _ => Err(WireError::NotJson { excerpt: excerpt(body, 80) }),
    }
}

/// A value that is decoded only from a JSON object. Serde's derived implementations also accept arrays.
struct OfObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OfObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfObject(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for OfObject<PhantomData<T>> {
    type Value = OfObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<OfObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(OfObject)
    }
}

/// Returns the first characters of bytes that might be text, for messages.
fn excerpt(bytes: &[u8], longest: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(longest)]);
    let tail = if bytes.len() > longest { "..." } else { "" };
    format!("{}{tail}", text.trim())
}
