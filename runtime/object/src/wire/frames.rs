//! Watch streams, cut into frames.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use bytes::{Buf as _, Bytes, BytesMut};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{OfObject, PROTOBUF_MAGIC, WireError, excerpt, object_header, status};
use crate::ResourceVersion;

/// One event of a watch, its object not decoded.
#[derive(Clone, PartialEq)]
pub enum Frame {
    /// The object is new to the watch.
    Added(Bytes),
    /// The object changed.
    Modified(Bytes),
    /// The object is gone, or left the selection; this is its last state, at the version of the deletion.
    Deleted(Bytes),
    /// Nothing the watch would show happened up to this version.
    Bookmark {
        /// The version.
        version: ResourceVersion,
        /// Whether this closes the initial list of a streaming list.
        initial_events_end: bool,
    },
    /// The server ends the watch; 410 means that its version is no longer kept.
    Error(Box<Status>),
    /// Of a type that the API does not know, or not yet; what is about the objects comes in the others.
    Unknown(Box<str>),
}

/// Names the object and shows nothing else of it.
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

/// Cuts a watch stream, fed in any chunks, into frames.
///
/// After an error the rest of the stream means nothing: drop both.
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
    /// The beginning of a frame whose end has not come.
    partial: BytesMut,
    /// What came after it, not looked at yet.
    chunk: Bytes,
    started: bool,
}

impl FrameDecoder {
    /// The default bound of a frame: ten times what etcd stores of one object by default, 1.5 MiB.
    pub const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;

    /// A decoder that refuses frames longer than `limit` bytes, their newline not counted.
    pub fn with_limit(limit: usize) -> Self {
        Self { limit, partial: BytesMut::new(), chunk: Bytes::new(), started: false }
    }

    /// Takes the next chunk of the stream.
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

    /// The next frame, or `None` until more is fed.
    ///
    /// # Errors
    ///
    /// When the stream is not a JSON watch, or the frame is malformed or too long.
    #[allow(clippy::should_implement_trait)] // It is fed between calls, so its end is not the end.
    pub fn next(&mut self) -> Result<Option<Frame>, WireError> {
        while let Some(line) = self.line()? {
            if !line.trim_ascii().is_empty() {
                return frame(&line).map(Some);
            }
        }
        Ok(None)
    }

    /// Checks that the stream ended between two frames.
    ///
    /// # Errors
    ///
    /// When it ended inside one.
    pub fn finish(&self) -> Result<(), WireError> {
        let bytes = self.partial.len() + self.chunk.len();
        let blank = self.partial.trim_ascii().is_empty() && self.chunk.trim_ascii().is_empty();
        if blank { Ok(()) } else { Err(WireError::Truncated { bytes }) }
    }

