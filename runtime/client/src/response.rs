//! Requests through a kube client that return the complete response.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use windlass_object::{Status, wire};

/// Sends a request and returns the response with its complete body.
///
/// # Errors
/// Like [`Client::send`]; an error status is returned as [`kube::Error::Api`].
///
/// # Cancel safety
/// The server might have received the request of a dropped future.
pub async fn send(client: &Client, request: Request<Vec<u8>>) -> kube::Result<Response<Bytes>> {
    let (head, body) = client.send(request.map(Into::into)).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    if head.status.is_success() {
        return Ok(Response::from_parts(head, body));
    }
    Err(kube::Error::Api(wire::status(head.status.as_u16(), &body).boxed()))
}

/// Converts a response that the named object does not exist into `None`.
///
/// # Errors
/// All other errors, unchanged.
pub fn optional<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if is_not_found(&status) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns whether the server reports that the named object does not exist. Other 404 responses, from a proxy or for a
/// path that is not served, name no object.
pub fn is_not_found(status: &Status) -> bool {
    let names = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && status.reason == "NotFound" && names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_404_that_names_an_object_means_not_found() {
        let status = |body: &[u8]| wire::status(404, body);
        let details = r#""details":{"name":"web","kind":"pods"}"#;
        let head = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404"#;
        assert!(is_not_found(&status(format!("{head},{details}}}").as_bytes())));
        let unserved = format!(r#"{head},"details":{{}}}}"#);
        for other in ["404 page not found", "<html>Not Found</html>", &*unserved] {
            assert!(!is_not_found(&status(other.as_bytes())), "{other}");
        }
    }
}
