//! What a controller has to know about a refused request, and how it tells users about it.

use std::error::Error;

use kube::core::Status;
use windlass_client::IdentityError;

/// The cause an API server gives when it creates nothing more in a namespace.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The words of the API server, where it has spoken; otherwise the client's.
///
/// Users search for these words, so they stand alone, without the client's own framing.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let status = status(error).filter(|status| !status.message.is_empty());
    status.map_or_else(|| error.to_string(), |status| status.message.clone())
}

/// The request never left this process: it shuts down, leads no longer, or has no credentials for it.
///
/// That says nothing of the object, so users are told nothing, and nothing is written down. The next leader will see.
pub(crate) fn is_kept_back(error: &(dyn Error + 'static)) -> bool {
    let is_refused = |error| windlass_client::draining(error) || windlass_client::refusal(error).is_some();
    request(error).is_some_and(is_refused) || IdentityError::among(error).is_some()
}

/// The object is not there.
pub(crate) fn is_not_found(error: &(dyn Error + 'static)) -> bool {
    status(error).is_some_and(|status| status.code == 404)
}

/// The server understood the request and found the object unacceptable.
pub(crate) fn is_invalid(error: &(dyn Error + 'static)) -> bool {
    status(error).is_some_and(|status| status.code == 422)
}

/// The namespace is going away, so everything created in it is refused.
pub(crate) fn is_namespace_terminating(error: &(dyn Error + 'static)) -> bool {
    let details = status(error).and_then(|status| status.details.as_ref());
    details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == NAMESPACE_TERMINATING))
}

/// Several failures as one text, each said once.
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

/// The failed request, which a writer wraps.
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
    fn users_read_the_words_of_the_server() {
        let quota = refused(Status { code: 403, message: "exceeded quota".into(), ..Status::default() });
        assert_eq!(describe(&quota), "exceeded quota");
        assert!(!is_not_found(&quota));
    }

    #[test]
    fn terminating_namespace_is_known_by_its_cause() {
        let details = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
        let terminating =
            serde_json::from_value(json!({ "code": 403, "details": details })).expect("a status");
        assert!(is_namespace_terminating(&refused(terminating)));
        assert!(!is_namespace_terminating(&refused(Status { code: 403, ..Status::default() })));
    }

    #[test]
    fn several_failures_are_told_together_and_once_each() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(aggregate(texts(&["a"])), "a");
        assert_eq!(aggregate(texts(&["a", "a"])), "a");
        assert_eq!(aggregate(texts(&["a", "b", "a"])), "[a, b]");
    }
}
