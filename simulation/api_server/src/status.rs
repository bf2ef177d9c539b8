//! Refusals, in the words and with the codes of upstream.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// A refusal as it goes over the wire (`v1.Status`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(flatten)]
    head: Head,
    metadata: ListMeta,
    /// One sentence for people.
    pub message: String,
    /// One word for programs.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// What it is about. In a box, since results that may be a refusal should not be larger for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// The HTTP status.
    pub code: u16,
}

/// What every refusal says of itself.
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

/// What a refusal is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource (for most) or kind (for invalid objects).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One cause of a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// One word for programs, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// One sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The group and plural name of a resource, as refusals name it: `pods`, `replicasets.apps`.
#[derive(Clone, Copy, Debug)]
pub struct ResourceName<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    /// The plural name (or the kind, for [`Status::invalid`]).
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
    /// Any refusal.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Status {
        let (message, metadata) = (message.into(), ListMeta::default());
        Status { head: Head, metadata, message, reason, details: None, code }
    }

    fn about(mut self, of: ResourceName<'_>, name: &str) -> Status {
        let (group, kind, name) = (of.group.to_owned(), of.resource.to_owned(), name.to_owned());
        self.details = Some(Box::new(Details { name, group, kind, ..Details::default() }));
        self
    }

    /// 404, the object.
    pub fn not_found(of: ResourceName<'_>, name: &str) -> Status {
        Status::new(404, "NotFound", format!("{of} {name:?} not found")).about(of, name)
    }

    /// 404, the path.
    pub fn no_such_path() -> Status {
        let mut status = Status::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 409, the name is taken.
    pub fn already_exists(of: ResourceName<'_>, name: &str) -> Status {
        Status::new(409, "AlreadyExists", format!("{of} {name:?} already exists")).about(of, name)
    }

    /// 409, the object is not as it was.
    pub fn conflict(of: ResourceName<'_>, name: &str, why: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {of} {name:?}: {why}");
        Status::new(409, "Conflict", message).about(of, name)
    }

    /// 403.
    pub fn forbidden(of: ResourceName<'_>, name: &str, why: &str) -> Status {
        let message = match (of.resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{of} is forbidden: {why}"),
            _ => format!("{of} {name:?} is forbidden: {why}"),
        };
        Status::new(403, "Forbidden", message).about(of, name)
    }

    /// 400.
    pub fn bad_request(why: impl Into<String>) -> Status {
        Status::new(400, "BadRequest", why)
    }

    /// 422, with its causes. `kind` is the kind's name, not the resource's.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Status {
        let of = ResourceName { group, resource: kind };
        let mut texts: Vec<_> = Vec::new();
        for text in causes.iter().map(|it| format!("{}: {}", it.field, it.message)) {
            // The sentence tells once what the causes may tell twice.
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

    /// The same, with a token by which a list that it cut short can be continued.
    #[must_use]
    pub fn continued_by(mut self, token: String) -> Status {
        self.metadata.continue_ = token;
        self
    }

    /// 504, the version is yet to come. A client that is told when to try again may do so.
    pub fn too_large_resource_version(asked: u64, current: u64, retry_after_seconds: u32) -> Status {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let reason = "ResourceVersionTooLarge".to_owned();
        let cause = Cause { reason, message: "Too large resource version".to_owned(), ..Cause::default() };
        let mut status = Status::new(504, "Timeout", message);
        status.details =
            Some(Box::new(Details { causes: vec![cause], retry_after_seconds, ..Details::default() }));
        status
    }

    /// 410, the version is no longer kept.
    pub fn expired(why: impl Into<String>) -> Status {
        Status::new(410, "Expired", why)
    }

    /// 405.
    pub fn method_not_allowed(of: ResourceName<'_>, verb: &str) -> Status {
        let message = format!("{verb} is not supported on resources of kind {:?}", of.to_string());
        Status::new(405, "MethodNotAllowed", message).about(of, "")
    }

    /// 429.
    pub fn too_many_requests(why: impl Into<String>, retry_after_seconds: u32) -> Status {
        let mut status = Status::new(429, "TooManyRequests", why);
        status.details = Some(Box::new(Details { retry_after_seconds, ..Details::default() }));
        status
    }

    /// 500.
    pub fn internal(why: impl std::fmt::Display) -> Status {
        let mut status = Status::new(500, "InternalError", format!("Internal error occurred: {why}"));
        let cause = Cause { message: why.to_string(), ..Cause::default() };
        status.details = Some(Box::new(Details { causes: vec![cause], ..Details::default() }));
        status
    }
}
