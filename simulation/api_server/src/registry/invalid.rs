//! Validation errors of fields, with upstream's messages.

use serde_json::Value;

use crate::status::{Cause, Status};

/// Validation errors of one object.
#[derive(Debug, Default)]
pub(crate) struct FieldErrors(pub(crate) Vec<Cause>);

impl FieldErrors {
    /// Adds an error for a malformed value.
    pub(crate) fn invalid(&mut self, field: impl Into<String>, value: impl Into<Value>, detail: &str) {
        self.with_value("FieldValueInvalid", "Invalid value", field, &value.into(), detail);
    }

    /// Adds an error for a malformed value without showing it.
    pub(crate) fn bare_invalid(&mut self, field: impl Into<String>, detail: &str) {
        self.bare("FieldValueInvalid", "Invalid value", field, detail);
    }

    /// Adds an error for a malformed value, which is shown as this JSON.
    pub(crate) fn invalid_json(&mut self, field: impl Into<String>, shown: &str, detail: &str) {
        self.bare("FieldValueInvalid", &format!("Invalid value: {shown}"), field, detail);
    }

    /// Adds an error for a duplicate value.
    pub(crate) fn duplicate(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.with_value("FieldValueDuplicate", "Duplicate value", field, &value.into(), "");
    }

    /// Adds an error for a duplicate value without showing it.
    pub(crate) fn bare_duplicate(&mut self, field: impl Into<String>) {
        self.bare("FieldValueDuplicate", "Duplicate value", field, "");
    }

    /// Adds an error for a duplicate value, which is shown as this JSON.
    pub(crate) fn duplicate_json(&mut self, field: impl Into<String>, shown: &str) {
        self.bare("FieldValueDuplicate", &format!("Duplicate value: {shown}"), field, "");
    }

    /// Adds an error for a reference to a missing item.
    pub(crate) fn not_found(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.with_value("FieldValueNotFound", "Not found", field, &value.into(), "");
    }

    /// Adds an error for a reference to a missing item, with a reason.
    pub(crate) fn not_found_because(
        &mut self,
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: &str,
    ) {
        self.with_value("FieldValueNotFound", "Not found", field, &value.into(), detail);
    }

    /// Adds an error for a value outside of the supported ones.
    pub(crate) fn not_supported(
        &mut self,
        field: impl Into<String>,
        value: impl Into<Value>,
        known: &[&str],
    ) {
        let known: Vec<_> = known.iter().map(|it| format!("{it:?}")).collect();
        let detail = format!("supported values: {}", known.join(", "));
        self.with_value("FieldValueNotSupported", "Unsupported value", field, &value.into(), &detail);
    }

    /// Adds an error for a value outside of the supported ones, which is shown as this JSON.
    pub(crate) fn not_supported_json(&mut self, field: impl Into<String>, shown: &str, known: &[&str]) {
        let known: Vec<_> = known.iter().map(|it| format!("{it:?}")).collect();
        let detail = format!("supported values: {}", known.join(", "));
        self.bare("FieldValueNotSupported", &format!("Unsupported value: {shown}"), field, &detail);
    }

    /// Adds an error for a missing field.
    pub(crate) fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.bare("FieldValueRequired", "Required value", field, detail);
    }

    /// Adds an error for a field that must not be set.
    pub(crate) fn forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.bare("FieldValueForbidden", "Forbidden", field, detail);
    }

    /// Adds an error for a value with too many bytes.
    pub(crate) fn too_long(&mut self, field: impl Into<String>, limit: usize) {
        self.bare("FieldValueTooLong", "Too long", field, &format!("may not be more than {limit} bytes"));
    }

    /// Adds an error for a list with too many items.
    pub(crate) fn too_many(&mut self, field: impl Into<String>, count: usize, limit: usize) {
        let detail = format!("must have at most {limit} {}", if limit == 1 { "item" } else { "items" });
        self.with_value("FieldValueTooMany", "Too many", field, &count.into(), &detail);
    }

    /// Adds an error for validation rules of values without a type.
    pub(crate) fn without_type(&mut self, field: impl Into<String>) {
        let detail = "internal error: failed to retrieve type information for x-kubernetes-validations";
        self.bare("InternalError", "Internal error", field, detail);
    }

    /// Adds one error for each reason why the value is malformed.
    pub(crate) fn each(&mut self, field: &str, value: &str, reasons: Vec<String>) {
        for reason in reasons {
            self.invalid(field, value, &reason);
        }
    }

    /// Adds an error if the value is negative.
    pub(crate) fn not_negative(&mut self, field: impl Into<String>, value: Option<i64>) {
        if let Some(value) = value.filter(|it| *it < 0) {
            self.invalid(field, value, "must be greater than or equal to 0");
        }
    }

    /// Adds an error if the value has changed.
    pub(crate) fn immutable(&mut self, field: impl Into<String>, new: &Value, old: &Value) {
        if !super::value::same(new, old) {
            self.invalid(field, new.clone(), "field is immutable");
        }
    }

    /// Returns the 422 status if there are errors.
    pub(crate) fn into_result(self, group: &str, kind: &str, name: &str) -> Result<(), Status> {
        if self.0.is_empty() { Ok(()) } else { Err(Status::invalid(group, kind, name, self.0)) }
    }

    fn with_value(
        &mut self,
        reason: &str,
        words: &str,
        field: impl Into<String>,
        value: &Value,
        detail: &str,
    ) {
        // Upstream quotes strings, prints numbers as they are, and shows all other values as JSON.
        let shown = match value {
            Value::String(text) => format!("{text:?}"),
            other => other.to_string(),
        };
        self.bare(reason, &format!("{words}: {shown}"), field, detail);
    }

    fn bare(&mut self, reason: &str, words: &str, field: impl Into<String>, detail: &str) {
        let message = if detail.is_empty() { words.to_owned() } else { format!("{words}: {detail}") };
        self.0.push(Cause { reason: reason.to_owned(), message, field: field.into() });
    }
}

/// Joins path and field as in error messages.
pub(crate) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_errors_have_upstream_messages() {
        let mut errors = FieldErrors::default();
        errors.invalid("spec.replicas", -1, "must be greater than or equal to 0");
        errors.invalid("spec.selector", json!({"a": "b"}), "field is immutable");
        errors.required("spec.containers", "");
        errors.not_supported("spec.restartPolicy", "No", &["Always", "Never"]);
        errors.duplicate("spec.containers[1].name", "a");
        errors.too_long("metadata.annotations", 262_144);
        let messages: Vec<_> = errors.0.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        let expected = [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            r#"spec.selector: Invalid value: {"a":"b"}: field is immutable"#,
            "spec.containers: Required value",
            r#"spec.restartPolicy: Unsupported value: "No": supported values: "Always", "Never""#,
            r#"spec.containers[1].name: Duplicate value: "a""#,
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ];
        assert_eq!(messages, expected);
    }
}
