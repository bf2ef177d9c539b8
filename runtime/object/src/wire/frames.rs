//! Splits watch streams into frames.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use bytes::{Buf as _, Bytes, BytesMut};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::protobuf::{Transcoder, WatchEvent};
use super::{OfObject, WireError, excerpt, object_header, protobuf, status};
use crate::ResourceVersion;

/// One event of a watch. The object is not decoded.
#[derive(Clone, PartialEq)]
pub enum Frame {
    /// The object is new to the watch.
    Added(Bytes),
    /// The object changed.
    Modified(Bytes),
    /// The object was deleted or left the selection. It has its last state, at the version of the deletion.
    Deleted(Bytes),
    /// All events up to this version have been sent.
    Bookmark {
        /// The version.
        version: ResourceVersion,
        /// Whether this bookmark ends the initial list of a streaming list.
        initial_events_end: bool,
    },
    /// The server ends the watch. Code 410 means that the requested version has expired.
    Error(Box<Status>),
    /// An event type that is unknown. Changes of objects have the other types.
    Unknown(Box<str>),
}

/// Prints only the header of the object.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut change = |name: &str, raw: &Bytes| match object_header(raw) {
            Ok(head) => f.debug_tuple(name).field(&head).finish(),
            Err(error) => f.debug_tuple(name).field(&error).finish(),
        };
        match self {
            Frame::Added(raw) => change("Added", raw),
            Frame::Modified(raw) => change("Modified", raw),
            Frame::Deleted(raw) => change("Deleted", raw),
            Frame::Bookmark { version, initial_events_end } => f
                .debug_struct("Bookmark")
                .field("version", version)
                .field("initial_events_end", initial_events_end)
                .finish(),
            Frame::Error(status) => f.debug_tuple("Error").field(status).finish(),
            Frame::Unknown(of_type) => f.debug_tuple("Unknown").field(of_type).finish(),
        }
    }
}

/// Splits a watch stream, received in chunks of any size, into frames.
///
/// After an error, drop the decoder and the rest of the stream.
///
/// # Examples
///
/// ```
/// use windlass_object::{Frame, FrameDecoder};
///
/// let mut decoder = FrameDecoder::default();
/// decoder.feed("{\"type\":\"ADDED\",\"object\":{\"meta".into());
/// assert_eq!(decoder.next()?, None);
/// decoder.feed("data\":{\"name\":\"a\"}}}\n".into());
/// assert_eq!(decoder.next()?, Some(Frame::Added("{\"metadata\":{\"name\":\"a\"}}".into())));
/// decoder.finish()?;
/// # Ok::<(), windlass_object::WireError>(())
/// ```
pub struct FrameDecoder {
    limit: usize,
    /// The start of a frame that is not complete yet.
    partial: BytesMut,
    /// The received bytes after it, not parsed yet.
    chunk: Bytes,
    /// The format of the stream; `None` until its first byte arrives.
    format: Option<Format>,
}

#[derive(Clone, Copy)]
enum Format {
    /// One frame a line.
    Json,
    /// Each frame after its length.
    Protobuf,
}

impl FrameDecoder {
    /// The default size limit of a frame: ten times etcd's default limit of 1.5 MiB for one object.
    pub const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;

    /// Creates a decoder that rejects frames longer than `limit` bytes, without their newline or length.
    pub fn with_limit(limit: usize) -> Self {
        Self { limit, partial: BytesMut::new(), chunk: Bytes::new(), format: None }
    }

