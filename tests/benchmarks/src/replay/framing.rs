//! Media types, and the bytes around the objects in lists and watches.

use super::RecordedPod;

/// The resource version of every list, higher than that of each Pod.
const VERSION: &str = "9000000";
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

/// The media type and form of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    is_protobuf: bool,
    is_metadata: bool,
}

/// The part of the collection in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// A page of a list: from a Pod to a Pod, and whether further pages follow.
    List { first: usize, end: usize, remaining: usize },
    /// A watch with this number of initial events.
    StreamedList { end: usize },
    /// A watch without initial events.
    Watch,
}

/// The framing of one response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    pub(super) format: Format,
    pub(super) page: Page,
}

impl Format {
    /// Returns the first supported format of an `Accept` header.
    pub(super) fn of(accept: &str) -> Format {
        let mut offers = accept.split(',').map(str::trim);
        let first = offers
            .find(|offer| {
                offer.starts_with("application/json")
                    || offer.starts_with("application/vnd.kubernetes.protobuf")
            })
            .unwrap_or("application/json");
        Format {
            is_protobuf: first.starts_with("application/vnd"),
            is_metadata: first.contains("as=PartialObjectMetadata"),
        }
    }
}

impl Page {
    /// Parses the query of a request for a collection of `count` objects.
    pub(super) fn of(query: &str, count: usize) -> Page {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let is_true = |name: &str| value(name).is_some_and(|value| value == "true" || value == "1");
        let number = |name: &str| value(name).and_then(|value| value.parse::<usize>().ok());
        if is_true("watch") {
            return if is_true("sendInitialEvents") {
                Page::StreamedList { end: count }
            } else {
                Page::Watch
            };
        }
        let first = number("continue").unwrap_or(0).min(count);
        let limit = number("limit").filter(|limit| *limit > 0).unwrap_or(count);
        let end = first.saturating_add(limit).min(count);
        Page::List { first, end, remaining: count - end }
    }

    pub(super) const fn first(self) -> usize {
        match self {
            Page::List { first, .. } => first,
            Page::StreamedList { .. } | Page::Watch => 0,
        }
    }

    pub(super) const fn end(self) -> usize {
        match self {
            Page::List { end, .. } | Page::StreamedList { end } => end,
            Page::Watch => 0,
        }
    }

    pub(super) const fn is_watch(self) -> bool {
        matches!(self, Page::StreamedList { .. } | Page::Watch)
    }
}

