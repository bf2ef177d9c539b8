//! What can go wrong with a request, and how to tell it from kube's errors.

use std::{error::Error, io, time::Duration};

use http::{HeaderMap, header};
use windlass_object::{Status, WireError};

use crate::clients::ClientOptionsError;
use crate::stack::{
    credentials::CredentialsError,
    deadline::{DeadlineError, SilentError},
    declared::NotDeclaredError,
    drain::DrainingError,
    gate::{FencedError, KilledError},
};

/// A client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The process has installed no cryptography for TLS. A binary does so once, first thing in `main`.
    #[error(
        "no rustls CryptoProvider is installed: install one (ring's, for instance) when the process starts"
    )]
    NoCryptoProvider,
    /// The credentials cannot be used: a token file or plugin fails, a password is no header value.
    #[error("cannot use the credentials: {0}")]
    Credentials(#[source] CredentialsError),
    /// A header that goes with every request cannot be sent: an impersonated name, for instance.
    #[error("cannot use the extra headers: {}", one_line(.0))]
    Headers(#[source] kube::Error),
    /// The certificates or the server's name cannot be used.
    #[error("cannot set up TLS: {}", one_line(.0))]
    Tls(#[source] kube::Error),
    /// The user agent is no header value.
    #[error("{0:?} cannot be sent as a user agent")]
    UserAgent(String),
    /// No ServiceAccount can be called so, and controllers have accounts of their own.
    #[error(
        "no service account can be called {0:?}: a controller's client name must be lower-case letters, digits, - and ."
    )]
    AccountName(String),
    /// No namespace can be called so.
    #[error(
        "no namespace can be called {0:?}: name the one in which the service accounts of controllers are"
    )]
    AccountNamespace(String),
    /// The proxy is of a kind that is not supported. Its URL may hold a password, and is not shown.
    #[error(
        "proxies of scheme {scheme:?} are not supported: use http or socks5, without credentials in the URL"
    )]
    Proxy {
        /// The scheme of its URL.
        scheme: String,
    },
    /// The server's address lacks a scheme or a host.
    #[error("{0:?} is no address of a server: write https://host:port")]
    Server(String),
    /// The limits cannot be kept.
    #[error(transparent)]
    Options(#[from] ClientOptionsError),
}

/// A raw request failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The server refused.
    #[error("the server refused: {} ({} {})", .0.message, .0.code, .0.reason)]
    Api(Box<Status>),
    /// The server is busy, and says when to come back. Nothing took effect.
    #[error("the server is busy: {} (429)", .status.message)]
    TooManyRequests {
        /// How long to wait, where the server says so.
        retry_after: Option<Duration>,
        /// Its words.
        status: Box<Status>,
    },
    /// Nobody listens at the server's address: it is down, or not up yet.
    #[error("connection refused: {0}")]
    ConnectionRefused(String),
    /// The connection failed otherwise.
    #[error("{0}")]
    Transport(String),
    /// No complete answer came in time.
    #[error("no complete answer in time")]
    Deadline,
    /// The watch was silent for longer than the server would have kept it open.
    #[error("the watch fell silent")]
    Silent,
    /// The answer is not what the API's wire format says it should be.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The source does not offer what was asked for, and never will.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
    /// The answer is more than its receiver may hold.
    #[error("{0}")]
    NoRoom(String),
    /// Leadership is not held.
    #[error(transparent)]
    Fenced(FencedError),
    /// The controller has not declared the request.
    #[error(transparent)]
    NotDeclared(NotDeclaredError),
}

impl RequestError {
    /// An API server's refusal, as the error that says most about it.
    ///
    /// `retry_after` is the answer's header; without one, the status may still say how long to wait. No more than 60 s
    /// are believed: a slip of the server's must not blind an informer for a day.
    pub fn from_status(status: Status, retry_after: Option<Duration>) -> Self {
        let status = Box::new(status);
        if status.code == 429 {
            let retry_after = retry_after.or_else(|| advised_by_status(&status));
            let retry_after = retry_after.map(|wait| wait.min(LONGEST_ADVICE));
            RequestError::TooManyRequests { retry_after, status }
        } else {
            RequestError::Api(status)
        }
    }

    /// The server's words, if it answered.
    pub fn status(&self) -> Option<&Status> {
        match self {
            RequestError::Api(status) | RequestError::TooManyRequests { status, .. } => Some(status),
            RequestError::ConnectionRefused(_)
            | RequestError::Transport(_)
            | RequestError::Deadline
            | RequestError::Silent
            | RequestError::Wire(_)
            | RequestError::Unsupported(_)
            | RequestError::NoRoom(_)
            | RequestError::Fenced(_)
            | RequestError::NotDeclared(_) => None,
        }
    }

    /// The version that was asked for is no longer kept: list anew.
    pub fn is_expired(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 410 || ["Expired", "Gone"].contains(&status.reason.as_str()))
    }

    /// The version that was asked for is newer than what the server has seen: come back, or list without one.
    pub fn is_too_large_version(&self) -> bool {
        self.status().is_some_and(|status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            status.reason == "Timeout"
                && causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
                || status.message.contains("Too large resource version")
        })
    }

    /// Nobody listens at the server's address.
    pub fn is_connection_refused(&self) -> bool {
        matches!(self, RequestError::ConnectionRefused(_))
    }

    /// There is no such object, or no such resource.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// The identity may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    /// The server is busy.
    pub fn is_too_many_requests(&self) -> bool {
        matches!(self, RequestError::TooManyRequests { .. })
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return RequestError::from_status(*status, None);
        }
        let cause: &(dyn Error + 'static) = &error;
        if let Some(fenced) = find::<FencedError>(cause) {
            RequestError::Fenced(*fenced)
        } else if let Some(undeclared) = find::<NotDeclaredError>(cause) {
            RequestError::NotDeclared(undeclared.clone())
        } else if find::<DeadlineError>(cause).is_some() {
            RequestError::Deadline
        } else if find::<SilentError>(cause).is_some() {
            RequestError::Silent
        } else if was_refused(cause) {
            RequestError::ConnectionRefused(one_line(&error))
        } else {
            RequestError::Transport(one_line(&error))
        }
    }
}

