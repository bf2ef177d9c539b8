//! How bytes become lists, watch frames and statuses, without becoming objects.
//!
//! Guarantees:
//! - The items of a list and the objects of frames are slices of what was received: nothing in them is decoded,
//!   so none of them can fail its neighbors.
//! - [`object_header`] reads key, identity and version of an object, and takes nothing else from it. All of the object has to be
//!   JSON, and to say each of these once.
//! - [`peek_header`] says the same of every object that has a head, and stops where it has seen enough. It is for objects
//!   that are to be left out: what is wrong with the rest of them is not for us to judge.
//! - The format is told by the first bytes of a body or stream, never by a header. JSON is read; protobuf is
//!   recognized and refused by name.
//! - Frames do not depend on how the stream was cut into chunks, and their size is bounded.
//! - What objects hold appears in no error and no `Debug` output: it may be a Secret.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

mod frames;
mod list;
mod peek;
mod status;

pub use self::{
    frames::{Frame, FrameDecoder},
    list::{ObjectHeader, RawList, list, object_header},
    peek::peek_header,
    status::status,
};

/// Bytes that are not what the API's wire format says they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The body or stream is protobuf. JSON is asked for, so this is a server or proxy that ignores `Accept`.
    #[error("the server answered in protobuf although JSON was asked for")]
    ProtobufUnsupported,
    /// Neither JSON nor protobuf; a proxy's error page, usually.
    #[error("expected JSON, got {excerpt:?}")]
    NotJson {
        /// How the bytes begin.
        excerpt: String,
    },
    /// JSON, but not of the shape that was expected.
    #[error("malformed {what}: {reason}")]
    Malformed {
        /// What was being read.
        what: &'static str,
        /// What the JSON reader found, with line and column.
        reason: String,
    },
    /// A watch frame beyond the bound; what follows it on the stream cannot be read any more.
    #[error("a watch frame is longer than {limit} bytes")]
    FrameTooLarge {
        /// The bound, in bytes.
        limit: usize,
    },
    /// The stream ended inside a frame.
    #[error("the watch ended {bytes} bytes into a frame")]
    Truncated {
        /// How much of the frame had arrived.
        bytes: usize,
    },
}

impl WireError {
    fn malformed(what: &'static str, reason: &serde_json::Error) -> Self {
        WireError::Malformed { what, reason: reason_without_values(reason) }
    }
}

/// What the JSON reader found, without the texts it found it in: they may be a Secret's, and errors are logged.
pub(crate) fn reason_without_values(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    match (reason.find('"'), reason.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            format!("{}\"...\"{}", &reason[..first], &reason[last + 1..])
        }
        _ => reason,
    }
}

/// How protobuf bodies begin.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

/// Checks that a body starts as JSON objects do.
fn expect_json(body: &[u8]) -> Result<(), WireError> {
    match body.trim_ascii_start() {
        [b'{', ..] => Ok(()),
        _ if body.starts_with(PROTOBUF_MAGIC) => Err(WireError::ProtobufUnsupported),
        _ => Err(WireError::NotJson { excerpt: excerpt(body, 80) }),
    }
}

/// What is read of a JSON object and of nothing else: of an array, serde's derived readers take the fields in turn.
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

/// The first characters of what may be text, for people to read.
fn excerpt(bytes: &[u8], longest: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(longest)]);
    let tail = if bytes.len() > longest { "..." } else { "" };
    format!("{}{tail}", text.trim())
}
