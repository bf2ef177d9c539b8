//! Injected errors, with the server's own messages.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::request_summary::RequestSummary;
use crate::body::Body;
use crate::status::{Cause, ResourceName, Status};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn named(request: &RequestSummary) -> ResourceName<'_> {
    ResourceName { group: &request.group, resource: &request.resource }
}

pub(super) fn conflict(request: &RequestSummary) -> Status {
    Status::conflict(named(request), &request.name, MODIFIED)
}

pub(super) fn too_many_requests(after_seconds: u32) -> Status {
    Status::too_many_requests("too many requests, please try again later", after_seconds)
}

pub(super) fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

pub(super) fn unavailable() -> Status {
    Status::new(503, "ServiceUnavailable", "apiserver is shutting down")
}

pub(super) fn timed_out() -> Status {
    let message = "Timeout: request did not complete within the allotted duration";
    let mut status = Status::new(504, "Timeout", message);
    status.details = Some(Box::default());
    status
}

pub(super) fn expired() -> Status {
    Status::expired("The resourceVersion for the provided watch is too old.")
}

pub(super) fn namespace_terminating(request: &RequestSummary) -> Status {
    let namespace = &request.namespace;
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(named(request), "new", &why);
    let cause = Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    };
    if let Some(details) = &mut status.details {
        details.causes.push(cause);
    }
    status
}

pub(super) fn quota_exceeded(request: &RequestSummary) -> Status {
    let what = &request.resource;
    let why = format!("exceeded quota: quota, requested: {what}=1, used: {what}=1, limited: {what}=1");
    Status::forbidden(named(request), "new", &why)
}

pub(super) fn forbidden(request: &RequestSummary) -> Status {
    let name = if request.name.is_empty() { "new" } else { &request.name };
    Status::forbidden(named(request), name, "denied by a webhook")
}

pub(super) fn json(status: &Status) -> Bytes {
    // A Status contains only strings and numbers, so its serialization cannot fail.
    serde_json::to_vec(status).unwrap_or_default().into()
}

pub(super) fn response(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::from_bytes(json(status)));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(after) = status.details.as_ref().map(|it| it.retry_after_seconds).filter(|it| *it > 0) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after));
    }
    response
}
