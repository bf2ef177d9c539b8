//! Resource versions as clients write them.

use crate::status::{Cause, Status};

/// The version a text stands for; nothing and `0` stand for any.
///
/// # Errors
/// The cause, in upstream's words.
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

/// What upstream answers to a get or a watch at a version that is none: it did not see that coming.
pub(super) fn unexpected(cause: Cause) -> Status {
    Status::new(500, "", format!("{}: {}", cause.field, cause.message))
}

/// A refusal of options that do not go together.
pub(super) fn invalid_options(causes: Vec<Cause>) -> Result<(), Status> {
    match causes.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes)),
    }
}

/// That a field must not be set as it is.
pub(super) fn forbidden(field: &str, why: &str) -> Cause {
    let (reason, message) = ("FieldValueForbidden".to_owned(), format!("Forbidden: {why}"));
    Cause { reason, message, field: field.to_owned() }
}

/// That a `resourceVersionMatch` is unknown.
pub(super) fn unknown_match(found: &str, known: &[&str]) -> Cause {
    let known: Vec<_> = known.iter().map(|it| format!("{it:?}")).collect();
    Cause {
        reason: "FieldValueNotSupported".to_owned(),
        message: format!("Unsupported value: {found:?}: supported values: {}", known.join(", ")),
        field: "resourceVersionMatch".to_owned(),
    }
}
