//! Numbers that may also be shares: `3` and `25%`.

use serde_json::Value;

use super::super::invalid::FieldErrors;

/// What is wrong with a number or share.
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

/// A share of more than everything.
pub(super) fn at_most_everything(value: &Value, path: &str, errors: &mut FieldErrors) {
    if value.as_str().and_then(percent).is_some_and(|it| it > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// Whether it comes to nothing.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => percent(text).unwrap_or_default() == 0,
        other => other.as_i64().unwrap_or_default() == 0,
    }
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    // A number too large for this is more than everything too.
    Some(digits.parse().unwrap_or(u64::MAX))
}
