//! Why a request did not carry the credentials of its controller.

use std::error::Error;

use super::{chain::find, missing_permission::MissingPermission};

/// A controller's own credentials could not be had. The request that needed them was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: cannot act as {user}: {cause}")]
pub struct IdentityError {
    /// As whom: `system:serviceaccount:kube-system:replicaset-controller`.
    pub user: String,
    /// Why not.
    pub cause: IdentityCause,
}

impl IdentityError {
    /// The first of these among an error and its causes.
    pub fn among<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        find(error)
    }

    /// What the process itself may not do, if that is why.
    pub fn denial(&self) -> Option<&MissingPermission> {
        match &self.cause {
            IdentityCause::Denied(denial) => Some(denial),
            IdentityCause::NoNamespace(_)
            | IdentityCause::Refused { .. }
            | IdentityCause::NoToken
            | IdentityCause::Unreachable { .. } => None,
        }
    }
}

/// Why an account or its token could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityCause {
    /// The namespace of the accounts is not there.
    #[error("there is no namespace {0:?}: create it, or keep the service accounts in another")]
    NoNamespace(String),
    /// The process itself may not make accounts, or tokens for them.
    #[error(transparent)]
    Denied(MissingPermission),
    /// The server refused otherwise.
    #[error("the server refused to make {what}: {message} ({code})")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// The server's words.
        message: String,
        /// The HTTP status.
        code: u16,
    },
    /// The server's answer is no token, an empty one, one that no header can hold, or one without a lifetime.
    #[error("the server's answer holds no usable token")]
    NoToken,
    /// No answer came.
    #[error("cannot ask for {what}: {reason}")]
    Unreachable {
        /// What was asked for.
        what: &'static str,
        /// What went wrong on the way.
        reason: String,
    },
}
