//! Formats errors as one line of text, without secrets.

use std::error::Error;

use windlass_object::Status;

use super::{chain::causes, credentials::CredentialsError, missing_permission};

/// Formats an error and its causes on one line, without repeated texts.
///
/// For an error response of an API server, prints only its message, also within the text of an error that wraps the
/// response. For kube's errors about credentials, which quote secrets, prints only the [`CredentialsError`].
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    if let Some(safe) = CredentialsError::among(error) {
        return safe.to_string();
    }
    let mut line = String::new();
    for cause in causes(error) {
        let text = without_dump(message_of(cause), cause);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Formats an error on one line: a missing permission with the rule to add, any other error like [`one_line`].
pub fn one_line_with_rule(error: &(dyn Error + 'static)) -> String {
    missing_permission(error).map_or_else(|| one_line(error), |denial| denial.to_string())
}

fn message_of(cause: &(dyn Error + 'static)) -> String {
    let status = match cause.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(&**status),
        // Its own text only adds the name of the variant.
        Some(kube::Error::Service(cause)) => return cause.to_string(),
        _ => cause.downcast_ref::<Box<Status>>().map(|status| &**status),
    };
    match status {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        Some(status) => format!("{} ({})", status.reason, status.code),
        None => cause.to_string(),
    }
}

/// Replaces the text of a response in the text of an error that quotes it. kube's text repeats the message in a debug
/// dump of the whole response.
fn without_dump(text: String, error: &(dyn Error + 'static)) -> String {
    let mut quoted =
        causes(error).skip(1).filter(|cause| matches!(cause.downcast_ref(), Some(kube::Error::Api(_))));
    quoted.next().map_or_else(|| text.clone(), |cause| text.replace(&cause.to_string(), &message_of(cause)))
}
