//! The whole answer to one request of a kube client.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use windlass_object::wire;

/// Sends a request; returns the answer with its complete body.
///
/// # Errors
/// As [`Client::send`]; an answer without success is [`kube::Error::Api`].
///
/// # Cancel safety
/// The server may have received the request of a dropped future.
pub async fn send(client: &Client, request: Request<Vec<u8>>) -> kube::Result<Response<Bytes>> {
    let (head, body) = client.send(request.map(Into::into)).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    if head.status.is_success() {
        return Ok(Response::from_parts(head, body));
    }
    Err(kube::Error::Api(wire::status(head.status.as_u16(), &body).boxed()))
}
