use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_kinds::{Cardinality, FieldType};

use super::*;
use crate::wire::{self, Frame, FrameDecoder, WireError, object_header, peek_header};
use crate::{ObjectKey, ResourceVersion};

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// Encodes a field with bytes.
fn bytes(number: usize, inside: &[u8]) -> Vec<u8> {
    [&varint(number << 3 | 2), &varint(inside.len()), inside].concat()
}

/// Encodes a field with an integer.
fn integer(number: usize, value: usize) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn object(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let of = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC, &bytes(1, &of), &bytes(2, raw), &bytes(3, b""), &bytes(4, b"")].concat()
}

fn metadata(name: &str) -> Vec<u8> {
    let text = |number, text: &str| bytes(number, text.as_bytes());
    [text(1, name), text(2, ""), text(3, "n"), text(5, "u"), text(6, "9"), integer(7, 0), bytes(8, b"")]
        .concat()
}

fn config_map(name: &str) -> Vec<u8> {
    let entry = |key: &[u8]| bytes(2, &[bytes(1, key), bytes(2, b"v\n")].concat());
    [bytes(1, &metadata(name)), entry(b"k"), entry(b"l")].concat()
}

fn config_map_json(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": "u", "resourceVersion": "9"},
        "data": {"k": "v\n", "l": "v\n"},
    })
}

fn read(body: &[u8]) -> Result<Value, ProtobufError> {
    let mut json = Vec::new();
    Transcoder::new().object(body, &mut json)?;
    Ok(serde_json::from_slice(&json).expect("valid JSON"))
}

fn frame(of_type: &str, object: &[u8]) -> Vec<u8> {
    let event = [bytes(1, of_type.as_bytes()), bytes(2, &bytes(1, object))].concat();
    let length = u32::try_from(event.len()).expect("a short frame");
    [length.to_be_bytes().as_slice(), &event].concat()
}

fn frames(stream: &[u8], chunk: usize) -> Result<Vec<Frame>, WireError> {
    let (mut decoder, mut found) = (FrameDecoder::default(), Vec::new());
    for chunk in stream.chunks(chunk) {
        decoder.feed(Bytes::copy_from_slice(chunk));
        while let Some(frame) = decoder.next()? {
            found.push(frame);
        }
    }
    decoder.finish().map(|()| found)
}

/// Encodes a random message: each field can be absent, empty or set. `next` returns random numbers.
fn random_message(message: Message, next: &mut impl FnMut() -> usize, depth: usize) -> Vec<u8> {
    let mut encoded = Vec::new();
    for field in message.fields() {
        let number = usize::try_from(field.number()).expect("a small number");
        let values = match (next() % 3, field.cardinality()) {
            (0, _) => 0,
            (_, Cardinality::One) => 1,
            (_, Cardinality::List | Cardinality::Map) => 1 + next() % 2,
        };
        for _ in 0..values {
            let value = random_value(field.field_type(), next, depth);
            encoded.extend(match (field.cardinality(), value) {
                (Cardinality::Map, Ok(value)) => {
                    bytes(number, &[bytes(1, random_text(next)), bytes(2, &value)].concat())
                }
                (Cardinality::Map, Err(value)) => {
                    bytes(number, &[bytes(1, b"k"), integer(2, value)].concat())
                }
                (_, Ok(value)) => bytes(number, &value),
                (_, Err(value)) => integer(number, value),
            });
        }
    }
    encoded
}