impl Framing {
    pub(super) const fn media_type(&self) -> &'static str {
        match (self.format.is_protobuf, self.page.is_watch()) {
            (true, true) => "application/vnd.kubernetes.protobuf;stream=watch",
            (true, false) => "application/vnd.kubernetes.protobuf",
            (false, _) => "application/json",
        }
    }

    /// Writes the bytes before the first object.
    pub(super) fn write_start(&self, pods: &[RecordedPod], out: &mut Vec<u8>) {
        let Page::List { first, end, remaining } = self.page else { return };
        let next = if remaining > 0 { end.to_string() } else { String::new() };
        let kind = format!("{}List", self.kind());
        if self.format.is_protobuf {
            let mut meta = field(2, VERSION.as_bytes());
            meta.extend(field(3, next.as_bytes()));
            let meta = field(1, &meta);
            let items = pods[first..end].iter().map(|pod| field_length(self.protobuf(pod)));
            let length = meta.len() + items.sum::<usize>();
            out.extend_from_slice(PROTOBUF_MAGIC);
            out.extend(field(1, &self.type_meta(&kind)));
            out.push(2 << 3 | 2);
            write_varint(length, out);
            out.extend(meta);
        } else {
            let (version, api_version) = (VERSION, self.api_version());
            let next = if remaining > 0 {
                format!(",\"continue\":\"{next}\",\"remainingItemCount\":{remaining}")
            } else {
                next
            };
            let start = format!(
                r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}"{next}}},"items":["#
            );
            out.extend_from_slice(start.as_bytes());
        }
    }

    /// Writes one object: an item of the list, or an initial event.
    pub(super) fn write_item(&self, pod: &RecordedPod, number: usize, out: &mut Vec<u8>) {
        match (self.format.is_protobuf, self.page.is_watch()) {
            (true, true) => self.write_protobuf_event("ADDED", self.protobuf(pod), out),
            (true, false) => out.extend(field(2, self.protobuf(pod))),
            (false, true) => {
                out.extend_from_slice(br#"{"type":"ADDED","object":"#);
                self.write_json(pod, true, out);
                out.extend_from_slice(b"}\n");
            }
            (false, false) => {
                if number > self.page.first() {
                    out.push(b',');
                }
                self.write_json(pod, false, out);
            }
        }
    }

    /// Writes the bytes after the last object.
    pub(super) fn write_end(&self, out: &mut Vec<u8>) {
        match (self.format.is_protobuf, self.page) {
            (true, Page::List { .. }) => out.extend_from_slice(&[3 << 3 | 2, 0, 4 << 3 | 2, 0]),
            (false, Page::List { .. }) => out.extend_from_slice(b"]}\n"),
            (true, Page::StreamedList { .. }) => self.write_protobuf_event("BOOKMARK", &bookmark(), out),
            (false, Page::StreamedList { .. }) => {
                let (kind, api_version, version) = (self.kind(), self.api_version(), VERSION);
                let event = format!(
                    r#"{{"type":"BOOKMARK","object":{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
                );
                out.extend_from_slice(event.as_bytes());
                out.push(b'\n');
            }
            (_, Page::Watch) => {}
        }
    }

    const fn kind(&self) -> &'static str {
        if self.format.is_metadata { "PartialObjectMetadata" } else { "Pod" }
    }

    const fn api_version(&self) -> &'static str {
        if self.format.is_metadata { "meta.k8s.io/v1" } else { "v1" }
    }

    fn type_meta(&self, kind: &str) -> Vec<u8> {
        let mut types = field(1, self.api_version().as_bytes());
        types.extend(field(2, kind.as_bytes()));
        types
    }

    /// Writes an object. Events name its kind; items of lists do not, except for partial objects.
    fn write_json(&self, pod: &RecordedPod, is_event: bool, out: &mut Vec<u8>) {
        let with_kind = is_event || self.format.is_metadata;
        if with_kind {
            let types = format!(r#"{{"kind":"{}","apiVersion":"{}","#, self.kind(), self.api_version());
            out.extend_from_slice(types.as_bytes());
        }
        if self.format.is_metadata {
            out.extend_from_slice(br#""metadata":"#);
            out.extend_from_slice(&pod.json.metadata);
            out.push(b'}');
        } else {
            out.extend_from_slice(&pod.json.object[usize::from(with_kind)..]);
        }
    }

    /// Returns the message of an object. `PartialObjectMetadata` is the first field of a Pod, with the same number.
    fn protobuf<'a>(&self, pod: &'a RecordedPod) -> &'a [u8] {
        if self.format.is_metadata { first_field(&pod.protobuf) } else { &pod.protobuf }
    }

    /// Writes a length of four bytes and a `WatchEvent`.
    fn write_protobuf_event(&self, kind: &str, object: &[u8], out: &mut Vec<u8>) {
        let mut unknown = PROTOBUF_MAGIC.to_vec();
        unknown.extend(field(1, &self.type_meta(self.kind())));
        unknown.extend(field(2, object));
        unknown.extend_from_slice(&[3 << 3 | 2, 0, 4 << 3 | 2, 0]);
        let mut event = field(1, kind.as_bytes());
        event.extend(field(2, &field(1, &unknown)));
        #[expect(clippy::cast_possible_truncation, reason = "no object is larger than 4 GiB")]
        out.extend_from_slice(&(event.len() as u32).to_be_bytes());
        out.extend(event);
    }
}