    /// The next whole line, without its newline: a slice of the chunk where the line lies within one.
    fn line(&mut self) -> Result<Option<Bytes>, WireError> {
        if !self.started && !self.starts()? {
            return Ok(None);
        }
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

    /// Whether the stream is known to be JSON: its first bytes that are not blank tell the format of all of it. As
    /// long as they may begin either format, they wait.
    fn starts(&mut self) -> Result<bool, WireError> {
        let blank = self.chunk.len() - self.chunk.trim_ascii_start().len();
        self.chunk.advance(blank);
        match self.chunk.first() {
            None => Ok(false),
            Some(b'{') => {
                self.started = true;
                Ok(true)
            }
            // Protobuf frames carry their length first, in four bytes of which the highest is always zero here.
            Some(0) => Err(WireError::ProtobufUnsupported),
            Some(_) if self.chunk.starts_with(PROTOBUF_MAGIC) => Err(WireError::ProtobufUnsupported),
            Some(_) if PROTOBUF_MAGIC.starts_with(&self.chunk) => Ok(false),
            Some(_) => Err(WireError::NotJson { excerpt: excerpt(&self.chunk, 80) }),
        }
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

/// How much of the name of an unknown type is kept, in bytes.
const MAX_TYPE: usize = 40;

fn frame(line: &Bytes) -> Result<Frame, WireError> {
    let OfObject(raw): OfObject<RawFrame<'_>> =
        serde_json::from_slice(line).map_err(|error| WireError::malformed("watch frame", &error))?;
    let object = line.slice_ref(raw.object.get().as_bytes());
    match raw.of_type.as_ref() {
        "ADDED" => Ok(Frame::Added(object)),
        "MODIFIED" => Ok(Frame::Modified(object)),
        "DELETED" => Ok(Frame::Deleted(object)),
        "BOOKMARK" => bookmark(&object),
        "ERROR" => Ok(Frame::Error(Box::new(status(500, &object)))),
        unknown => Ok(Frame::Unknown(excerpt(unknown.as_bytes(), MAX_TYPE).into())),
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

/// The annotation with which a streaming list says that everything there was has been sent.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

fn bookmark(object: &[u8]) -> Result<Frame, WireError> {
    let OfObject(RawBookmark { metadata: OfObject(metadata) }) =
        serde_json::from_slice(object).map_err(|error| WireError::malformed("bookmark", &error))?;
    let end = metadata.annotations.as_ref().and_then(|annotations| annotations.get(INITIAL_EVENTS_END));
    let version = ResourceVersion::from_response(&metadata.resource_version);
    Ok(Frame::Bookmark {
        version: version.ok_or_else(|| WireError::Malformed {
            what: "bookmark",
            reason: "it has no version, so it marks nothing".into(),
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
        fn any_chunking_gives_the_same_frames(
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
        fn frame_is_refused_exactly_when_it_is_longer_than_the_bound(excess in 0..3usize, cut in any::<proptest::sample::Index>()) {
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
    fn end_of_the_initial_events_is_marked() {
        let mut decoder = FrameDecoder::default();
        let end = r#"{"kind":"Pod","metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        decoder.feed(line("BOOKMARK", end).into());
        let version = ResourceVersion::new("5");
        assert_eq!(read(&mut decoder), [Frame::Bookmark { version, initial_events_end: true }]);
    }

    #[test]
    fn error_frame_gives_its_status() {
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
    fn frame_of_unknown_type_is_named_and_does_not_end_the_stream() {
        let mut decoder = FrameDecoder::default();
        decoder.feed((line("RENAMED", "{}") + &line("ADDED", &object("a"))).into());
        let frames = read(&mut decoder);
        assert_eq!(frames, [Frame::Unknown("RENAMED".into()), Frame::Added(object("a").into())]);
    }

    #[test]
    fn malformed_frames_are_refused() {
        for text in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"ADDED\",\"object\":{}\n", "{}\n"] {
            assert!(matches!(read_error(text), WireError::Malformed { what: "watch frame", .. }), "{text}");
        }
        for meta in ["{}", r#"{"resourceVersion":""}"#, r#"{"resourceVersion":"0"}"#] {
            let text = line("BOOKMARK", &format!(r#"{{"metadata":{meta}}}"#));
            assert!(matches!(read_error(&text), WireError::Malformed { what: "bookmark", .. }), "{meta}");
        }
    }

    #[test]
    fn stream_that_is_not_json_is_told_by_its_first_bytes() {
        assert_eq!(read_error("\0\0\u{1}\u{2}"), WireError::ProtobufUnsupported);
        assert_eq!(read_error("k8s\0"), WireError::ProtobufUnsupported);
        assert_eq!(
            read_error("upstream connect error"),
            WireError::NotJson { excerpt: "upstream connect error".into() }
        );
    }

    #[test]
    fn format_is_told_however_its_first_bytes_are_cut() {
        for (stream, expected) in [
            ("\r\n k8s\0\n", Err(WireError::ProtobufUnsupported)),
            ("k8\n", Err(WireError::NotJson { excerpt: String::new() })),
            ("k8", Err(WireError::Truncated { bytes: 2 })),
        ] {
            let mut decoder = FrameDecoder::default();
            let bytes = stream.bytes().map(|byte| vec![byte]);
            let told = bytes.map(|byte| {
                decoder.feed(byte.into());
                decoder.next()
            });
            let told: Result<Vec<_>, _> = told.collect();
            let told = told.and_then(|_| decoder.finish()).map_err(|error| match error {
                WireError::NotJson { .. } => WireError::NotJson { excerpt: String::new() },
                other => other,
            });
            assert_eq!(told, expected, "{stream:?}");
        }
    }

    #[test]
    fn array_is_no_frame_and_no_bookmark() {
        let text = line("ADDED", "{}") + "[\"ADDED\",{}]\n";
        let mut decoder = FrameDecoder::default();
        decoder.feed(text.into());
        assert!(matches!(decoder.next(), Ok(Some(Frame::Added(_)))));
        assert!(matches!(decoder.next(), Err(WireError::Malformed { what: "watch frame", .. })));
        for bookmark in [r#"{"metadata":["5",null]}"#, r#"[{"resourceVersion":"5"}]"#] {
            let told = read_error(&line("BOOKMARK", bookmark));
            assert!(matches!(told, WireError::Malformed { what: "bookmark", .. }), "{bookmark}");
        }
    }

    #[test]
    fn what_objects_hold_is_not_printed() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(line("ADDED", r#"{"metadata":{"name":"a"},"data":"s3cr3t"}"#).into());
        decoder.feed("{\"type\":\"ADDED\",\"object\":{\"data\":\"s3cr3t".into());
        let frames = read(&mut decoder);
        let printed = format!("{frames:?} {decoder:?}");
        assert!(printed.contains("Added(ObjectHeader { key: a") && !printed.contains("s3cr3t"), "{printed}");
    }

    #[test]
    fn stream_that_ends_inside_a_frame_says_so() {
        let mut decoder = FrameDecoder::default();
        decoder.feed("{\"type\":\"ADD".into());
        assert_eq!(decoder.next(), Ok(None));
        assert_eq!(decoder.finish(), Err(WireError::Truncated { bytes: 12 }));
    }

    #[test]
    fn broken_object_in_a_sound_frame_still_has_a_head() {
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
