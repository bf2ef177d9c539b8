//! Field errors in upstream format.

use serde_json::Value;

/// Error of one field: a cause in a 422 `Invalid` response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Path of the field; `<nil>` if upstream names no field.
    pub field: String,
    /// Upstream's reason, such as `FieldValueRequired`.
    pub reason: &'static str,
    /// Message, such as `Required value`.
    pub message: String,
}

impl FieldError {
    fn new(field: impl Into<String>, reason: &'static str, message: String) -> FieldError {
        FieldError { field: field.into(), reason, message }
    }

    pub(super) fn required(field: impl Into<String>, detail: &str) -> FieldError {
        FieldError::new(field, "FieldValueRequired", with_detail("Required value", detail))
    }

    pub(super) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> FieldError {
        FieldError::new(field, "FieldValueInvalid", with_detail(&format!("Invalid value: {value}"), detail))
    }

    pub(super) fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> FieldError {
        FieldError::new(
            field,
            "FieldValueTypeInvalid",
            with_detail(&format!("Invalid value: {value}"), detail),
        )
    }

    pub(super) fn not_supported(
        field: impl Into<String>,
        value: &Value,
        supported: &[impl AsRef<str>],
    ) -> FieldError {
        let supported: Vec<_> = supported.iter().map(|it| format!("{:?}", it.as_ref())).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        FieldError::new(field, "FieldValueNotSupported", message)
    }

    pub(super) fn forbidden(field: impl Into<String>, detail: &str) -> FieldError {
        FieldError::new(field, "FieldValueForbidden", with_detail("Forbidden", detail))
    }

    pub(super) fn duplicate(field: impl Into<String>, value: &Value) -> FieldError {
        FieldError::new(field, "FieldValueDuplicate", format!("Duplicate value: {value}"))
    }

    pub(super) fn too_long(field: impl Into<String>, most: u64) -> FieldError {
        let unit = if most == 1 { "byte" } else { "bytes" };
        FieldError::new(field, "FieldValueTooLong", format!("Too long: may not be more than {most} {unit}"))
    }

    pub(super) fn too_many(field: impl Into<String>, count: usize, most: u64) -> FieldError {
        let items = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {most} {items}");
        FieldError::new(field, "FieldValueTooMany", message)
    }
}

fn with_detail(message: &str, detail: &str) -> String {
    if detail.is_empty() { message.to_owned() } else { format!("{message}: {detail}") }
}
