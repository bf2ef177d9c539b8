//! Errors while obtaining the credentials of a controller.

use std::error::Error;

use super::{chain::find, missing_permission::MissingPermission};

/// The credentials of a controller's ServiceAccount are not available. The request that needed them was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: cannot act as {user}: {cause}")]
pub struct IdentityError {
    /// The user: `system:serviceaccount:kube-system:replicaset-controller`.
    pub user: String,
    /// The cause.
    pub cause: IdentityCause,
}

impl IdentityError {
    /// Returns the first error of this type among an error and its causes.
    pub fn among<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        find(error)
    }

    /// Returns the permission that the process is missing, if that is the cause.
    pub fn denial(&self) -> Option<&MissingPermission> {
        match &self.cause {
            IdentityCause::Denied(denial) => Some(denial),
            IdentityCause::NoNamespace(_)
            | IdentityCause::Rejected { .. }
            | IdentityCause::NoToken
            | IdentityCause::Unreachable { .. } => None,
        }
    }
}

/// The reason why a ServiceAccount or its token is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityCause {
    /// The namespace of the ServiceAccounts does not exist.
    #[error(
        "namespace {0:?} does not exist; create it, or set `Identities::ServiceAccounts` to an existing namespace"
    )]
    NoNamespace(String),
    /// The process is not allowed to create ServiceAccounts, or tokens for them.
    #[error(transparent)]
    Denied(MissingPermission),
    /// The server rejected the request for another reason.
    #[error("the server did not create {what}: {message} ({code})")]
    Rejected {
        /// The requested item.
        what: &'static str,
        /// The error message of the server.
        message: String,
        /// The HTTP status.
        code: u16,
    },
    /// The response contains no valid token, or no lifetime.
    #[error("the response contains no valid token")]
    NoToken,
    /// The server did not respond.
    #[error("cannot request {what}: {reason}")]
    Unreachable {
        /// The requested item.
        what: &'static str,
        /// The reason for the failure.
        reason: String,
    },
}
