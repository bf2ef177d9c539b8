//! Classification and description of failed requests.

use std::error::Error;

use kube::core::Status;
use windlass_client::{IdentityError, missing_permission};

/// Cause with which an API server rejects creates in a terminating namespace.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Returns the message of the API server if there is one, otherwise the error of the client.
///
/// Users search for the message of the server, so it has no prefix.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let status = status(error).filter(|status| !status.message.is_empty());
    status.map_or_else(|| error.to_string(), |status| status.message.clone())
}

/// Returns the text for the log: a missing permission with the rule that a role needs, otherwise [`describe`].
pub(crate) fn for_log(error: &(dyn Error + 'static)) -> String {
    missing_permission(error).map_or_else(|| describe(error), |missing| missing.to_string())
}

/// Returns whether the request was not sent: the process shuts down, no longer leads, or has no credentials for it.
///
/// The cause is not the object, so no event and no condition is written. The next leader retries.
pub(crate) fn was_not_sent(error: &(dyn Error + 'static)) -> bool {
    let is_refused = |error| windlass_client::draining(error) || windlass_client::fenced(error).is_some();
    request(error).is_some_and(is_refused) || IdentityError::among(error).is_some()
}

/// Returns whether the object does not exist.
pub(crate) fn is_not_found(error: &(dyn Error + 'static)) -> bool {
    status(error).is_some_and(|status| status.code == 404)
}

/// Returns whether an object with this name exists already.
pub(crate) fn is_already_exists(error: &(dyn Error + 'static)) -> bool {
    status(error).is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
}

/// Returns whether another client has changed the object since it was read.
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    status(error).is_some_and(|status| status.code == 409 && status.reason != "AlreadyExists")
}

/// Returns the code of the answer; `None` if the server sent no answer, or an answer without a code.
pub(crate) fn status_code(error: &(dyn Error + 'static)) -> Option<u16> {
    status(error).map(|status| status.code).filter(|code| *code != 0)
}

/// Returns whether the server rejected the object as invalid.
pub(crate) fn is_invalid(error: &(dyn Error + 'static)) -> bool {
    status(error).is_some_and(|status| status.code == 422)
}

/// Returns whether the namespace is terminating, so that the server rejects all creates in it.
pub(crate) fn is_namespace_terminating(error: &(dyn Error + 'static)) -> bool {
    let details = status(error).and_then(|status| status.details.as_ref());
    details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == NAMESPACE_TERMINATING))
}

/// Returns several error messages as one text, without duplicates.
pub(crate) fn aggregate(messages: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for message in messages {
        if !distinct.contains(&message) {
            distinct.push(message);
        }
    }
    match distinct.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn status<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    match request(error) {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// Returns the failed request in the error of a writer.
fn request<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a kube::Error> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::{aggregate, describe, is_namespace_terminating, is_not_found};
    use kube::core::Status;
    use serde_json::json;

    fn refused(status: Status) -> kube::Error {
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn description_is_the_message_of_the_server() {
        let quota = refused(Status { code: 403, message: "exceeded quota".into(), ..Status::default() });
        assert_eq!(describe(&quota), "exceeded quota");
        assert!(!is_not_found(&quota));
    }

    #[test]
    fn terminating_namespace_is_detected_by_its_cause() {
        let details = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
        let terminating =
            serde_json::from_value(json!({ "code": 403, "details": details })).expect("a status");
        assert!(is_namespace_terminating(&refused(terminating)));
        assert!(!is_namespace_terminating(&refused(Status { code: 403, ..Status::default() })));
    }

    #[test]
    fn several_errors_are_joined_without_duplicates() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(aggregate(texts(&["a"])), "a");
        assert_eq!(aggregate(texts(&["a", "a"])), "a");
        assert_eq!(aggregate(texts(&["a", "b", "a"])), "[a, b]");
    }
}