/// Returns a value as bytes or as an integer.
fn random_value(of: FieldType, next: &mut impl FnMut() -> usize, depth: usize) -> Result<Vec<u8>, usize> {
    // The last is 9999-12-31T23:59:59Z, later than the types of k8s-openapi allow.
    let seconds = [next() % 4_000_000_000, 253_402_300_799][usize::from(next().is_multiple_of(64))];
    match of {
        FieldType::Bool => Err(next() % 2),
        FieldType::Int32 | FieldType::Int64 => Err([0, 1, usize::MAX, 1 << 31][next() % 4]),
        FieldType::String | FieldType::Bytes => Ok(random_text(next).to_vec()),
        // No message has a fixed-size number that is required.
        FieldType::Double => Ok(Vec::new()),
        FieldType::Time | FieldType::MicroTime => {
            Ok([integer(1, seconds), integer(2, next() % 1000)].concat())
        }
        FieldType::Duration => Ok(integer(1, seconds)),
        FieldType::Quantity | FieldType::Strings => Ok(bytes(1, random_text(next))),
        FieldType::IntOrString => Ok([integer(1, next() % 2), integer(2, 7), bytes(3, b"p")].concat()),
        FieldType::Json => Ok(bytes(1, [&b"{}"[..], b"null", b"[1]", b"1e999", br#""\ud800""#][next() % 5])),
        FieldType::Message(_) if depth == 0 => Ok(Vec::new()),
        FieldType::Message(message) => Ok(random_message(message, next, depth - 1)),
    }
}

fn random_text(next: &mut impl FnMut() -> usize) -> &'static [u8] {
    [&b""[..], b"a", "\u{e9}\"\n".as_bytes(), b"1Gi"][next() % 4]
}

/// Returns a random object in protobuf.
pub(crate) fn random_object(version: &str, kind: &str, seed: u64) -> Vec<u8> {
    let message = Message::of_version(version, kind).expect("a kind of the table");
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 40).expect("24 bits")
    };
    object(version, kind, &random_message(message, &mut next, 6))
}

/// Converts a random object, and decodes it as a type of k8s-openapi. Returns whether it was converted and has its
/// required times.
fn decodes<K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned>(seed: u64) -> bool {
    let (version, kind) = (K::api_version(&()), K::kind(&()));
    let mut json = Vec::new();
    if Transcoder::new().parts(&random_object(&version, &kind, seed), Parts::All, &mut json) != Ok(true) {
        return false;
    }
    let decoded = serde_json::from_slice::<K>(&json);
    let text = String::from_utf8_lossy(&json);
    decoded.unwrap_or_else(|error| panic!("{kind}: {error}: {text}"));
    true
}

#[test]
fn generated_types_decode_every_complete_object() {
    use k8s_openapi::api::{
        apps::v1 as apps, batch::v1 as batch, core::v1 as core, networking::v1 as networking,
    };
    let kinds = [
        decodes::<core::Pod>,
        decodes::<core::Service>,
        decodes::<core::Node>,
        decodes::<core::Event>,
        decodes::<core::Secret>,
        decodes::<core::PersistentVolume>,
        decodes::<apps::Deployment>,
        decodes::<apps::StatefulSet>,
        decodes::<apps::ControllerRevision>,
        decodes::<batch::CronJob>,
        decodes::<networking::Ingress>,
        decodes::<k8s_openapi::api::coordination::v1::Lease>,
        decodes::<k8s_openapi::api::policy::v1::PodDisruptionBudget>,
        decodes::<k8s_openapi::api::discovery::v1::EndpointSlice>,
        decodes::<k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler>,
        decodes::<k8s_openapi::api::rbac::v1::ClusterRole>,
    ];
    for decodes in kinds {
        let converted = (0..60).filter(|seed| decodes(*seed)).count();
        assert!(converted > 0, "no random object is complete");
    }
}

#[test]
fn object_is_converted_without_its_empty_fields() {
    let mut expected = config_map_json("a");
    expected["apiVersion"] = json!("v1");
    expected["kind"] = json!("ConfigMap");
    assert_eq!(read(&object("v1", "ConfigMap", &config_map("a"))), Ok(expected));
}

#[test]
fn set_pointers_are_kept_when_their_value_is_empty() {
    let spec = [integer(4, 0), integer(11, 0), bytes(2, &bytes(1, b""))].concat();
    let pod = read(&object("v1", "Pod", &bytes(2, &spec))).expect("a pod");
    // `hostNetwork` is no pointer, the grace period is one, and the name of a container is always in JSON.
    assert_eq!(pod["spec"], json!({"terminationGracePeriodSeconds": 0, "containers": [{"name": ""}]}));
}