/// The fence's refusal, if that is what a call of kube's failed with.
pub fn refusal(error: &kube::Error) -> Option<&FencedError> {
    find(error)
}

/// What had not been declared, if that is what a call of kube's failed with.
pub fn undeclared(error: &kube::Error) -> Option<&NotDeclaredError> {
    find(error)
}

/// Whether a call of kube's failed because no complete answer came in time.
pub fn timed_out(error: &kube::Error) -> bool {
    find::<DeadlineError>(error).is_some()
}

/// Whether a call of kube's failed because its environment was killed.
pub fn killed(error: &kube::Error) -> bool {
    find::<KilledError>(error).is_some()
}

/// Whether a call of kube's was not sent because the process shuts down ([`DrainingError`]). It may be made again,
/// by whoever takes over.
pub fn draining(error: &kube::Error) -> bool {
    find::<DrainingError>(error).is_some()
}

/// How long the server asks to wait before the call is made again; at most 60 s.
pub fn retry_after(error: &kube::Error) -> Option<Duration> {
    match error {
        kube::Error::Api(status) => advised_by_status(status),
        _ => None,
    }
}

/// The longest wait a server is believed to mean.
const LONGEST_ADVICE: Duration = Duration::from_secs(60);

/// How much of a refusal is read, in bytes: a status is far shorter, and a proxy's page need not be read out.
pub(crate) const LONGEST_REFUSAL: usize = 1024 * 1024;

/// How long to wait, by the answer's headers. API servers send seconds; dates are for caches.
pub(crate) fn advised_by_headers(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_ADVICE))
}

/// How long to wait, by the answer's body.
pub(crate) fn advised_by_status(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(LONGEST_ADVICE))
}

fn was_refused(error: &(dyn Error + 'static)) -> bool {
    let kinds = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| kind == io::ErrorKind::ConnectionRefused)
}

/// The first error of a type among an error and its causes.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(<dyn Error>::downcast_ref)
}

pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// An error with its causes on one line, none of them said twice.
///
/// Of an API server's refusal its message is told, and not the whole status. Of kube's errors about credentials, which quote secrets, only what a [`CredentialsError`] says is told.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, json: &str) -> RequestError {
        RequestError::from_status(windlass_object::wire::status(code, json.as_bytes()), None)
    }

    #[test]
    fn a_version_too_old_and_one_too_new_are_told_apart() {
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
    fn a_busy_server_says_when_to_come_back() {
        let body = r#"{"status":"Failure","code":429,"message":"busy","details":{"retryAfterSeconds":3}}"#;
        let RequestError::TooManyRequests { retry_after, .. } = status(429, body) else { panic!() };
        assert_eq!(retry_after, Some(Duration::from_secs(3)));
        let from_header = RequestError::from_status(
            windlass_object::wire::status(429, body.as_bytes()),
            Some(Duration::from_secs(7)),
        );
        let RequestError::TooManyRequests { retry_after, .. } = from_header else { panic!() };
        assert_eq!(retry_after, Some(Duration::from_secs(7)), "the header wins");
    }

    #[test]
    fn no_more_than_a_minute_of_a_servers_advice_is_believed() {
        let body = r#"{"status":"Failure","code":429,"details":{"retryAfterSeconds":86400}}"#;
        let parsed = windlass_object::wire::status(429, body.as_bytes());
        assert_eq!(advised_by_status(&parsed), Some(LONGEST_ADVICE));
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, http::HeaderValue::from_static("86400"));
        assert_eq!(advised_by_headers(&headers), Some(LONGEST_ADVICE));
        for advice in [None, Some(Duration::from_secs(86_400))] {
            let error = RequestError::from_status(parsed.clone(), advice);
            let RequestError::TooManyRequests { retry_after, .. } = error else { panic!() };
            assert_eq!(retry_after, Some(LONGEST_ADVICE));
        }
    }

    #[test]
    fn a_refused_connection_is_found_below_any_wrapping() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(kube::Error::ReadEvents(refused)));
        assert!(RequestError::from(error).is_connection_refused());
    }

    #[test]
    fn of_a_refusal_the_message_is_told_and_not_the_whole_status() {
        let refused = Status::failure("pods \"web\" is forbidden", "Forbidden").with_code(403);
        assert_eq!(one_line(&kube::Error::Api(refused.boxed())), "pods \"web\" is forbidden");
        let silent = Status::failure("", "Forbidden").with_code(403);
        assert!(one_line(&kube::Error::Api(silent.boxed())).contains("Forbidden"));
    }

    #[test]
    fn errors_are_told_on_one_line_without_repeating_themselves() {
        let error = kube::Error::Service("a\nb".into());
        assert_eq!(one_line(&error), "ServiceError: a b");
    }
}