    /// Adds the next chunk of the stream.
    pub fn feed(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            let mut joined = BytesMut::with_capacity(self.chunk.len() + chunk.len());
            joined.extend_from_slice(&self.chunk);
            joined.extend_from_slice(&chunk);
            self.chunk = joined.freeze();
        }
    }

    /// Returns the next frame; `None` if more chunks are needed.
    ///
    /// # Errors
    ///
    /// If the stream is not a watch, or the frame is malformed or too long.
    #[allow(clippy::should_implement_trait)] // `None` is not the end: the caller feeds chunks between calls.
    pub fn next(&mut self) -> Result<Option<Frame>, WireError> {
        match self.format()? {
            None => Ok(None),
            Some(Format::Json) => {
                while let Some(line) = self.line()? {
                    if !line.trim_ascii().is_empty() {
                        return json_frame(&line).map(Some);
                    }
                }
                Ok(None)
            }
            Some(Format::Protobuf) => match self.delimited()? {
                None => Ok(None),
                Some(frame) => protobuf_frame(&frame, self.limit).map(Some),
            },
        }
    }

    /// Checks that the stream ended between two frames.
    ///
    /// # Errors
    ///
    /// If the stream ended inside a frame.
    pub fn finish(&self) -> Result<(), WireError> {
        let bytes = self.partial.len() + self.chunk.len();
        let blank = self.partial.trim_ascii().is_empty() && self.chunk.trim_ascii().is_empty();
        if blank { Ok(()) } else { Err(WireError::Truncated { bytes }) }
    }

    /// Returns the next complete line without its newline. It is a slice of the chunk if one chunk contains the line.
    fn line(&mut self) -> Result<Option<Bytes>, WireError> {
        let Some(end) = self.chunk.iter().position(|byte| *byte == b'\n') else {
            self.check_length(self.chunk.len())?;
            self.partial.extend_from_slice(&std::mem::take(&mut self.chunk));
            return Ok(None);
        };
        self.check_length(end)?;
        let tail = self.chunk.split_to(end + 1).slice(..end);
        if self.partial.is_empty() {
            return Ok(Some(tail));
        }
        self.partial.extend_from_slice(&tail);
        Ok(Some(std::mem::take(&mut self.partial).freeze()))
    }

    /// Returns the next complete frame after its length. It is a slice of the chunk if one chunk contains both.
    fn delimited(&mut self) -> Result<Option<Bytes>, WireError> {
        let mut start = self.partial.iter().chain(&self.chunk).copied();
        let prefix = [start.next(), start.next(), start.next(), start.next()];
        let [Some(a), Some(b), Some(c), Some(d)] = prefix else {
            self.partial.extend_from_slice(&std::mem::take(&mut self.chunk));
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(WireError::FrameTooLarge { limit: self.limit });
        }
        let missing = (length + LENGTH).saturating_sub(self.partial.len());
        if self.chunk.len() < missing {
            self.partial.extend_from_slice(&std::mem::take(&mut self.chunk));
            return Ok(None);
        }
        let tail = self.chunk.split_to(missing);
        if self.partial.is_empty() {
            return Ok(Some(tail.slice(LENGTH..)));
        }
        self.partial.extend_from_slice(&tail);
        Ok(Some(std::mem::take(&mut self.partial).freeze().slice(LENGTH..)))
    }

    /// Returns the format of the stream. The first byte that is not blank determines it.
    fn format(&mut self) -> Result<Option<Format>, WireError> {
        if self.format.is_none() {
            let blank = self.chunk.len() - self.chunk.trim_ascii_start().len();
            self.chunk.advance(blank);
            self.format = match self.chunk.first() {
                None => None,
                Some(b'{') => Some(Format::Json),
                // The highest byte of a length, at most that of the greatest limit. Text has no such byte.
                Some(0..=8) => Some(Format::Protobuf),
                // An object without length. Its content must not be in an error.
                Some(_) if protobuf::is_protobuf(&self.chunk) => return Err(without_length()),
                Some(_) if protobuf::may_become_protobuf(&self.chunk) => None,
                Some(_) => return Err(WireError::NotJson { excerpt: excerpt(&self.chunk, 80) }),
            };
        }
        Ok(self.format)
    }

    fn check_length(&self, more: usize) -> Result<(), WireError> {
        if self.partial.len() + more > self.limit {
            return Err(WireError::FrameTooLarge { limit: self.limit });
        }
        Ok(())
    }
}

