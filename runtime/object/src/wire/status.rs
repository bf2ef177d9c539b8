//! Refusals, in whatever form they come.

use kube::core::{
    Status,
    response::{StatusSummary, reason},
};

use super::{OfObject, PROTOBUF_MAGIC, excerpt};

/// How much of a plain-text refusal is kept, in bytes: enough for a proxy's sentence, not for its whole page.
const MAX_TEXT: usize = 1024;

/// The status in the body of a refused request; always one, whatever the body is.
///
/// Code and message are filled in where the body leaves them out. Plain text becomes the message, with the
/// reason that goes with the code.
pub fn status(code: u16, body: &[u8]) -> Status {
    let mut status = from_json(body).unwrap_or_else(|| from_text(code, body));
    if status.code == 0 {
        status.code = code;
    }
    if status.message.is_empty() {
        status.message = format!("the server answered {code} without saying why");
    }
    status
}

fn from_json(body: &[u8]) -> Option<Status> {
    let OfObject(status): OfObject<Status> = serde_json::from_slice(body).ok()?;
    // Every field is optional, so any JSON object reads as a status; one that says nothing is none.
    (status.status.is_some() || !status.reason.is_empty() || status.code != 0).then_some(status)
}

fn from_text(code: u16, body: &[u8]) -> Status {
    let message = if body.starts_with(PROTOBUF_MAGIC) {
        format!("the server answered {code} in protobuf, which was not asked for")
    } else {
        // A proxy's page has many lines.
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
    fn json_status_is_read_as_it_is() {
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
    fn page_of_text_is_cut() {
        assert_eq!(status(502, &[b'x'; 5000]).message.len(), MAX_TEXT + "...".len());
    }

    #[test]
    fn array_is_no_status() {
        let status = status(404, br#"[{},{},"Success","text"]"#);
        assert_eq!((status.code, status.message.as_str()), (404, r#"[{},{},"Success","text"]"#));
    }

    #[test]
    fn body_that_says_nothing_still_gives_a_status() {
        for body in [&b""[..], b"{}", b"null"] {
            assert!(!status(503, body).message.is_empty());
            assert_eq!(status(503, body).code, 503);
        }
        assert!(status(403, b"k8s\0\x0a").message.contains("protobuf"));
    }
}
