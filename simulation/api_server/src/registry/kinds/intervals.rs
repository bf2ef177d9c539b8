//! Numbers that can also be percentages: `3` and `25%`.

use serde_json::Value;

use super::super::invalid::FieldErrors;

/// Validates a number or percentage.
pub(super) fn validate(value: &Value, path: &str, errors: &mut FieldErrors) {
    match value {
        Value::String(text) if percent(text).is_none() => {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                          '93%', regex used for validation is '[0-9]+%')";
            errors.invalid(path, text.as_str(), detail);
        }
        other => errors.not_negative(path, other.as_i64()),
    }
}

/// Rejects percentages above 100%.
pub(super) fn at_most_everything(value: &Value, path: &str, errors: &mut FieldErrors) {
    if value.as_str().and_then(percent).is_some_and(|it| it > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// Returns whether the number or percentage is zero.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        // Upstream reads a number in text as a number here.
        Value::String(text) => percent(text).or_else(|| text.parse().ok()).unwrap_or_default() == 0,
        other => other.as_i64().unwrap_or_default() == 0,
    }
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    // A number that does not fit is above 100%, too.
    Some(digits.parse().unwrap_or(u64::MAX))
}