impl fmt::Debug for FrameDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.partial.len() + self.chunk.len();
        f.debug_struct("FrameDecoder")
            .field("limit", &self.limit)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }
}

#[derive(Deserialize)]
struct RawFrame<'a> {
    #[serde(borrow, rename = "type")]
    of_type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn without_length() -> WireError {
    WireError::Malformed { what: "watch frame", reason: "it has no length".into() }
}

/// The maximum length of the recorded name of an unknown type, in bytes.
const MAX_TYPE_LENGTH: usize = 40;
/// The number of bytes of the length before a frame in protobuf.
const LENGTH: usize = 4;

fn json_frame(line: &Bytes) -> Result<Frame, WireError> {
    let OfObject(raw): OfObject<RawFrame<'_>> =
        serde_json::from_slice(line).map_err(|error| WireError::malformed("watch frame", &error))?;
    let object = line.slice_ref(raw.object.get().as_bytes());
    typed_frame(raw.of_type.as_ref(), object)
}

/// Reads a frame. An object stays in protobuf; a bookmark or a status is converted.
fn protobuf_frame(frame: &Bytes, limit: usize) -> Result<Frame, WireError> {
    let WatchEvent { of_type, object } = WatchEvent::read(frame)?;
    let object = frame.slice_ref(object);
    if !protobuf::is_protobuf(&object) {
        return typed_frame(of_type, object);
    }
    match of_type {
        "BOOKMARK" => {
            let mut json = Vec::new();
            Transcoder::new().with_limit(limit).object(&object, &mut json)?;
            bookmark(&json)
        }
        _ => {
            protobuf::check_kind(&object)?;
            typed_frame(of_type, object)
        }
    }
}

fn typed_frame(of_type: &str, object: Bytes) -> Result<Frame, WireError> {
    match of_type {
        "ADDED" => Ok(Frame::Added(object)),
        "MODIFIED" => Ok(Frame::Modified(object)),
        "DELETED" => Ok(Frame::Deleted(object)),
        "BOOKMARK" => bookmark(&object),
        "ERROR" => Ok(Frame::Error(Box::new(status(500, &object)))),
        unknown => Ok(Frame::Unknown(excerpt(unknown.as_bytes(), MAX_TYPE_LENGTH).into())),
    }
}

#[derive(Deserialize)]
struct RawBookmark<'a> {
    #[serde(borrow)]
    metadata: OfObject<RawBookmarkMeta<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBookmarkMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

/// The annotation that marks the end of the initial list in a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

