//! The retry delay of a server, and the size limit of error responses.

use std::time::Duration;

use http::{HeaderMap, header};
use windlass_object::Status;

/// Returns the delay that the server requests before the next attempt; at most 60 s.
pub fn retry_after(error: &kube::Error) -> Option<Duration> {
    match error {
        kube::Error::Api(status) => advised_by_status(status),
        _ => None,
    }
}

/// The maximum delay that a server can request.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Maximum size of an error response, in bytes. A status is far shorter, and the page of a proxy need not be complete.
pub(crate) const MAX_ERROR_BODY: usize = 1024 * 1024;

/// Returns the delay from the response headers. API servers send seconds; dates are for caches.
pub(crate) fn advised_by_headers(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Returns the delay from the response body.
pub(crate) fn advised_by_status(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(MAX_RETRY_AFTER))
}
