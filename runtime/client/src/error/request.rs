//! Why a raw request failed.

use std::{error::Error, io, time::Duration};

use windlass_object::{Status, WireError};

use super::{
    advice::{MAX_ADVICE, advised_by_status},
    chain::{causes, find},
    ended::{DeadlineError, FencedError, NotDeclaredError, WatchIdleError},
    text::one_line,
};

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
            let retry_after = retry_after.map(|wait| wait.min(MAX_ADVICE));
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

    /// The version that was asked for is no longer kept: list again.
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
        } else if find::<WatchIdleError>(cause).is_some() {
            RequestError::Silent
        } else if was_refused(cause) {
            RequestError::ConnectionRefused(one_line(&error))
        } else {
            RequestError::Transport(one_line(&error))
        }
    }
}

fn was_refused(error: &(dyn Error + 'static)) -> bool {
    let kinds = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| kind == io::ErrorKind::ConnectionRefused)
}
