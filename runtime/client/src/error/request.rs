//! Errors of raw requests.

use std::{error::Error, io, time::Duration};

use windlass_object::{Status, WireError};

use super::{
    advice::{MAX_RETRY_AFTER, advised_by_status},
    chain::{causes, find},
    ended::{DeadlineError, FencedError, NotDeclaredError, WatchIdleError},
    text::one_line,
};

/// Error of a raw request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The server rejected the request.
    #[error("the server rejected the request: {} ({} {})", .0.message, .0.code, .0.reason)]
    Api(Box<Status>),
    /// The server is busy and requests a retry later. The request had no effect.
    #[error("the server is busy: {} (429)", .status.message)]
    TooManyRequests {
        /// The delay that the server requests, if any.
        retry_after: Option<Duration>,
        /// The response.
        status: Box<Status>,
    },
    /// No process listens at the server's address: the server is down or is starting.
    #[error("connection refused: {0}")]
    ConnectionRefused(String),
    /// The connection failed for another reason.
    #[error("{0}")]
    Transport(String),
    /// No complete response arrived in time.
    #[error("no complete response in time")]
    Deadline,
    /// The watch received no data for longer than the server keeps it open.
    #[error("the watch received no data within its timeout")]
    WatchIdle,
    /// The response does not have the API's wire format.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The source does not support the request.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
    /// The response exceeds the budget of its receiver.
    #[error("{0}")]
    BudgetExceeded(String),
    /// The replica is not the leader.
    #[error(transparent)]
    Fenced(FencedError),
    /// The controller did not declare the request.
    #[error(transparent)]
    NotDeclared(NotDeclaredError),
}

impl RequestError {
    /// Converts the status of an error response into the most specific error.
    ///
    /// `retry_after` is the response header. If it is missing, the status can contain the delay. The delay is limited
    /// to 60 s, so that a wrong value does not stop an informer for a day.
    pub fn from_status(status: Status, retry_after: Option<Duration>) -> Self {
        let status = Box::new(status);
        if status.code == 429 {
            let retry_after = retry_after.or_else(|| advised_by_status(&status));
            let retry_after = retry_after.map(|wait| wait.min(MAX_RETRY_AFTER));
            RequestError::TooManyRequests { retry_after, status }
        } else {
            RequestError::Api(status)
        }
    }

    /// Returns the status of the server; `None` if it did not respond.
    pub fn status(&self) -> Option<&Status> {
        match self {
            RequestError::Api(status) | RequestError::TooManyRequests { status, .. } => Some(status),
            RequestError::ConnectionRefused(_)
            | RequestError::Transport(_)
            | RequestError::Deadline
            | RequestError::WatchIdle
            | RequestError::Wire(_)
            | RequestError::Unsupported(_)
            | RequestError::BudgetExceeded(_)
            | RequestError::Fenced(_)
            | RequestError::NotDeclared(_) => None,
        }
    }

    /// Returns whether no complete response arrived: the server is unreachable, too slow, or the connection was lost.
    pub fn is_unanswered(&self) -> bool {
        match self {
            RequestError::ConnectionRefused(_)
            | RequestError::Transport(_)
            | RequestError::Deadline
            | RequestError::WatchIdle
            | RequestError::Wire(WireError::Truncated { .. }) => true,
            RequestError::Api(_)
            | RequestError::TooManyRequests { .. }
            | RequestError::Wire(_)
            | RequestError::Unsupported(_)
            | RequestError::BudgetExceeded(_)
            | RequestError::Fenced(_)
            | RequestError::NotDeclared(_) => false,
        }
    }

    /// Returns whether the requested version has expired, so that the caller must relist.
    pub fn is_expired(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 410 || ["Expired", "Gone"].contains(&status.reason.as_str()))
    }

    /// Returns whether the requested version is newer than the server's cache. Retry later, or list without a version.
    pub fn is_too_large_version(&self) -> bool {
        self.status().is_some_and(|status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            status.reason == "Timeout"
                && causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
                || status.message.contains("Too large resource version")
        })
    }

    /// Returns whether the object or the resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Returns whether the identity is not allowed to send this request.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    /// Returns whether the server is busy.
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
            RequestError::WatchIdle
        } else if is_connection_refused(cause) {
            RequestError::ConnectionRefused(one_line(&error))
        } else {
            RequestError::Transport(one_line(&error))
        }
    }
}

fn is_connection_refused(error: &(dyn Error + 'static)) -> bool {
    let kinds = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| kind == io::ErrorKind::ConnectionRefused)
}
