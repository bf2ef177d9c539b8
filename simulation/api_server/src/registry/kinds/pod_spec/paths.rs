//! Validation of paths inside of volumes and containers.

use super::super::super::invalid::FieldErrors;

/// Rejects absolute paths and paths with `..` elements.
pub(super) fn descending(place: &str, field: &str, errors: &mut FieldErrors) {
    if place.starts_with('/') {
        errors.invalid(field, place, "must be a relative path");
    }
    no_backsteps(place, field, errors);
}

/// Rejects paths with `..` elements.
pub(super) fn no_backsteps(place: &str, field: &str, errors: &mut FieldErrors) {
    if place.split('/').any(|it| it == "..") {
        errors.invalid(field, place, "must not contain '..'");
    }
}
