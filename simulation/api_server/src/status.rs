//! Error responses, with upstream's messages and codes.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// An error response (`v1.Status`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(flatten)]
    head: Head,
    metadata: ListMeta,
    /// Message for humans.
    pub message: String,
    /// Reason for programs.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// Details. Boxed to keep results small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// HTTP status code.
    pub code: u16,
    /// Texts of the `Warning` headers.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// The fields that are equal in all error responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head;

impl Serialize for Head {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("kind", "Status")?;
        map.serialize_entry("apiVersion", "v1")?;
        map.serialize_entry("status", "Failure")?;
        map.end()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    continue_: String,
}

/// The subject of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource (usually) or kind (for invalid objects).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds to wait before a retry.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One cause of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// Reason for programs, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message for humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The group and plural name of a resource, as in error messages: `pods`, `replicasets.apps`.
#[derive(Clone, Copy, Debug)]
pub struct ResourceName<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name (or kind, for [`Status::invalid`]).
    pub resource: &'a str,
}

impl std::fmt::Display for ResourceName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            "" => f.write_str(self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

impl Status {
    /// Returns an error with this code, reason and message.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Status {
        let (reason, message, metadata) = (reason.into(), message.into(), ListMeta::default());
        Status { head: Head, metadata, message, reason, details: None, code, warnings: Vec::new() }
    }

    /// Adds warnings before those of this error.
    #[must_use]
    pub(crate) fn warned(mut self, warnings: Vec<String>) -> Status {
        self.warnings.splice(0..0, warnings);
        self
    }

    fn about(mut self, of: ResourceName<'_>, name: &str) -> Status {
        let (group, kind, name) = (of.group.to_owned(), of.resource.to_owned(), name.to_owned());
        self.details = Some(Box::new(Details { name, group, kind, ..Details::default() }));
        self
    }

    /// Returns 404 for an object.
    pub fn not_found(of: ResourceName<'_>, name: &str) -> Status {
        Status::new(404, "NotFound", format!("{of} {name:?} not found")).about(of, name)
    }

    /// Returns 404 for a path.
    pub fn no_such_path() -> Status {
        let mut status = Status::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// Returns 409 for a name that exists already.
    pub fn already_exists(of: ResourceName<'_>, name: &str) -> Status {
        Status::new(409, "AlreadyExists", format!("{of} {name:?} already exists")).about(of, name)
    }

    /// Returns 409 for an object that has changed.
    pub fn conflict(of: ResourceName<'_>, name: &str, why: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {of} {name:?}: {why}");
        Status::new(409, "Conflict", message).about(of, name)
    }

    /// Returns 403.
    pub fn forbidden(of: ResourceName<'_>, name: &str, why: &str) -> Status {
        let message = match (of.resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{of} is forbidden: {why}"),
            _ => format!("{of} {name:?} is forbidden: {why}"),
        };
        Status::new(403, "Forbidden", message).about(of, name)
    }

    /// Returns 400.
    pub fn bad_request(why: impl Into<String>) -> Status {
        Status::new(400, "BadRequest", why)
    }

    /// Returns 422 with its causes. `kind` is the name of the kind, not of the resource.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Status {
        let of = ResourceName { group, resource: kind };
        let mut texts: Vec<_> = Vec::new();
        for text in causes.iter().map(|it| format!("{}: {}", it.field, it.message)) {
            // The message contains duplicate causes only once.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let why = match texts.as_slice() {
            [] => String::new(),
            [one] => format!(": {one}"),
            many => format!(": [{}]", many.join(", ")),
        };
        let mut status =
            Status::new(422, "Invalid", format!("{of} {name:?} is invalid{why}")).about(of, name);
        if let Some(details) = &mut status.details {
            details.causes = causes;
        }
        status
    }

    /// Sets the continue token with which a failed list can continue.
    #[must_use]
    pub fn continued_by(mut self, token: String) -> Status {
        self.metadata.continue_ = token;
        self
    }

    /// Returns 504 for a version in the future. With a positive `retry_after_seconds` the client can retry.
    pub fn too_large_resource_version(asked: u64, current: u64, retry_after_seconds: u32) -> Status {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let reason = "ResourceVersionTooLarge".to_owned();
        let cause = Cause { reason, message: "Too large resource version".to_owned(), ..Cause::default() };
        let mut status = Status::new(504, "Timeout", message);
        status.details =
            Some(Box::new(Details { causes: vec![cause], retry_after_seconds, ..Details::default() }));
        status
    }

    /// Returns 504 for a request that did not complete within its time limit.
    pub(crate) fn timed_out() -> Status {
        let message =
            "Timeout: request did not complete within requested timeout - context deadline exceeded";
        let mut status = Status::new(504, "Timeout", message);
        status.details = Some(Box::default());
        status
    }

    /// Returns 410 for a version that is no longer kept.
    pub fn expired(why: impl Into<String>) -> Status {
        Status::new(410, "Expired", why)
    }

    /// Returns 405.
    pub fn method_not_allowed(of: ResourceName<'_>, verb: &str) -> Status {
        let message = format!("{verb} is not supported on resources of kind {:?}", of.to_string());
        Status::new(405, "MethodNotAllowed", message).about(of, "")
    }

    /// Returns 429.
    pub fn too_many_requests(why: impl Into<String>, retry_after_seconds: u32) -> Status {
        let mut status = Status::new(429, "TooManyRequests", why);
        status.details = Some(Box::new(Details { retry_after_seconds, ..Details::default() }));
        status
    }

    /// Returns 500.
    pub fn internal(why: impl std::fmt::Display) -> Status {
        let mut status = Status::new(500, "InternalError", format!("Internal error occurred: {why}"));
        let cause = Cause { message: why.to_string(), ..Cause::default() };
        status.details = Some(Box::new(Details { causes: vec![cause], ..Details::default() }));
        status
    }
}
