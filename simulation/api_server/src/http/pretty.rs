//! Indented JSON responses for human readers.
//!
//! Text that is not valid JSON is not reported; only its white space changes.

use ::http::Response;
use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::request::Parts;

use super::media;
use super::query::Query;
use crate::body::Body;

/// Prefixes of the user agents of browsers and command-line tools.
const FOR_PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// Returns whether the response must be indented: by media type, else by parameter, else by user agent.
pub(super) fn wanted(parts: &Parts) -> bool {
    let uri = parts.uri.query().unwrap_or_default();
    let query = if uri.contains("pretty") { Query::parse(Some(uri)) } else { Query::default() };
    let agent = parts.headers.get(USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    media::accepted(&parts.headers).first().is_some_and(media::Clause::is_pretty)
        || match query.text("pretty") {
            "" => FOR_PEOPLE.iter().any(|it| agent.starts_with(it)),
            value => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        }
}

/// Indents the response if it is JSON of known length.
pub(super) fn lines(answer: Response<Body>) -> Response<Body> {
    let media = answer.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    if media.is_some_and(|it| it.starts_with("application/json")) {
        answer.map(|body| body.map_known(indent))
    } else {
        answer
    }
}

/// Indents compact JSON by two spaces per level. The order stays.
fn indent(json: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut text, mut escaped) = (0_usize, false, false);
    for (at, byte) in json.iter().copied().enumerate() {
        if text {
            text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            found.push(byte);
            continue;
        }
        let next = json.get(at + 1).copied();
        match byte {
            b'{' | b'[' => {
                depth += 1;
                found.push(byte);
                if !matches!(next, Some(b'}' | b']')) {
                    line(&mut found, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !found.ends_with(b"{") && !found.ends_with(b"[") {
                    line(&mut found, depth);
                }
                found.push(byte);
            }
            b',' => {
                found.push(byte);
                line(&mut found, depth);
            }
            b':' => found.extend_from_slice(b": "),
            b'\n' => {}
            _ => {
                text = byte == b'"';
                found.push(byte);
            }
        }
    }
    found
}

fn line(found: &mut Vec<u8>, depth: usize) {
    found.push(b'\n');
    found.resize(found.len() + 2 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use ::http::Request;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn indentation_equals_that_of_serde_json() {
        let values = [
            json!({}),
            json!([]),
            json!("a{\"\\\",:[]}"),
            json!({"a": {}, "b": [], "c": [1, {"d": "x: \"{,\\"}], "e": {"f": null}}),
            json!([[[]], "\\", -1.5e3, "\u{e9}\n"]),
        ];
        for value in values {
            let expected = serde_json::to_string_pretty(&value).unwrap_or_default();
            assert_eq!(String::from_utf8_lossy(&indent(value.to_string().as_bytes())), expected);
        }
        let list = indent(b"{\"items\":[{\"z\":1,\"a\":2}]}\n");
        assert_eq!(serde_json::from_slice::<Value>(&list).ok(), Some(json!({"items": [{"z": 1, "a": 2}]})));
        assert!(list.ends_with(b"\"z\": 1,\n      \"a\": 2\n    }\n  ]\n}"), "{list:?}");
    }

    #[test]
    fn indentation_depends_on_parameter_media_type_or_user_agent() {
        let cases = [
            ("/api?pretty=true", "", "kubectl/v1", true),
            ("/api?pretty=1", "", "", true),
            ("/api?pretty=no", "", "curl/8", false),
            ("/api?pretty", "", "curl/8", true),
            ("/api", "", "curl/8", true),
            ("/api", "", "Mozilla/5.0 (X11)", true),
            ("/api", "application/json;pretty=1", "", true),
            ("/api", "application/json", "kubectl/v1", false),
            ("/api", "", "", false),
        ];
        for (path, accept, agent, expected) in cases {
            let mut request = Request::builder().uri(path).header("user-agent", agent);
            if !accept.is_empty() {
                request = request.header("accept", accept);
            }
            let (parts, ()) = request.body(()).unwrap_or_default().into_parts();
            assert_eq!(wanted(&parts), expected, "{path} {accept} {agent}");
        }
    }
}
