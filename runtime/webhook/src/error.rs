//! The result of an admission function that does not admit the object.

use std::fmt::Display;

use serde_json::{Value, json};
use windlass_client::one_line;
use windlass_controller::BoxError;

/// The reason why an object is not admitted: a denial for the user, or a failure of the webhook.
///
/// `?` converts any error into a failure: the webhook responds with status 500, and the
/// [failure policy](crate::FailurePolicy) decides. [`deny`] creates a denial.
///
/// Like `anyhow::Error`, this type does not implement [`Error`](std::error::Error): otherwise it could not convert
/// every error.
#[derive(Debug)]
pub struct AdmissionError(pub(crate) Reason);

#[derive(Debug)]
pub(crate) enum Reason {
    Denied(Denial),
    Failed(BoxError),
}

/// A denial.
#[derive(Debug, Default)]
pub(crate) struct Denial {
    pub(crate) message: String,
    causes: Vec<Cause>,
}

/// An invalid field.
#[derive(Debug)]
struct Cause {
    field: String,
    message: String,
}

/// Denies a request. The message is for the user who sent the request.
///
/// # Examples
/// ```
/// # use windlass_webhook::{AdmissionError, deny};
/// fn check(replicas: i32) -> Result<(), AdmissionError> {
///     match replicas {
///         0..=9 => Ok(()),
///         _ => Err(deny("the site is too large").at("spec.replicas", "must be between 0 and 9")),
///     }
/// }
/// # assert!(check(12).is_err());
/// ```
pub fn deny(message: impl Display) -> AdmissionError {
    AdmissionError(Reason::Denied(Denial { message: message.to_string(), causes: Vec::new() }))
}

impl<E: Into<BoxError>> From<E> for AdmissionError {
    fn from(cause: E) -> Self {
        Self(Reason::Failed(cause.into()))
    }
}

impl AdmissionError {
    /// Adds an invalid field to a denial; several fields can be added. With fields the response has the status 422
    /// `Invalid` and lists them as causes, as the API server does for its own validation; without fields it has the
    /// status 403 `Forbidden`. A failure stays as it is.
    #[must_use]
    pub fn at(mut self, field: &str, message: impl Display) -> Self {
        if let Reason::Denied(denial) = &mut self.0 {
            denial.causes.push(Cause { field: field.to_owned(), message: message.to_string() });
        }
        self
    }

    /// Returns whether the request is denied, in contrast to a failure of the webhook.
    pub fn is_denial(&self) -> bool {
        matches!(self.0, Reason::Denied(_))
    }

    /// Returns the message with the invalid fields, as users read it.
    pub fn message(&self) -> String {
        match &self.0 {
            Reason::Denied(denial) => denial.text(),
            Reason::Failed(error) => one_line(error.as_ref()),
        }
    }

    /// Returns the invalid fields with their messages.
    pub fn fields(&self) -> Vec<(&str, &str)> {
        match &self.0 {
            Reason::Denied(denial) => {
                denial.causes.iter().map(|it| (it.field.as_str(), it.message.as_str())).collect()
            }
            Reason::Failed(_) => Vec::new(),
        }
    }
}

impl Denial {
    fn text(&self) -> String {
        let causes: Vec<_> = self.causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        match (self.message.as_str(), &causes[..]) {
            (message, []) => message.to_owned(),
            ("", causes) => causes.join(", "),
            (message, causes) => format!("{message}: {}", causes.join(", ")),
        }
    }

    /// Returns the `status` of the response. `details` names the object.
    pub(crate) fn status(&self, mut details: Value) -> Value {
        let (code, reason) = if self.causes.is_empty() { (403, "Forbidden") } else { (422, "Invalid") };
        let cause =
            |it: &Cause| json!({ "reason": "FieldValueInvalid", "message": it.message, "field": it.field });
        if !self.causes.is_empty() {
            details["causes"] = self.causes.iter().map(cause).collect();
        }
        json!({
            "metadata": {},
            "status": "Failure",
            "message": self.text(),
            "reason": reason,
            "code": code,
            "details": details,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_lists_fields_as_causes() {
        let error = deny("too large").at("spec.replicas", "must be <= 9").at("spec.name", "is empty");
        assert!(error.is_denial());
        let text = "too large: spec.replicas: must be <= 9, spec.name: is empty";
        assert_eq!(error.message(), text);
        assert_eq!(error.fields()[1], ("spec.name", "is empty"));
        let Reason::Denied(denial) = error.0 else { panic!("denied") };
        let status = denial.status(json!({ "name": "web" }));
        assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
        assert_eq!(status["message"], text);
        assert_eq!(status["details"]["name"], "web");
        let cause =
            json!({ "reason": "FieldValueInvalid", "message": "must be <= 9", "field": "spec.replicas" });
        assert_eq!(status["details"]["causes"][0], cause);
    }

    #[test]
    fn denial_without_fields_is_forbidden() {
        let Reason::Denied(denial) = deny("not on Fridays").0 else { panic!("denied") };
        let status = denial.status(json!({}));
        assert_eq!((&status["code"], &status["message"]), (&json!(403), &json!("not on Fridays")));
        assert_eq!(status["details"].get("causes"), None);
    }

    #[test]
    fn other_error_is_failure_and_keeps_no_fields() {
        let error = AdmissionError::from(std::io::Error::other("disk")).at("spec", "x");
        assert!(!error.is_denial());
        assert_eq!((error.message().as_str(), error.fields().len()), ("disk", 0));
        assert_eq!(AdmissionError::from("text").message(), "text");
    }
}
