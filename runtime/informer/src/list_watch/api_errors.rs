//! Errors of other sources in the format of the API, which the reflector understands.

use serde_json::json;
use windlass_client::RequestError;
use windlass_object::{Status, wire};

/// Returns the error for a version that is no longer kept.
pub(super) fn expired() -> Status {
    status(410, "Expired", "the requested version is no longer kept")
}

/// Returns the error for a version newer than the current version.
pub(super) fn too_large(wanted: u64, current: u64) -> Status {
    status(504, "Timeout", &format!("Too large resource version: {wanted}, current: {current}"))
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Status {
    let body = json!({"status": "Failure", "code": code, "reason": reason, "message": message});
    wire::status(code, body.to_string().as_bytes())
}

pub(super) fn error(status: Status) -> RequestError {
    RequestError::from_status(status, None)
}