#[test]
fn messages_with_special_json_form_are_converted() {
    let target = [integer(1, 1), bytes(3, b"w")].concat();
    let port = [bytes(1, b"http"), integer(3, 80), bytes(4, &target)].concat();
    let service = read(&object("v1", "Service", &bytes(2, &bytes(1, &port)))).expect("a service");
    assert_eq!(service["spec"]["ports"], json!([{"name": "http", "port": 80, "targetPort": "w"}]));

    let volume = [bytes(1, b"v"), bytes(2, &bytes(2, &bytes(2, &bytes(1, b"1Gi"))))].concat();
    let pod = read(&object("v1", "Pod", &bytes(2, &bytes(1, &volume)))).expect("a pod");
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]));

    let lease = bytes(2, &[bytes(3, &[integer(1, 1), integer(2, 5_000)].concat())].concat());
    let lease = read(&object("coordination.k8s.io/v1", "Lease", &lease)).expect("a lease");
    assert_eq!(lease["spec"]["acquireTime"], "1970-01-01T00:00:01.000005Z");

    let secret = read(&object("v1", "Secret", &bytes(2, &[bytes(1, b"k"), bytes(2, b"\xff\0")].concat())));
    assert_eq!(secret.expect("a secret")["data"], json!({"k": "/wA="}));
}

#[test]
fn packed_and_separate_integers_are_one_list() {
    let context = |groups: Vec<u8>| {
        let spec = bytes(14, &groups);
        let pod = read(&object("v1", "Pod", &bytes(2, &spec))).expect("a pod");
        pod["spec"]["securityContext"]["supplementalGroups"].clone()
    };
    assert_eq!(context([integer(4, 1), integer(4, 300)].concat()), json!([1, 300]));
    assert_eq!(context(bytes(4, &[varint(1), varint(300)].concat())), json!([1, 300]));
}

