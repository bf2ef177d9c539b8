//! Watch streams.

use bytes::Bytes;
use serde_json::Value;
use windlass_object::{Frame, FrameDecoder, WireError};

use crate::reference::{decode, has_duplicate_field};

/// Result of a stream: its frames, and the error that ended it.
#[derive(Debug, PartialEq)]
struct Seen {
    frames: Vec<Frame>,
    end: Result<(), WireError>,
}

/// A stream has the same frames and the same end for all chunk sizes and polling times; and in JSON the
/// frames equal those of a full decode of its lines. The first line contains the chunk sizes, the rest is the stream.
pub(crate) fn any_cuts_give_the_same_frames(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (control, stream) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let limit = match control.first() {
        None | Some(0) => FrameDecoder::DEFAULT_LIMIT,
        Some(short) => usize::from(*short),
    };
    let whole = read(stream, &[], limit, true);
    let cuts = control.get(1..).unwrap_or_default();
    for hasty in [true, false] {
        assert_eq!(read(stream, cuts, limit, hasty), whole, "cut at {cuts:?}, hasty: {hasty}");
    }
    assert_eq!(read(stream, &[1], limit, true), whole, "byte by byte");
    // The Debug format of a frame can omit its object, but must not panic.
    assert!(!format!("{:?}", whole.frames).is_empty());
    // In protobuf, the property of objects applies.
    if stream.trim_ascii_start().starts_with(b"{") {
        agrees_with_a_full_decode(stream, limit, &whole);
    }
}

/// Feeds chunks of the given sizes, cyclically; polls after each of them, or only at the end.
fn read(stream: &[u8], cuts: &[u8], limit: usize, hasty: bool) -> Seen {
    let (mut decoder, mut rest, mut frames) = (FrameDecoder::with_limit(limit), stream, Vec::new());
    let mut lengths = cuts.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().map_or(rest.len(), |length| usize::from(*length).min(rest.len()));
        let (chunk, behind) = rest.split_at(if cuts.iter().all(|it| *it == 0) { rest.len() } else { length });
        decoder.feed(Bytes::copy_from_slice(chunk));
        rest = behind;
        if hasty && let Err(error) = drain(&mut decoder, &mut frames) {
            return Seen { frames, end: Err(comparable(error)) };
        }
    }
    let end = drain(&mut decoder, &mut frames).and_then(|()| decoder.finish());
    Seen { frames, end: end.map_err(comparable) }
}

fn drain(decoder: &mut FrameDecoder, frames: &mut Vec<Frame>) -> Result<(), WireError> {
    while let Some(frame) = decoder.next()? {
        frames.push(frame);
    }
    Ok(())
}

/// Removes the number of received bytes from the error for a stream that is not a watch, because only it can differ.
fn comparable(error: WireError) -> WireError {
    match error {
        WireError::NotJson { .. } => WireError::NotJson { excerpt: String::new() },
        other => other,
    }
}

fn agrees_with_a_full_decode(stream: &[u8], limit: usize, seen: &Seen) {
    let mut lines: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    lines.pop();
    lines.retain(|line| !line.trim_ascii().is_empty());
    assert!(seen.frames.len() <= lines.len(), "more frames than lines");
    for (frame, line) in seen.frames.iter().zip(&lines) {
        let Some(value) = decode(line).filter(|_| !has_duplicate_field(line)) else { continue };
        assert!(value.is_object(), "only objects are frames");
        let object = &value["object"];
        match frame {
            Frame::Added(raw) => same(&value, "ADDED", raw),
            Frame::Modified(raw) => same(&value, "MODIFIED", raw),
            Frame::Deleted(raw) => same(&value, "DELETED", raw),
            Frame::Error(_) => assert_eq!(value["type"], "ERROR"),
            Frame::Unknown(_) => assert!(!KNOWN.iter().any(|it| value["type"] == *it)),
            Frame::Bookmark { version, initial_events_end } => {
                assert_eq!(value["type"], "BOOKMARK");
                assert_eq!(object["metadata"]["resourceVersion"], version.as_str());
                let end = &object["metadata"]["annotations"]["k8s.io/initial-events-end"];
                assert_eq!(*end == "true", *initial_events_end);
            }
        }
    }
    let refused = lines.get(seen.frames.len()).filter(|_| seen.end.is_err());
    if let Some(line) = refused.filter(|line| line.len() <= limit && !has_duplicate_field(line)) {
        assert!(!decode(line).is_some_and(|it| is_sound(&it)), "{:?}: {}", seen.end, line.escape_ascii());
    }
}

fn same(value: &Value, of_type: &str, raw: &Bytes) {
    assert_eq!(value["type"], of_type);
    assert_eq!(decode(raw).as_ref(), Some(&value["object"]));
}

const KNOWN: [&str; 5] = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];

/// Returns whether the frame is fully valid; bookmarks have additional requirements.
fn is_sound(value: &Value) -> bool {
    value["type"].is_string() && value["type"] != "BOOKMARK" && value.get("object").is_some()
}