fn bookmark(object: &[u8]) -> Result<Frame, WireError> {
    let OfObject(RawBookmark { metadata: OfObject(metadata) }) =
        serde_json::from_slice(object).map_err(|error| WireError::malformed("bookmark", &error))?;
    let end = metadata.annotations.as_ref().and_then(|annotations| annotations.get(INITIAL_EVENTS_END));
    let version = ResourceVersion::from_response(&metadata.resource_version);
    Ok(Frame::Bookmark {
        version: version.ok_or_else(|| WireError::Malformed {
            what: "bookmark",
            reason: "it has no resource version".into(),
        })?,
        initial_events_end: end.is_some_and(|value| value == "true"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(name: &str) -> String {
        serde_json::json!({"metadata": {"name": name}, "note": "line\nbreaks and \"quotes\""}).to_string()
    }

    fn line(of_type: &str, object: &str) -> String {
        format!("{{\"type\":\"{of_type}\",\"object\":{object}}}\n")
    }

    fn read(decoder: &mut FrameDecoder) -> Vec<Frame> {
        std::iter::from_fn(|| decoder.next().unwrap()).collect()
    }

    fn read_error(text: &str) -> WireError {
        let mut decoder = FrameDecoder::default();
        decoder.feed(Bytes::copy_from_slice(text.as_bytes()));
        decoder.next().unwrap_err()
    }

    fn any_frame() -> impl Strategy<Value = (String, Frame)> {
        let change = ("[a-zé]{1,12}", 0..3usize).prop_map(|(name, which)| {
            let (object, make) = (object(&name), [Frame::Added, Frame::Modified, Frame::Deleted][which]);
            (line(["ADDED", "MODIFIED", "DELETED"][which], &object), make(object.into()))
        });
        let bookmark = (1..u64::MAX).prop_map(|version| {
            let object = format!(r#"{{"kind":"Pod","metadata":{{"resourceVersion":"{version}"}}}}"#);
            let version = ResourceVersion::new(&version.to_string());
            (line("BOOKMARK", &object), Frame::Bookmark { version, initial_events_end: false })
        });
        let blank = Just("\r\n".to_string());
        (prop_oneof![change, bookmark], proptest::option::of(blank))
            .prop_map(|((line, frame), blank)| (line + &blank.unwrap_or_default(), frame))
    }

    proptest! {
        // parity: event-type
        #[test]
        fn frames_do_not_depend_on_chunking(
            frames in proptest::collection::vec(any_frame(), 0..8),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
            hasty in any::<bool>(),
        ) {
            let stream: String = frames.iter().map(|(line, _)| line.as_str()).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let (mut decoder, mut seen) = (FrameDecoder::default(), Vec::new());
            for cut in cuts.windows(2) {
                decoder.feed(Bytes::copy_from_slice(&stream.as_bytes()[cut[0]..cut[1]]));
                if hasty {
                    seen.extend(read(&mut decoder));
                }
            }
            seen.extend(read(&mut decoder));
            prop_assert_eq!(decoder.finish(), Ok(()));
            let expected: Vec<Frame> = frames.into_iter().map(|(_, frame)| frame).collect();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn frame_is_rejected_when_longer_than_limit(excess in 0..3usize, cut in any::<proptest::sample::Index>()) {
            let line = line("ADDED", &object("a"));
            let mut decoder = FrameDecoder::with_limit(line.len() - 2 + 1 - excess.min(1));
            let cut = cut.index(line.len());
            decoder.feed(Bytes::copy_from_slice(&line.as_bytes()[..cut]));
            let first = decoder.next();
            decoder.feed(Bytes::copy_from_slice(&line.as_bytes()[cut..]));
            let both = first.and_then(|_| decoder.next());
            prop_assert_eq!(both.is_err(), excess > 0);
        }
    }

    #[test]
    fn frame_within_one_chunk_is_not_copied() {
        let chunk = Bytes::from(line("ADDED", &object("a")) + &line("DELETED", &object("a")));
        let mut decoder = FrameDecoder::default();
        decoder.feed(chunk.clone());
        let frames = read(&mut decoder);
        let [Frame::Added(first), Frame::Deleted(second)] = frames.as_slice() else { panic!("{frames:?}") };
        assert!(
            chunk.as_ptr_range().contains(&first.as_ptr()) && chunk.as_ptr_range().contains(&second.as_ptr())
        );
    }

    #[test]
    fn end_of_initial_events_is_marked() {
        let mut decoder = FrameDecoder::default();
        let end = r#"{"kind":"Pod","metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        decoder.feed(line("BOOKMARK", end).into());
        let version = ResourceVersion::new("5");
        assert_eq!(read(&mut decoder), [Frame::Bookmark { version, initial_events_end: true }]);
    }

    #[test]
    fn error_frame_contains_its_status() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(
            line(
                "ERROR",
                r#"{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}"#,
            )
            .into(),
        );
        let frames = read(&mut decoder);
        let [Frame::Error(status)] = frames.as_slice() else { panic!("{frames:?}") };
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    }

    #[test]
    fn unknown_frame_type_is_reported_and_stream_continues() {
        let mut decoder = FrameDecoder::default();
        decoder.feed((line("RENAMED", "{}") + &line("ADDED", &object("a"))).into());
        let frames = read(&mut decoder);
        assert_eq!(frames, [Frame::Unknown("RENAMED".into()), Frame::Added(object("a").into())]);
    }

    #[test]
    fn malformed_frames_are_rejected() {
        for text in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"ADDED\",\"object\":{}\n", "{}\n"] {
            assert!(matches!(read_error(text), WireError::Malformed { what: "watch frame", .. }), "{text}");
        }
        for meta in ["{}", r#"{"resourceVersion":""}"#, r#"{"resourceVersion":"0"}"#] {
            let text = line("BOOKMARK", &format!(r#"{{"metadata":{meta}}}"#));
            assert!(matches!(read_error(&text), WireError::Malformed { what: "bookmark", .. }), "{meta}");
        }
    }

    #[test]
    fn stream_that_is_not_a_watch_is_detected_by_first_bytes() {
        assert_eq!(read_error("k8s\0s3cr3t"), without_length());
        assert_eq!(
            read_error("upstream connect error"),
            WireError::NotJson { excerpt: "upstream connect error".into() }
        );
    }

    #[test]
    fn format_is_detected_for_any_chunking() {
        for (stream, expected) in [
            ("\r\n k8s\0\n", Err(without_length())),
            ("k8\n", Err(WireError::NotJson { excerpt: String::new() })),
            ("k8", Err(WireError::Truncated { bytes: 2 })),
        ] {
            let mut decoder = FrameDecoder::default();
            let bytes = stream.bytes().map(|byte| vec![byte]);
            let result = bytes.map(|byte| {
                decoder.feed(byte.into());
                decoder.next()
            });
            let result: Result<Vec<_>, _> = result.collect();
            let result = result.and_then(|_| decoder.finish()).map_err(|error| match error {
                WireError::NotJson { .. } => WireError::NotJson { excerpt: String::new() },
                other => other,
            });
            assert_eq!(result, expected, "{stream:?}");
        }
    }

    #[test]
    fn array_is_neither_frame_nor_bookmark() {
        let text = line("ADDED", "{}") + "[\"ADDED\",{}]\n";
        let mut decoder = FrameDecoder::default();
        decoder.feed(text.into());
        assert!(matches!(decoder.next(), Ok(Some(Frame::Added(_)))));
        assert!(matches!(decoder.next(), Err(WireError::Malformed { what: "watch frame", .. })));
        for bookmark in [r#"{"metadata":["5",null]}"#, r#"[{"resourceVersion":"5"}]"#] {
            let result = read_error(&line("BOOKMARK", bookmark));
            assert!(matches!(result, WireError::Malformed { what: "bookmark", .. }), "{bookmark}");
        }
    }

    #[test]
    fn frame_debug_output_hides_object_content() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(line("ADDED", r#"{"metadata":{"name":"a"},"data":"s3cr3t"}"#).into());
        decoder.feed("{\"type\":\"ADDED\",\"object\":{\"data\":\"s3cr3t".into());
        let frames = read(&mut decoder);
        let printed = format!("{frames:?} {decoder:?}");
        assert!(printed.contains("Added(ObjectHeader { key: a") && !printed.contains("s3cr3t"), "{printed}");
    }

    #[test]
    fn stream_that_ends_inside_a_frame_is_an_error() {
        let mut decoder = FrameDecoder::default();
        decoder.feed("{\"type\":\"ADD".into());
        assert_eq!(decoder.next(), Ok(None));
        assert_eq!(decoder.finish(), Err(WireError::Truncated { bytes: 12 }));
    }

    #[test]
    fn broken_object_in_valid_frame_has_header() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(
            line(
                "MODIFIED",
                r#"{"metadata":{"name":"a","resourceVersion":"3"},"spec":{"containers":"none"}}"#,
            )
            .into(),
        );
        let frames = read(&mut decoder);
        let [Frame::Modified(raw)] = frames.as_slice() else { panic!("{frames:?}") };
        assert_eq!(crate::wire::object_header(raw).unwrap().key.to_string(), "a");
    }
}
