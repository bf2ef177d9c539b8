//! How an election can fail, and how a lease is lost.

use std::time::Duration;

use windlass_client::one_line;

/// Why the lease is no longer held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: {reason}")]
pub struct LeaseLost {
    /// What happened.
    pub reason: LossReason,
}

/// What ended a term.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The Lease names somebody else. Work may already continue there.
    #[error("{holder} holds it")]
    Taken {
        /// Who.
        holder: String,
    },
    /// The API server's coordinator wants another replica to hold it, and the work did not end within the lease duration
    /// that it was given. Its time runs out by itself.
    #[error("{preferred} is preferred by the API server's coordinator")]
    Preferred {
        /// Whom it prefers.
        preferred: String,
    },
    /// The Lease names nobody, though this replica did not release it; the next standby takes it any moment.
    #[error("somebody else released it")]
    Blanked,
    /// No renewal succeeded in time.
    #[error("no renewal succeeded within {within:?}, last: {last_error}")]
    Deadline {
        /// The renew deadline.
        within: Duration,
        /// The last failure, in words.
        last_error: String,
    },
    /// It was not held in the first place.
    #[error("it was not held")]
    NotHeld,
}

/// What ends an attempt to acquire or to release for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The API server calls the Lease invalid; the same Lease will be invalid the next time too.
    #[error("the API server refuses the lease as invalid: {message}")]
    Refused {
        /// The server's words.
        message: String,
    },
    /// The API server knows no candidates, so nobody would ever be elected.
    #[error(
        "the API server does not take part in coordinated leader election ({message}): turn on its feature gate \
         CoordinatedLeaderElection and --runtime-config=coordination.k8s.io/v1beta1=true, or elect without it"
    )]
    NotCoordinated {
        /// The server's words.
        message: String,
    },
    /// The lease could not be given back. A standby takes over when it expires.
    #[error("the lease could not be released: {message}")]
    Release {
        /// What went wrong last.
        message: String,
    },
    /// The lease was not given back in time. A standby takes over when it expires.
    #[error("the lease could not be released within {within:?}")]
    ReleaseTimedOut {
        /// The bound, which is the renew deadline.
        within: Duration,
    },
}

/// Why one request about the Lease failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The Lease, or its namespace, does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// Somebody else wrote first.
    #[error("somebody else wrote the lease first")]
    Conflict,
    /// The server calls the object invalid.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The server refused for another reason, or could not be reached. The write may have taken effect.
    #[error("{0}")]
    Request(String),
    /// No answer in time. The write may have taken effect.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer carries the version the Lease had before, so others saw no renewal.
    #[error("the write changed nothing: the lease is still at version {0}")]
    Unchanged(String),
    /// The answer came when the time it could have granted was over.
    #[error("the answer came too late to count")]
    TooLate,
    /// Another holder was seen.
    #[error("{0}")]
    Lost(LossReason),
}

impl From<kube::Error> for LeaseError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else { return Self::Request(one_line(&error)) };
        // The code is asked where kube would ask the reason alone: not everything between here and the server gives one.
        match status.code {
            404 => Self::NotFound(status.message),
            409 => Self::Conflict,
            422 => Self::Invalid(status.message),
            code => Self::Request(format!("{code} {}: {}", status.reason, status.message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn failure_to_connect_is_told_with_its_cause() {
        let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "10.0.0.1:6443: connection refused");
        let outer = io::Error::other(ConnectFailure(cause));
        let told = LeaseError::from(kube::Error::Service(Box::new(outer))).to_string();
        assert!(told.contains("client error (Connect)") && told.contains("10.0.0.1:6443"), "{told}");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct ConnectFailure(#[source] io::Error);
}
