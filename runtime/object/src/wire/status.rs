//! Error responses, in JSON, protobuf or plain text.

use kube::core::{
    Status,
    response::{StatusSummary, reason},
};

use super::protobuf;
use super::{OfObject, excerpt};

/// The maximum length of a plain-text error that is kept, in bytes: enough for a sentence of a proxy, not for its page.
const MAX_TEXT: usize = 1024;

/// Returns the status in the body of an error response. Every body results in a status.
///
/// Missing code and message are filled in. Plain text is used as the message, with the reason that matches the code.
pub fn status(code: u16, body: &[u8]) -> Status {
    let json = protobuf::to_json(body).ok();
    let mut status = json.and_then(|json| from_json(&json)).unwrap_or_else(|| from_text(code, body));
    if status.code == 0 {
        status.code = code;
    }
    if status.message.is_empty() {
        status.message = format!("the server returned {code} without a message");
    }
    status
}

fn from_json(body: &[u8]) -> Option<Status> {
    let OfObject(status): OfObject<Status> = serde_json::from_slice(body).ok()?;
    // Every field is optional, so any JSON object decodes as a status; without these fields it is not one.
    (status.status.is_some() || !status.reason.is_empty() || status.code != 0).then_some(status)
}

fn from_text(code: u16, body: &[u8]) -> Status {
    let message = if protobuf::is_protobuf(body) {
        format!("the server returned {code} in protobuf, which is not a valid status")
    } else {
        // An error page of a proxy has many lines.
        excerpt(body, MAX_TEXT).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    Status {
        status: Some(StatusSummary::Failure),
        code,
        message,
        reason: reason_for(code).into(),
        metadata: None,
        details: None,
    }
}

fn reason_for(code: u16) -> &'static str {
    match code {
        400 => reason::BAD_REQUEST,
        401 => reason::UNAUTHORIZED,
        403 => reason::FORBIDDEN,
        404 => reason::NOT_FOUND,
        405 => reason::METHOD_NOT_ALLOWED,
        406 => reason::NOT_ACCEPTABLE,
        409 => reason::CONFLICT,
        410 => reason::GONE,
        413 => reason::REQUEST_ENTITY_TOO_LARGE,
        415 => reason::UNSUPPORTED_MEDIA_TYPE,
        422 => reason::INVALID,
        429 => reason::TOO_MANY_REQUESTS,
        500 => reason::INTERNAL_ERROR,
        503 => reason::SERVICE_UNAVAILABLE,
        504 => reason::TIMEOUT,
        _ => reason::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_status_is_returned_unchanged() {
        let body = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"Expired","code":410}"#;
        let status = status(410, body);
        assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (410, "Expired", "gone"));
    }

    #[test]
    fn plain_text_becomes_the_message() {
        let status = status(404, b"404 page not found\n");
        assert!(status.is_not_found() && status.is_failure());
        assert_eq!((status.code, status.message.as_str()), (404, "404 page not found"));
    }

    #[test]
    fn long_plain_text_status_is_truncated() {
        assert_eq!(status(502, &[b'x'; 5000]).message.len(), MAX_TEXT + "...".len());
    }

    #[test]
    fn array_body_is_not_a_status() {
        let status = status(404, br#"[{},{},"Success","text"]"#);
        assert_eq!((status.code, status.message.as_str()), (404, r#"[{},{},"Success","text"]"#));
    }

    #[test]
    fn body_without_reason_results_in_a_status() {
        for body in [&b""[..], b"{}", b"null"] {
            assert!(!status(503, body).message.is_empty());
            assert_eq!(status(503, body).code, 503);
        }
        assert!(status(403, b"k8s\0\x0a").message.contains("protobuf"));
    }
}
