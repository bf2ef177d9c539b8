//! An error as one line of text, without secrets.

use std::error::Error;

use windlass_object::Status;

use super::{chain::causes, credentials::CredentialsError, missing_permission};

/// An error with its causes on one line, none of them said twice.
///
/// Of an API server's refusal its message is told, and not the whole status. Of kube's errors about credentials, which
/// quote secrets, only what a [`CredentialsError`] says is told.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    if let Some(safe) = CredentialsError::among(error) {
        return safe.to_string();
    }
    let mut line = String::new();
    for cause in causes(error) {
        let text = told(cause).split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// An error on one line: of the authorizer's refusal the rule to add, otherwise as [`one_line`].
pub fn one_line_with_rule(error: &(dyn Error + 'static)) -> String {
    missing_permission(error).map_or_else(|| one_line(error), |denial| denial.to_string())
}

fn told(cause: &(dyn Error + 'static)) -> String {
    let status = match cause.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(&**status),
        _ => cause.downcast_ref::<Box<Status>>().map(|status| &**status),
    };
    match status {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        _ => cause.to_string(),
    }
}
