//! Error causes for parameters and options, with upstream's messages.

use crate::status::Cause;

/// Checks the values of `dryRun` from the query or the body.
pub(crate) fn check_dry_run(values: &[String], causes: &mut Vec<Cause>) {
    if values.iter().any(|value| value != "All") {
        let shown = serde_json::to_string(values).unwrap_or_default();
        causes.push(not_supported("dryRun", &shown, &["All"]));
    }
}

pub(crate) fn cause(reason: &str, field: &str, message: String) -> Cause {
    Cause { reason: reason.to_owned(), message, field: field.to_owned() }
}

pub(crate) fn required(field: &str, why: &str) -> Cause {
    cause("FieldValueRequired", field, format!("Required value: {why}"))
}

pub(crate) fn forbidden(field: &str, why: &str) -> Cause {
    cause("FieldValueForbidden", field, format!("Forbidden: {why}"))
}

/// Returns the cause for an unsupported value. `shown` is the value as quoted in the message.
pub(crate) fn not_supported(field: &str, shown: &str, supported: &[&str]) -> Cause {
    let supported: Vec<_> = supported.iter().map(|it| format!("{it:?}")).collect();
    let message = format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
    cause("FieldValueNotSupported", field, message)
}
