//! Objects in protobuf.

use serde_json::Value;
use windlass_object::wire::protobuf::Transcoder;
use windlass_object::wire::{object_header, peek_header};

use crate::reference::decode;

const KINDS: [(&str, &str); 8] = [
    ("v1", "Pod"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "PodList"),
    ("v1", "Status"),
    ("apps/v1", "ControllerRevision"),
    ("coordination.k8s.io/v1", "Lease"),
    ("authorization.k8s.io/v1", "SubjectAccessReview"),
];

/// Any bytes are an error, or an object in valid JSON with the same header. Without `managedFields`, the rest is equal;
/// a limit only rejects. The first byte selects the kind, the rest is the message; for other values of the first byte
/// the rest is the whole body.
pub(crate) fn any_message_gives_valid_json_or_an_error(data: &[u8]) {
    let Some((kind, raw)) = data.split_first() else { return };
    let body = match KINDS.get(usize::from(*kind)) {
        Some((version, kind)) => object(version, kind, raw),
        None => raw.to_vec(),
    };
    let dropped = converted(Transcoder::new().dropping_managed_fields(), &body);
    let Some(json) = converted(Transcoder::new(), &body) else {
        // The message can be valid except for the dropped fields.
        assert!(dropped.is_none_or(|json| decode(&json).is_some()));
        return;
    };
    let mut value = decode(&json).expect("valid JSON");
    assert!(value.is_object());
    assert!(json.len() <= 64 * (body.len() + 64), "{} bytes from {}", json.len(), body.len());
    headers_agree(&json, &body);
    let limited = converted(Transcoder::new().with_limit(json.len() / 2), &body);
    assert!(limited.is_none_or(|limited| limited == json));
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    let dropped = dropped.expect("fewer fields are not less valid");
    assert_eq!(decode(&dropped), Some(value));
}

fn converted(transcoder: Transcoder, body: &[u8]) -> Option<Vec<u8>> {
    let mut json = b"before".to_vec();
    let written = transcoder.object(body, &mut json);
    assert!(json.starts_with(b"before"));
    match written {
        Ok(()) => Some(json.split_off("before".len())),
        Err(error) => {
            assert_eq!(json, b"before");
            assert!(!error.to_string().contains('\n'), "a message is one line");
            None
        }
    }
}

fn headers_agree(json: &[u8], body: &[u8]) {
    // Lists have other metadata at the same number.
    if let (Ok(head), Ok(expected)) = (object_header(body), object_header(json)) {
        assert_eq!(head, expected);
        assert_eq!(peek_header(body), Some(expected));
    }
}

fn object(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".as_slice(), &field(1, &types), &field(2, raw)].concat()
}

/// Encodes a field with bytes.
fn field(number: u8, inside: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = inside.len();
    while length >= 0x80 {
        field.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    field.push(length.to_le_bytes()[0]);
    [&field, inside].concat()
}
