//! Whose credentials the requests of controllers carry: those of the process, or each controller its own.
//!
//! With [`Identities::ServiceAccounts`] each controller acts as the ServiceAccount of its name, so that its role says
//! what it may do and the server's audit log what it did. The account is made if it is not there, and a token for it is
//! asked for with the first request that needs one. What it guarantees:
//! - Nothing else of who the process is goes with such a request: no client certificate, and so connections of their
//!   own; no token, password or plugin; no impersonation, and no other header that the configuration names. Server,
//!   its authorities, proxy and server name stay.
//! - A token is renewed well before it expires, by one request at a time, and at a moment that chance spreads. While a
//!   renewal fails the old token is used for as long as it is good.
//! - A token that the server no longer takes (401) is thrown away, and the request sent once more with a new one. An
//!   account that was deleted is made again.
//! - Lifetimes are counted from when a token was asked for, by the process's own clock. Nobody's wall clock matters.
//! - Whoever has no token sends nothing: an account without a name, and an answer without a token, are errors.
//! - A token is part of no error, log or `Debug` output.
//!
//! Accounts and tokens are asked for as the process itself, behind neither limiter nor fence, and before the request
//! meets the fence. Informers, election and health keep the credentials of the process.
//!
//! It refuses to make namespaces: one that is missing is misspelled more often than not.

pub(crate) mod account;
pub(crate) mod anonymous;
pub(crate) mod bearer;
mod plugin;
pub(crate) mod process;
pub(crate) mod tokens;

use std::error::Error;

use crate::{denial::Denial, error::find};

/// Whose credentials the clients of controllers carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identities {
    /// Those of the process, all of them. The default, as kube-controller-manager's.
    #[default]
    Shared,
    /// Each controller its own: the ServiceAccount of its client name.
    ServiceAccounts {
        /// Where the accounts are. Whoever may make tokens there may do what any controller may; upstream's are in
        /// `kube-system`.
        namespace: String,
    },
}

impl Identities {
    /// Accounts in `kube-system`, where the roles that every API server makes at its start look for them.
    pub fn service_accounts() -> Self {
        Self::ServiceAccounts { namespace: "kube-system".into() }
    }
}

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
    pub fn denial(&self) -> Option<&Denial> {
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
pub enum IdentityCause {
    /// The namespace of the accounts is not there.
    #[error("there is no namespace {0:?}: create it, or keep the service accounts in another")]
    NoNamespace(String),
    /// The process itself may not make accounts, or tokens for them.
    #[error(transparent)]
    Denied(Denial),
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