#[test]
fn embedded_json_is_copied_or_rejected() {
    let revision = |json: &[u8]| read(&object("apps/v1", "ControllerRevision", &bytes(2, &bytes(1, json))));
    assert_eq!(revision(br#"{"a":[1]}"#).expect("a revision")["data"], json!({"a": [1]}));
    assert_eq!(revision(b"").expect("a revision")["data"], Value::Null);
    let nested = [&b"["[..]; 500].concat();
    for broken in [&br#"{"a":"#[..], b"nonsense", b"\"\xff\"", b"{} {}", &nested] {
        assert_eq!(revision(broken), Err(ProtobufError::EmbeddedJson));
    }
}

#[test]
fn managed_fields_are_dropped_without_being_read() {
    let entry = bytes(17, &bytes(7, &bytes(1, b"not JSON")));
    let map = bytes(1, &[metadata("a"), entry.clone(), entry].concat());
    let map = object("v1", "ConfigMap", &map);
    assert_eq!(read(&map), Err(ProtobufError::EmbeddedJson));
    let mut json = b"before".to_vec();
    Transcoder::new().dropping_managed_fields().object(&map, &mut json).expect("a config map");
    let map: Value = serde_json::from_slice(&json["before".len()..]).expect("valid JSON");
    assert_eq!(map["metadata"], config_map_json("a")["metadata"]);
}

#[test]
fn invalid_objects_are_rejected_and_leave_no_text() {
    assert_eq!(read(b"{}"), Err(ProtobufError::NoMagic));
    let unknown = ProtobufError::UnknownKind { version: "v9".into(), kind: "Pod".into() };
    assert_eq!(read(&object("v9", "Pod", b"")), Err(unknown));
    assert_eq!(read(&[MAGIC, &[10, 200]].concat()), Err(ProtobufError::Truncated));
    let invalid = [
        (bytes(1, &bytes(1, b"\xff")), ProtobufError::InvalidUtf8),
        (bytes(1, &integer(1, 7)), ProtobufError::Malformed),
        (vec![1 << 3 | 3], ProtobufError::Malformed),
        ([bytes(1, b""), bytes(1, b"")].concat(), ProtobufError::Repeated),
        ([bytes(2, b""), bytes(3, b""), bytes(2, b"")].concat(), ProtobufError::Repeated),
        ([0xff; 11].to_vec(), ProtobufError::Malformed),
    ];
    for (raw, expected) in invalid {
        let mut json = b"before".to_vec();
        assert_eq!(Transcoder::new().object(&object("v1", "ConfigMap", &raw), &mut json), Err(expected));
        assert_eq!(json, b"before");
    }
    let limited = Transcoder::new().with_limit(100);
    let error = limited.object(&object("v1", "ConfigMap", &config_map("a")), &mut Vec::new());
    assert_eq!(error, Err(ProtobufError::TooLarge { limit: 100 }));
}

#[test]
fn unknown_fields_are_skipped() {
    let future =
        [bytes(99, b"x"), integer(98, 1), vec![0xad, 6, 1, 2, 3, 4], vec![0xa9, 6, 1, 2, 3, 4, 5, 6, 7, 8]];
    let map = read(&object("v1", "ConfigMap", &[config_map("a"), future.concat()].concat()));
    assert_eq!(map.expect("a config map")["data"], config_map_json("a")["data"]);
}

#[test]
fn managed_fields_are_removed_from_the_bytes() {
    let entry = bytes(17, &bytes(7, &bytes(1, b"{}")));
    let with = |entry: &[u8]| {
        let meta = [metadata("a"), entry.to_vec(), bytes(16, b"f"), entry.to_vec()].concat();
        object(
            "v1",
            "ConfigMap",
            &[bytes(1, &meta), bytes(2, &[bytes(1, b"k"), bytes(2, b"v")].concat())].concat(),
        )
    };
    let (without, stripped) = (with(b""), wire::without_managed_fields(&with(&entry)).into_owned());
    assert_eq!(read(&stripped), read(&without));
    assert!(matches!(wire::without_managed_fields(&without), std::borrow::Cow::Borrowed(_)));
    let alone = read(&wire::metadata_alone(&with(&entry))).expect("an object");
    assert_eq!(alone["metadata"], read(&without).expect("an object")["metadata"]);
    assert_eq!(alone.get("data"), None);
}

#[test]
fn list_is_split_into_objects_with_their_type() {
    let meta = [bytes(1, b""), bytes(2, b"42"), bytes(3, b"tok"), integer(4, 3)].concat();
    let bad = bytes(1, &[metadata("bad"), bytes(11, b"\xff")].concat());
    let items = [bytes(2, &config_map("a")), bytes(2, &bad), bytes(2, &config_map("b"))];
    let page = wire::list(object("v1", "ConfigMapList", &[bytes(1, &meta), items.concat()].concat()).into());
    let page = page.expect("a list");
    assert_eq!(page.version, Some(ResourceVersion::new("42")));
    assert_eq!((page.continue_token.as_deref(), page.remaining), (Some("tok"), Some(3)));
    for (raw, name) in [(&page.items[0], "a"), (&page.items[2], "b")] {
        let mut expected = config_map_json(name);
        expected["apiVersion"] = json!("v1");
        expected["kind"] = json!("ConfigMap");
        assert_eq!(read(raw), Ok(expected));
    }
    for (raw, name) in page.items.iter().zip(["a", "bad", "b"]) {
        let head = object_header(raw).expect("a header");
        assert_eq!(head.key, ObjectKey::namespaced("n", name));
        assert_eq!(
            (head.uid.as_ref().map(|it| it.as_str()), head.version.clone()),
            (Some("u"), Some(ResourceVersion::new("9")))
        );
        assert_eq!(peek_header(raw), Some(head));
    }
    assert_eq!(read(&page.items[1]), Err(ProtobufError::Truncated));
}

#[test]
fn list_in_protobuf_must_be_a_list() {
    for kind in ["ConfigMap", "Status", "DeleteOptions"] {
        let page = wire::list(object("v1", kind, &config_map("a")).into());
        assert!(matches!(page, Err(WireError::Malformed { what: "list", .. })), "{kind}: {page:?}");
    }
    let unknown =
        wire::list(object("example.com/v1", "WidgetList", b"").into()).expect_err("an unknown kind");
    assert!(unknown.is_unknown_kind(), "{unknown}");
}

#[test]
fn watch_frames_are_split_for_all_chunk_sizes() {
    let end = [bytes(1, b"k8s.io/initial-events-end"), bytes(2, b"true")].concat();
    let end = bytes(1, &[bytes(6, b"5"), bytes(12, &end)].concat());
    let status = [bytes(2, b"Failure"), bytes(3, b"too old"), bytes(4, b"Expired"), integer(6, 410)].concat();
    let stream = [
        frame("ADDED", &object("v1", "ConfigMap", &config_map("a"))),
        frame("BOOKMARK", &object("v1", "ConfigMap", &end)),
        frame("DELETED", br#"{"metadata":{"name":"b"}}"#),
        frame("ERROR", &object("v1", "Status", &status)),
        frame("RENAMED", b""),
    ]
    .concat();
    for chunk in [1, 3, 7, stream.len()] {
        let found = frames(&stream, chunk).expect("valid frames");
        let [Frame::Added(added), bookmark, Frame::Deleted(deleted), Frame::Error(error), unknown] =
            found.as_slice()
        else {
            panic!("{found:?}")
        };
        assert_eq!(read(added).expect("a config map")["data"], config_map_json("a")["data"]);
        let version = ResourceVersion::new("5");
        assert_eq!(*bookmark, Frame::Bookmark { version, initial_events_end: true });
        assert_eq!(deleted, &br#"{"metadata":{"name":"b"}}"#[..]);
        assert_eq!((error.code, error.reason.as_str()), (410, "Expired"));
        assert_eq!(*unknown, Frame::Unknown("RENAMED".into()));
    }
    let cut = frames(&stream[..stream.len() - 1], 64).expect_err("a truncated stream");
    assert!(matches!(cut, WireError::Truncated { .. }), "{cut}");
}

#[test]
fn watch_frame_over_the_limit_is_rejected_before_it_arrives() {
    let mut decoder = FrameDecoder::with_limit(100);
    decoder.feed(Bytes::from_static(&[0, 0, 0, 101]));
    assert_eq!(decoder.next(), Err(WireError::FrameTooLarge { limit: 100 }));
}

#[test]
fn watched_object_that_is_invalid_keeps_its_header() {
    let bad = bytes(1, &[metadata("bad"), bytes(11, b"\xff")].concat());
    let found = frames(&frame("MODIFIED", &object("v1", "ConfigMap", &bad)), 64).expect("a frame");
    let [Frame::Modified(raw)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(object_header(raw).expect("a header").key, ObjectKey::namespaced("n", "bad"));
    let unknown = frames(&frame("ADDED", &object("example.com/v1", "Widget", b"")), 64);
    assert!(unknown.is_err_and(|error| error.is_unknown_kind()));
}

#[test]
fn status_in_protobuf_is_converted() {
    let details = [bytes(1, b"a"), integer(5, 7)].concat();
    let raw = [
        bytes(2, b"Failure"),
        bytes(3, b"slow down"),
        bytes(4, b"TooManyRequests"),
        bytes(5, &details),
        integer(6, 429),
    ];
    let status = wire::status(500, &object("v1", "Status", &raw.concat()));
    assert_eq!((status.code, status.message.as_str()), (429, "slow down"));
    assert_eq!(status.details.map(|it| it.retry_after_seconds), Some(7));
}

#[test]
fn errors_do_not_quote_values() {
    let map = object("v1", "ConfigMap", &bytes(2, &[bytes(1, b"k"), bytes(2, b"s3cr3t\xff")].concat()));
    let error = read(&map).expect_err("text that is not UTF-8");
    assert!(!format!("{error} {error:?}").contains("s3cr3t"));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(raw in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..4usize) {
        let kind = ["Pod", "PodList", "Status", "Node"][kind];
        let body = object("v1", kind, &raw);
        let _invalid = read(&raw);
        let mut json = Vec::new();
        if Transcoder::new().object(&body, &mut json).is_ok() {
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&json).is_ok());
        }
        let _invalid = (wire::list(body.clone().into()), object_header(&body), wire::status(500, &body));
        let _invalid = frames(&[&[0, 0, 0, 50], raw.as_slice()].concat(), 9);
    }

    #[test]
    fn truncated_and_changed_objects_never_panic(at: prop::sample::Index, byte: u8) {
        let good = object("v1", "ConfigMap", &config_map("a"));
        let mut changed = good.clone();
        changed[at.index(good.len())] = byte;
        for body in [&good[..at.index(good.len())], &changed] {
            if let Ok(value) = read(body) {
                prop_assert!(value.is_object());
            }
        }
    }
}
