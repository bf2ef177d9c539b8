//! Uncached reads of single objects, shared by contexts and the writers of children.

use bytes::Bytes;
use http::Response;
use kube::api::{GetParams, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use windlass_client::{optional, send};
use windlass_object::{ObjectKey, ResourceKind};

/// Characters that have no meaning in a path or a query.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the object of that key from the server, or `None` if it does not exist.
pub(crate) async fn get_live(
    client: &kube::Client,
    kind: &ResourceKind,
    key: &ObjectKey,
) -> Result<Option<Bytes>, kube::Error> {
    let (requests, name) = (Request::new(kind.url_path(key.namespace())), escaped(key.name()).to_string());
    let request = requests.get(&name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    Ok(optional(send(client, request).await)?.map(Response::into_body))
}

/// Escapes a text for a path or a query.
pub(crate) fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, UNRESERVED)
}
