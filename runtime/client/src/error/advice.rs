//! How long a server asks to wait, and how much of its refusal is read.

use std::time::Duration;

use http::{HeaderMap, header};
use windlass_object::Status;

/// How long the server asks to wait before the call is made again; at most 60 s.
pub fn retry_after(error: &kube::Error) -> Option<Duration> {
    match error {
        kube::Error::Api(status) => advised_by_status(status),
        _ => None,
    }
}

/// The longest wait a server is believed to mean.
pub(super) const MAX_ADVICE: Duration = Duration::from_secs(60);

/// How much of a refusal is read, in bytes: a status is far shorter, and a proxy's page need not be read out.
pub(crate) const MAX_REFUSAL: usize = 1024 * 1024;

/// How long to wait, by the answer's headers. API servers send seconds; dates are for caches.
pub(crate) fn advised_by_headers(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_ADVICE))
}

/// How long to wait, by the answer's body.
pub(crate) fn advised_by_status(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(MAX_ADVICE))
}
