//! Errors of requests, and functions that find them inside kube's errors.

mod advice;
mod chain;
mod client;
mod credentials;
mod ended;
mod identity;
mod missing_permission;
mod request;
mod text;

use std::error::Error;

use chain::causes;

pub use self::{
    advice::retry_after,
    client::ClientError,
    credentials::CredentialsError,
    ended::{
        DeadlineError, DrainingError, FencedError, KilledError, NotDeclaredError, ReconcileEndedError,
        WatchIdleError,
    },
    identity::{IdentityCause, IdentityError},
    missing_permission::MissingPermission,
    request::RequestError,
    text::{one_line, one_line_with_rule},
};
pub(crate) use advice::{MAX_ERROR_BODY, advised_by_headers, advised_by_status};
pub(crate) use chain::find;

/// Returns the fence error that caused this error, if any.
pub fn fenced(error: &kube::Error) -> Option<&FencedError> {
    find(error)
}

/// Returns the error for a write after the end of its reconcile, if it caused this error.
pub fn reconcile_ended(error: &kube::Error) -> Option<&ReconcileEndedError> {
    find(error)
}

/// Returns the error for an undeclared request, if it caused this error.
pub fn undeclared(error: &kube::Error) -> Option<&NotDeclaredError> {
    find(error)
}

/// Returns whether the request failed because no complete response arrived in time.
pub fn timed_out(error: &kube::Error) -> bool {
    find::<DeadlineError>(error).is_some()
}

/// Returns whether the request failed because its environment was killed.
pub fn killed(error: &kube::Error) -> bool {
    find::<KilledError>(error).is_some()
}

/// Returns whether the request was not sent because the process shuts down ([`DrainingError`]). The next owner of the
/// key can send it.
pub fn draining(error: &kube::Error) -> bool {
    find::<DrainingError>(error).is_some()
}

/// Returns the missing permission that the authorizer reported in this error or one of its causes, if any.
///
/// If no cause is a server response, for example because several errors were combined into one text, the message of the
/// authorizer is searched in the text.
pub fn missing_permission(error: &(dyn Error + 'static)) -> Option<MissingPermission> {
    let answered = |cause: &(dyn Error + 'static)| cause.is::<kube::Error>() || cause.is::<RequestError>();
    if !causes(error).any(answered) {
        return typed(error).or_else(|| MissingPermission::said(&error.to_string()));
    }
    typed(error)
}

fn typed(error: &(dyn Error + 'static)) -> Option<MissingPermission> {
    causes(error).find_map(|cause| {
        let by_kube = cause.downcast_ref::<kube::Error>().and_then(|error| match error {
            kube::Error::Api(status) => MissingPermission::of(status),
            _ => None,
        });
        let raw = || {
            cause
                .downcast_ref::<RequestError>()
                .and_then(RequestError::status)
                .and_then(MissingPermission::of)
        };
        let of_the_process =
            || cause.downcast_ref::<IdentityError>().and_then(IdentityError::denial).cloned();
        by_kube.or_else(raw).or_else(of_the_process).or_else(|| cause.downcast_ref().cloned())
    })
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use http::{HeaderMap, header};
    use windlass_object::Status;

    use super::{advice::MAX_RETRY_AFTER, *};

    fn status(code: u16, json: &str) -> RequestError {
        RequestError::from_status(windlass_object::wire::status(code, json.as_bytes()), None)
    }

    // parity: test-reflector-full-list-if-too-large
    #[test]
    fn expired_and_too_large_versions_are_distinguished() {
        let expired =
            status(410, r#"{"status":"Failure","reason":"Expired","code":410,"message":"too old"}"#);
        assert!(expired.is_expired() && !expired.is_too_large_version());
        let too_new = status(
            504,
            r#"{"status":"Failure","reason":"Timeout","code":504,"message":"Timeout: Too large resource version: 9, current: 1",
               "details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}}"#,
        );
        assert!(too_new.is_too_large_version() && !too_new.is_expired());
        let slow = status(504, r#"{"status":"Failure","reason":"Timeout","code":504,"message":"slow"}"#);
        assert!(!slow.is_too_large_version());
    }

    #[test]
    fn busy_server_returns_retry_delay() {
        let body = r#"{"status":"Failure","code":429,"message":"busy","details":{"retryAfterSeconds":3}}"#;
        let RequestError::TooManyRequests { retry_after, .. } = status(429, body) else { panic!() };
        assert_eq!(retry_after, Some(Duration::from_secs(3)));
        let from_header = RequestError::from_status(
            windlass_object::wire::status(429, body.as_bytes()),
            Some(Duration::from_secs(7)),
        );
        let RequestError::TooManyRequests { retry_after, .. } = from_header else { panic!() };
        assert_eq!(retry_after, Some(Duration::from_secs(7)), "the header has precedence");
    }

    #[test]
    fn retry_after_is_limited_to_one_minute() {
        let body = r#"{"status":"Failure","code":429,"details":{"retryAfterSeconds":86400}}"#;
        let parsed = windlass_object::wire::status(429, body.as_bytes());
        assert_eq!(advised_by_status(&parsed), Some(MAX_RETRY_AFTER));
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, http::HeaderValue::from_static("86400"));
        assert_eq!(advised_by_headers(&headers), Some(MAX_RETRY_AFTER));
        for advice in [None, Some(Duration::from_secs(86_400))] {
            let error = RequestError::from_status(parsed.clone(), advice);
            let RequestError::TooManyRequests { retry_after, .. } = error else { panic!() };
            assert_eq!(retry_after, Some(MAX_RETRY_AFTER));
        }
    }

    #[test]
    fn connection_refused_is_found_below_any_wrapping() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(kube::Error::ReadEvents(refused)));
        assert!(matches!(RequestError::from(error), RequestError::ConnectionRefused(_)));
    }

    #[test]
    fn error_line_prints_message_of_status_only() {
        let refused = Status::failure("pods \"web\" is forbidden", "Forbidden").with_code(403);
        assert_eq!(one_line(&kube::Error::Api(refused.boxed())), "pods \"web\" is forbidden");
        let silent = Status::failure("", "Forbidden").with_code(403);
        assert_eq!(one_line(&kube::Error::Api(silent.boxed())), "Forbidden (403)");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot rename the pod: {0}")]
    struct Wrapper(#[source] kube::Error);

    #[test]
    fn error_line_prints_message_of_a_quoted_status_only() {
        let invalid =
            Status::failure("Pod \"A\" is invalid: metadata.name: Invalid value", "Invalid").with_code(422);
        let error = Wrapper(kube::Error::Api(invalid.boxed()));
        let expected = "cannot rename the pod: Pod \"A\" is invalid: metadata.name: Invalid value";
        assert_eq!(one_line(&error), expected);
    }

    #[test]
    fn error_line_with_rule_prints_the_missing_rule() {
        let message = r#"pods is forbidden: User "me" cannot list resource "pods" in API group "" at the cluster scope"#;
        let refused = Status::failure(message, "Forbidden").with_code(403);
        let expected = r#"me cannot list pods; add to a ClusterRole: - { apiGroups: [""], resources: ["pods"], verbs: [list] }"#;
        assert_eq!(one_line_with_rule(&RequestError::from_status(refused, None)), expected);
        let other = kube::Error::Service("busy".into());
        assert_eq!(one_line_with_rule(&other), one_line(&other));
    }

    // parity: garbled-watch-errors
    #[test]
    fn errors_are_printed_on_one_line_without_repetition() {
        let error = kube::Error::Service("a\nb".into());
        assert_eq!(one_line(&error), "a b");
    }
}
