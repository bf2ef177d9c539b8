//! Errors of an election, and the reasons for which a lease is lost.

use std::time::Duration;

use windlass_client::{MissingPermission, missing_permission, one_line};
use windlass_object::Verb;

/// Error for a lease that is no longer held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: {reason}")]
pub struct LeaseLost {
    /// Reason of the loss.
    pub reason: LossReason,
}

/// Reason for which a term ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The Lease names another holder, which might already work.
    #[error("{holder} holds it")]
    OtherHolder {
        /// Identity of the other holder.
        holder: String,
    },
    /// The API server's coordinator prefers another replica, and the work did not stop within one lease duration. The
    /// lease expires.
    #[error("{preferred} is preferred by the API server's coordinator")]
    Preferred {
        /// Identity that the coordinator prefers.
        preferred: String,
    },
    /// The Lease has no holder, although this replica did not release it. A standby can take it at any time.
    #[error("another client released it")]
    HolderCleared,
    /// No renewal succeeded in time.
    #[error("no renewal succeeded within {within:?}, last: {last_error}")]
    Deadline {
        /// Renew deadline.
        within: Duration,
        /// Text of the last failure.
        last_error: String,
    },
    /// The lease was not held.
    #[error("it was not held")]
    NotHeld,
    /// The task that renews the lease has stopped, so the lease is no longer renewed.
    #[error("the election task stopped")]
    ElectorStopped,
}

/// Permanent failure to acquire or release the lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The API server rejects the Lease as invalid, which a retry cannot fix.
    #[error("the API server rejects the lease as invalid: {message}")]
    Rejected {
        /// Message of the server.
        message: String,
    },
    /// The API server has no LeaseCandidate API, so no replica would ever be elected.
    #[error(
        "the API server does not support coordinated leader election ({message}); start kube-apiserver with \
         --feature-gates=CoordinatedLeaderElection=true and --runtime-config=coordination.k8s.io/v1beta1=true, or \
         remove --leader-elect-coordinated and the feature gate CoordinatedLeaderElection from this process"
    )]
    NotCoordinated {
        /// Message of the server.
        message: String,
    },
    /// The Lease could not be released. A standby takes over when it expires.
    #[error("cannot release the lease: {message}; it expires")]
    Release {
        /// Text of the last failure.
        message: String,
    },
    /// The Lease was not released in time. A standby takes over when it expires.
    #[error("cannot release the lease within {within:?}; it expires")]
    ReleaseTimedOut {
        /// Time limit, which is the renew deadline.
        within: Duration,
    },
}

/// Failure of one request for the Lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The Lease, or its namespace, does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// Another client wrote the Lease first.
    #[error("another client wrote the lease first")]
    Conflict,
    /// The server rejects the object as invalid.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The server returned another error or was unreachable. The write might have taken effect.
    #[error("{0}")]
    Request(String),
    /// No response in time. The write might have taken effect.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// The response has the previous version of the Lease, so standbys observed no renewal.
    #[error("the write changed nothing: the lease is still at version {0}")]
    Unchanged(String),
    /// The response arrived after the deadline that the write would have set.
    #[error("the response arrived after its deadline")]
    TooLate,
    /// The Lease names another holder.
    #[error("{0}")]
    Lost(LossReason),
}

impl From<kube::Error> for LeaseError {
    fn from(error: kube::Error) -> Self {
        let denial = missing_permission(&error).map(for_election);
        let kube::Error::Api(status) = error else { return Self::Request(one_line(&error)) };
        // Checks the code instead of the reason, because some proxies return no reason.
        match status.code {
            404 => Self::NotFound(status.message),
            409 => Self::Conflict,
            422 => Self::Invalid(status.message),
            code => {
                let message = denial.map_or(status.message, |denial| denial.to_string());
                Self::Request(format!("{code} {}: {message}", status.reason))
            }
        }
    }
}

/// Verbs on Leases that an election by one Lease requires.
pub const LEASE_VERBS: [Verb; 4] = [Verb::Create, Verb::Get, Verb::Update, Verb::Watch];

/// Verbs on LeaseCandidates that a coordinated election also requires.
pub const CANDIDATE_VERBS: [Verb; 3] = [Verb::Create, Verb::Get, Verb::Update];

/// Adds all verbs that an election requires on the denied resource.
fn for_election(missing: MissingPermission) -> MissingPermission {
    match &*missing.rule.resource {
        "leasecandidates" => missing.with_verbs(CANDIDATE_VERBS),
        _ => missing.with_verbs(LEASE_VERBS),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn connection_error_contains_its_cause() {
        let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "10.0.0.1:6443: connection refused");
        let outer = io::Error::other(ConnectFailure(cause));
        let text = LeaseError::from(kube::Error::Service(Box::new(outer))).to_string();
        assert!(text.contains("client error (Connect)") && text.contains("10.0.0.1:6443"), "{text}");
    }

    #[test]
    fn denied_request_contains_the_whole_rule_of_the_election() {
        for (resource, verbs) in
            [("leases", "get, watch, create, update"), ("leasecandidates", "get, create, update")]
        {
            let message = format!(
                r#"{resource}.coordination.k8s.io "w" is forbidden: User "me" cannot update resource "{resource}" in API group "coordination.k8s.io" in the namespace "ops""#
            );
            let mut status = kube::core::Status::failure(&message, "Forbidden");
            status.code = 403;
            let text = LeaseError::from(kube::Error::Api(Box::new(status))).to_string();
            let start = format!(
                "403 Forbidden: me cannot update {resource}.coordination.k8s.io in namespace ops; add to a Role in ops"
            );
            let rule = format!(
                r#"- {{ apiGroups: ["coordination.k8s.io"], resources: ["{resource}"], verbs: [{verbs}] }}"#
            );
            assert!(text.starts_with(&start) && text.ends_with(&rule), "{text}");
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct ConnectFailure(#[source] io::Error);
}