/// Returns an object that has only a version and the annotation that ends the initial events.
fn bookmark() -> Vec<u8> {
    let mut annotation = field(1, b"k8s.io/initial-events-end");
    annotation.extend(field(2, b"true"));
    let mut metadata = field(6, VERSION.as_bytes());
    metadata.extend(field(12, &annotation));
    field(1, &metadata)
}

/// Encodes a field of type bytes, string or message.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(value.len() + 6);
    encoded.push(number << 3 | 2);
    write_varint(value.len(), &mut encoded);
    encoded.extend_from_slice(value);
    encoded
}

fn field_length(value: &[u8]) -> usize {
    let mut length = Vec::new();
    write_varint(value.len(), &mut length);
    1 + length.len() + value.len()
}

fn write_varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Returns the bytes of the first field, with its number and length.
fn first_field(message: &[u8]) -> &[u8] {
    let (mut length, mut at) = (0usize, 1);
    for (index, byte) in message[1..].iter().enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    &message[..at + length]
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::pods::{Shape, generate};

    fn recorded() -> Vec<RecordedPod> {
        let pods = generate(3, Shape::TenPerOwner);
        let message = || Bytes::from([field(1, &field(1, b"name")), field(2, b"spec")].concat());
        pods.into_iter().map(|json| RecordedPod { json, protobuf: message() }).collect()
    }

    fn response(accept: &str, query: &str) -> Vec<u8> {
        let pods = recorded();
        let framing = Framing { format: Format::of(accept), page: Page::of(query, pods.len()) };
        let mut out = Vec::new();
        framing.write_start(&pods, &mut out);
        let on_page = pods.iter().enumerate().take(framing.page.end()).skip(framing.page.first());
        on_page.for_each(|(number, pod)| framing.write_item(pod, number, &mut out));
        framing.write_end(&mut out);
        out
    }

    #[test]
    fn json_list_is_complete_over_its_pages() {
        let first: serde_json::Value =
            serde_json::from_slice(&response("application/json", "limit=2")).expect("JSON");
        assert_eq!(first["kind"], "PodList");
        assert_eq!(first["items"].as_array().map(Vec::len), Some(2));
        assert_eq!(first["metadata"]["remainingItemCount"], 1);
        let next = format!("limit=2&continue={}", first["metadata"]["continue"].as_str().expect("a token"));
        let last: serde_json::Value = serde_json::from_slice(&response("*/*", &next)).expect("JSON");
        assert_eq!(last["items"].as_array().map(Vec::len), Some(1));
        assert!(last["metadata"].get("continue").is_none());
    }

    #[test]
    fn json_stream_ends_with_the_bookmark_of_initial_events() {
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let text = response(accept, "watch=true&sendInitialEvents=true");
        let events: Vec<serde_json::Value> = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).expect("JSON"))
            .collect();
        assert_eq!(events.len(), 4);
        assert_eq!(events[0]["object"]["kind"], "PartialObjectMetadata");
        assert!(events[0]["object"].get("spec").is_none());
        assert_eq!(events[3]["type"], "BOOKMARK");
        assert_eq!(events[3]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert!(response(accept, "watch=1&resourceVersion=7").is_empty());
    }

    #[test]
    fn protobuf_list_has_the_length_that_its_envelope_states() {
        let list = response("application/vnd.kubernetes.protobuf,application/json", "resourceVersion=0");
        let types = first_field(&list[PROTOBUF_MAGIC.len()..]);
        let rest = &list[PROTOBUF_MAGIC.len() + types.len()..];
        let raw = first_field(rest);
        assert_eq!(rest.len() - raw.len(), 4, "content encoding and content type are empty");
    }

    #[test]
    fn protobuf_metadata_is_the_first_field_of_the_object() {
        let pods = recorded();
        assert_eq!(first_field(&pods[0].protobuf), field(1, &field(1, b"name")));
    }
}
