//! Resource versions in requests.

use crate::status::{Cause, Status};

/// Parses a resource version; an empty text and `0` mean any version.
///
/// # Errors
/// The cause, with the upstream message.
pub(super) fn parse(text: &str) -> Result<u64, Cause> {
    if text.is_empty() {
        return Ok(0);
    }
    let wrong = |why: &str| Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: format!("Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {why}"),
        field: "resourceVersion".to_owned(),
    };
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| wrong("value out of range")),
        false => Err(wrong("invalid syntax")),
    }
}

/// Returns upstream's 400 for an invalid version of a list, or of a get without a cache.
pub(super) fn invalid(cause: Cause) -> Status {
    Status::bad_request(format!("invalid resource version: {}: {}", cause.field, cause.message))
}

/// Returns upstream's 500 for a get or a watch at an invalid version, which upstream does not validate.
pub(super) fn unexpected(cause: Cause) -> Status {
    Status::new(500, "", format!("{}: {}", cause.field, cause.message))
}

/// Returns 422 if there are causes: invalid combinations of options.
pub(super) fn invalid_options(causes: Vec<Cause>) -> Result<(), Status> {
    match causes.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes)),
    }
}

/// Returns the cause for a field that must not be set.
pub(super) fn forbidden(field: &str, why: &str) -> Cause {
    let (reason, message) = ("FieldValueForbidden".to_owned(), format!("Forbidden: {why}"));
    Cause { reason, message, field: field.to_owned() }
}

/// Returns the cause for an unknown `resourceVersionMatch`.
pub(super) fn unknown_match(found: &str, known: &[&str]) -> Cause {
    let known: Vec<_> = known.iter().map(|it| format!("{it:?}")).collect();
    Cause {
        reason: "FieldValueNotSupported".to_owned(),
        message: format!("Unsupported value: {found:?}: supported values: {}", known.join(", ")),
        field: "resourceVersionMatch".to_owned(),
    }
}
