//! Responses in protobuf.
//!
//! Responses are converted after they are complete, because the server stores objects in JSON. Kinds without encoding
//! stay in JSON: custom resources, tables, and the kinds of aggregated upstream groups.

mod encode;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use serde_json::Value;

use super::response;
use crate::body::Body;
use crate::status::Status;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
const STREAM: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");

/// Returns whether objects of a kind have an encoding.
pub(super) fn is_supported(version: &str, kind: &str) -> bool {
    encode::message_of(version, kind).is_some()
}

/// Converts a response of known length, if it is an object with an encoding.
pub(super) fn converted(answer: Response<Body>) -> Response<Body> {
    let media = answer.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    if !media.is_some_and(|it| it.starts_with("application/json")) {
        return answer;
    }
    let (mut is_protobuf, mut failure) = (false, None);
    let mut answer = answer.map(|body| {
        body.map_known(|json| {
            let object: Value = serde_json::from_slice(json).unwrap_or_default();
            match encode::object(&object) {
                Ok(Some(protobuf)) => {
                    is_protobuf = true;
                    protobuf
                }
                Ok(None) => json.to_vec(),
                Err(error) => {
                    failure = Some(internal(&error));
                    Vec::new()
                }
            }
        })
    });
    if let Some(status) = failure {
        return response::refusal(&status);
    }
    if is_protobuf {
        answer.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
    }
    answer
}

/// Returns a response with a stream of converted frames.
pub(super) fn stream(body: Body) -> Response<Body> {
    let mut answer = response::stream(body);
    *answer.status_mut() = StatusCode::OK;
    answer.headers_mut().insert(CONTENT_TYPE, STREAM);
    answer
}

/// Converts a watch frame.
pub(super) fn frame(json: &[u8]) -> Bytes {
    let event: Value = serde_json::from_slice(json).unwrap_or_default();
    let (of_type, object) = match encode::object(&event["object"]) {
        Ok(Some(object)) => (event["type"].as_str().unwrap_or_default(), object),
        Ok(None) => (event["type"].as_str().unwrap_or_default(), event["object"].to_string().into()),
        Err(error) => ("ERROR", response::encode(&internal(&error)).to_vec()),
    };
    let (mut extension, mut frame) = (Vec::new(), Vec::new());
    encode::bytes(1, &object, &mut extension);
    encode::bytes(1, of_type.as_bytes(), &mut frame);
    encode::bytes(2, &extension, &mut frame);
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), &frame].concat().into()
}

fn internal(error: &encode::EncodeError) -> Status {
    Status::new(500, "InternalError", error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_object::wire::protobuf::Transcoder;
    use windlass_object::{Frame, FrameDecoder};

    use super::*;

    fn read(protobuf: &[u8]) -> Value {
        let mut json = Vec::new();
        Transcoder::new().object(protobuf, &mut json).expect("valid protobuf");
        serde_json::from_slice(&json).expect("valid JSON")
    }

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "n", "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 3,
                "labels": {"a": "b", "c": ""},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "emptyDir": {}}],
                "containers": [{
                    "name": "c", "resources": {"requests": {"cpu": "100m"}},
                    "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 10},
                    "readinessProbe": {"tcpSocket": {"port": 80}},
                }],
                "automountServiceAccountToken": false,
                "securityContext": {"supplementalGroups": [1, 300]},
            },
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn encoded_object_decodes_to_itself() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"k": "/wA="}});
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"acquireTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 0},
        });
        let list = json!({
            "apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7", "remainingItemCount": 1},
            "items": [{"metadata": {"name": "a"}, "spec": {}, "status": {}}],
        });
        let revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {}, "data": {"a": [1]}, "revision": 2,
        });
        for mut object in [pod(), secret, lease, list, revision] {
            let protobuf = encode::object(&object).expect("valid types").expect("a known kind");
            let mut decoded = read(&protobuf);
            // Empty lists of containers are not encoded, and JSON always contains them.
            for value in [&mut object, &mut decoded] {
                value["items"] = value["items"].take();
            }
            assert_eq!(decoded, object);
        }
    }

    #[test]
    fn object_of_another_kind_or_with_another_type_is_not_encoded() {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Status", "metadata": {}});
        assert_eq!(encode::object(&widget), Ok(None));
        let mut wrong = pod();
        wrong["spec"]["containers"][0]["name"] = json!(7);
        let error = encode::object(&wrong).expect_err("a number as name");
        assert_eq!(error.to_string(), "cannot encode field name in protobuf: the value has another type");
    }

    #[test]
    fn frame_in_protobuf_is_decoded_by_clients() {
        let event = json!({"type": "ADDED", "object": pod()});
        let mut decoder = FrameDecoder::default();
        decoder.feed(frame(event.to_string().as_bytes()));
        let Ok(Some(Frame::Added(raw))) = decoder.next() else { panic!("no frame") };
        assert_eq!(read(&raw), pod());
    }
}
