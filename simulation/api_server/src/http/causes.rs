//! Why parameters and options are refused, in the words of upstream.

use crate::status::Cause;

/// Checks the values of `dryRun`, wherever they came from.
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

/// A value that is none of the supported ones. `shown` is the value as it is to be quoted.
pub(crate) fn not_supported(field: &str, shown: &str, supported: &[&str]) -> Cause {
    let supported: Vec<_> = supported.iter().map(|it| format!("{it:?}")).collect();
    let message = format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
    cause("FieldValueNotSupported", field, message)
}
